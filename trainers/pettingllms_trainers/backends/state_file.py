"""Files of tensors, numbers and texts: written durably, read without executing anything."""

from __future__ import annotations

import os
import pickle
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch

from pettingllms_trainers.errors import CheckpointError

__all__ = ["read_state", "write_state"]


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
