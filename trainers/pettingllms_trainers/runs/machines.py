"""Where the policies and environments of a run live: in this process, or on a Ray cluster."""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Protocol

from pettingllms_trainers.config import Config
from pettingllms_trainers.errors import ConfigError
from pettingllms_trainers.policies.fixed import FixedPolicy
from pettingllms_trainers.policies.pool import PolicyPool
from pettingllms_trainers.ranks import Ranks
from pettingllms_trainers.rollout.environments import RunEnvironment
from pettingllms_trainers.rollout.episode import EpisodesOfEnv, local_episodes


class Machines(Protocol):
    """Builds the policies and environments of a run where its configuration wants them."""

    def build_pool(self, fixed_policies: Mapping[str, FixedPolicy]) -> PolicyPool:
        """Load the models, start the engines and return who plays which role.

        Raises:
            PettingLLMsError: A model cannot be loaded, or an engine not be started.
        """
        ...

    def build_episodes(self, environments: Sequence[RunEnvironment]) -> tuple[EpisodesOfEnv, ...]:
        """Prepare the places where episodes of each environment are played.

        Raises:
            PettingLLMsError: An environment cannot be made there.
        """
        ...

    def check_directory(self, directory: Path) -> None:
        """Make sure that all processes that will write into a directory see it.

        Raises:
            ConfigError: One does not.
        """
        ...


class ThisProcess:
    """Policies and environments in this process, one of those of a launcher; see `Machines`."""

    def __init__(self, config: Config, ranks: Ranks) -> None:
        self._config, self._ranks = config, ranks

    def build_pool(self, fixed_policies: Mapping[str, FixedPolicy]) -> PolicyPool:
        # Imported here: torch and transformers take seconds, and bad input needs neither.
        from pettingllms_trainers.backends.build import build_policies, build_pool

        policies = build_policies(self._config, self._ranks)
        return build_pool(self._config, policies, fixed_policies, self._ranks)

    def build_episodes(self, environments: Sequence[RunEnvironment]) -> tuple[EpisodesOfEnv, ...]:
        return local_episodes(self._config, environments)

    def check_directory(self, directory: Path) -> None:
        """Nothing to check: who made the directory writes into it."""


@contextlib.contextmanager
def open_machines(config: Config, ranks: Ranks) -> Generator[Machines]:
    """Reserve what the configuration wants, for as long as the run takes.

    Raises:
        ConfigError: The processors are not available.
    """
    if not config.ray.enabled:
        yield ThisProcess(config, ranks)
        return
    # Every process would start a cluster of its own, and each would train all policies.
    if ranks.size > 1:
        raise ConfigError(
            f"ray.enabled = true with {ranks.size} processes of a launcher: Ray starts its own. "
            "Start one process, without torchrun or deepspeed"
        )
    # Imported here: only this one needs Ray.
    from pettingllms_trainers.backends.ray.machines import open_ray_machines

    with open_ray_machines(config) as machines:
        yield machines
