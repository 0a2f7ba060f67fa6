"""`WorkflowEnv`: a workflow as an environment, which forks by being run again."""

from __future__ import annotations

import json
import random
import threading
import weakref
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from pettingllms.arguments import check_choice
from pettingllms.ends import End, end_of_game
from pettingllms.env import TextEnv
from pettingllms.errors import InvalidArgument
from pettingllms.loops import DaemonThreads
from pettingllms.prompts import PromptTemplate, as_observation
from pettingllms.seeding import SPLITS
from pettingllms.types import UNBOUND, Action, Constraints, Observation, Transition, role_of
from pettingllms.workflows.definition import Workflow, WorkflowFailure, load_workflow
from pettingllms.workflows.isolation import in_forked
from pettingllms.workflows.program import load_program
from pettingllms.workflows.running import Reached, RecordedCall, WorkflowRun
from pettingllms.workflows.wire import ChatRequest

_SEEDS = 2**53
_NUM_TRIES = 3
"""How often a workflow is run again whose clients left: on a busy machine they may once more."""


@dataclass(frozen=True)
class WorkflowState:
    """All that decides what follows: the task, the chance, and every request with its answer."""

    task: str
    """The task as a JSON text."""
    seed: int
    """See `Client.seed`."""
    calls: tuple[RecordedCall, ...]
    """Requests in the order in which they were decided, with their answers."""
    request: ChatRequest | None
    """What is asked now; None after the end."""
    parse_error: str | None = None
    """Why the latest answer could not be read, as the workflow reported it."""


