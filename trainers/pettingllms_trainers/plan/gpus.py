"""GPUs that are there, or that a plan is made for."""

from __future__ import annotations

import os
from typing import NamedTuple

from pettingllms_trainers.backends.device import named_device
from pettingllms_trainers.config import Config
from pettingllms_trainers.ranks import num_launched

__all__ = ["Devices", "devices_of"]

_GIB = 1 << 30


class Devices(NamedTuple):
    """What a run computes on."""

    found: str
    """What this machine has, for people."""
    num_gpus: int
    """Processes with a GPU each; 0 when the run computes on the CPU."""
    num_bytes: int
    """Memory of one GPU, or of the machine without one."""
    is_given: bool
    """Whether the plan is for another machine than this one."""

    @property
    def wanted(self) -> str:
        """What the plan is for, for people."""
        size = f"{self.num_bytes / _GIB:.0f} GiB"
        if not self.num_gpus:
            return f"the CPU, {size}"
        return f"{self.num_gpus} GPU{'s' * (self.num_gpus > 1)} of {size}"


def devices_of(config: Config, num_gpus: int | None, gpu_gib: float | None) -> Devices:
    """Return the devices to plan for: those given, else those that the run would use here.

    Args:
        config: The run's configuration.
        num_gpus: GPUs to plan for; None for those of the launched processes and of Ray.
        gpu_gib: Memory of each of them in GiB; None for that of the GPUs here, 80 without any.

    Raises:
        ConfigError: The device that is named cannot be one.
    """
    import torch

    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    sizes = [torch.cuda.get_device_properties(index).total_memory for index in range(count)]
    host = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    cpu = f"{os.cpu_count()} CPU cores, {host / _GIB:.0f} GiB"
    found = f"{cpu}, " + (f"{count} GPUs of {min(sizes) / _GIB:.0f} GiB" if count else "no GPU")
    is_given = num_gpus is not None or gpu_gib is not None
    is_spread = config.engine.kind == "vllm" and config.engine.vllm.tensor_parallel_size > 1
    num_ranks = num_gpus or (count if is_spread and count else num_launched())
    if named_device(config, num_ranks).type == "cpu" and not is_given:
        return Devices(found, 0, host, False)
    here = min(sizes) if sizes else 80 * _GIB
    size = here if gpu_gib is None else round(gpu_gib * _GIB)
    return Devices(found, num_ranks, size, is_given)
