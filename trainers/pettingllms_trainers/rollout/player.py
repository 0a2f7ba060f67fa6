"""The player of an episode: takes decisions, and keeps the tree that they make.

Strategies (`algorithms`) say what is played; everything that they may ask of an episode is
a public method here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from pettingllms import role_of
from pettingllms.ends import End
from pettingllms.prompts import as_observation
from pettingllms.seeding import derive_seed
from pettingllms_trainers.config.algorithm import Strategy
from pettingllms_trainers.config.sections import qualified
from pettingllms_trainers.errors import EpisodeFailure
from pettingllms_trainers.policies.pool import PolicyPool
from pettingllms_trainers.ranks import Ranks
from pettingllms_trainers.rollout.candidates import (
    Candidates,
    FailureLog,
    RolloutSettings,
    RolloutSpec,
    SampledCandidates,
    together,
)
from pettingllms_trainers.rollout.episode import Branch, Episodes, EpisodeState
from pettingllms_trainers.types import (
    Candidate,
    Decision,
    DecisionKey,
    RolloutTree,
    TreeOutcome,
)


class Waypoint(NamedTuple):
    """A state of an episode and the path to it, from which other episodes can continue."""

    episode: int
    """Id of an episode that is in this state."""
    initial_hash: str
    """Hash of the initial state of the level."""
    path: tuple[Decision, ...]
    """The decisions that led to the state."""
    returns: Mapping[str, float]
    """Agent to the sum of its rewards on that path."""


class _Asked(NamedTuple):
    """A prompt that an agent was asked, maybe before its turn."""

    messages: tuple[Mapping[str, str], ...]
    """The prompt, as chat messages."""
    answer: asyncio.Task[SampledCandidates]
    """Samples the candidates."""


class Player:
    """Plays one episode, a decision at a time.

    Args:
        candidates: Samples and scores answers; shared with the other players.
        spec: Which episode.
    """

    def __init__(self, candidates: Candidates, spec: RolloutSpec) -> None:
        self.candidates, self.spec = candidates, spec
        self.state: EpisodeState | None = None
        """Where the episode is; None before it has begun."""
        self.decisions: list[Decision] = []
        """The decisions that it has taken, without those of a `Waypoint` it continued from."""
        self.num_continuation_tokens = 0
        """Tokens sampled for continuations, added up by the strategy."""
        self._episode: int | None = None
        self._initial_hash = ""
        self._prefix: tuple[Decision, ...] = ()
        self._returns: dict[str, float] = {}
        self._asked: dict[str, _Asked] = {}
        self._failure: EpisodeFailure | None = None

    @property
    def has_failed(self) -> bool:
        """Whether the infrastructure has failed."""
        return self._failure is not None

    @property
    def is_playing(self) -> bool:
        """Whether the episode has begun, has not failed and is not over."""
        return not self.has_failed and self.state is not None and not self.state.is_over

    @property
    def is_within_stage(self) -> bool:
        """Whether an agent has been asked whose turn has not come."""
        return bool(self._asked)

    @property
    def here(self) -> Waypoint:
        """The state that the episode is in; valid until it takes its next decision."""
        path = (*self._prefix, *self.decisions)
        return Waypoint(self.episode, self._initial_hash, path, dict(self._returns))

    @property
    def episode(self) -> int:
        """Id of its environment."""
        assert self._episode is not None, "the episode has not begun, or is over"
        return self._episode

    def seed(self, purpose: str, position: int) -> int:
        """The seed of something that is drawn at a decision."""
        # Seeds are derived from the episode and the decision, not drawn one after another: a
        # rollout is the same whatever else is played beside it.
        return derive_seed(self.spec.seed, purpose, position)

    async def attempt(self, play: Coroutine[Any, Any, None]) -> None:
        """Await a part of the episode; what makes it impossible to go on is its end."""
        try:
            await play
        except EpisodeFailure as error:
            await self.close()
            if error.end.kind == "limit" and self.state is not None:
                # Met where the next answer was asked for: what was played before it stands.
                if not self.state.is_over:
                    self.state = replace(self.state, truncated=True, end=error.end)
                self.candidates.failures.log("an episode met a limit", str(error), kind=error.kind)
            else:
                what = "a rollout failed, and is played again"
                self.candidates.failures.log(what, str(error), error, error.kind)
                self._failure = error

    async def start(self) -> None:
        """Go to the first state of the level."""
        self._episode, self.state = await self.candidates.episodes.start(self.spec.env_seed)
        # Rewards of the start count, or returns would not add up to those of the environment.
        self._initial_hash, self._returns = self.state.state_hash, dict(self.state.rewards)

    async def move_to(self, place: Waypoint) -> None:
        """Begin in a state that another episode of the level was in."""
        # Closed first: the answers that were asked of simultaneous agents belong to the old state.
        await self.close()
        self._episode, self.state = await self.candidates.episodes.fork(place.episode)
        self._initial_hash, self._returns = place.initial_hash, dict(place.returns)
        self._prefix = place.path

    async def forked(self) -> Waypoint:
        """The present state in an episode of its own, which whoever asks has to close."""
        # A fork, because `follow` changes the environment in place and this state would be gone.
        copy, _ = await self.candidates.episodes.fork(self.episode)
        return self.here._replace(episode=copy)

    async def play(self) -> None:
        """Play the episode from its start to its end, with one candidate per decision."""
        await self.start()
        await self.play_on()

    async def play_on(self) -> None:
        """Take one decision after another until the episode is over."""
        while self.is_playing:
            await self.step()

    async def step(self) -> None:
        """Take a decision with a single candidate."""
        await self.follow(*await self.branch(1))

    async def branch(self, num_candidates: int) -> tuple[SampledCandidates, tuple[Branch, ...]]:
        """Candidates of the next decision, and what each earns in a fork of its own.

        Args:
            num_candidates: K; a role that does not branch has one.
        """
        sampled = await self._sampled(num_candidates)
        return sampled, await self.candidates.branch(self.episode, sampled)

    async def follow(
        self,
        sampled: SampledCandidates,
        branches: Sequence[Branch],
        values: Sequence[float] | None = None,
        chosen: int = 0,
    ) -> None:
        """Take a decision: continue with one of the last branches.

        Args:
            values: What follows them; None: nothing.
            chosen: Index of the candidate that is followed.
        """
        assert self.state is not None, "a decision is taken in a state"
        # Before the environment moves on: the decision records the state that it was taken in.
        self.decisions.append(self._decision(sampled, scored(sampled, branches, values), chosen))
        # The chosen fork becomes the episode; nothing is computed twice.
        self.state = await self.candidates.episodes.follow(self.episode, chosen)
        for name, reward in self.state.rewards.items():
            self._returns[name] += reward
        if self.state.is_over:
            await self.close()

    async def close(self) -> None:
        """Release the environment, and cancel what was asked of agents whose turn never came."""
        left = [asked.answer for asked in self._asked.values()]
        self._asked = {}
        for answer in left:
            # An engine may still be writing; nobody will read it, and its slot is free for others.
            answer.cancel()
        # Awaited, or the loop would report exceptions of tasks that nobody asks for.
        await asyncio.gather(*left, return_exceptions=True)
        if self._episode is not None:
            await self.candidates.episodes.close(self._episode)
            self._episode = None

    def tree(self) -> RolloutTree:
        """What has been played."""
        return RolloutTree(
            episode=self.spec.episode,
            env_seed=self.spec.env_seed,
            env=self.candidates.settings.env,
            stage=self.candidates.settings.stage,
            initial_state_hash=self._initial_hash,
            decisions=tuple(self.decisions),
            # A failed episode has no outcome: counted as lost, it would teach the roles that
            # failures of the machine are their own.
            outcome=None if self._failure is not None else self._outcome(),
            end=self._end(),
            cause=None if self._failure is None else str(self._failure),
            num_continuation_tokens=self.num_continuation_tokens,
            prefix=self._prefix,
        )

    def _outcome(self) -> TreeOutcome:
        end = self.state
        assert end is not None, "a strategy plays to the end"
        return TreeOutcome(
            success=end.success,
            terminated=end.terminated,
            truncated=end.truncated,
            returns=self._returns,
            num_turns=1 + max((decision.key.turn for decision in self.decisions), default=-1),
        )

    def _end(self) -> End:
        if self._failure is not None:
            return self._failure.end
        assert self.state is not None, "a strategy plays to the end"
        return self.state.end or End.ANSWERED

    async def _sampled(self, num_candidates: int) -> SampledCandidates:
        """The candidates of the next decision; all agents of its stage are asked at once.

        Agents of a later stage are not: they must see what these did. K candidates answer one
        prompt: their rewards differ by what was written and by nothing else.
        """
        state = self.state
        assert state is not None, "a decision is taken in a state"
        others = [
            replace(state, agent=agent, messages=messages, co_acting=())
            for agent, messages in state.co_acting
        ]
        for number, other in enumerate([state, *others]):
            # A fixed policy may read the environment, which must then be at its own turn.
            must_wait = number > 0 and self.candidates.needs_environment(other.agent)
            if other.agent not in self._asked and not must_wait:
                position = len(self.decisions) + number
                self._asked[other.agent] = self._ask(other, position, num_candidates)
        asked = self._asked.pop(state.agent)
        if asked.messages != state.messages:
            raise EpisodeFailure(
                f"the prompt of {state.agent} has changed within its stage, whose agents act "
                "simultaneously; give it a stage of its own"
            )
        return await asked.answer

    def _ask(self, state: EpisodeState, position: int, num_candidates: int) -> _Asked:
        # Roles that do not branch still answer, once, so that the others meet a real team-mate.
        num = num_candidates if self.candidates.settings.branches(role_of(state.agent)) else 1
        answer = self.candidates.sample(self.episode, state, num, self.seed("sample", position))
        return _Asked(state.messages, asyncio.ensure_future(answer))

    def _decision(
        self, sampled: SampledCandidates, candidates: tuple[Candidate, ...], chosen: int
    ) -> Decision:
        state, settings = self.state, self.candidates.settings
        assert state is not None, "a decision is taken in a state"
        role = role_of(state.agent)
        return Decision(
            key=DecisionKey(self.spec.episode, len(self.decisions), state.agent, state.turn),
            role=qualified(settings.env, role),
            policy=sampled.policy,
            prompt_ids=sampled.prompt_ids,
            observation=as_observation(state.messages),
            candidates=candidates,
            temperature=settings.sampling[role].temperature,
            grammar=sampled.grammar,
            chosen=chosen,
            state_key=state.state_key,
            within_stage=self.is_within_stage,
            # Fixed policies have no weights that could be older than the trainer's.
            version=sampled.version if sampled.prompt_ids else None,
        )


def scored(
    sampled: SampledCandidates, branches: Sequence[Branch], values: Sequence[float] | None = None
) -> tuple[Candidate, ...]:
    """Candidates with what they earned and what follows them."""
    followed = (0.0,) * len(branches) if values is None else values
    return tuple(
        Candidate(
            completion=completion,
            value=value,
            cause=None if branch.failure is None else branch.failure.cause,
            **{
                name: part
                for name, part in branch._asdict().items()
                if name not in ("failure", "asked")
            },
        )
        for completion, branch, value in zip(sampled.completions, branches, followed, strict=True)
    )


_Playing = Coroutine[Any, Any, list[RolloutTree]]


class EpisodeBatch(NamedTuple):
    """Episodes of one environment that are played at once."""

    episodes: Episodes
    """Where the environment lives."""
    pool: PolicyPool
    """Policies of its roles."""
    specs: Sequence[RolloutSpec]
    """Episodes to play."""
    settings: RolloutSettings
    """How to sample."""
    strategy: Strategy
    """What the episodes of a level do."""


async def play_episodes(
    episodes: Episodes,
    pool: PolicyPool,
    specs: Sequence[RolloutSpec],
    settings: RolloutSettings,
    strategy: Strategy,
    failures: FailureLog,
) -> list[RolloutTree]:
    """Play episodes of one environment at once, so that the engines see big batches. Collective.

    Returns:
        One tree per episode, in order; a failed one has its status and cause.

    Raises:
        RolloutError: More trees or candidates failed than allowed.
    """
    batch = EpisodeBatch(episodes, pool, specs, settings, strategy)
    return joined(await play_share([batch], failures, pool.ranks), failures, pool.ranks)


Share = list[list[RolloutTree]]
"""What one rank has played, by level."""


async def play_share(
    plays: Sequence[EpisodeBatch],
    failures: FailureLog,
    ranks: Ranks,
    keep: Callable[[_Playing], _Playing] = lambda level: level,
) -> Share:
    """Play this rank's levels of all environments at once; waits for no other rank.

    A level in which the infrastructure has failed an episode is played again, a few times.

    Args:
        keep: Plays a level, whose trees it gives: none of one that it gives up.
    """
    candidates = [Candidates(play.episodes, play.pool, play.settings, failures) for play in plays]
    levels = [
        (play.strategy, own, play.specs[first : first + play.strategy.num_together])
        for play, own in zip(plays, candidates, strict=True)
        for first in range(0, len(play.specs), play.strategy.num_together)
    ]
    # A level is not divided: in some strategies its episodes wait for each other.
    return await together(keep(_play(*level)) for level in ranks.share(levels))


def joined(share: Share, failures: FailureLog, ranks: Ranks) -> list[RolloutTree]:
    """The trees of all ranks; see `play_episodes`."""
    # Gathered in the order in which they were shared: trees are those of one process alone.
    trees = [tree for trees in ranks.gather(share) for tree in trees]
    failed = [tree.cause or "" for tree in trees if tree.has_failed]
    # Checked at the end and over all ranks: all of them stop, or none does.
    failures.check(len(failed), len(trees), failed[0] if failed else "")
    return trees


_WAITS_S = (0.1, 1.0)
"""Before a level is played again whose infrastructure failed: what has restarted is there then."""


async def _play(
    strategy: Strategy, candidates: Candidates, specs: Sequence[RolloutSpec]
) -> list[RolloutTree]:
    for wait_s in (*_WAITS_S, None):
        players = [Player(candidates, spec) for spec in specs]
        try:
            await strategy.play(players)
        # Also when a sibling failed: environments hold processes and sandbox workers.
        finally:
            for player in players:
                await player.close()
        # All of the level: its episodes may have waited for the one that failed.
        if wait_s is None or not any(player.has_failed for player in players):
            break
        await asyncio.sleep(wait_s)
    return [player.tree() for player in players]
