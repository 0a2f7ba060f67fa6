"""`pettingllms-train --dry-run`: check all that can be checked, show the plan, write nothing."""

from __future__ import annotations

import contextlib
import os
from datetime import timedelta
from pathlib import Path

from rich.console import Console
from transformers.utils import logging as transformers_logging

from pettingllms_trainers.backends.device import computes_on_gpu, with_fast_precision
from pettingllms_trainers.config import Config
from pettingllms_trainers.errors import ConfigError
from pettingllms_trainers.plan import Plan, make_plan
from pettingllms_trainers.plan.problems import errors_of
from pettingllms_trainers.plan.view import plan_view
from pettingllms_trainers.ranks import Ranks, joined_ranks
from pettingllms_trainers.rollout.environments import make_environments
from pettingllms_trainers.runs.folder import RunDirectory
from pettingllms_trainers.runs.measuring import measured
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
    files = RunDirectory(Path(config.output_dir))
    files.check(config, is_resumed=is_resumed)
    check_models(config)
    # Of the processes that torchrun has started; those that measure see their own GPU only.
    console = Console(quiet=os.environ.get("RANK", "0") != "0")
    with joined_ranks() if measures else contextlib.nullcontext(Ranks()) as ranks:
        on_gpu = num_gpus is not None or computes_on_gpu(config, ranks.size)
        config, chosen = with_fast_precision(files.settled(config), ranks, on_gpu=on_gpu)
        if chosen:
            console.print(chosen, highlight=False, soft_wrap=True)
        plan = make_plan(config, environments, num_gpus=num_gpus, gpu_gib=gpu_gib)
        console.print(plan_view(config, plan))
        if any(errors_of(config, plan)):
            return 2
        if measures:
            found = measured(config, environments, ranks)
            step_s = found.steps[0]["time/step_s"]
            text = _time_text(config, plan, step_s, found.evaluation_s)
            console.print(text, soft_wrap=True)
    return 0


def _time_text(config: Config, plan: Plan, step_s: float, evaluation_s: float) -> str:
    total = config.num_steps * step_s + plan.num_evaluations * evaluation_s
    return (
        f"Measured here, with untrained policies: a train step takes {step_s:.1f} s, an "
        f"evaluation {evaluation_s:.1f} s. {config.num_steps} train steps and "
        f"{plan.num_evaluations} evaluations take about {timedelta(seconds=round(total))}"
        + (", besides the warm start." if config.warm_start.num_steps else ".")
    )
