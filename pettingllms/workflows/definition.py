"""What a workflow is (code, team, tasks, reward), what it is given, and how it can fail.

Each failure is that of one branch; its siblings are not affected.
"""

from __future__ import annotations

import atexit
import functools
import inspect
import json
import random
import shlex
import ssl
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, NamedTuple, cast

from pettingllms.arguments import (
    check_flag,
    check_kind,
    check_number,
    check_reward,
    check_texts,
    check_whole,
    plain,
)
from pettingllms.ends import End
from pettingllms.errors import (
    EnvironmentNotLoadable,
    InvalidArgument,
    MissingDependency,
    PettingLLMsError,
    stated,
)
from pettingllms.seeding import SPLITS
from pettingllms.sources import load_source
from pettingllms.types import is_agent, order_of, role_of
from pettingllms.workflows.isolation import in_forked
from pettingllms.workflows.wire import RequestError, Sender, unknown_model


class WorkflowFailure(PettingLLMsError, RuntimeError):
    """A workflow raised, made no request, or returned what its reward function cannot score.

    What the workflow raised is its ``__cause__``.
    """


class WorkflowDiverged(WorkflowFailure):
    """A workflow that was run again did not ask what it had asked before.

    Its requests must depend on the task, on ``client.seed`` and on the answers only.
    """

    end = End.ENVIRONMENT


class WorkflowTimeout(WorkflowFailure):
    """A workflow neither asked nor ended within its time limit."""

    end = End.TIME


@dataclass(frozen=True, kw_only=True)
class Client:
    """The way of one run of a workflow to its policies, and back to the trainer.

    Any OpenAI client works with `base_url` and `api_key`, in this process or another one on this
    machine. Both are of this run alone.
    """

    base_url: str
    """Address of the endpoint, on the loopback interface, up to and including ``/v1``."""
    api_key: str
    """Key of the endpoint, drawn at random when it is started."""
    seed: int
    """Decides what the workflow draws, 0 to 2**53 - 1. Runs of one episode get the same one: what
    is drawn otherwise would make a repeated run ask something else."""
    roles: tuple[str, ...]
    """Names of models that may be asked."""
    _report: Callable[[float, float, str | None], None] = field(repr=False)

    def openai(self) -> Any:
        """An `openai.OpenAI` that asks this endpoint; it never repeats a request.

        Raises:
            MissingDependency: The package openai is not installed.
        """
        return _shared().with_options(base_url=self.base_url, api_key=self.api_key)

    def async_openai(self) -> Any:
        """An `openai.AsyncOpenAI` that asks this endpoint; it never repeats a request.

        The workflow closes it: ``async with client.async_openai() as opened: ...``.

        Raises:
            MissingDependency: The package openai is not installed.
        """
        # Not shared: its connections belong to the event loop that opened them.
        return _opened("Async", self.base_url, self.api_key)

    def reward(
        self, local: float = 0.0, *, team: float = 0.0, parse_error: str | None = None
    ) -> None:
        """Report what the latest answer earned, before the next one is asked for.

        Several reports for one answer add up. The reward for the outcome comes on top.

        Args:
            local: Earned by the agent that answered.
            team: Earned by the team.
            parse_error: Why the answer could not be read; None when it could.

        Raises:
            WorkflowFailure: The workflow does not declare `step_rewards`, or nothing was answered.
            InvalidArgument: An amount is not a number from -1e18 to 1e18.
        """
        self._report(check_reward("local", local), check_reward("team", team), parse_error)


@functools.cache
def _shared() -> Any:
    # Kept, so that its connections serve all runs.
    client = _opened("", "http://127.0.0.1/v1", "none")
    atexit.register(client.close)
    return client


in_forked(_shared.cache_clear)


def _opened(kind: str, base_url: str, api_key: str) -> Any:
    """A client of the package openai; its kind is ``""`` or ``"Async"``."""
    try:
        import openai
    except ImportError as error:
        raise MissingDependency("the client of a workflow", "openai", "cli") from error
    # The endpoint speaks plain HTTP on this machine: proxies of the environment are not for it, and
    # reading certificates would take tens of milliseconds for every client.
    transport = getattr(openai, f"Default{kind}HttpxClient")(
        trust_env=False, verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    )
    client = getattr(openai, f"{kind}OpenAI")
    return client(base_url=base_url, api_key=api_key, max_retries=0, http_client=transport)


Demonstrator = Callable[[Any, str, Sequence[Mapping[str, str]], random.Random], str]
"""``(task, agent, messages, rng) -> text``: what a scripted policy answers."""


class Score(NamedTuple):
    """What an outcome is worth."""

    reward: float
    """Reward of the team; finite."""
    success: bool
    """Whether the task is solved."""


