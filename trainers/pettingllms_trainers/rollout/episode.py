"""Where environments run while episodes are played, and the requests that they answer.

Rollouts speak to environments through `Episodes` only: arguments and results are plain values that
can be pickled, so that an environment may live in this thread, in another one, or far away.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import math
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol, TypeVar

from pettingllms import TextEnv
from pettingllms.ends import End, end_of_error
from pettingllms.errors import FOREIGN
from pettingllms.loops import DaemonThreads
from pettingllms.types import UNBOUND, Constraints
from pettingllms_trainers.config import Config
from pettingllms_trainers.errors import EpisodeFailure
from pettingllms_trainers.rollout.environments import RunEnvironment

ResultT = TypeVar("ResultT")


class Asked(NamedTuple):
    """An agent that is to act."""

    agent: str
    """Its name, ``<role>_<n>``."""
    messages: tuple[Mapping[str, str], ...]
    """What it reads, as chat messages."""


@dataclass(frozen=True, kw_only=True, slots=True)
class EpisodeState:
    """An episode between two actions: who acts next and what was reached."""

    agent: str
    """The agent that acts next; of an episode that is over, the one that would have."""
    turn: int
    """Turn of the environment, from 0."""
    messages: tuple[Mapping[str, str], ...]
    """The agent's prompt as chat messages; none when the episode is over."""
    state_hash: str
    """Hash of the state: equal states at equal moments have equal hashes."""
    state_key: str
    """`TextEnv.state_key`: equal in states that play on alike."""
    terminated: bool
    """Whether the environment reached a terminal state."""
    truncated: bool
    """Whether a limit ended the episode, or an answer that made the environment fail."""
    success: bool
    """Whether the task is solved."""
    rewards: Mapping[str, float]
    """Agent to its reward for the last action; zeros at the start."""
    co_acting: tuple[Asked, ...] = ()
    """Where a stage begins: the agents that act later in it, in order, with their prompts. They see
    the same moment, so their prompts are known at once."""
    constraints: Constraints = UNBOUND
    """What the agent's answer is bound to besides the prompt."""
    end: End | None = None
    """Why the episode is over; None while it is not."""

    @property
    def is_over(self) -> bool:
        """Whether nobody acts any more."""
        return self.terminated or self.truncated


class Branch(NamedTuple):
    """An answer of the acting agent, played in a fork of its own."""

    reward: float
    """Reward of the agent, finite."""
    team: float
    """Team part of it."""
    local: float
    """Local part of it."""
    parse_error: str | None
    """Why the text could not be read as an action; None when it could."""
    success: bool
    """Whether the task is solved after it."""
    env_reward: float | None = None
    """Reward of the agent before scaling and scores are applied; None: the same as `reward`."""
    judged: Mapping[str, float] = {}
    """Scores beside the environment's reward, by name."""
    end: End | None = None
    """Why the episode is over after it; None while it is not."""
    failure: StepFailure | None = None
    """What the environment raised on the text, which ends the episode; None: nothing."""
    asked: tuple[Asked, ...] = ()
    """Who acts next, and who acts at the same moment, unless their prompts were read before."""


class StepFailure(NamedTuple):
    """An error that an environment raised on a text."""

    cause: str
    """Type and message of the error."""
    kind: str
    """Types of the error and of what it came from."""
    details: str
    """Its traceback."""

    @classmethod
    def of(cls, error: BaseException) -> StepFailure:
        """What an error says."""
        name, origin = type(error).__name__, type(error.__cause__ or error).__name__
        details = "".join(traceback.format_exception(error))
        return cls(f"{name}: {error}", f"{name} of {origin}", details)


class _Fork(NamedTuple):
    """An environment in which a text was played."""

    env: TextEnv[Any]
    asked: tuple[Asked, ...] = ()
    failure: StepFailure | None = None


