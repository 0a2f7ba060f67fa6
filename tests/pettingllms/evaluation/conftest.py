"""Results made by hand."""

import pytest

from pettingllms.evaluation import EpisodeResult, RoleResult


@pytest.fixture
def result():
    """Return a function that makes the result of an episode."""

    def result(level, success, *, sample=0, variant="main", state=None, **role):
        return EpisodeResult(
            variant=variant,
            level=level,
            sample=sample,
            level_seed=level,
            seed=0,
            initial_state_hash=state or f"state {level}",
            success=success,
            end="answered" if success else "turns",
            num_turns=1 + level % 3,
            returns={"planner_0": float(success)},
            roles={"planner": RoleResult(**{"num_actions": 2, "reward": float(success), **role})},
            wall_s=0.0,
        )

    return result
