"""The held-out set of a run: made once, played the same way at every evaluation."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Any

from pettingllms import TextEnv, role_of
from pettingllms_trainers.config import Config
from pettingllms_trainers.policies.pool import PolicyPool
from pettingllms_trainers.rollout.environments import held_out_kwargs
from pettingllms_trainers.rollout.episode import Episodes
from pettingllms_trainers.rollout.failures import FailureLog
from pettingllms_trainers.rollout.sampler import sampling_of
from pettingllms_trainers.runs.evaluate import (
    Arm,
    evaluate_policies,
    evaluate_scripted,
    held_out_specs,
)

__all__ = ["HeldOutSet"]


class HeldOutSet:
    """Levels that are never trained on, and the arms that play them.

    Args:
        env: Environment of the held-out split.
        episodes: Where it is played.
        config: The run's configuration.
        failures: Counts and tells what fails.
        runner: Runs the rollouts.
    """

    def __init__(
        self,
        env: TextEnv[Any],
        episodes: Episodes,
        config: Config,
        failures: FailureLog,
        runner: asyncio.Runner,
    ) -> None:
        self._env = env
        self._episodes = episodes
        self._config = config
        self._failures = failures
        self._runner = runner
        self._specs = held_out_specs(config.evaluation.num_episodes, config.evaluation.seed)

    def play(self, pool: PolicyPool) -> dict[str, Arm]:
        """Play greedily and by sampling."""
        temperatures = {"greedy": 0.0, "sampled": self._config.evaluation.temperature}
        return {name: self._play(name, pool, value) for name, value in temperatures.items()}

    def play_scripted(self) -> dict[str, Arm]:
        """Play with the scripted policies that the configuration names."""
        roles = list(dict.fromkeys(map(role_of, self._env.possible_agents)))
        names = self._config.evaluation.scripted
        return {arm.name: arm for arm in evaluate_scripted(self._env, self._specs, names, roles)}

    def play_swapped(self, pool: PolicyPool) -> dict[str, Arm]:
        """Play greedily with the policies of each other's roles; nothing for a shared policy."""
        swapped = pool.swapped() if self._config.evaluation.swap_roles else None
        return {} if swapped is None else {"swapped": self._play("swapped", swapped, 0.0)}

    def line(self, arms: Mapping[str, Arm]) -> dict[str, Any]:
        """Return a line of evaluations.jsonl."""
        return {
            "manifest": next(iter(arms.values())).manifest,
            "num_episodes": len(self._specs),
            "env": held_out_kwargs(self._config),
            "arms": {name: arm.to_json() for name, arm in arms.items()},
        }

    def _play(self, name: str, pool: PolicyPool, temperature: float) -> Arm:
        config = self._config
        sampling = {role: sampling_of(config.rollout, role, temperature) for role in config.roles}
        return self._runner.run(
            evaluate_policies(name, self._episodes, pool, self._specs, sampling, self._failures)
        )