class BranchingEpisode:
    """One environment that is branched at every action and continues with one branch.

    The prompt is read when the agent is selected, so it shows what team-mates did earlier in the
    turn. The fork in which a text was scored itself becomes the environment, so that nothing is
    ever applied twice.

    What the environment raises on a text is an outcome of that text, which truncates the episode:
    left out, it would be what a policy can choose. Only what is nobody's doing (a sandbox that is
    down, a lost connection), or is raised where no text was played, is an `EpisodeFailure`.

    Args:
        env: Belongs to the episode from now on.
    """

    def __init__(self, env: TextEnv[Any]) -> None:
        self._env = env
        self._forks: list[_Fork] = []
        self._asked: tuple[Asked, ...] = ()
        """Agents of the running stage that act from now on, and what they read; the stage does not
        change it, so forks share it. Empty: it was not read yet, or the episode is over."""

    def start(self, env_seed: int) -> EpisodeState:
        """Make the level of a seed."""
        with _nobodys_failures():
            self._env.reset(seed=env_seed)
        return self.state()

    def branch(self, texts: Sequence[str]) -> tuple[Branch, ...]:
        """Let the acting agent answer each text in a fork, and keep the forks."""
        agent = self._env.agent_selection
        with _nobodys_failures():
            # Told before the forks: what is slow to judge can be begun for all of them at once.
            self._env.expect(texts)
        self._forks = [self._stepped(text) for text in texts]
        return tuple(_branch(fork, agent) for fork in self._forks)

    def follow(self, index: int) -> EpisodeState:
        """Continue with one of the last branches; the others are dropped."""
        fork, self._forks = self._forks[index], []
        self._env, self._asked = fork.env, self._asked_after(fork)
        with _nobodys_failures():
            return _state_of(fork.env, fork.asked)

    def successors(self) -> tuple[EpisodeState, ...]:
        """Where the last branches lead."""
        with _nobodys_failures():
            return tuple(_state_of(fork.env, fork.asked) for fork in self._forks)

    def fork(self, index: int | None) -> BranchingEpisode:
        """Another episode in the state of one of the last branches; None: in its own."""
        parent = None if index is None else self._forks[index]
        with _nobodys_failures():
            twin = BranchingEpisode((parent.env if parent else self._env).fork())
        twin._asked = self._asked_after(parent) if parent else self._asked
        return twin

    def environment(self) -> TextEnv[Any]:
        """A fork of the environment as it is now."""
        with _nobodys_failures():
            return self._env.fork()

    def _stepped(self, text: str) -> _Fork:
        agent, fork = self._env.agent_selection, self.environment()
        try:
            fork.step(text)
            # One NaN would make the advantages of its whole group NaN, and then the weights.
            if not math.isfinite(reward := fork.rewards[agent]):
                raise OverflowError(f"the environment gave {agent} the reward {reward}")
            # Here, so that a prompt that cannot be written is an outcome of the text, too.
            return _Fork(fork, _asked(fork, len(self._asked) > 1))
        except FOREIGN as error:
            end, failure = end_of_error(error), StepFailure.of(error)
            if end.kind == "infrastructure":
                raise EpisodeFailure(failure.cause, end, failure.kind) from error
            over = self.environment()
            over.truncate(end, failure.cause)
            return _Fork(over, failure=failure)

    def state(self) -> EpisodeState:
        """Where the episode is now."""
        with _nobodys_failures():
            self._asked = self._asked or _asked(self._env, within_stage=False)
            return _state_of(self._env, self._asked)

    def _asked_after(self, fork: _Fork) -> tuple[Asked, ...]:
        # Whoever acts later in a stage reads what it read at its start.
        return fork.asked and (self._asked[1:] or fork.asked)


def _asked(env: TextEnv[Any], within_stage: bool) -> tuple[Asked, ...]:
    """Who acts next, and later in the stage that begins then: they all see the same moment.

    Args:
        within_stage: Whether the later ones were asked before.
    """
    agents = env.acting()[:1] if within_stage else env.acting()
    return tuple(Asked(agent, tuple(env.messages(agent))) for agent in agents)


def _state_of(env: TextEnv[Any], asked: Sequence[Asked]) -> EpisodeState:
    agent = env.agent_selection
    terminated, truncated = env.terminations[agent], env.truncations[agent]
    is_over = terminated or truncated
    return EpisodeState(
        agent=agent,
        turn=env.turn,
        messages=() if is_over else asked[0].messages,
        state_hash=env.state_hash(),
        state_key=env.state_key(),
        terminated=terminated,
        truncated=truncated,
        success=bool(env.infos[agent]["success"]),
        rewards=dict(env.rewards),
        co_acting=tuple(asked[1:]),
        constraints=UNBOUND if is_over else env.constraints(agent),
        end=env.end,
    )


def _branch(fork: _Fork, agent: str) -> Branch:
    info, env = fork.env.infos[agent], fork.env
    parts = info["reward_parts"]
    return Branch(
        env.rewards[agent],
        parts["team"],
        parts["local"],
        info["parse_error"],
        info["success"],
        end=env.end,
        failure=fork.failure,
        asked=fork.asked,
    )


@contextlib.contextmanager
def _nobodys_failures() -> Iterator[None]:
    """The rollout boundary where no text is to blame: what is raised fails the episode."""
    try:
        yield
    except FOREIGN as error:
        end = end_of_error(error)
        end = end if end.kind == "infrastructure" else End.ENVIRONMENT
        raise EpisodeFailure(f"{type(error).__name__}: {error}", end) from error


