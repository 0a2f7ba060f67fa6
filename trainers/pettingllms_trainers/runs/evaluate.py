"""Held-out evaluation: fixed levels, one sample per decision, intervals on every share."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import fmean
from typing import Any

from pettingllms import TextEnv
from pettingllms.evaluation.levels import level_seed, manifest_of
from pettingllms.evaluation.statistics import wilson_interval
from pettingllms.seeding import derive_seed
from pettingllms_trainers.policies.pool import PolicyPool
from pettingllms_trainers.rollout.episode import Episodes
from pettingllms_trainers.rollout.failures import FailureLog
from pettingllms_trainers.rollout.scripted import play_scripted_episode
from pettingllms_trainers.rollout.tree import RolloutSettings, RolloutSpec, play_episodes
from pettingllms_trainers.types import RolloutStatus, RolloutTree, SamplingSettings

__all__ = [
    "Arm",
    "RoleFigures",
    "evaluate_policies",
    "evaluate_scripted",
    "held_out_specs",
    "is_scripted",
]


@dataclass(frozen=True, kw_only=True, slots=True)
class RoleFigures:
    """How one role did on the held-out levels."""

    num_actions: int
    """Actions of the role."""
    reward: float
    """Mean reward of its actions."""
    parse_errors: float
    """Share of its actions that could not be read."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Arm:
    """Result of one way to play the held-out levels."""

    name: str
    """`greedy`, `sampled`, `swapped`, or `scripted:NAME`."""
    num_episodes: int
    """Levels that were played."""
    num_success: int
    """Levels that were solved; a failed rollout is not solved."""
    num_failed: int
    """Rollouts in which generation or the environment failed."""
    success_low: float
    """Lower end of the 95 % Wilson interval of the success share."""
    success_high: float
    """Upper end of it."""
    num_turns: float
    """Mean number of turns."""
    roles: Mapping[str, RoleFigures]
    """Figures of each role."""
    manifest: str
    """Hash over the initial states, in order: equal for equal held-out sets."""

    @property
    def success(self) -> float:
        """Share of levels that were solved."""
        return self.num_success / self.num_episodes

    def to_json(self) -> dict[str, Any]:
        """Return the arm as JSON data."""
        return {"success": self.success, **asdict(self)}

    def metrics(self) -> dict[str, float]:
        """Return the arm as metrics."""
        prefix = f"eval/{self.name}"
        values = {
            f"{prefix}/success": self.success,
            f"{prefix}/success_low": self.success_low,
            f"{prefix}/success_high": self.success_high,
            f"{prefix}/num_turns": self.num_turns,
            f"{prefix}/num_failed": self.num_failed,
        }
        for role, figures in self.roles.items():
            values[f"{prefix}/{role}/reward"] = figures.reward
            values[f"{prefix}/{role}/parse_errors"] = figures.parse_errors
        return values


def is_scripted(name: str) -> bool:
    """Return whether a name of an evaluation is that of a scripted policy, of an old run too."""
    return name.startswith(("scripted:", "reference:"))


def held_out_specs(num_episodes: int, seed: int) -> list[RolloutSpec]:
    """Return the episodes of the held-out set: those of `pettingllms eval` with this seed."""
    return [
        RolloutSpec(index, level_seed(seed, index), derive_seed(seed, "held-out", index))
        for index in range(num_episodes)
    ]


async def evaluate_policies(
    name: str,
    episodes: Episodes,
    pool: PolicyPool,
    specs: Sequence[RolloutSpec],
    sampling: Mapping[str, SamplingSettings],
    failures: FailureLog,
) -> Arm:
    """Play the held-out levels with policies, one sample per decision.

    Args:
        name: Name of the arm.
        episodes: Where the environments of the held-out split live.
        pool: Who plays which role.
        specs: The held-out set.
        sampling: By role; temperature 0 for greedy play.
        failures: Counts and tells what fails.

    Raises:
        RolloutError: More rollouts failed than allowed.
    """
    settings = RolloutSettings(num_candidates=1, sampling=sampling)
    trees = await play_episodes(episodes, pool, specs, settings, failures)
    actions: dict[str, list[tuple[float, bool]]] = defaultdict(list)
    for tree in trees:
        for decision in tree.decisions:
            candidate = decision.candidates[0]
            actions[decision.role].append((candidate.reward, candidate.parse_error is not None))
    return _arm(
        name,
        successes=[_is_solved(tree) for tree in trees],
        num_turns=[tree.outcome.num_turns for tree in trees if tree.outcome is not None],
        num_failed=sum(tree.status is not RolloutStatus.OK for tree in trees),
        actions=actions,
        hashes=[tree.initial_state_hash for tree in trees],
    )


def evaluate_scripted(
    env: TextEnv[Any], specs: Sequence[RolloutSpec], names: Sequence[str], roles: Sequence[str]
) -> list[Arm]:
    """Play the held-out levels with scripted policies, each in all roles.

    Args:
        env: Environment of the held-out split; it is not changed.
        specs: The held-out set.
        names: Scripted policies of the environment.
        roles: Roles of the team.

    Raises:
        InvalidArgument: The environment has no such scripted policy.
    """
    arms: list[Arm] = []
    for name in names:
        episodes = [
            play_scripted_episode(env, spec, {role: {name: 1.0} for role in roles})
            for spec in specs
        ]
        actions: dict[str, list[tuple[float, bool]]] = defaultdict(list)
        for episode in episodes:
            for decision in episode.decisions:
                actions[decision.role].append((decision.reward, decision.parse_error is not None))
        arms.append(
            _arm(
                f"scripted:{name}",
                successes=[episode.success for episode in episodes],
                num_turns=[episode.num_turns for episode in episodes],
                num_failed=0,
                actions=actions,
                hashes=[episode.initial_state_hash for episode in episodes],
            )
        )
    return arms


def _arm(
    name: str,
    *,
    successes: Sequence[bool],
    num_turns: Sequence[int],
    num_failed: int,
    actions: Mapping[str, Sequence[tuple[float, bool]]],
    hashes: Sequence[str],
) -> Arm:
    low, high = wilson_interval(fmean(successes), len(successes))
    roles = {
        role: RoleFigures(
            num_actions=len(found),
            reward=fmean(reward for reward, _ in found),
            parse_errors=fmean(is_error for _, is_error in found),
        )
        for role, found in actions.items()
    }
    return Arm(
        name=name,
        num_episodes=len(successes),
        num_success=sum(successes),
        num_failed=num_failed,
        success_low=low,
        success_high=high,
        num_turns=fmean(num_turns) if num_turns else 0.0,
        roles=roles,
        manifest=manifest_of(hashes),
    )


def _is_solved(tree: RolloutTree) -> bool:
    return tree.outcome is not None and tree.outcome.success
