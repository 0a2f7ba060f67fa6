"""The held-out levels of an environment: played here, in the run's engines."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from pettingllms.evaluation import EpisodeResult, RoleResult, distinct_levels, level_seed
from pettingllms.policies import Usage
from pettingllms.seeding import derive_seed
from pettingllms_trainers.algorithms.base import Alone
from pettingllms_trainers.config import Config
from pettingllms_trainers.config.roles import qualified
from pettingllms_trainers.policies.pool import PolicyPool
from pettingllms_trainers.rollout.candidates import FailureLog, RolloutSettings, RolloutSpec
from pettingllms_trainers.rollout.demonstrations import ScriptedEpisode, play_scripted_episode
from pettingllms_trainers.rollout.environments import RunEnvironment, held_out_kwargs
from pettingllms_trainers.rollout.episode import Episodes
from pettingllms_trainers.rollout.player import play_episodes
from pettingllms_trainers.rollout.sampler import sampling_of
from pettingllms_trainers.types import RolloutStatus, RolloutTree


class Played(NamedTuple):
    """Held-out episodes of one environment that were played."""

    results: Sequence[EpisodeResult]
    failures: Counter[str]
    """Cause -> rollouts among them that failed."""


class HeldOutSet:
    """Levels of an environment that are never trained on, played alike at every evaluation.

    They are those of ``pettingllms eval`` with the same seed: each level is played once, so there
    are fewer than ``evaluation.num_episodes`` if the environment has no more that differ.

    Args:
        env: What is played; its held-out environment is not changed.
        episodes: Where it is played.
        config: The run's configuration.
        failures: Counts and logs what fails.
        runner: Runs the rollouts.
        first: Number of the first episode: those of several environments differ.
    """

    def __init__(
        self,
        env: RunEnvironment,
        episodes: Episodes,
        config: Config,
        failures: FailureLog,
        runner: asyncio.Runner,
        first: int = 0,
    ) -> None:
        self.env = env
        self._episodes = episodes
        self._config, self._failures, self._runner = config, failures, runner
        self._roles = [qualified(env.name, role) for role in env.roles]
        self.kwargs = held_out_kwargs(config, env.config)
        seed = config.evaluation.seed
        num = env.config.evaluation.num_episodes or config.evaluation.num_episodes
        self.specs = [
            RolloutSpec(
                first + index, level_seed(seed, index), derive_seed(seed, "held-out", index)
            )
            for index in distinct_levels(env.held_out, seed, num, {})
        ]
        """Its levels."""

    def trees(self, pool: PolicyPool, temperature: float) -> list[RolloutTree]:
        """Play all levels, one answer per decision; a temperature of 0 is greedy.

        Raises:
            RolloutError: More rollouts failed than allowed.
        """
        env, rollout = self.env, self._config.rollout
        sampling = {
            role: sampling_of(rollout, qualified(env.name, role), temperature) for role in env.roles
        }
        settings = RolloutSettings(sampling=sampling, env=env.name)
        return self._runner.run(
            play_episodes(self._episodes, pool, self.specs, settings, Alone(), self._failures)
        )

    def of_trees(self, trees: Sequence[RolloutTree]) -> Played:
        """Return what was played, as the core's evaluation knows it."""
        results = [self._of_tree(spec, tree) for spec, tree in zip(self.specs, trees, strict=True)]
        failed = [tree.cause or "unknown" for tree in trees if tree.status is not RolloutStatus.OK]
        return Played(results, Counter(failed))

    def of_scripted(self, name: str) -> Played:
        """Play all levels with a scripted policy of the environment in all roles."""
        return Played([self._of_scripted(spec, name) for spec in self.specs], Counter())

    def _of_tree(self, spec: RolloutSpec, tree: RolloutTree) -> EpisodeResult:
        roles = {role: RoleResult() for role in self._roles}
        for decision in tree.decisions:
            (answer,) = decision.candidates
            written, is_error = answer.completion, answer.parse_error is not None
            usage = Usage(completion_tokens=len(written.token_ids))
            roles[decision.role].add(answer.reward, is_error, written.finish_reason, usage)
        is_solved = tree.outcome is not None and tree.outcome.success
        num_turns = 1 + max((decision.key.turn for decision in tree.decisions), default=-1)
        return _result(spec, tree.initial_state_hash, is_solved, num_turns, roles)

    def _of_scripted(self, spec: RolloutSpec, name: str) -> EpisodeResult:
        env = self.env
        line_up = {role: {name: 1.0} for role in env.roles}
        played: ScriptedEpisode = play_scripted_episode(env.held_out, spec, line_up)
        roles = {role: RoleResult() for role in self._roles}
        for decision in played.decisions:
            role, is_error = qualified(env.name, decision.role), decision.parse_error is not None
            roles[role].add(decision.reward, is_error, "stop", Usage())
        state_hash, num_turns = played.initial_state_hash, played.num_turns
        return _result(spec, state_hash, played.success, num_turns, roles)


def _result(
    spec: RolloutSpec,
    state_hash: str,
    is_solved: bool,
    num_turns: int,
    roles: Mapping[str, RoleResult],
) -> EpisodeResult:
    """Return an episode as the core's evaluation knows it; a failed one is not solved."""
    return EpisodeResult(
        variant="",
        level=spec.episode,
        sample=0,
        level_seed=spec.env_seed,
        seed=spec.seed,
        initial_state_hash=state_hash,
        success=is_solved,
        terminated=is_solved,
        truncated=not is_solved,
        num_turns=num_turns,
        returns={},
        roles=roles,
        wall_s=0.0,
    )
