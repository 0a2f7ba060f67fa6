"""The device of a run, the precision in which it is fast, and its global random generators."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pettingllms.errors import counted
from pettingllms_trainers.config import Config
from pettingllms_trainers.errors import ConfigError, reason_of
from pettingllms_trainers.ranks import Ranks

if TYPE_CHECKING:
    import torch
import contextlib
import random
import sys
from collections.abc import Generator

import numpy as np

_FLOAT32_ON_GPU = (
    'warning: engine.precision = "float32" on a GPU, which computes bfloat16 many times as fast, '
    'in half the memory. Set it to "bfloat16", or "auto"'
)
# By whether it is a GPU. On two cores updates of SmolLM2-135M were as fast with a quarter of the
# tokens, in a third of the memory.
_MICROBATCH_TOKENS = {True: 4096, False: 1024}
_CPU_INFO = Path("/proc/cpuinfo")
_BFLOAT16 = {"amx_bf16", "bf16"}
"""What Linux calls the matrix instructions for bfloat16, of Intel and Arm."""


def named_device(config: Config, num_ranks: int) -> torch.device:
    """The device of the policies, which need not be there.

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
        raise ConfigError(f"device = {name!r} cannot be used: {reason_of(error)}") from error
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
    """Whether the policies compute on GPUs; asks for a device, so after `joined_ranks`.

    Workers of Ray have what is reserved for them, whatever this process sees.

    Raises:
        ConfigError: As for `named_device`.
    """
    if config.ray.enabled and config.device == "auto":
        return config.ray.gpus_per_worker > 0
    return named_device(config, num_ranks).type != "cpu"


def check_parallel(config: Config, num_ranks: int) -> None:
    """Make sure that engines can spread over as many GPUs as they should.

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
            f"engine.vllm.tensor_parallel_size is {size}, and this process sees "
            f"{counted(count, 'GPU')}; it can be as many as there are"
        )


def fast_precision(
    device: torch.device, cpu_info: Path = _CPU_INFO
) -> tuple[Literal["float32", "bfloat16"], str]:
    """The precision in which a device computes fast, and why.

    Processors without matrix instructions for bfloat16 take longer than in float32: some convert
    every number, and the dot products of avx512_bf16 are slower than those of float32. A timing
    would tell, too, and another one under load, so that equal seeds would differ.

    Args:
        device: Computes.
        cpu_info: Where Linux says what the processor can.
    """
    # Imported here: torch takes seconds.
    import torch

    if device.type == "cuda":
        is_supported = torch.cuda.is_bf16_supported(including_emulation=False)
        reason = f"this GPU {'computes' if is_supported else 'does not compute'} bfloat16"
        return ("bfloat16" if is_supported else "float32"), reason
    known = set(cpu_info.read_text().split()) if cpu_info.is_file() else set[str]()
    if found := sorted(known & _BFLOAT16):
        return "bfloat16", f"this processor has {', '.join(found)}"
    return "float32", f"this processor has none of {', '.join(sorted(_BFLOAT16))}"


def for_device(config: Config, ranks: Ranks, *, on_gpu: bool) -> tuple[Config, str]:
    """A configuration with what the device decides, and a line about the precision.

    Args:
        config: Its engine.precision stays unless it is auto, with a line only if a GPU would
            compute in float32; optimizer.tokens_per_microbatch stays unless it is 0.
        ranks: The processes of the run; all take the same precision.
        on_gpu: Whether it computes on GPUs, which need not be seen by this process.
    """
    if not config.optimizer.tokens_per_microbatch:
        tokens = {"tokens_per_microbatch": _MICROBATCH_TOKENS[on_gpu]}
        optimizer = config.optimizer.model_copy(update=tokens)
        config = config.model_copy(update={"optimizer": optimizer})
    if config.engine.precision != "auto":
        is_slow = on_gpu and config.engine.precision == "float32"
        return config, _FLOAT32_ON_GPU if is_slow else ""
    # Imported here: torch takes seconds.
    import torch

    if on_gpu and not torch.cuda.is_available():
        found, reason = "bfloat16", "the GPUs are elsewhere"
    else:
        found, reason = fast_precision(torch.device("cuda" if on_gpu else "cpu"))
    # Ranks in two precisions would add up gradients of two models.
    if ranks.any(found == "float32"):
        found = "float32"
    engine = config.engine.model_copy(update={"precision": found})
    line = f"engine.precision = {found}, chosen here: {reason}"
    return config.model_copy(update={"engine": engine}), line


@contextlib.contextmanager
def kept_generators() -> Generator[None]:
    """Undo what happens inside to the global generators of Python, NumPy and torch.

    Libraries seed or draw from them when they start; results of the caller must not depend on that.
    torch is neither imported here, nor are GPUs touched that are not in use yet.
    """
    state, numpy_state = random.getstate(), np.random.get_state()
    torch = sys.modules.get("torch")
    try:
        with contextlib.ExitStack() as stack:
            if torch is not None:
                devices = range(torch.cuda.device_count()) if torch.cuda.is_initialized() else ()
                stack.enter_context(torch.random.fork_rng(devices))
            yield
    finally:
        random.setstate(state)
        np.random.set_state(numpy_state)
