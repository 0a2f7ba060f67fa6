"""The device that a configuration names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pettingllms_trainers.config import Config
from pettingllms_trainers.errors import ConfigError

if TYPE_CHECKING:
    import torch

__all__ = ["check_parallel", "computes_on_gpu", "named_device"]


def named_device(config: Config, num_ranks: int) -> torch.device:
    """Return the device of the policies, which need not be there.

    Args:
        config: The run's configuration.
        num_ranks: Processes of a launcher; each has a GPU of its own.

    Raises:
        ConfigError: There is no device of that name, or all processes would compute on one GPU.
    """
    # Imported here: torch takes seconds.
    import torch

    name = config.device
    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        reason = str(error).splitlines()[0]
        raise ConfigError(f"device = {name!r} cannot be used: {reason}") from error
    # With Ray every worker sees its own GPU only.
    if (
        num_ranks > 1
        and device.index is not None  # pyright: ignore[reportUnnecessaryComparison] torch's stub
        and device.type != "cpu"
        and not config.ray.enabled
    ):
        raise ConfigError(
            f"device = {name!r} is one GPU for all {num_ranks} processes; each needs its own. Set "
            f'device = "{device.type}" or "auto": the launcher then says which'
        )
    return device


def computes_on_gpu(config: Config, num_ranks: int) -> bool:
    """Return whether the policies compute on GPUs; asks for a device, so after `joined_ranks`.

    Workers of Ray have what is reserved for them, whatever this process sees.

    Args:
        config: The run's configuration.
        num_ranks: As for `named_device`.

    Raises:
        ConfigError: As for `named_device`.
    """
    if config.ray.enabled and config.device == "auto":
        return config.ray.gpus_per_worker > 0
    return named_device(config, num_ranks).type != "cpu"


def check_parallel(config: Config, num_ranks: int) -> None:
    """Make sure that engines can spread over as many GPUs as they should.

    Args:
        config: The run's configuration.
        num_ranks: Processes of a launcher, or workers of a policy.

    Raises:
        ConfigError: There are too few GPUs, or a launcher gives each process one.
    """
    # Imported here: torch takes seconds.
    import torch

    size = config.engine.num_shards
    if size == 1:
        return
    if num_ranks > 1 and not config.ray.enabled:
        raise ConfigError(
            f"engine.vllm.tensor_parallel_size is {size}, but a launcher has started {num_ranks} "
            "processes with one GPU each. Start the run without a launcher, with Ray, or with "
            'engine.kind = "vllm_server" and servers of that size'
        )
    count = torch.cuda.device_count()
    if torch.cuda.is_available() and count < size:
        raise ConfigError(
            f"engine.vllm.tensor_parallel_size is {size}, and this process sees {count} GPUs; it "
            "can be as many as there are"
        )