@dataclass(frozen=True, kw_only=True)
class Workflow:
    """A team that exists as code, and all that training it needs.

    Raises:
        InvalidArgument: A field is ill-formed.
    """

    run: Callable[[Any, Client], Any]
    """``run(task, client) -> outcome``, a function or a coroutine function. It is called in a
    thread of its own, many times for one episode, and must depend on the task, ``client.seed`` and
    the answers only."""
    reward: Callable[[Any, Any], float | bool | Score]
    """``reward(task, outcome)``: a number for the team, of which 1 or more is success; a truth
    value; or a `Score`."""
    roles: Sequence[str] | Mapping[str, Mapping[str, Any]]
    """The team: roles such as ``planner`` or ``code_writer``, or agents such as ``reasoner_0``,
    ``reasoner_1`` where a role has several: what ends in ``_`` and a number is an agent. These are
    the names of the models that may be asked; the name of a role asks its first agent. For code
    whose models have other names a table says who asks: ``{"triage": {"system": "You route"}}``.
    A request is of the first role of which all fits: ``system``, a part of its system prompt;
    ``agent``, the name of the agent; ``model``; ``order``, 1 for the first agent that asks."""
    tasks: Mapping[str, Sequence[Any]] | Callable[[random.Random, str], Any]
    """``{"train": [...], "test": [...]}``, or a function ``(rng, split) -> task`` that draws one.
    Tasks are JSON data; every call of `run` and `reward` gets a copy of its own."""
    step_rewards: bool = False
    """Whether `run` reports what single answers earn, by `Client.reward`."""
    misfit_reward: float = 0.0
    """What the team earns when an answer does not have the form that the request wants: JSON of a
    schema, or a call. The episode ends there, without success; finite."""
    misfit_errors: tuple[type[Exception], ...] = ()
    """What `run` raises when an answer is of no use to its framework, such as
    ``agents.exceptions.ModelBehaviorError``. It then ends the episode like an answer without form;
    all else that `run` raises is a failure."""
    max_turns: int = 16
    """Turns after which an episode is truncated, 1 or more; a turn is as many requests as there
    are agents. A truncated episode has no outcome, and no reward for it."""
    timeout_s: float = 120.0
    """Longest time without a request, in seconds: between an answer and what follows it."""
    clock: str = "2026-01-01T12:00:00+00:00"
    """What clocks show in a run, in ISO 8601: a run that is repeated must see the same."""
    environ: Mapping[str, str] = field(default_factory=dict[str, str])
    """Variables of the environment in a run, besides those that name the endpoint."""
    addresses: Sequence[str] = ()
    """Addresses in the code, such as ``http://localhost:11434/v1``, that stand for the team."""
    demonstrators: Mapping[str, Demonstrator] = field(default_factory=dict[str, Demonstrator])
    """Scripted policies by name, the best one first, for a warm start and for comparison."""

    def __post_init__(self) -> None:
        for name in ("run", "reward"):
            if not callable(getattr(self, name)):
                raise InvalidArgument(f"{name} of the workflow", getattr(self, name), "a function")
        allowed = "names of roles, such as planner, or of agents, such as planner_0"
        names = [*self.roles] if isinstance(self.roles, Mapping) else self.roles
        check_texts("roles of the workflow", names, allowed)
        order_of([[agent] for agent in self.agents])
        check_flag("step_rewards of the workflow", self.step_rewards)
        check_reward("misfit_reward of the workflow", self.misfit_reward)
        _check_errors(self.misfit_errors)
        check_whole("max_turns of the workflow", self.max_turns, 1)
        check_number("timeout_s of the workflow", self.timeout_s, 0.001)
        check_kind("demonstrators of the workflow", self.demonstrators, Mapping, "name -> function")
        if isinstance(self.roles, Mapping):
            _check_table(self.roles)
        self.clock_s  # noqa: B018  checked
        check_kind("environ of the workflow", self.environ, Mapping, "a table of texts")
        if self.addresses:
            check_texts("addresses of the workflow", self.addresses, "addresses of servers")
        if not callable(self.tasks):
            _check_tasks(self.tasks)

    @property
    def clock_s(self) -> float:
        """What clocks show, in seconds since 1970."""
        try:
            return datetime.fromisoformat(self.clock).timestamp()
        except (TypeError, ValueError) as error:
            allowed = "a time, such as 2026-01-01T12:00:00+00:00"
            raise InvalidArgument("clock of the workflow", self.clock, allowed) from error

    def agent_of(self, sender: Sender, order: int) -> str:
        """The agent that a request asks.

        Args:
            sender: What is known of who asks.
            order: Number of this sender among those of the run, from 1.

        Raises:
            RequestError: It is none of the team.
        """
        if not isinstance(self.roles, Mapping):
            if sender.model not in self.models:
                raise unknown_model(sender.model, self.models)
            return self.models[sender.model]
        for agent, wanted in zip(self.agents, self.roles.values(), strict=True):
            if all(_fits(key, value, sender, order) for key, value in wanted.items()):
                return agent
        told = f"no role of the table fits sender {order} of the run, {sender}; roles: "
        raise RequestError(told + ", ".join(self.roles), 404)

    @property
    def agents(self) -> tuple[str, ...]:
        """The agents, ``<role>_<n>``, in the order of `roles`."""
        return tuple(name if is_agent(name) else f"{name}_0" for name in self.roles)

    @property
    def models(self) -> dict[str, str]:
        """Names of models to agents: agents by their own names, roles by their first agent."""
        firsts: dict[str, str] = {}
        for agent in self.agents:
            firsts.setdefault(role_of(agent), agent)
        return {**firsts, **{agent: agent for agent in self.agents}}

    def draw(self, rng: random.Random, split: str) -> str:
        """A task as a JSON text.

        Raises:
            InvalidArgument: There are no tasks of this split, or one is not JSON data.
        """
        self.check_split(split)
        if callable(self.tasks):
            return as_json(self.tasks(rng, split))
        tasks = self.tasks[split]
        return as_json(tasks[rng.randrange(len(tasks))])

    def check_split(self, split: str) -> None:
        """Refuse a split of which there are no tasks.

        Raises:
            InvalidArgument: There are none.
        """
        if not callable(self.tasks) and not self.tasks.get(split):
            raise InvalidArgument("split", split, f"one that has tasks: {', '.join(self.tasks)}")

    def score(self, task: Any, outcome: Any) -> Score:
        """What an outcome is worth.

        Raises:
            WorkflowFailure: The reward function returned nothing usable.
        """
        found: Any = plain(self.reward(task, outcome))
        try:
            if isinstance(found, Score):
                return Score(
                    check_reward("reward", found.reward), check_flag("success", found.success)
                )
            reward = check_reward("reward", found)
            return Score(reward, reward >= 1)
        except InvalidArgument as error:
            raise WorkflowFailure(
                f"the reward function returned {found!r}; allowed: a finite number, a truth value "
                "or a Score"
            ) from error


