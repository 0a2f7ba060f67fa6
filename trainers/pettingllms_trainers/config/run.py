"""The part of a configuration around the algorithm: what is played, shown, evaluated and saved."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from pettingllms.registry import WORKFLOW_PREFIX
from pettingllms_trainers.config.section import Section

__all__ = [
    "CheckpointConfig",
    "EnvConfig",
    "EvaluationConfig",
    "LoggingConfig",
    "StageConfig",
    "WarmStartConfig",
]


class StageConfig(Section):
    """A stage of training: arguments of the environment for some train steps.

    The warm start plays the first stage; held-out evaluation does not follow the stages.
    """

    kwargs: dict[str, Any] = Field(default={})
    """Arguments of the environment that differ from [env.kwargs] during the stage."""
    num_steps: int | None = Field(default=None, ge=1)
    """Train steps of the stage; the last stage has none and lasts to the end of the run."""


class EnvConfig(Section):
    """The environment that is played."""

    id: str
    """Id of an installed environment, such as plan_path_v0."""
    workflow: str = ""
    """In place of id: package.module:name of a workflow, or of a function that returns one; its
    arguments are [env.kwargs.arguments]."""
    kwargs: dict[str, Any] = Field(default={})
    """Arguments of the environment; flags may add to them: --env.kwargs.size 8."""
    curriculum: tuple[StageConfig, ...] = ()
    """Stages of training, in order; none: [env.kwargs] throughout. The warm start plays the first
    stage; held-out evaluation plays [evaluation.kwargs] over [env.kwargs] at every stage."""

    @model_validator(mode="before")
    @classmethod
    def _name_workflow(cls, data: Any) -> Any:
        """A workflow has the id that its path makes."""
        if not isinstance(data, dict) or not data.get("workflow"):
            return data
        id = f"{WORKFLOW_PREFIX}{data['workflow']}"
        if data.get("id", id) != id:
            raise ValueError(
                f"env has both id = {data['id']!r} and workflow = {data['workflow']!r}; name one"
            )
        return {**data, "id": id}

    @model_validator(mode="after")
    def _check_curriculum(self) -> EnvConfig:
        for number, stage in enumerate(self.curriculum, 1):
            is_last = number == len(self.curriculum)
            if is_last and stage.num_steps is not None:
                raise ValueError(
                    f"stage {number} of env.curriculum has num_steps = {stage.num_steps}; the last "
                    "stage lasts to the end of the run: remove its num_steps"
                )
            if not is_last and stage.num_steps is None:
                raise ValueError(
                    f"stage {number} of env.curriculum has no num_steps; only the last stage, "
                    f"number {len(self.curriculum)}, lasts to the end of the run"
                )
        return self

    @property
    def stage_kwargs(self) -> tuple[dict[str, Any], ...]:
        """Arguments of the training environment in every stage; one without a curriculum."""
        if not self.curriculum:
            return (self.kwargs,)
        return tuple({**self.kwargs, **stage.kwargs} for stage in self.curriculum)

    @property
    def stage_starts(self) -> tuple[int, ...]:
        """Train steps that come before every stage, from 0, strictly increasing."""
        return (0, *accumulate(stage.num_steps or 0 for stage in self.curriculum[:-1]))

    def stage_at(self, step: int) -> int:
        """Return the index of the stage that a train step plays; it depends on nothing else.

        Args:
            step: Train steps that come before it, from 0.
        """
        return bisect_right(self.stage_starts, step) - 1


class WarmStartConfig(Section):
    """Supervised steps on demonstrations of scripted policies, before reinforcement learning."""

    num_steps: int = Field(default=0, ge=0)
    """Supervised steps of every policy; 0: no warm start."""
    demonstrators: dict[
        str, Annotated[dict[str, Annotated[float, Field(gt=0)]], Field(min_length=1)]
    ] = Field(default={})
    """Role to the scripted policies of the environment that it learns to imitate, with weights:
    tool = { random = 0.9, oracle = 0.1 }."""
    num_episodes: int = Field(default=256, ge=1)
    """Episodes that are demonstrated."""
    batch_size: int = Field(default=64, ge=1)
    """Demonstrations per supervised step."""
    learning_rate: float = Field(default=0.0, ge=0)
    """Learning rate of the supervised steps; 0: as what is trained: 1e-5 for full weights, 2e-4 for
    adapters, 3e-3 for tiny models."""


class EvaluationConfig(Section):
    """Held-out evaluation: one sample per decision, no tree."""

    kwargs: dict[str, Any] = Field(default={})
    """Arguments of the environment that differ from [env.kwargs], whatever the stage of a
    curriculum; split is "test" unless given."""
    num_episodes: int = Field(default=128, ge=1)
    """Levels of the held-out set; the same ones at every evaluation."""
    seed: int = Field(default=0, ge=0)
    """Chooses the levels of the held-out set, whatever the seed of the run."""
    every: int = Field(default=0, ge=0)
    """Train steps between evaluations; 0: before and after training only."""
    temperature: float = Field(default=1.0, gt=0)
    """Temperature of sampled play; greedy play has none."""
    scripted: tuple[str, ...] = ()
    """Scripted policies of the environment that play the held-out levels too, for comparison."""
    swap_roles: bool = True
    """Whether the final report plays the roles with each other's policies."""


class CheckpointConfig(Section):
    """When the run can be resumed from."""

    every: int = Field(default=10, ge=1)
    """Train steps between checkpoints."""
    keep: int = Field(default=2, ge=1)
    """Newest checkpoints that are kept."""


class LoggingConfig(Section):
    """What is shown and written beside the metrics. May differ when a run is resumed."""

    progress: Literal["auto", "live", "plain", "off"] = "auto"
    """Progress view: a live table, one line per train step, nothing; auto: live on a terminal."""
    tensorboard: bool = True
    """Whether TensorBoard files are written when the package tensorboard is installed."""
    wandb_project: str = ""
    """Project at Weights & Biases that gets the metrics; empty: none. Needs the package wandb."""
    wandb_entity: str = ""
    """User or team there; empty: that of the login."""
    wandb_name: str = ""
    """Name of the run there; empty: that of output_dir."""
    wandb_mode: Literal["auto", "online", "offline"] = "auto"
    """offline: kept below output_dir, to be sent with `wandb sync`; auto: as the environment
    variable WANDB_MODE says, else online."""
    rollouts_every: int = Field(default=10, ge=0)
    """Train steps between rollout trees in rollouts.jsonl, besides those of the first and the last
    train step; 0: no trees at all."""
    num_rollouts: int = Field(default=4, ge=1)
    """Rollout trees that are written then: those first in most of whose decisions the candidates
    earned different rewards."""
    num_held_out: int = Field(default=4, ge=0)
    """Held-out episodes, played greedily, that are written before and after training."""
    max_rollouts_mb: float = Field(default=64.0, gt=0)
    """Size of rollouts.jsonl, at most, in MB. Where it would grow beyond, rollouts_every is doubled
    for what is there and what will come; first, last and held-out trees stay."""
