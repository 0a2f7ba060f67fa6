"""`TextEnv`: the one shell around every environment's functional core, with forks and snapshots."""

from __future__ import annotations

import copy
import html
import inspect
import pickle
import random
import re
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar, Generic, Self, TypedDict, cast

from pettingzoo import AECEnv

from pettingllms.arguments import (
    MAX_REWARD,
    check_choice,
    check_flag,
    check_kind,
    check_number,
    check_reward,
    check_whole,
    plain,
)
from pettingllms.callers import ACTING, new_caller
from pettingllms.ends import End, end_of_game
from pettingllms.errors import InvalidAction, InvalidArgument, OrderError, suggestion
from pettingllms.hooks import GameHooks, StateT
from pettingllms.parsing import encodable
from pettingllms.prompts import PreparedTemplate, PromptField, PromptFields, resolve_prompts
from pettingllms.seeding import checked_seed, derive_seed, next_seed
from pettingllms.sources import EnvSpec
from pettingllms.types import (
    NOTHING,
    UNBOUND,
    Constraints,
    Observation,
    ParseError,
    Snapshot,
    TextSpace,
    Transition,
    digest,
    order_of,
    role_of,
    stage_openings,
)

# All that changes during an episode: what a snapshot holds. The order is that of `Snapshot.values`.
_DYNAMIC = (
    "agents",
    "agent_selection",
    "rewards",
    "terminations",
    "truncations",
    "infos",
    "_cumulative_rewards",
    "_state",
    "_stage_state",
    "_num_acted",
    "turn",
    "episode_seed",
    "_begun",
    "end",
)