class WorkflowEnv(TextEnv[WorkflowState]):
    """A workflow of anybody as an environment: every request is the turn of an agent.

    The state is what was asked and answered. One run of the workflow waits at the latest request;
    a fork continues it, and every further fork of the same state runs the workflow again with the
    recorded answers. The recorded requests must come again, or the branch fails with
    `WorkflowDiverged`; whatever the workflow raises fails its branch with `WorkflowFailure`.

    An answer that lacks the form that its request wants ends the episode: no server that promises
    the form would have given it, so the workflow never sees it.

    An answer earns what the workflow reports for it by `Client.reward`; the last one also earns the
    team the reward of the outcome.

    Args:
        workflow: A `Workflow`, or ``package.module:name`` or ``file.py:name`` of one, or of a
            function that returns one.
        split: Which tasks: ``"train"``, ``"validation"`` or ``"test"``.
        max_turns: Turns until truncation; None: `max_turns` of the workflow.
        alpha: Weight of the team reward.
        reward: ``"shaped"``, or ``"outcome"``: 1 for the team when the task is solved, else 0.
        arguments: Arguments of the function that returns the workflow.
        program: What makes a workflow of a function that is none; see `load_program`.
        render_mode: ``"ansi"``, ``"human"`` or None.

    Raises:
        InvalidArgument: An argument is out of its range, or the split has no tasks.
        EnvironmentNotLoadable: The workflow cannot be imported.
    """

    metadata: dict[str, Any] = {"name": "workflow", "render_modes": ["ansi", "human"]}  # noqa: RUF012
    prompt_fields: ClassVar[Mapping[str, str]] = {"chat": "the messages of the request"}

    def __init__(
        self,
        workflow: Workflow | str,
        *,
        split: str = "train",
        max_turns: int | None = None,
        alpha: float = 1.0,
        reward: str = "shaped",
        arguments: Mapping[str, Any] | None = None,
        program: Mapping[str, Any] | None = None,
        render_mode: str | None = None,
    ) -> None:
        check_choice("split", split, SPLITS)
        if isinstance(workflow, str) and program is None:
            workflow = load_workflow(workflow, **(arguments or {}))
        elif isinstance(workflow, str) and program is not None and not arguments:
            workflow = load_program(workflow, program)
        elif arguments or program:
            given = {"arguments": arguments, "program": program}
            raise InvalidArgument("arguments", given, "none: the workflow is made already")
        assert isinstance(workflow, Workflow), "all others were loaded"
        workflow.check_split(split)
        self.workflow = workflow
        """What is run."""
        self.split = split
        prompts = dict.fromkeys(map(role_of, workflow.agents), PromptTemplate("", "{chat}"))
        # Of the instance: they are the workflow's, and all workflows share this class.
        vars(self).update(scripted_policies=tuple(workflow.demonstrators), default_prompts=prompts)
        super().__init__(
            stages=tuple((agent,) for agent in workflow.agents),
            max_turns=workflow.max_turns if max_turns is None else max_turns,
            alpha=alpha,
            reward=reward,
            render_mode=render_mode,
        )

    @property
    def has_step_rewards(self) -> bool:
        """Whether answers before the last one can earn something."""
        return self.workflow.step_rewards and self.reward == "shaped"

    def expect(self, texts: Sequence[str]) -> None:
        """Begin what forks of this state will do with texts, so that their runs overlap."""
        for action in map(_action, texts):
            # A misfit ends the episode without its run.
            if _misfit(self._state, action) is None:
                _RUNS.put(self.workflow, self._state, action, self._new_run(self._state, action))

    def step(self, action: str | None) -> None:
        """See `TextEnv.step`.

        Raises:
            WorkflowFailure: The workflow failed on this answer.
        """
        agent = self.agent_selection
        super().step(action)
        if action is not None:
            self.infos[agent]["parse_error"] = reason = self._state.parse_error
            if self.end is not None and self.end is not End.TURNS:
                self.end = end_of_game(_action(action).finish_reason, reason)

    def close(self) -> None:
        """End what waits in this state; who steps on all the same has it run again."""
        _RUNS.forget(id(getattr(self, "_state", None)))

    def messages(self, agent: str) -> list[dict[str, str]]:
        """The messages of the request, for the agent that is asked; else an empty one."""
        self._require_reset("messages")
        request = self._state.request
        is_asked = request is not None and request.agent == agent
        return request.chat() if is_asked and request else [{"role": "user", "content": ""}]

    def constraints(self, agent: str) -> Constraints:
        """What the request binds its answer to."""
        self._require_reset("constraints")
        request = self._state.request
        return request.bounds() if request and request.agent == agent else UNBOUND

    def observe(self, agent: str) -> Observation:
        """The messages as one text."""
        return Observation(as_observation(self.messages(agent)))

    # Hooks of TextEnv ---------------------------------------------------------------------------

    def _generate(self, rng: random.Random, options: Mapping[str, Any]) -> WorkflowState:
        task, seed = self.workflow.draw(rng, self.split), rng.randrange(_SEEDS)
        run = WorkflowRun(self.workflow, task, seed, ())
        reached = run.reached()
        # Nobody would act: an environment without a turn cannot be played, or learnt from.
        if reached.request is None:
            raise WorkflowFailure("the workflow ended without a request, so there is no agent")
        state = WorkflowState(task, seed, (), reached.request)
        _RUNS.put(self.workflow, state, None, run)
        return state

    def _fields(self, state: WorkflowState, agent: str, turn: int) -> Mapping[str, object]:
        return {"chat": "" if state.request is None else as_observation(state.request.chat())}

    def _parse(self, state: WorkflowState, agent: str, text: str) -> Action:
        return _action(text)

    def _act(self, state: WorkflowState, agent: str, action: Action) -> Transition:
        assert state.request is not None
        calls = (*state.calls, RecordedCall(state.request, action))
        if reason := _misfit(state, action):
            after = WorkflowState(state.task, state.seed, calls, None, reason)
            return Transition(after, self.workflow.misfit_reward, terminated=True)
        run = _RUNS.take(self.workflow, state, action) or self._new_run(state, action)
        run, reached = self._reached(run, state, calls)
        after = WorkflowState(state.task, state.seed, calls, reached.request, reached.parse_error)
        if reached.request is not None:
            _RUNS.put(self.workflow, after, None, run)
        if reached.score is None:
            return Transition(after, reached.team, reached.local)
        team = reached.team + reached.score.reward
        return Transition(after, team, reached.local, True, reached.score.success)

    def _reached(
        self, run: WorkflowRun, state: WorkflowState, calls: Sequence[RecordedCall]
    ) -> tuple[WorkflowRun, Reached]:
        """Where the workflow is after some calls, and a run of it that waits there."""
        for _ in range(_NUM_TRIES):
            try:
                return run, run.reached()
            except WorkflowFailure:
                if not run.has_missed:
                    raise
                # It did not wait for an answer. How long a policy takes is not part of an episode,
                # or equal seeds would give others: in another run all answers are there at once.
                run = WorkflowRun(self.workflow, state.task, state.seed, calls)
        return run, run.reached()

    def _next_agent(self, state: WorkflowState) -> str:
        request = state.request or state.calls[-1].request
        return request.agent

    def _ansi(self, state: WorkflowState) -> str:
        lines = [f"{call.request.agent}: {call.text}" for call in state.calls]
        now = "ended" if state.request is None else f"{state.request.agent} is asked"
        return "\n".join([f"task: {state.task}", *lines, now])

    def _level_json(self, state: WorkflowState) -> Any:
        return state.task

    def _scripted(self, state: WorkflowState, agent: str, policy: str, rng: random.Random) -> str:
        request = state.request
        chat = [] if request is None else request.chat()
        return self.workflow.demonstrators[policy](json.loads(state.task), agent, chat, rng)

    def _new_run(self, state: WorkflowState, text: Action) -> WorkflowRun:
        """A run that has been given an answer to the request of a state."""
        assert state.request is not None
        call, run = RecordedCall(state.request, text), _RUNS.take(self.workflow, state, None)
        if run is None:
            return WorkflowRun(self.workflow, state.task, state.seed, (*state.calls, call))
        run.answer(call)
        return run


