"""The device that a configuration names."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pettingllms_trainers.config import Config
from pettingllms_trainers.errors import ConfigError

if TYPE_CHECKING:
    import torch

__all__ = ["named_device"]


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
        and device.index is not None
        and device.type != "cpu"
        and not config.ray.enabled
    ):
        raise ConfigError(
            f"device = {name!r} is one GPU for all {num_ranks} processes; each needs its own. Set "
            f'device = "{device.type}" or "auto": the launcher then says which'
        )
    return device