class BranchingEnv(AECEnv[str, str, str | None], GameHooks[StateT], Generic[StateT]):
    """The dynamic state of a `TextEnv`, which is its only subclass."""

    # Branching relies on two rules. The state is one immutable value, so branches share it. `step`
    # replaces what callers can get hold of and changes none of it in place, so a dictionary that
    # `last` returned stays as it was, and a fork copies only what callers themselves might change.

    board: str = ""
    """What of the arguments decides which states fit, such as `"6x6"`; a snapshot of another board
    is refused."""

    max_turns: int
    """Turns until truncation."""
    turn: int
    """Turns played so far."""
    episode_seed: int | None = None
    """Seed of the running episode; None before the first `reset`."""
    end: End | None = None
    """Why the episode is over; None while it is not."""

    _order: tuple[str, ...]
    """The agents in playing order."""
    _state: StateT
    """The state now: what hooks are given, except for what agents read."""
    _stage_state: StateT
    """The state at the start of the running stage: what observations show."""
    _num_acted: int
    """Actions in the present turn."""
    _begun: Mapping[str, str] = NOTHING
    """Agent -> how a right answer of that agent in the first turn begins; see `solved_share`."""
    _digests: tuple[StateT | None, dict[str, str]] = (None, {})
    """A state, and what is known of its `state_hash` and `state_key`; forks share it."""

    def fork(self) -> Self:
        """An independent environment in the same state; costs microseconds."""
        # Not `copy.copy`: it goes through `__reduce_ex__`, and this is called K times per turn.
        twin = object.__new__(type(self))
        vars(twin).update(vars(self))
        if self.episode_seed is not None:
            twin._unshare()
        return twin

    def _unshare(self) -> None:
        """Copy what callers get hold of and might change, so that no other branch sees it."""
        self.agents = self.agents.copy()
        self.rewards = self.rewards.copy()
        self.terminations = self.terminations.copy()
        self.truncations = self.truncations.copy()
        self._cumulative_rewards = self._cumulative_rewards.copy()
        # the facts of games hold nothing that can be changed, so one level below them is enough
        self.infos = {
            agent: {**info, "reward_parts": {**info["reward_parts"]}}
            for agent, info in self.infos.items()
        }

    def __getstate__(self) -> bytes:
        """The environment for another process; games may keep functions, also local ones."""
        import cloudpickle  # not needed before an environment is sent

        return cloudpickle.dumps(vars(self))

    def __setstate__(self, state: bytes) -> None:
        """Become the environment that `__getstate__` returned."""
        vars(self).update(pickle.loads(state))

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """A copy that shares nothing that can be changed."""
        twin = object.__new__(type(self))
        vars(twin).update(copy.deepcopy(vars(self), memo))
        return twin

    def expect(self, texts: Sequence[str]) -> None:
        """Note that forks of this state are about to be stepped with these texts.

        Nothing changes. An environment whose steps wait for something begins them here, so that
        they wait at the same time.
        """

    def snapshot(self) -> Snapshot:
        """The whole dynamic state, for `restore`."""
        self._require_reset("snapshot")
        twin = self.fork()
        return Snapshot(self._owner(), tuple(getattr(twin, name) for name in _DYNAMIC))

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to the moment at which a snapshot was taken, in this or an equal environment.

        Raises:
            InvalidArgument: If the snapshot was taken from another kind of environment.
        """
        check_kind("snapshot", snapshot, Snapshot, "what `snapshot` returned")
        if snapshot.owner != self._owner():
            raise InvalidArgument(
                "snapshot",
                snapshot.owner,
                f"a snapshot of {self._owner()} (class, agents, turns, board)",
                "Restore it in an environment made with the same arguments.",
            )
        vars(self).update(zip(_DYNAMIC, snapshot.values, strict=True))
        self._digests = (None, {})
        self._unshare()

    def state_hash(self) -> str:
        """32 hexadecimal digits that identify the state and the moment within the turn."""
        self._require_reset("state_hash")
        return self._digest_of("hash", lambda: self._moment(self._state_json))

    def state_key(self) -> str:
        """32 hexadecimal digits that are equal where what counts is; see `_key_json`.

        Turns, moments within a turn and agents that act next are told apart.
        """
        self._require_reset("state_key")
        return self._digest_of("key", lambda: [*self._moment(self._key_json), self.agent_selection])

    def _digest_of(self, name: str, moment: Callable[[], Any]) -> str:
        # A state is replaced, never changed; one that is replaced outside of a step is noticed.
        if self._digests[0] is not self._state:
            self._digests = self._state, {}
        known = self._digests[1]
        if name not in known:
            known[name] = digest(moment())
        return known[name]

    def _moment(self, of: Callable[[StateT], Any]) -> list[Any]:
        # Agents of one stage see `_stage_state`, so two moments are the same only if that is, too.
        moment = [of(self._state), self.turn, self._num_acted]
        if self._stage_state is not self._state:
            moment.append(of(self._stage_state))
        return moment

    def level_hash(self) -> str:
        """32 hexadecimal digits that are equal for levels that are equal up to symmetry.

        Call it right after `reset`; what it returns later is up to the game.
        """
        self._require_reset("level_hash")
        return digest(self._level_json(self._state))

    def _owner(self) -> tuple[str, tuple[str, ...], int, str]:
        return (type(self).__qualname__, self._order, self.max_turns, self.board)

    def _require_reset(self, method: str) -> None:
        if self.episode_seed is None:
            raise OrderError(f"{method} was called before reset; call reset(seed=...) first")


OBSERVATION_MODES = ("full", "delta")
REWARDS = ("shaped", "outcome")
MAX_TEXT_LENGTH = 1_000_000
"""Maximum length of observations and actions, in characters."""
MAX_TURNS = 1_000_000
"""Maximum of `max_turns`."""
_BEGUN = "\n\nA right answer begins as follows. Write all of it.\n{}"


class ShellArguments(TypedDict, total=False):
    """The arguments that every environment takes and hands on to `TextEnv`, which explains them."""

    alpha: float
    reward: str
    observation_mode: str
    prompts: Mapping[str, Any] | None
    render_mode: str | None


def spelled_out(constructor: Callable[..., None], bases: Sequence[type]) -> inspect.Signature:
    """The signature of a constructor, with the arguments of `**shell: Unpack[ShellArguments]`.

    Their defaults are those of the nearest of the bases that takes them by name. The annotation is
    a text, as in all modules that import `annotations` from `__future__`.
    """
    _, *own = inspect.signature(constructor).parameters.values()
    kind = re.fullmatch(r"Unpack\[(\w+)\]", str(own[-1].annotation)) if own else None
    if kind is None:
        return inspect.Signature(own)
    names = constructor.__globals__[kind[1]].__optional_keys__ - {one.name for one in own}
    known: dict[str, inspect.Parameter] = {}
    for base in bases:
        found = inspect.signature(base.__init__).parameters
        known |= {name: found[name] for name in found if name in names - known.keys()}
    return inspect.Signature([*own[:-1], *known.values()])


class TextEnv(BranchingEnv[StateT], Generic[StateT]):
    """A turn-based text game of a team of agents, in the PettingZoo AEC API.

    A subclass keeps its rules in pure functions over one immutable state value and supplies hooks,
    which are functions of what they are given:

    - `_generate(rng, options)` returns the initial state of an episode;
    - `_fields(state, agent, turn)` returns the values of the placeholders in the prompts;
    - `_parse(state, agent, text)` returns the action that a text asks for, or a `ParseError`;
    - `_act(state, agent, action)` returns a `Transition`: the new state, rewards, facts;
    - `_ansi(state)` returns the state as readable text;
    - optional: `_scripted(state, agent, policy, rng)`, `_rgb_array(state)`, `_state_json(state)`,
      `_key_json(state)`, `_level_json(state)`, and `_next_agent(state)` if the game itself decides
      who acts next.

    `pettingllms.hooks.GameHooks` documents them. This class does the rest: agent order, turns,
    truncation, rewards, observations, seeding, forks and snapshots.

    A turn is a sequence of stages. The agents of one stage act simultaneously: what they read shows
    the world at the start of the stage. Agents of a later stage see what earlier stages did.

    Rewards: when agent i acts, `rewards[i] = alpha * team + local` and every other agent gets
    `alpha * team`. `infos[i]` describes agent i's last action: `reward_parts` (the two summands),
    `parse_error`, `turn`, and `success`, which is set for all when the episode ends.
    All agents end in the same step, with `terminations` (solved or failed) or `truncations`
    (`max_turns` turns played). In an environment whose arguments are one of its `difficulties`,
    infos say which one it is: `difficulty`.

    Args:
        stages: Agent names, grouped by stage, in playing order: `(("tool_0",), ("planner_0",))`.
            Names have the form `<role>_<number>` with a role of letters, digits, `_` and `-`.
        max_turns: Turns until truncation, 1 to 1,000,000.
        alpha: Weight of the team reward, at least 0 (the paper's alpha; 1 by default).
        reward: `"shaped"`: what `_act` returns; `"outcome"`: the team part is 1 for the action that
            solves the task and 0 for all others, and there is no local part.
        observation_mode: `"full"`: every observation is a self-contained prompt; `"delta"`: from
            the second turn on only what is new, for consumers that keep the chat history.
        prompts: Role -> replacement of the role's prompt; see `pettingllms.prompts`.
        render_mode: One of `metadata["render_modes"]`, or None.

    Raises:
        InvalidArgument: If an argument is out of its range.
    """

    metadata: dict[str, Any] = {"name": "text_env", "render_modes": ["ansi", "human"]}  # noqa: RUF012

    spec: EnvSpec | None = None
    """How `pettingllms.make` made this environment; None when it was constructed directly."""
    difficulty: int | None = None
    """Which of the `difficulties` its arguments are; None if they are none of them."""
    solved_share: float = 0.0
    """Share of a level's solution after which episodes begin, in [0, 1); see `pettingllms.make`."""
    solves_in_one_turn: ClassVar[bool] = False
    """Whether later turns of a solution only repeat its first one, as of an answer to confirm."""

    def __init_subclass__(cls, **kwargs: Any) -> None:
        """Spell out shared arguments for all who ask for the signature of the class."""
        super().__init_subclass__(**kwargs)
        if "__init__" in vars(cls):
            cls.__signature__ = spelled_out(cls.__init__, cls.__mro__[1:])

    def __init__(
        self,
        *,
        stages: Sequence[Sequence[str]],
        max_turns: int,
        alpha: float = 1.0,
        reward: str = "shaped",
        observation_mode: str = "full",
        prompts: Mapping[str, Any] | None = None,
        render_mode: str | None = None,
    ) -> None:
        super().__init__()
        order = order_of(stages)
        max_turns = check_whole("max_turns", max_turns, 1, MAX_TURNS)
        alpha = check_number("alpha", alpha, 0)
        check_choice("reward", reward, REWARDS)
        check_choice("observation_mode", observation_mode, OBSERVATION_MODES)
        check_choice("render_mode", render_mode, self.metadata["render_modes"], none="no rendering")
        self.possible_agents = list(order)
        self.max_turns = max_turns
        self.alpha = float(alpha)
        self.reward = reward
        self._pays_outcome = reward == "outcome"
        self.observation_mode = observation_mode
        self._is_delta = observation_mode == "delta"
        self.render_mode = render_mode
        # A copy: the flag differs between instances, and the class's dictionary is shared.
        is_parallel = len(stages) == 1
        self.metadata = {"render_fps": 2, **type(self).metadata, "is_parallelizable": is_parallel}
        roles = dict.fromkeys(map(role_of, order))
        self.prompts = resolve_prompts(
            {role: self.default_prompts[role] for role in roles}, prompts, self.prompt_fields
        )
        self._templates = {agent: PreparedTemplate(self.prompts[role_of(agent)]) for agent in order}
        # One object for all agents; PettingZoo's tests ask for the same object at every call.
        space = TextSpace(MAX_TEXT_LENGTH)
        self.observation_spaces = {agent: space for agent in order}
        self.action_spaces = {agent: space for agent in order}
        self._order = order
        # Known once, so that `step` of ordinary games pays no call for it.
        self._selects = type(self)._next_agent is not GameHooks._next_agent
        self._opens_stage = (True,) * len(order) if self._selects else stage_openings(stages)
        self.episode_seed = None
        # Forks share it: they are branches of one episode.
        self._caller = new_caller()

    # The AEC interface --------------------------------------------------------------------------

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        """Start a new episode.

        Args:
            seed: Non-negative seed of the level. None: an unpredictable one for the first episode,
                afterwards one derived from the previous episode's. `episode_seed` has it.
            options: What this episode should be; each environment documents its own keys. Other
                keys are ignored, as PettingZoo's conformance tests demand.

        Raises:
            InvalidArgument: If the seed is negative or an option is unusable.
        """
        if options is not None:
            check_kind("options", options, Mapping, "None, or a mapping from option to value")
        self.episode_seed = checked_seed(seed) if seed is not None else next_seed(self.episode_seed)
        # Before the old state is replaced: a failing `reset` leaves that state as it was.
        state = self._generate(random.Random(self.episode_seed), options or NOTHING)
        order = self._order
        self._state = self._stage_state = state
        self._digests = (None, {})
        self._num_acted = self.turn = 0
        self.agents = list(order)
        self.agent_selection = self._selected(state) if self._selects else order[0]
        self.rewards = dict.fromkeys(order, 0.0)
        self._cumulative_rewards = dict.fromkeys(order, 0.0)
        self.terminations = dict.fromkeys(order, False)
        self.truncations = dict.fromkeys(order, False)
        self.infos = {agent: _first_info(self.difficulty) for agent in order}
        self._begun, self.end = {}, None
        if self.solved_share:
            self._begin_part_way()

    def _begin_part_way(self) -> None:
        """Go along the solution of the policy `oracle`; what is earned on the way is nobody's."""
        solving, rng = self.fork(), random.Random(derive_seed(self.episode_seed or 0, "solution"))
        turns: list[Self] = []
        answers: dict[str, str] = {}
        while solving.acting():
            if not solving._num_acted:
                turns.append(solving.fork())
            agent = solving.agent_selection
            text = solving.scripted_action(agent, "oracle", rng)
            answers.setdefault(agent, text)
            solving.step(text)
        if not solving.infos[solving.agent_selection]["success"]:
            allowed = "0 for levels that the scripted policy oracle does not solve"
            raise InvalidArgument("solved_share", self.solved_share, allowed)
        # A turn is not divided: agents that act at the same time begin at the same moment.
        is_written = self.solves_in_one_turn or len(turns) == 1
        vars(self).update(vars(turns[0 if is_written else int(self.solved_share * len(turns))]))
        self.rewards = dict.fromkeys(self._order, 0.0)
        self._cumulative_rewards = dict.fromkeys(self._order, 0.0)
        first = {**_first_info(self.difficulty), "turn": self.turn}
        self.infos = {agent: {**first} for agent in self._order}
        if is_written:
            # A single turn has no middle, but its answers have.
            for agent, text in answers.items():
                pieces = self._worked(self._state, agent, text)
                shown = "".join(pieces[: int(self.solved_share * len(pieces))])
                self._begun = {**self._begun, agent: shown}

    def step(self, action: str | None) -> None:
        """Play the selected agent's action.

        Args:
            action: The agent's text; any text is legal. None exactly when the agent has ended.

        Raises:
            InvalidAction: If a live agent is given something else than a text, or an agent that has
                ended something else than None.
            InvalidArgument: The game pays what is not a number from -1e18 to 1e18.
        """
        self._digests = (None, {})  # a new one: other branches may still be in this moment
        agent = self.agent_selection
        if self.terminations[agent] or self.truncations[agent]:
            self._was_dead_step(action)
            return
        if not isinstance(action, str):
            raise InvalidAction(f"{agent} is live and needs a text; got {action!r}")
        parsed = self._parse(self._state, agent, encodable(action))
        token = ACTING.set(self._caller)
        try:
            done = self._act(self._state, agent, parsed)
        finally:
            ACTING.reset(token)
        state, team, local, terminated, success, facts, common = _plain(done)
        if self._pays_outcome:
            team, local = float(success), 0.0
        team *= self.alpha
        parse_error = parsed.reason if isinstance(parsed, ParseError) else None
        info = {
            **facts,
            "reward_parts": {"team": team, "local": local},
            "parse_error": parse_error,
            "success": success,
            "turn": self.turn,
        }
        if self.difficulty is not None:
            info["difficulty"] = self.difficulty
        self.infos = self.infos.copy()
        self.infos[agent] = info
        if common:
            self.infos = {other: {**known, **common} for other, known in self.infos.items()}
        self.rewards = rewards = {}
        cumulative = self._cumulative_rewards
        for other in cumulative:
            rewards[other] = team
            cumulative[other] += team
        # `last` has paid out what the agent earned since its last action: only this one counts now.
        rewards[agent] = cumulative[agent] = team + local
        self._state = state
        order, place = self._order, self._num_acted + 1
        if place == len(order):
            place = 0
            self.turn += 1
        self._num_acted = place
        self.agent_selection = self._selected(state) if self._selects else order[place]
        # Within a stage observations keep showing its start: its agents act simultaneously.
        if self._opens_stage[place]:
            self._stage_state = state
        # A success in the last turn is a success: termination wins over truncation.
        if terminated:
            self._terminate(success)
            self.end = end_of_game(getattr(action, "finish_reason", "stop"), parse_error)
        elif self.turn == self.max_turns:
            self.truncate(End.TURNS)

    def truncate(self, end: End, cause: str | None = None) -> None:
        """End the episode for a reason that is not the game's: nobody acts any more.

        All agents are truncated, as PettingZoo means it. Nothing is earned by that, and the state
        stays as it is.

        Args:
            end: The reason.
            cause: Why the selected agent's action could not be played; None: it did not act.
        """
        if cause is not None:
            agent, turn = self.agent_selection, self.turn
            first = {**_first_info(self.difficulty), "turn": turn, "cause": cause}
            self.infos = {**self.infos, agent: first}
            self.rewards = dict.fromkeys(self._order, 0.0)
            self._cumulative_rewards = {**self._cumulative_rewards, agent: 0.0}
        self.truncations, self.end = dict.fromkeys(self._order, True), end

    def _terminate(self, success: bool) -> None:
        """End the episode; every agent learns how, also those that did not act last."""
        self._stage_state = self._state
        self.terminations = dict.fromkeys(self._order, True)
        self.infos = {agent: {**info, "success": success} for agent, info in self.infos.items()}

    def _selected(self, state: StateT) -> str:
        agent = self._next_agent(state)
        if agent not in self._order:
            allowed = ", ".join(self._order)
            raise InvalidArgument("agent that _next_agent returned", agent, allowed)
        return agent

    def _was_dead_step(self, action: str | None) -> None:
        agent = self.agent_selection
        if action is not None:
            raise InvalidAction(f"{agent} has ended and needs None; got {action!r}")
        for name in ("terminations", "truncations", "rewards", "_cumulative_rewards", "infos"):
            setattr(self, name, {a: v for a, v in getattr(self, name).items() if a != agent})
        self.agents = [other for other in self.agents if other != agent]
        self.rewards = dict.fromkeys(self.agents, 0.0)
        if self.agents:
            self.agent_selection = self.agents[0]

    def parse(self, agent: str, text: str) -> Any:
        """The action that a text of an agent asks for now, or a `ParseError`.

        Nothing is played. What actions are is the game's own affair.
        """
        self._require_reset("parse")
        return self._parse(self._state, agent, encodable(text))

    def acting(self) -> tuple[str, ...]:
        """The agents that act in the running stage from now on, in playing order.

        They all see the same moment; there are none after the end of the episode.
        """
        self._require_reset("acting")
        agent = self.agent_selection
        if not self.agents or self.terminations[agent] or self.truncations[agent]:
            return ()
        if self._selects:
            return (agent,)
        order, start = self._order, self._num_acted
        openings = (at for at in range(start + 1, len(order)) if self._opens_stage[at])
        return order[start : next(openings, len(order))]

    @property
    def stages(self) -> tuple[tuple[str, ...], ...]:
        """The agents of a turn in playing order; those of one stage act simultaneously."""
        found: list[tuple[str, ...]] = []
        for agent, opens in zip(self._order, self._opens_stage, strict=True):
            found = [*found, (agent,)] if opens else [*found[:-1], (*found[-1], agent)]
        return tuple(found)

    def last(self, observe: bool = True) -> tuple[Observation | None, float, bool, bool, Any]:
        """Observation, reward since the agent's last action, terminated, truncated, info.

        The observation is built here, when it is read.
        """
        agent = self.agent_selection
        return (
            self.observe(agent) if observe else None,
            self._cumulative_rewards[agent],
            self.terminations[agent],
            self.truncations[agent],
            self.infos[agent],
        )

    def observe(self, agent: str) -> Observation:
        """What an agent reads now. No side effects; callable at any time after reset."""
        template, fields = self._templates[agent], self._fields_now(agent)
        if self._is_delta and self.turn:
            return Observation(template.update.fill(fields))
        if template.whole is not None:
            return Observation(template.whole.fill(fields) + self._begun_text(agent))
        system = template.system.fill(fields)
        user = template.user.fill(fields) + self._begun_text(agent)
        return Observation(f"{system}\n\n{user}" if system else user)

    def messages(self, agent: str) -> list[dict[str, str]]:
        """The agent's observation as chat messages (system, if it has one, and user)."""
        template, fields = self._templates[agent], self._fields_now(agent)
        if self._is_delta and self.turn:
            return [{"role": "user", "content": template.update.fill(fields)}]
        system = template.system.fill(fields)
        chat = [{"role": "system", "content": system}] if system else []
        user = template.user.fill(fields) + self._begun_text(agent)
        return [*chat, {"role": "user", "content": user}]

    def _begun_text(self, agent: str) -> str:
        """How a right answer of an agent begins, for prompts of the first turn."""
        begun = self._begun.get(agent) if not self.turn else None
        return _BEGUN.format(begun) if begun else ""

    def fields(self, agent: str) -> Mapping[str, object]:
        """The values of the placeholders of an agent's prompt now."""
        self._require_reset("fields")
        return self._fields_now(agent)

    def constraints(self, agent: str) -> Constraints:
        """What the agent's answer is bound to now, besides the prompt: here nothing."""
        return UNBOUND

    def _fields_now(self, agent: str) -> Mapping[str, object]:
        turn = self.turn if self.turn < self.max_turns else self.max_turns - 1
        return self._fields(self._stage_state, agent, turn)

    def observation_space(self, agent: str) -> TextSpace:
        """The space of texts (one object for all agents)."""
        return cast(TextSpace, self.observation_spaces[agent])

    def action_space(self, agent: str) -> TextSpace:
        """The space of texts (one object for all agents)."""
        return cast(TextSpace, self.action_spaces[agent])

    def state(self) -> StateT:  # pyright: ignore[reportIncompatibleMethodOverride]
        """The immutable state value (PettingZoo's global view, as a value)."""
        return self._state

    @property
    def max_episode_steps(self) -> int:
        """Most actions of an episode: one of each agent in each turn."""
        return self.max_turns * len(self._order)

    def render(self) -> Any:
        """The present state as text, or as an image; in the mode `"human"` print it.

        Returns:
            A text in the mode `"ansi"` and without a mode, an image in `"rgb_array"`.
        """
        self._require_reset("render")
        if self.render_mode == "rgb_array":
            return self._rgb_array(self._state)
        text = self._ansi(self._state)
        if self.render_mode != "human":
            return text
        print(text)  # noqa: T201  rendering in human mode is printing
        return None

    def _repr_html_(self) -> str:
        """What a notebook shows: the state, and what the next agent reads."""
        if self.episode_seed is None:
            return f"<p>{html.escape(str(self))}, before reset</p>"
        shown = f"<pre>{html.escape(self._ansi(self._state))}</pre>"
        if not self.agents:
            return f"{shown}<p>The episode is over.</p>"
        agent, prompt = self.agent_selection, html.escape(str(self.observe(self.agent_selection)))
        return f"{shown}<details open><summary>{agent} reads</summary><pre>{prompt}</pre></details>"

    def scripted_action(self, agent: str, policy: str, rng: random.Random) -> str:
        """The text that a scripted policy answers for an agent now.

        Args:
            agent: One of `possible_agents`.
            policy: One of `scripted_policies`.
            rng: Source of chance of the policy.

        Raises:
            InvalidArgument: If the environment has no such scripted policy or agent.
        """
        if policy not in self.scripted_policies:
            known = ", ".join(self.scripted_policies) or "none"
            hint = suggestion(policy, self.scripted_policies)
            raise InvalidArgument("scripted policy", policy, known + hint)
        if agent not in self._order:
            raise InvalidArgument("agent", agent, ", ".join(self._order))
        self._require_reset("scripted_action")
        return self._scripted(self._stage_state, agent, policy, rng)


def _first_info(difficulty: int | None) -> dict[str, Any]:
    parts = {"team": 0.0, "local": 0.0}
    info = {"reward_parts": parts, "parse_error": None, "success": False, "turn": 0}
    return info if difficulty is None else info | {"difficulty": difficulty}


_PLAIN = frozenset({bool, int, float, str, type(None), tuple})


def _plain(done: Transition) -> Transition:
    """What a game computed with other libraries, as Python's numbers and truth values.

    Asked by type, so that ordinary games do not pay for it. Truth values as rewards count 1 or 0.
    In facts, what is inside a tuple is left as it is: `check_env` refuses it there.

    Raises:
        InvalidArgument: A reward is not a number from -1e18 to 1e18, or an end or a success is not
            a truth value.
    """
    _, team, local, terminated, success, facts, common = done
    if not (
        type(team) is type(local) is float
        and type(terminated) is type(success) is bool
        and -MAX_REWARD <= team <= MAX_REWARD
        and -MAX_REWARD <= local <= MAX_REWARD
    ):
        done = done._replace(
            team=check_reward("team reward", team),
            local=check_reward("local reward", local),
            terminated=check_flag("terminated", terminated),
            success=check_flag("success", success),
        )
    if facts and not _PLAIN.issuperset(map(type, facts.values())):
        done = done._replace(info={name: plain(value) for name, value in facts.items()})
    if common:
        done = done._replace(common={name: plain(value) for name, value in common.items()})
    return done


def roles_of(env: TextEnv[Any]) -> tuple[str, ...]:
    """The roles of an environment's team, in playing order."""
    return tuple(dict.fromkeys(map(role_of, env.possible_agents)))


class PlaceholderEnv(TextEnv[StateT]):
    """Base of games whose prompts have a placeholder for each `PromptField` of a table."""

    _placeholders: Mapping[str, PromptField[StateT]]
    """Name -> placeholder; set by `__init__` of a game."""

    def _fields(self, state: StateT, agent: str, turn: int) -> Mapping[str, object]:
        return PromptFields(self._placeholders, state, agent, turn)

    @cached_property
    def _marked_roles(self) -> frozenset[str]:
        """Roles whose prompts speak of `####`; in others scripted policies answer tersely.

        Tiny models learn to write `UR` or `2,3` from their demonstrations, and need no more.
        """
        prompts = self.prompts.items()
        return frozenset(role for role, text in prompts if "####" in text.system + text.user)

    def _is_marked(self, agent: str) -> bool:
        """Whether the prompt of an agent asks for `####` before the answer."""
        return role_of(agent) in self._marked_roles
