"""The rollouts of a train step, as the configuration of a run wants them."""

from __future__ import annotations

import asyncio

from pettingllms_trainers.config import Config, RoleSamplingConfig, RolloutConfig
from pettingllms_trainers.episode import Episodes
from pettingllms_trainers.failures import FailureLog
from pettingllms_trainers.policy import PolicyPool
from pettingllms_trainers.rollout import RolloutSettings, episode_specs, play_episodes
from pettingllms_trainers.types import RolloutTree, Sampling

__all__ = ["Sampler", "num_candidates_per_decision", "sampling_of"]


class Sampler:
    """Samples training rollouts.

    Args:
        episodes: Where the training environments live.
        pool: Policies of the roles.
        config: The run's configuration.
        failures: Counts and tells what fails.
        runner: Runs the rollouts.
    """

    def __init__(
        self,
        episodes: Episodes,
        pool: PolicyPool,
        config: Config,
        failures: FailureLog,
        runner: asyncio.Runner,
    ) -> None:
        self._episodes = episodes
        self._pool = pool
        self._config = config
        self._failures = failures
        self._runner = runner

    def rollouts(self, step: int) -> list[RolloutTree]:
        """Return the rollouts of a train step; equal for equal weights.

        Raises:
            RolloutError: More rollouts or candidates failed than allowed.
        """
        config = self._config.rollout
        specs = episode_specs(
            seed=self._config.seed,
            step=step,
            first_level=step * config.num_levels,
            num_levels=config.num_levels,
            num_trajectories=1 if config.mode == "tree" else config.num_candidates,
        )
        settings = RolloutSettings(
            num_candidates=num_candidates_per_decision(config),
            sampling={role: sampling_of(config, role) for role in self._config.roles},
            advance=config.advance,
            advance_temperature=config.advance_temperature,
        )
        return self._runner.run(
            play_episodes(self._episodes, self._pool, specs, settings, self._failures)
        )


def sampling_of(config: RolloutConfig, role: str, temperature: float | None = None) -> Sampling:
    """Return how a role is sampled.

    Args:
        config: Settings of all roles, and what differs for some.
        role: The role.
        temperature: Instead of the one of training.
    """
    own = config.per_role.get(role, RoleSamplingConfig())
    if temperature is None:
        temperature = config.temperature if own.temperature is None else own.temperature
    return Sampling(
        temperature=temperature,
        max_completion_tokens=own.max_completion_tokens or config.max_completion_tokens,
        stop=config.stop if own.stop is None else own.stop,
    )


def num_candidates_per_decision(config: RolloutConfig) -> int:
    """Return how many candidates a decision has: K in a tree, 1 in a trajectory."""
    return config.num_candidates if config.mode == "tree" else 1
