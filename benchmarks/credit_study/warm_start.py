"""Warm starts, shared by all cells that begin alike: variants differ in what comes afterwards."""

from __future__ import annotations

import hashlib
import json
import subprocess
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from credit_study.runs import command_of, flag_lines
from pettingllms_trainers.config.loading import load_config

_LATER = ("algorithm", "rollout", "loss", "rewards")
"""Sections that decide nothing before the first train step."""


def warm_start(shared: Path, files: Sequence[Path], flags: Mapping[str, Any]) -> Path:
    """The directory of a run's warm start, which is run if none of its kind has been.

    Two cells that begin at the same time both run it, and one is kept: they are equal.

    Args:
        shared: Folder of the warm starts of a study, each named after all that decides it.
        files: Run files.
        flags: Keys that override theirs.
    """
    directory = shared / _identity(files, flags)
    if not directory.is_dir():
        with tempfile.TemporaryDirectory(dir=shared) as folder:
            own = Path(folder) / "run"
            command = command_of(files, {**flags, "output_dir": own}, "warm-start")
            subprocess.run(command, capture_output=True, check=True)
            try:
                own.rename(directory)
            except OSError:
                if not directory.is_dir():
                    raise  # else another cell was faster
    return directory


def weights_of(directory: Path) -> dict[str, Path]:
    """Policy -> directory of its weights after a warm start."""
    return {path.name: path for path in sorted((directory / "policies").iterdir())}


def begin_with(shared: Path, files: Sequence[Path], flags: Mapping[str, Any]) -> dict[str, Any]:
    """The flags of the same run with the weights of its warm start in its place.

    The run is the same bit by bit. See `warm_start` for the arguments; flags of a run without a
    warm start are returned as they are.
    """
    if not load_config(files, flag_lines(flags)).warm_start.num_steps:
        return dict(flags)
    weights = weights_of(warm_start(shared, files, flags))
    begun = {f"policies.{name}.model": path for name, path in weights.items()}
    return {**flags, **begun, "warm_start.num_steps": 0}


def _identity(files: Sequence[Path], flags: Mapping[str, Any]) -> str:
    config = load_config(files, flag_lines(flags)).model_dump(mode="json", exclude=set(_LATER))
    del config["env"]["kwargs"]["reward"], config["optimizer"]["learning_rate"]
    del config["optimizer"]["completions_per_minibatch"], config["optimizer"]["spread_prompts"]
    text = json.dumps(config, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]
