"""`pettingllms-train --dry-run`: check all that can be checked, show the plan, write nothing."""

from __future__ import annotations

import os
from pathlib import Path

from rich.console import Console
from transformers.utils import logging as transformers_logging

from pettingllms_trainers.config import Config
from pettingllms_trainers.errors import ConfigError
from pettingllms_trainers.plan import make_plan
from pettingllms_trainers.plan.view import errors_of, plan_view
from pettingllms_trainers.rollout.environments import make_environments
from pettingllms_trainers.runs.folder import RunDirectory
from pettingllms_trainers.runs.prompts import check_models
from pettingllms_trainers.runs.trackers import check_trackers

__all__ = ["show_plan"]


def show_plan(
    config: Config,
    *,
    is_resumed: bool = False,
    num_gpus: int | None = None,
    gpu_gib: float | None = None,
    measures: bool = False,
) -> int:
    """Show the plan of a run.

    Args:
        config: The run's configuration.
        is_resumed: Whether the run would continue what is in its output directory.
        num_gpus: GPUs to plan for; None for what the run would use here.
        gpu_gib: Memory of each GPU in GiB; None for that of the GPUs here, 80 without any.
        measures: Whether a train step and an evaluation are played here to estimate the time.

    Returns:
        Exit code: that of a start which is refused, where the run would not start.

    Raises:
        PettingLLMsError: Bad input.
    """
    if (num_gpus is not None and num_gpus < 1) or (gpu_gib is not None and gpu_gib <= 0):
        raise ConfigError(f"--gpus is {num_gpus} and --gpu-memory {gpu_gib}; both must be positive")
    transformers_logging.disable_progress_bar()
    check_trackers(config.logging)
    environments = make_environments(config)
    RunDirectory(Path(config.output_dir)).check(config, is_resumed=is_resumed)
    check_models(config)
    plan = make_plan(config, environments, num_gpus=num_gpus, gpu_gib=gpu_gib)
    is_main = os.environ.get("RANK", "0") == "0"  # of the processes that torchrun has started
    console = Console(quiet=not is_main)
    console.print(plan_view(config, plan))
    if any(errors_of(config, plan)):
        return 2
    if measures:
        from pettingllms_trainers.plan.measure import measure, time_text

        console.print(time_text(config, plan, measure(config, environments)), soft_wrap=True)
    return 0
