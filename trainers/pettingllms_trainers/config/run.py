"""The part of a configuration around the algorithm: what is played, shown, evaluated and saved."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field

from pettingllms_trainers.config.section import Section


class WarmStartConfig(Section):
    """Supervised steps on demonstrations, before reinforcement learning."""

    num_steps: int = Field(default=0, ge=0)
    """Supervised steps of every policy; 0: no warm start."""
    demonstrators: dict[
        str, Annotated[dict[str, Annotated[float, Field(gt=0)]], Field(min_length=1)]
    ] = Field(default={})
    """Role to the scripted policies of the environment that it learns to imitate, with weights:
    tool = { random = 0.9, oracle = 0.1 }. In a run of several environments also "ENV.ROLE"."""
    data: str = ""
    """A file of answers to imitate instead, .jsonl or .parquet, as `pettingllms data export --view
    sft` writes them: every role learns the answers of its own rows."""
    num_episodes: int = Field(default=256, ge=1)
    """Episodes that scripted policies demonstrate; those of several environments are in the ratio
    of their weights, at least one each."""
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
    """Levels of the held-out set, of each environment; the same ones at every evaluation."""
    seed: int = Field(default=0, ge=0)
    """Chooses the levels of the held-out set, whatever the seed of the run."""
    every: int = Field(default=0, ge=0)
    """Train steps between evaluations; 0: before and after training only."""
    decoding: Literal["greedy", "sampled", "both"] = "both"
    """How policies play the held-out levels; one way takes half of the time of both. With both,
    greedy play is shown while training, and some of its episodes are kept to be looked at."""
    temperature: float = Field(default=1.0, gt=0)
    """Temperature of sampled play; greedy play has none."""
    scripted: tuple[str, ...] = ()
    """Scripted policies of the environment that play the held-out levels too, for comparison."""
    swap_roles: bool = True
    """Whether the final report plays the roles with each other's policies."""

    @property
    def ways(self) -> tuple[str, ...]:
        """The ways of decoding by which the held-out levels are played, in this order."""
        return ("greedy", "sampled") if self.decoding == "both" else (self.decoding,)


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
    mlflow_experiment: str = ""
    """Experiment of MLflow that gets the metrics, at the place that the environment variable
    MLFLOW_TRACKING_URI names; empty: none. Needs the package mlflow."""
    trackio_project: str = ""
    """Project of Trackio that gets the metrics; empty: none. Needs the package trackio."""
    rollouts_every: int = Field(default=10, ge=0)
    """Train steps between rollout trees in rollouts.jsonl, besides those of the first and the last
    train step; 0: no trees at all."""
    num_rollouts: int = Field(default=4, ge=1)
    """Rollout trees of each environment that are written then: those first in most of whose
    decisions the candidates earned different rewards."""
    num_held_out: int = Field(default=4, ge=0)
    """Held-out episodes of each environment, played greedily, that are written before and after
    training."""
    max_rollouts_mb: float = Field(default=64.0, gt=0)
    """Size of rollouts.jsonl, at most, in MB. Where it would grow beyond, rollouts_every is doubled
    for what is there and what will come; first, last and held-out trees stay."""
