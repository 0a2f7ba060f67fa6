"""Rollout trees: sample candidates at every agent's turn, score each in a fork, follow one."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from pettingllms import role_of
from pettingllms.seeding import derive_seed
from pettingllms_trainers.config.roles import qualified
from pettingllms_trainers.errors import EnvironmentFailure
from pettingllms_trainers.rollout.answers import Answers, Sampled, SamplingFailed
from pettingllms_trainers.rollout.credit.seam import CreditOfRollout, Values
from pettingllms_trainers.rollout.episode import Branch, Episodes, EpisodeState
from pettingllms_trainers.rollout.failures import FailureLog
from pettingllms_trainers.rollout.selection import choose
from pettingllms_trainers.rollout.settings import RolloutSettings, RolloutSpec
from pettingllms_trainers.types import (
    Candidate,
    Decision,
    DecisionKey,
    RolloutStatus,
    RolloutTree,
    TreeOutcome,
)

__all__ = ["TreeRollout"]


class _Asked(NamedTuple):
    """What was asked of an agent, maybe before its turn."""

    messages: tuple[Mapping[str, str], ...]
    answer: asyncio.Task[Sampled]


class TreeRollout:
    """Plays one episode that branches at every decision.

    Args:
        episodes: Where the environments live.
        answers: Asks the policies.
        credit: What candidates are worth beyond their rewards.
        spec: Which episode.
        settings: How it is sampled.
        failures: Logs what fails.
    """

    def __init__(
        self,
        episodes: Episodes,
        answers: Answers,
        credit: CreditOfRollout,
        spec: RolloutSpec,
        settings: RolloutSettings,
        failures: FailureLog,
    ) -> None:
        self._episodes, self._answers, self._credit = episodes, answers, credit
        self._spec, self._settings, self._failures = spec, settings, failures
        self._initial_hash = ""
        self._decisions: list[Decision] = []
        self._returns: dict[str, float] = {}
        self._num_continuation_tokens = 0
        self._prefix: tuple[Decision, ...] = ()
        self._asked: dict[str, _Asked] = {}
        self._num_given_up = 0

    async def play(self) -> RolloutTree:
        """Play to the end; what the environment or the engine raises becomes the tree's status."""
        try:
            return self._tree(await self._play())
        except EnvironmentFailure as error:
            return self._failed(RolloutStatus.ENV_FAILED, error)
        except SamplingFailed as error:
            return self._failed(RolloutStatus.GENERATION_FAILED, error, error.kind)
        finally:
            left = [asked.answer for asked in self._asked.values()]
            for answer in left:  # of a stage in which the episode has ended
                answer.cancel()
            await asyncio.gather(*left, return_exceptions=True)
            await self._episodes.close(self._spec.episode)

    async def _play(self) -> TreeOutcome:
        situation = await self._begin()
        while not situation.is_over:
            situation = await self._decide(situation)
            for name, reward in situation.rewards.items():
                self._returns[name] += reward
            if not situation.is_over:
                situation = await self._arrive(situation)
        return TreeOutcome(
            success=situation.success,
            terminated=situation.terminated,
            truncated=situation.truncated,
            returns=self._returns,
            num_turns=1 + max(group.key.turn for group in self._decisions),
        )

    async def _begin(self) -> EpisodeState:
        """Return where the first decision is."""
        situation = await self._episodes.start(self._spec.episode, self._spec.env_seed)
        self._initial_hash = situation.state_hash
        self._returns = dict(situation.rewards)
        return situation

    async def _arrive(self, situation: EpisodeState) -> EpisodeState:
        """Return where the episode continues that has come to a situation: there."""
        return situation

    async def _decide(self, situation: EpisodeState) -> EpisodeState:
        """Branch at the selected agent and follow one branch."""
        episode, position = self._spec.episode, len(self._decisions)
        sampled = await self._sampled(situation, position)
        sampled, branches = await self._answers.branch(episode, sampled)
        found = Values((0.0,))
        if len(branches) > 1:  # what is compared with nothing needs no value
            seed = self._seed("continuation", position)
            found = await self._credit.of_branches(episode, len(branches), seed)
        self._num_continuation_tokens += found.num_tokens
        # "advance" is part of the seed.
        chosen = choose(
            [branch.reward + value for branch, value in zip(branches, found.values, strict=True)],
            self._settings.branch_choice,
            self._settings.branch_temperature,
            random.Random(self._seed("advance", position)),
        )
        self._decisions.append(
            self._decision(position, situation, sampled, branches, found.values, chosen)
        )
        return await self._episodes.follow(episode, chosen)

    async def _sampled(self, situation: EpisodeState, position: int) -> Sampled:
        """Return the candidates of a decision; all agents of its stage are asked at once.

        Agents of a later stage are not: they must see what these did. K candidates answer one
        prompt: their rewards differ by what was written and by nothing else.
        """
        mates = [
            replace(situation, agent=agent, messages=messages, stage_mates=())
            for agent, messages in situation.stage_mates
        ]
        for number, mate in enumerate([situation, *mates]):
            must_wait = number > 0 and self._answers.need_environment(mate.agent)
            if mate.agent not in self._asked and not must_wait:
                self._asked[mate.agent] = self._ask(mate, position + number)
        asked = self._asked.pop(situation.agent)
        if asked.messages != situation.messages:
            raise EnvironmentFailure(
                f"the prompt of {situation.agent} has changed within its stage, whose agents act "
                "simultaneously; give it a stage of its own"
            )
        return await asked.answer

    def _ask(self, situation: EpisodeState, position: int) -> _Asked:
        num, seed = self._num_sampled(situation.agent), self._seed("sample", position)
        answer = self._answers.sample(self._spec.episode, situation, num, seed)
        return _Asked(situation.messages, asyncio.ensure_future(answer))

    def _num_sampled(self, agent: str) -> int:
        """Return how many candidates an agent has when its decision is reached."""
        return self._settings.num_candidates_of(role_of(agent))

    def _seed(self, purpose: str, position: int) -> int:
        # Seeds are derived from the episode and the decision, not drawn one after another: a
        # rollout is the same whatever else is played beside it.
        return derive_seed(self._spec.seed, purpose, position)

    def _decision(
        self,
        position: int,
        situation: EpisodeState,
        sampled: Sampled,
        branches: Sequence[Branch],
        values: Sequence[float],
        chosen: int,
    ) -> Decision:
        role = role_of(situation.agent)
        candidates = (
            Candidate(completion=completion, value=value, **branch._asdict())
            for completion, branch, value in zip(sampled.completions, branches, values, strict=True)
        )
        return Decision(
            key=DecisionKey(self._spec.episode, position, situation.agent, situation.turn),
            role=qualified(self._settings.env, role),
            policy=sampled.policy,
            prompt_ids=sampled.prompt_ids,
            observation="\n\n".join(message["content"] for message in situation.messages),
            candidates=tuple(candidates),
            temperature=self._settings.sampling[role].temperature,
            chosen=chosen,
            state_hash=situation.state_hash,
            version=self._settings.version if sampled.prompt_ids else None,
        )

    def _failed(self, status: RolloutStatus, error: Exception, kind: str = "") -> RolloutTree:
        self._failures.log(str(error), error, kind)
        return replace(self._tree(None), status=status, cause=str(error))

    def _tree(self, outcome: TreeOutcome | None) -> RolloutTree:
        return RolloutTree(
            episode=self._spec.episode,
            env_seed=self._spec.env_seed,
            env=self._settings.env,
            initial_state_hash=self._initial_hash,
            decisions=tuple(self._decisions),
            outcome=outcome,
            num_continuation_tokens=self._num_continuation_tokens,
            prefix=self._prefix,
            num_given_up=self._num_given_up,
        )
