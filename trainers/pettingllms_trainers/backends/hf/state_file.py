"""Files of tensors, numbers and texts: written durably, read without executing anything."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from pettingllms_trainers.errors import CheckpointError

__all__ = ["read_shares", "read_state", "write_share", "write_state"]

_MAIN = "state.pt"


def write_state(path: Path, state: Mapping[str, Any]) -> None:
    """Write a state and make it durable."""
    with path.open("wb") as file:
        torch.save(dict(state), file)
        file.flush()
        os.fsync(file.fileno())


def read_state(path: Path) -> dict[str, Any]:
    """Return a state, its tensors on the CPU.

    Raises:
        CheckpointError: The file is missing or damaged.
    """
    try:
        # Mapped: what is not used of a large state is not read.
        return torch.load(path, weights_only=True, map_location="cpu", mmap=True)
    except (RuntimeError, OSError, EOFError, pickle.UnpicklingError) as error:
        raise CheckpointError(
            f"the checkpoint {path.parent.parent} is damaged: {path.name}: {error}. Remove this "
            "directory to resume from the checkpoint before it, or from the start"
        ) from error


def write_share(directory: Path, rank: int, state: Mapping[str, Any]) -> None:
    """Write what one rank saves of a state: entries, or parts of those that are tables."""
    write_state(directory / (_MAIN if rank == 0 else f"state-{rank}.pt"), state)


def read_shares(directory: Path) -> dict[str, Any]:
    """Return the state that all ranks have written into a directory, put together.

    Raises:
        CheckpointError: A file is missing or damaged.
    """
    whole = read_state(directory / _MAIN)
    for path in sorted(directory.glob("state-*.pt")):
        for name, value in read_state(path).items():
            whole[name] = whole[name] | value if isinstance(value, dict) else value
    return whole
