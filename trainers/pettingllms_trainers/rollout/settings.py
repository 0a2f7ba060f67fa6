"""How episodes are sampled, and which ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import NamedTuple

from pettingllms.seeding import derive_seed
from pettingllms_trainers.rollout.flight import Answering, Valuing, at_once, value_at_once
from pettingllms_trainers.types import SamplingSettings


@dataclass(frozen=True, kw_only=True, slots=True)
class RolloutSettings:
    """How one episode is sampled."""

    sampling: Mapping[str, SamplingSettings]
    """How completions are drawn, by role of the environment."""
    env: str = ""
    """Name of the environment in a run of several, where it is part of roles."""
    stage: int = 0
    """Stage of its curriculum, from 0."""
    branching_roles: tuple[str, ...] | None = None
    """Roles whose decisions branch; None: all."""
    answering: Answering = at_once
    """Asks the policies."""
    valuing: Valuing = value_at_once
    """Asks V."""

    def branches(self, role: str) -> bool:
        """Return whether decisions of a role may have more than one candidate."""
        return self.branching_roles is None or role in self.branching_roles


class RolloutSpec(NamedTuple):
    """Which episode to play: level and chance are fixed by it."""

    episode: int
    """Episode id, unique within a call, at least 0."""
    env_seed: int
    """Seed of the level."""
    seed: int
    """Seed of everything that is drawn in the episode."""


def episode_specs(
    *,
    seed: int,
    step: int,
    first_level: int,
    num_levels: int,
    num_trajectories: int = 1,
    num_played: int = 0,
) -> list[RolloutSpec]:
    """Return `num_trajectories` episodes of each of some levels of a train step.

    Args:
        seed: Seed of the run.
        step: Train step, part of the chance of sampling.
        first_level: Level cursor: number of levels the run had used before the step.
        num_levels: E, at least 1.
        num_trajectories: Episodes per level.
        num_played: Levels of the step that come before these.
    """
    return [
        RolloutSpec(
            episode=level * num_trajectories + trajectory,
            env_seed=derive_seed(seed, "level", first_level + level),
            seed=derive_seed(seed, "episode", step, level, trajectory),
        )
        for level in range(num_played, num_played + num_levels)
        for trajectory in range(num_trajectories)
    ]