class Episodes(Protocol):
    """Environments of many episodes that are played at once, each under its id.

    Calls for one episode come one after another; calls for different ones overlap. Everything that
    goes in and out is plain data that can be pickled. An environment that crashes or is lost raises
    `EpisodeFailure` in the calls for its own episodes, and in no others.
    """

    async def start(self, env_seed: int) -> tuple[int, EpisodeState]:
        """Begin an episode; return its id, which no other has, and its first state.

        See `BranchingEpisode.start`.
        """
        ...

    async def branch(self, episode: int, texts: Sequence[str]) -> tuple[Branch, ...]:
        """Score texts of the acting agent; see `BranchingEpisode.branch`."""
        ...

    async def follow(self, episode: int, index: int) -> EpisodeState:
        """Continue with one branch; see `BranchingEpisode.follow`."""
        ...

    async def successors(self, episode: int) -> tuple[EpisodeState, ...]:
        """Where the last branches lead; see `BranchingEpisode.successors`."""
        ...

    async def fork(self, episode: int, index: int | None = None) -> tuple[int, EpisodeState]:
        """Begin another episode in the state of a branch; return its id and that state.

        See `BranchingEpisode.fork`.

        Args:
            episode: Where from.
            index: Which of its last branches; None: its own state.
        """
        ...

    async def environment(self, episode: int) -> TextEnv[Any]:
        """The environment as it is now, for policies that look at the state.

        It may be a copy: from elsewhere `TextEnv.snapshot` is the plain value to send.
        """
        ...

    async def close(self, episode: int) -> None:
        """Forget an episode, in whatever state it is; also one that is forgotten already."""
        ...


class LocalEpisodes:
    """Environments in this process; see `Episodes`.

    With threads, slow environments (sandboxes, verifiers) of many episodes are stepped at the same
    time and while engines generate. Environments share what they were made with: their rules must
    be safe to call from several threads, as pure functions are, and as the pools of
    `pettingllms.sandbox`, the judge of the code environment and the verifier of the mathematics
    environments are.

    Args:
        env: Every episode plays a fork of it; it is not changed.
        num_threads: Threads that step environments; 0: the caller's.
    """

    def __init__(self, env: TextEnv[Any], num_threads: int = 0) -> None:
        self._env = env
        self._episodes: dict[int, BranchingEpisode] = {}
        self._ids = itertools.count()
        self._level: tuple[int, BranchingEpisode] | None = None
        self._threads = DaemonThreads(num_threads) if num_threads else None

    async def start(self, env_seed: int) -> tuple[int, EpisodeState]:
        # Episodes of one level begin one after another: it is made, and its solution found, once.
        if self._level and self._level[0] == env_seed:
            twin = self._level[1].fork(None)
            return self._added(twin), await self._call(twin.state)
        with _nobodys_failures():
            played = BranchingEpisode(self._env.fork())
        state = await self._call(played.start, env_seed)
        self._level = (env_seed, played.fork(None))
        return self._added(played), state

    async def branch(self, episode: int, texts: Sequence[str]) -> tuple[Branch, ...]:
        return await self._call(self._episodes[episode].branch, texts)

    async def follow(self, episode: int, index: int) -> EpisodeState:
        return await self._call(self._episodes[episode].follow, index)

    async def successors(self, episode: int) -> tuple[EpisodeState, ...]:
        return await self._call(self._episodes[episode].successors)

    async def fork(self, episode: int, index: int | None = None) -> tuple[int, EpisodeState]:
        twin = self._episodes[episode].fork(index)
        return self._added(twin), twin.state()

    async def environment(self, episode: int) -> TextEnv[Any]:
        return self._episodes[episode].environment()

    async def close(self, episode: int) -> None:
        self._episodes.pop(episode, None)

    def _added(self, episode: BranchingEpisode) -> int:
        """The id under which an episode is known from now on."""
        id = next(self._ids)
        self._episodes[id] = episode
        return id

    async def _call(self, method: Callable[..., ResultT], *arguments: object) -> ResultT:
        if self._threads is None:
            return method(*arguments)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, method, *arguments)


class EpisodesOfEnv(NamedTuple):
    """Where one of the environments of a run is played; see `RunEnvironment`."""

    training: tuple[Episodes, ...]
    """One per stage of the curriculum, in order."""
    held_out: Episodes


def local_episodes(
    config: Config, environments: Sequence[RunEnvironment]
) -> tuple[EpisodesOfEnv, ...]:
    """Episodes of every environment that are played in this process."""
    num = config.rollout.env_threads
    return tuple(
        EpisodesOfEnv(
            tuple(LocalEpisodes(stage, num) for stage in env.training),
            LocalEpisodes(env.held_out, num),
        )
        for env in environments
    )
