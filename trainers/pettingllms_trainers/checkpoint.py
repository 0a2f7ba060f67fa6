"""Checkpoints: written whole or not at all, read back exactly or refused with the reason."""

from __future__ import annotations

import json
import os
import pickle
import re
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from pettingllms_trainers.errors import CheckpointError
from pettingllms_trainers.run_files import fsync_directory

__all__ = ["Checkpoint", "load_checkpoint", "save_checkpoint"]

_FORMAT = 1
_MANIFEST = "checkpoint.json"
_KEYS = {"format", "config_hash", "step", "num_levels_used", "policies"}
_PARTIAL = ".partial-"
_NAME = re.compile(r"step-(\d{8})")


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint:
    """All that a run needs to go on as if it had never stopped."""

    step: int
    """Train steps that are done."""
    num_levels_used: int
    """Level cursor: training levels drawn so far."""
    policies: Mapping[str, Mapping[str, Any]]
    """`Update.state_dict()` of every trainable policy."""


def save_checkpoint(
    directory: Path, checkpoint: Checkpoint, *, config_hash: str, keep: int
) -> Path:
    """Write a checkpoint, unless that of its step exists, and remove the oldest beyond `keep`.

    A crash, a full disk or SIGKILL at any moment leaves all earlier checkpoints usable and no half
    one under a checkpoint's name.

    Args:
        directory: Holds all checkpoints of a run.
        checkpoint: What to write.
        config_hash: Of the run's configuration.
        keep: Number of newest checkpoints that stay, at least 1.

    Returns:
        The directory of the new checkpoint.
    """
    final = directory / f"step-{checkpoint.step:08d}"
    if final.exists():
        return final
    directory.mkdir(parents=True, exist_ok=True)
    for leftover in directory.glob(f"{_PARTIAL}*"):
        shutil.rmtree(leftover)
    partial = directory / f"{_PARTIAL}{final.name}"
    try:
        _write(partial, checkpoint, config_hash)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    os.replace(partial, final)
    fsync_directory(directory)
    for old in _all(directory)[:-keep]:
        shutil.rmtree(old)
    return final


def load_checkpoint(directory: Path, *, config_hash: str) -> Checkpoint | None:
    """Return the newest checkpoint of a run; None when it has none yet.

    Args:
        directory: Holds all checkpoints of a run.
        config_hash: Of the configuration that wants to go on.

    Raises:
        CheckpointError: It is damaged, of another format, or of another configuration.
    """
    found = _all(directory)
    if not found:
        return None
    path = found[-1]
    manifest = _read_manifest(path)
    if manifest["format"] != _FORMAT:
        raise CheckpointError(
            f"{path} has the checkpoint format {manifest.get('format')}; this version reads "
            f"{_FORMAT}. Resume with the version that wrote it"
        )
    if manifest["config_hash"] != config_hash:
        raise CheckpointError(
            f"{path} was written by a run of another configuration (hash "
            f"{manifest['config_hash']}, this one has {config_hash})"
        )
    return Checkpoint(
        step=manifest["step"],
        num_levels_used=manifest["num_levels_used"],
        policies={name: _read_policy(path, file) for name, file in manifest["policies"].items()},
    )


def _write(partial: Path, checkpoint: Checkpoint, config_hash: str) -> None:
    partial.mkdir()
    files: dict[str, dict[str, Any]] = {}
    for index, (name, state) in enumerate(checkpoint.policies.items()):
        path = partial / f"policy-{index}.pt"
        with path.open("wb") as file:
            torch.save(dict(state), file)
            file.flush()
            os.fsync(file.fileno())
        files[name] = {"file": path.name, "num_bytes": path.stat().st_size}
    manifest = {
        "format": _FORMAT,
        "config_hash": config_hash,
        "step": checkpoint.step,
        "num_levels_used": checkpoint.num_levels_used,
        "policies": files,
    }
    with (partial / _MANIFEST).open("w", encoding="utf-8") as file:
        json.dump(manifest, file, indent=2)
        file.flush()
        os.fsync(file.fileno())
    fsync_directory(partial)


def _all(directory: Path) -> list[Path]:
    if not directory.is_dir():
        return []
    return sorted(path for path in directory.iterdir() if _NAME.fullmatch(path.name))


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        manifest = json.loads((path / _MANIFEST).read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise _damaged(path, f"{_MANIFEST}: {error}") from error
    if not isinstance(manifest, dict) or not set(manifest) >= _KEYS:
        raise _damaged(path, f"{_MANIFEST} lacks some of {', '.join(sorted(_KEYS))}")
    return manifest


def _read_policy(path: Path, entry: Mapping[str, Any]) -> dict[str, Any]:
    file = path / entry["file"]
    num_bytes = file.stat().st_size if file.is_file() else 0
    if num_bytes != entry["num_bytes"]:
        raise _damaged(path, f"{file.name} has {num_bytes} of {entry['num_bytes']} bytes")
    try:
        return torch.load(file, weights_only=True, map_location="cpu")
    except (RuntimeError, OSError, EOFError, pickle.UnpicklingError) as error:
        raise _damaged(path, f"{file.name}: {error}") from error


def _damaged(path: Path, problem: str) -> CheckpointError:
    return CheckpointError(
        f"the checkpoint {path} is damaged: {problem}. Remove this directory to resume from the "
        "checkpoint before it, or from the start"
    )