def _misfit(state: WorkflowState, action: Action) -> str | None:
    """Why an answer lacks the form that the request wants; None when it has it."""
    request = state.request
    return None if request is None else request.form.misfit(request.text_of(action), request.tools)


def _action(text: str) -> Action:
    return text if isinstance(text, Action) else Action(text)


class _Runs:
    """Runs that wait at a state, or have been given an answer to its request.

    They are kept beside the states, not in them: what a state is does not depend on whether a run
    waits there, and a state that is copied or sent elsewhere is run again. When a state is
    forgotten a thread closes its runs.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: dict[int, dict[Any, list[WorkflowRun]]] = {}
        self._ends = DaemonThreads(1)

    def put(
        self, workflow: Workflow, state: WorkflowState, text: Action | None, run: WorkflowRun
    ) -> None:
        """Keep a run that waits at a state, or that has been given a text there."""
        with self._lock:
            if id(state) not in self._kept:
                self._ends.submit(int)  # so that its thread runs: to start one takes a lock
                self._kept[id(state)] = defaultdict(list)
                # At the end of the process it would be too late: the endpoint ends all runs before.
                weakref.finalize(state, self.forget, id(state)).atexit = False
            self._kept[id(state)][_key(workflow, text)].append(run)

    def take(
        self, workflow: Workflow, state: WorkflowState, text: Action | None
    ) -> WorkflowRun | None:
        """Such a run, which nobody else will get; None when there is none."""
        with self._lock:
            runs = self._kept.get(id(state), {}).get(_key(workflow, text))
            return runs.pop(0) if runs else None

    def forget(self, key: int) -> None:
        """Have the runs of a state closed, of which `key` is the id.

        Takes no lock and waits for nothing: a garbage collection may call it, in a thread that
        holds any lock.
        """
        for runs in self._kept.pop(key, {}).values():
            for run in runs:
                self._ends.submit(run.close)


_RUNS = _Runs()
# Their threads are those of the process that they began in.
in_forked(_RUNS.__init__)


def _key(workflow: Workflow, text: Action | None) -> Any:
    """What tells runs apart: equal texts may have been written differently."""
    written = None if text is None else (str(text), text.finish_reason, text.tokens)
    return id(workflow), written
