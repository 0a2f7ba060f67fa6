"""Where environments live while episodes are played, and all that is asked of them there.

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
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, Protocol, TypeVar

from pettingllms import TextEnv
from pettingllms.errors import BranchFailure
from pettingllms.types import UNBOUND, Constraints
from pettingllms_trainers.config import Config
from pettingllms_trainers.errors import EnvironmentFailure
from pettingllms_trainers.rollout.environments import RunEnvironment

ResultT = TypeVar("ResultT")


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
    """Hash of what counts of it; see `TextEnv.state_key`."""
    terminated: bool
    """The environment reached a terminal state."""
    truncated: bool
    """The turn limit ended the episode."""
    success: bool
    """The task was solved."""
    rewards: Mapping[str, float]
    """What every agent earned by the action that led here; zeros at the start."""
    co_acting: tuple[tuple[str, tuple[Mapping[str, str], ...]], ...] = ()
    """Where a stage begins: the agents that act later in it, in order, with their prompts. They see
    the same moment, so their prompts are known at once."""
    constraints: Constraints = UNBOUND
    """What the agent's answer is bound to besides the prompt."""

    @property
    def is_over(self) -> bool:
        """Whether nobody acts any more."""
        return self.terminated or self.truncated


class Branch(NamedTuple):
    """What a text of the acting agent earned in a fork of its own."""

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
    """Reward of the agent as the environment gave it, whatever is made of it; None: `reward`."""
    judged: Mapping[str, float] = {}
    """Scores beside the environment's reward, by name."""


class LostBranch(NamedTuple):
    """A text that the environment could not carry out; the other branches are not affected."""

    cause: str
    """Type and message of the error."""
    kind: str
    """Types of the error and of what it came from."""
    details: str
    """Its traceback."""


class BranchingEpisode:
    """One environment that is branched at every action and continues with one branch.

    The prompt is read when the agent is selected, so it shows what team-mates did earlier in the
    turn. The fork in which a text was scored itself becomes the environment, so that nothing is
    ever applied twice.

    What the environment raises becomes an `EnvironmentFailure`.

    Args:
        env: Belongs to the episode from now on.
    """

    def __init__(self, env: TextEnv[Any]) -> None:
        self._env = env
        self._forks: list[TextEnv[Any]] = []
        self._num_known = 0

    def start(self, env_seed: int) -> EpisodeState:
        """Make the level of a seed."""
        with _env_failures():
            self._env.reset(seed=env_seed)
        return self.state()

    def branch(self, texts: Sequence[str]) -> tuple[Branch | LostBranch, ...]:
        """Let the acting agent answer each text in a fork, and keep the forks.

        A text whose branch is lost has no fork: later calls count the others only.
        """
        agent = self._env.agent_selection
        with _env_failures():
            # Told before the forks: what is slow to judge can be begun for all of them at once.
            self._env.expect(texts)
            forks = [self._stepped(text) for text in texts]
        self._forks = [fork for fork in forks if not isinstance(fork, LostBranch)]
        return tuple(
            fork if isinstance(fork, LostBranch) else _branch(fork, agent) for fork in forks
        )

    def follow(self, index: int) -> EpisodeState:
        """Continue with one of the last branches; the others are dropped."""
        self._env, self._forks = self._forks[index], []
        return self.state()

    def successors(self) -> tuple[EpisodeState, ...]:
        """Where the last branches lead."""
        return tuple(map(_state_of, self._forks))

    def fork(self, index: int | None) -> BranchingEpisode:
        """Another episode in the state of one of the last branches; None: in the own."""
        with _env_failures():
            return BranchingEpisode((self._env if index is None else self._forks[index]).fork())

    def environment(self) -> TextEnv[Any]:
        """A fork of the environment as it is now."""
        with _env_failures():
            return self._env.fork()

    def _stepped(self, text: str) -> TextEnv[Any] | LostBranch:
        # Only a branch that says so is lost alone; any other error is the whole episode's.
        fork = self._env.fork()
        try:
            fork.step(text)
        except BranchFailure as error:
            name, origin = type(error).__name__, type(error.__cause__ or error).__name__
            details = "".join(traceback.format_exception(error))
            return LostBranch(f"{name}: {error}", f"{name} of {origin}", details)
        return fork

    def state(self) -> EpisodeState:
        """Where the episode is now."""
        found = _state_of(self._env)
        # The later agents of a stage were told with the first one: they see the same moment.
        if self._num_known:
            self._num_known -= 1
            return found
        with _env_failures():
            later = self._env.acting()[1:]
            others = tuple((agent, tuple(self._env.messages(agent))) for agent in later)
        self._num_known = len(others)
        return replace(found, co_acting=others) if others else found


def _state_of(env: TextEnv[Any]) -> EpisodeState:
    agent = env.agent_selection
    terminated, truncated = env.terminations[agent], env.truncations[agent]
    with _env_failures():
        is_over = terminated or truncated
        messages = () if is_over else tuple(env.messages(agent))
        constraints = UNBOUND if is_over else env.constraints(agent)
        state_hash, state_key = env.state_hash(), env.state_key()
    return EpisodeState(
        agent=agent,
        turn=env.turn,
        messages=messages,
        state_hash=state_hash,
        state_key=state_key,
        terminated=terminated,
        truncated=truncated,
        success=bool(env.infos[agent]["success"]),
        rewards=dict(env.rewards),
        constraints=constraints,
    )


def _branch(fork: TextEnv[Any], agent: str) -> Branch:
    reward, info = fork.rewards[agent], fork.infos[agent]
    # One NaN would make the advantages of its whole group NaN, and then the weights.
    if not math.isfinite(reward):
        raise EnvironmentFailure(f"the environment gave {agent} the reward {reward}")
    parts = info["reward_parts"]
    return Branch(reward, parts["team"], parts["local"], info["parse_error"], info["success"])


@contextlib.contextmanager
def _env_failures() -> Iterator[None]:
    """The rollout boundary: whatever an environment raises fails its episode."""
    try:
        yield
    except Exception as error:
        raise EnvironmentFailure(f"{type(error).__name__}: {error}") from error


class Episodes(Protocol):
    """Environments of many episodes that are played at once, each under its id.

    Calls for one episode come one after another; calls for different ones overlap. Everything that
    goes in and out is plain data that can be pickled. An environment that crashes or is lost raises
    `EnvironmentFailure` in the calls for its own episodes, and in no others.
    """

    async def start(self, env_seed: int) -> tuple[int, EpisodeState]:
        """Begin an episode; return its id, which no other has, and its first state.

        See `BranchingEpisode.start`.
        """
        ...

    async def branch(self, episode: int, texts: Sequence[str]) -> tuple[Branch | LostBranch, ...]:
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
        self._threads = (
            ThreadPoolExecutor(num_threads, thread_name_prefix="pettingllms-env")
            if num_threads
            else None
        )

    async def start(self, env_seed: int) -> tuple[int, EpisodeState]:
        # Episodes of one level begin one after another: it is made, and its solution found, once.
        if self._level and self._level[0] == env_seed:
            twin = self._level[1].fork(None)
            return self._added(twin), await self._call(twin.state)
        with _env_failures():
            played = BranchingEpisode(self._env.fork())
        state = await self._call(played.start, env_seed)
        self._level = (env_seed, played.fork(None))
        return self._added(played), state

    async def branch(self, episode: int, texts: Sequence[str]) -> tuple[Branch | LostBranch, ...]:
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
