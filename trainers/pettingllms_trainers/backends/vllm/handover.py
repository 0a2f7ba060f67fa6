"""Weights on their way to another process of this machine: as files, in memory where possible."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Generator, Iterable
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

__all__ = ["MEMORY_FILES", "memory_folder", "write_weights"]

MEMORY_FILES = Path("/dev/shm")
"""File system that is memory, on Linux."""

_SHARD_BYTES = 1 << 30


@contextlib.contextmanager
def memory_folder() -> Generator[Path]:
    """Return a new folder for as long as it takes."""
    parent = MEMORY_FILES if MEMORY_FILES.is_dir() else None
    with tempfile.TemporaryDirectory(prefix="pettingllms-", dir=parent) as folder:
        yield Path(folder)


def write_weights(folder: Path, weights: Iterable[tuple[str, Tensor]], dtype: torch.dtype) -> None:
    """Write weights as safetensors files of about a gigabyte, so that one is in memory at a time.

    Args:
        folder: Where to.
        weights: Names and tensors.
        dtype: Of floating-point tensors in the files.
    """
    shard: dict[str, Tensor] = {}
    num_bytes = num_shards = 0
    for name, tensor in weights:
        cast = tensor.to(dtype) if tensor.is_floating_point() else tensor
        shard[name] = cast.cpu().contiguous()
        num_bytes += shard[name].nbytes
        if num_bytes >= _SHARD_BYTES:
            save_file(shard, folder / f"{num_shards:05d}.safetensors")
            num_shards, num_bytes, shard = num_shards + 1, 0, {}
    if shard:
        save_file(shard, folder / f"{num_shards:05d}.safetensors")
