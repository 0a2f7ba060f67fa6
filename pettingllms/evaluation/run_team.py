"""The team of a run, ready to play: in which environment, by which policies, sampled how."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pettingllms.errors import InvalidArgument, suggestion
from pettingllms.evaluation.plan import MAIN
from pettingllms.evaluation.run_folder import RunFolder
from pettingllms.evaluation.training_run import TrainingRun
from pettingllms.policies import Sampling
from pettingllms.trust import Name


@dataclass(frozen=True, kw_only=True, slots=True)
class RunTeam:
    """A team of a training run or an evaluation."""

    env_id: Name
    env_kwargs: Mapping[str, Any]
    """Arguments of the environment on held-out levels."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Options of `reset`."""
    policies: Mapping[str, Name]
    """Role (or agent, which comes before its role) -> name of its policy."""
    sampling: Mapping[str, Sampling]
    """Role -> how its completions are drawn."""
    levels: Mapping[str, int]
    """`seed` and number of `episodes` of the held-out levels, as far as they are known."""

    @classmethod
    def of_training(cls, run: TrainingRun, step: int | None = None) -> RunTeam:
        """Return what a training run has trained.

        Args:
            run: The run, or its part of one environment.
            step: Train step of a checkpoint; None for the newest policies.

        Raises:
            InvalidArgument: If there is no checkpoint of that step.
            RunFolderError: If nothing is trained yet.
        """
        policies = run.line_up(step)
        return cls(
            env_id=run.env_id,
            env_kwargs=run.held_out_kwargs(),
            policies=policies,
            sampling=run.sampling(policies),
            levels=run.levels(),
        )

    @classmethod
    def of_evaluation(cls, folder: RunFolder, variant: str = MAIN) -> RunTeam:
        """Return a variant of an evaluation.

        Raises:
            InvalidArgument: If it has no such variant.
        """
        plan = folder.plan
        if variant not in plan.variants:
            allowed = f"{', '.join(plan.variants)} of {folder.path}"
            raise InvalidArgument("variant", variant, allowed + suggestion(variant, plan.variants))
        return cls(
            env_id=plan.env_id,
            env_kwargs=plan.env_kwargs,
            options=plan.options,
            policies=plan.variants[variant],
            sampling=plan.sampling,
            levels={"seed": plan.seed, "episodes": plan.num_levels},
        )
