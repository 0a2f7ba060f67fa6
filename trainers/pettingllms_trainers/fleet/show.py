"""`pettingllms-train plan`: which GPUs for which role, shown and written."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from rich.console import Console
from transformers.utils import logging as transformers_logging

from pettingllms_trainers.config import Config
from pettingllms_trainers.fleet.planner import plan_fleet
from pettingllms_trainers.fleet.view import fleet_json, fleet_picture, fleet_view


def show_fleet(
    config: Config,
    *,
    num_gpus: int,
    gpu: str,
    usd_per_hour: float | None,
    recorded: Path | None,
    is_json: bool,
    picture: Path | None,
) -> int:
    """Plan the fleet of a run and show it; see `plan_fleet`.

    Args:
        config: The run.
        num_gpus: At most.
        gpu: Their kind.
        usd_per_hour: Of one.
        recorded: A run that says how long prompts and answers are.
        is_json: Whether plain values are written instead of tables.
        picture: Where a picture goes, a file of any format that matplotlib writes.

    Returns:
        Exit code.

    Raises:
        PettingLLMsError: Bad input.
    """
    transformers_logging.disable_progress_bar()
    plan = plan_fleet(
        config, num_gpus=num_gpus, gpu=gpu, usd_per_hour=usd_per_hour, recorded=recorded
    )
    if is_json:
        sys.stdout.write(f"{json.dumps(fleet_json(plan), indent=2)}\n")
    else:
        Console().print(fleet_view(plan))
    if picture is not None:
        fleet_picture(plan).savefig(picture, dpi=120)
    return 0