_KEYS = {"system": str, "agent": str, "model": str, "order": int}


def _check_table(roles: Mapping[str, Any]) -> None:
    for role, wanted in roles.items():
        check_kind(f"role {role} of the workflow", wanted, Mapping, "a table of what tells it")
        for key, value in wanted.items():
            if key not in _KEYS or type(value) is not _KEYS[key]:
                allowed = "system, agent and model, which are texts, and order, a number"
                raise InvalidArgument(f"role {role} of the workflow", {key: value}, allowed)


def _fits(key: str, value: Any, sender: Sender, order: int) -> bool:
    if key == "system":
        return value in sender.system
    return value == (order if key == "order" else getattr(sender, key))


def _check_errors(kinds: object) -> None:
    check_kind("misfit_errors of the workflow", kinds, tuple, "a tuple of exception classes")
    for kind in cast("tuple[Any, ...]", kinds):
        if not (isinstance(kind, type) and issubclass(kind, Exception)):
            raise InvalidArgument("misfit_errors of the workflow", kind, "exception classes")


def _check_tasks(tasks: object) -> None:
    check_kind("tasks of the workflow", tasks, Mapping, "split -> list of tasks, or a function")
    for split, found in cast("Mapping[str, Any]", tasks).items():
        if split not in SPLITS or isinstance(found, str) or not isinstance(found, Sequence):
            allowed = f"lists of tasks by split: {', '.join(SPLITS)}"
            raise InvalidArgument("tasks of the workflow", split, allowed)


def _plain_part(value: Any) -> Any:
    """For JSON: numbers of tables and arrays are Python's."""
    found = plain(value)
    if found is value:
        raise TypeError(f"a {type(value).__name__} is not JSON data")
    return found


def as_json(task: Any) -> str:
    """A task as a JSON text; numbers of other libraries are Python's in it.

    Raises:
        InvalidArgument: It is not JSON data.
    """
    try:
        return json.dumps(task, allow_nan=False, default=_plain_part)
    except (TypeError, ValueError, RecursionError) as error:
        raise InvalidArgument("task of the workflow", task, f"JSON data ({error})") from error


def load_workflow(path: str, **arguments: Any) -> Workflow:
    """The workflow that a source names: ``package.module:name`` or ``file.py:name``.

    Args:
        path: Of a `Workflow`, or of a function that returns one.
        **arguments: Passed to that function.

    Raises:
        InvalidArgument: The path is ill-formed, or arguments are given to a `Workflow`.
        EnvironmentNotLoadable: The import fails, or finds something else.
    """
    if not isinstance(path, str) or not path.rpartition(":")[2].isidentifier():
        raise InvalidArgument("workflow", path, "package.module:name or file.py:name")
    found: Any = load_source(path, f"the workflow {path!r}")
    # Of the things that can be called a function alone: a class of any package is none.
    if inspect.isfunction(inspect.unwrap(found)):
        with stated(EnvironmentNotLoadable, f"the workflow {path!r} cannot be made"):
            found = found(**arguments)
        arguments = {}
    if not isinstance(found, Workflow):
        raise EnvironmentNotLoadable(
            f"the workflow {path!r} is a {type(found).__name__}; allowed: a "
            "pettingllms.workflows.Workflow, or a function that returns one. For a function that "
            f"knows nothing of it see: pettingllms-train workflow:{shlex.quote(path)}"
        )
    if arguments:
        raise InvalidArgument(
            "arguments of the workflow",
            arguments,
            f"none: {path} is not a function that takes them",
        )
    return found
