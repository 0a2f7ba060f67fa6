"""Weights on their way to other processes: as files, in memory where there is room for them."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
import uuid
from collections.abc import Generator, Iterable
from pathlib import Path

import torch
from safetensors.torch import save_file
from torch import Tensor

from pettingllms_trainers.errors import GenerationError
from pettingllms_trainers.ranks import Ranks

MEMORY_FILES = Path("/dev/shm")
"""File system that is memory, on Linux. In a container it is often 64 MiB."""

_SHARD_BYTES = 1 << 30
_MARGIN_BYTES = 16 << 20
"""Left free for others, such as queues between processes of an engine."""


@contextlib.contextmanager
def weight_files(
    weights: Iterable[tuple[str, Tensor]], dtype: torch.dtype, folder: str | Path = ""
) -> Generator[Path]:
    """Write weights for as long as others read them.

    Args:
        weights: Names and tensors.
        dtype: That of floating-point tensors in the files.
        folder: Where to; empty: in memory, and on the disk what has no room there.

    Yields:
        A folder of safetensors files, some of which may be links.

    Raises:
        GenerationError: There is no room for them.
    """
    disk = Path(tempfile.gettempdir())
    places = [Path(folder)] if folder else [MEMORY_FILES, disk] if MEMORY_FILES.is_dir() else [disk]
    with contextlib.ExitStack() as closing:
        folders = [
            Path(
                closing.enter_context(tempfile.TemporaryDirectory(prefix="pettingllms-", dir=place))
            )
            for place in places
        ]
        write_weights(folders, weights, dtype)
        yield folders[0]


@contextlib.contextmanager
def machine_files(
    weights: Iterable[tuple[str, Tensor]], dtype: torch.dtype, ranks: Ranks
) -> Generator[Path]:
    """Write weights once per machine, for as long as the engines of all its ranks read them.

    Collective: weights that are sharded are put together by all ranks, also by those that write
    none. For the rest see `weight_files`.
    """
    machines = ranks.gather([_machine()])
    mine = machines[ranks.rank]
    # Ranks of one machine share its memory: one copy serves all their engines.
    is_writer = machines.index(mine) == ranks.rank
    with weight_files(weights, dtype) if is_writer else contextlib.nullcontext() as written:
        for _ in () if is_writer else weights:
            pass
        folders = ranks.gather([written])
        folder = folders[machines.index(mine)]
        assert folder is not None, "the first rank of each machine writes"
        yield folder
        ranks.barrier()  # nobody reads any more


def _machine() -> str:
    """What is equal for processes that see the same files in memory."""
    try:
        # Containers on one computer share its boot, and have a /dev/shm of their own.
        boot = Path("/proc/sys/kernel/random/boot_id").read_text().strip()
        return f"{boot} {Path('/proc/self/ns/mnt').readlink()}"
    except OSError:  # no Linux
        return str(uuid.getnode())


def write_weights(
    folders: list[Path], weights: Iterable[tuple[str, Tensor]], dtype: torch.dtype
) -> None:
    """Write weights as safetensors files of about a gigabyte, so that one is in memory at a time.

    Args:
        folders: Where to; a file goes to the first that has room, and is linked in the first.
        weights: Names and tensors.
        dtype: That of floating-point tensors in the files.

    Raises:
        GenerationError: None has room.
    """
    shard: dict[str, Tensor] = {}
    num_bytes = num_shards = 0
    for name, tensor in weights:
        cast = tensor.to(dtype) if tensor.is_floating_point() else tensor
        # safetensors takes no views.
        shard[name] = cast.cpu().contiguous()
        num_bytes += shard[name].nbytes
        if num_bytes >= _SHARD_BYTES:
            _save(shard, num_bytes, f"{num_shards:05d}.safetensors", folders)
            num_shards, num_bytes, shard = num_shards + 1, 0, {}
    if shard:
        _save(shard, num_bytes, f"{num_shards:05d}.safetensors", folders)


def _save(shard: dict[str, Tensor], num_bytes: int, name: str, folders: list[Path]) -> None:
    free = {folder: shutil.disk_usage(folder).free for folder in folders}
    for folder in folders:
        if free[folder] >= num_bytes + _MARGIN_BYTES:
            save_file(shard, folder / name)
            if folder != folders[0]:
                (folders[0] / name).symlink_to(folder / name)
            return
    rooms = ", ".join(f"{folder.parent}: {room >> 20} MiB" for folder, room in free.items())
    raise GenerationError(
        f"the weights for the engine have no room: the next file takes {num_bytes >> 20} MiB, free "
        f"are {rooms}. Make room there, give a container more shared memory (--shm-size), or set "
        "TMPDIR (with servers: engine.vllm_server.sync_dir) to a folder with room"
    )
