"""Learning with DeepSpeed: optimizer state, gradients and weights sharded over ranks (ZeRO).

Source: ZeRO (arXiv 1910.02054); DeepSpeed's engine is driven directly. Differs from the plain
optimizer in where things are, not in what is computed.
"""

from __future__ import annotations

import contextlib
import io
import logging
import math
import os
import warnings
from collections.abc import Generator, Mapping
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils.versions import require_version

from pettingllms_trainers.backends.hf.learner import Learner
from pettingllms_trainers.backends.hf.optimizer import MOMENTS, ShardedOptimizer, adamw
from pettingllms_trainers.backends.hf.weights import ModelWeights, Replicated
from pettingllms_trainers.config import DeepSpeedConfig, OptimizerConfig
from pettingllms_trainers.errors import MissingPackage
from pettingllms_trainers.ranks import Ranks, connect_alone

_REQUIREMENT = "deepspeed>=0.19.8"
"""Older ones take a step in float32 although the gradient is not finite."""


def check_deepspeed() -> None:
    """Find out whether DeepSpeed can be used.

    Raises:
        MissingPackage: It is not installed, or too old.
    """
    try:
        import_module("deepspeed")
        require_version(_REQUIREMENT)
    except ImportError as error:
        raise MissingPackage("deepspeed.stage", "deepspeed", "deepspeed", error) from error


@contextlib.contextmanager
def loading_shards(
    config: OptimizerConfig, precision: str, deepspeed: DeepSpeedConfig
) -> Generator[None]:
    """The context in which transformers loads models in shards (stage 3).

    Every weight is divided as soon as its layer is made, and filled from files that all processes
    of a machine map to the same memory: no process ever has all weights of its own.

    Raises:
        MissingPackage: DeepSpeed is not installed.
    """
    _prepared()
    integration = import_module("transformers.integrations.deepspeed")
    # transformers looks it up by a weak reference; models that are loaded later are not meant.
    found = integration.HfDeepSpeedConfig(_settings(config, precision, deepspeed))
    try:
        yield
    finally:
        integration.unset_hf_deepspeed_config()
        del found


def zero_learner(
    model: PreTrainedModel,
    config: OptimizerConfig,
    precision: str,
    ranks: Ranks,
    deepspeed: DeepSpeedConfig,
) -> Learner:
    """A learner of which every rank holds a part.

    Args:
        model: The weights; for stage 3 loaded in `loading_shards`.
        config: Betas, weight decay, clipping, packing, micro-batch size, checkpointing.
        precision: ``float32``, or ``bfloat16`` with weights in float32 for the optimizer alone.
        ranks: The processes that train the model together.
        deepspeed: What is sharded.

    Raises:
        MissingPackage: DeepSpeed is not installed.
    """
    package = _prepared()
    placement = _ZeroPlacement(package) if deepspeed.stage == 3 else Replicated()
    weights = ModelWeights(model, ranks, placement)
    optimizer = adamw(weights, config)
    settings = _settings(config, precision, deepspeed)
    if isinstance(placement, _ZeroPlacement):
        device = package.get_accelerator().current_device_name()
        # DeepSpeed moves parameters only.
        for buffer in model.buffers():
            buffer.data = buffer.data.to(device)
    elif precision == "bfloat16":
        for parameter in model.parameters():
            parameter.data = parameter.data.bfloat16()
    with contextlib.redirect_stdout(io.StringIO()):  # it prints how much memory is used
        engine, *_ = package.initialize(model=model, optimizer=optimizer, config=settings)
    if isinstance(placement, _ZeroPlacement):
        placement.engine = engine
    steps = _ZeroOptimizer(weights, optimizer, engine, ranks, package.utils)
    return Learner(weights, steps, config, precision, ranks)


class _ZeroPlacement(Replicated):
    """Every process holds a part of every weight (stage 3); a forward pass gathers them in turn."""

    is_sharded = True

    def __init__(self, package: Any) -> None:
        self._package = package
        self.engine: Any = None

    @contextlib.contextmanager
    def full(self, parameter: nn.Parameter) -> Generator[Tensor]:
        with self._package.zero.GatheredParameters([parameter]):
            yield parameter.detach()

    def write(self, parameter: nn.Parameter, value: Tensor) -> None:
        with self._package.zero.GatheredParameters([parameter], modifier_rank=0):
            parameter.copy_(value)

    def held(self, parameter: nn.Parameter) -> Tensor:
        shard: Any = parameter
        return shard.ds_tensor

    def shape(self, parameter: nn.Parameter) -> tuple[int, ...]:
        shard: Any = parameter
        return tuple(shard.ds_shape)

    def forget_gathered(self) -> None:
        self.engine.empty_partition_cache()


class _ZeroOptimizer(ShardedOptimizer):
    """AdamW behind DeepSpeed's engine, which has weights in float32 of its own."""

    library = "DeepSpeed"

    def __init__(
        self,
        weights: ModelWeights,
        adamw: torch.optim.Optimizer,
        engine: Any,
        ranks: Ranks,
        utils: Any,
    ) -> None:
        self._weights, self._adamw, self._ranks, self._utils = weights, adamw, ranks, utils
        self.forward = engine
        self._make_moments()

    def _make_moments(self) -> None:
        """Make the moments that AdamW would make in its first step.

        A checkpoint is written and read before that step too, and DeepSpeed then finds them.
        """
        zero = self.forward.optimizer
        for flat in (
            zero.fp32_partitioned_groups_flat
            if self._weights.is_sharded
            else zero.single_partition_of_fp32_groups
        ):
            state = {"step": torch.zeros((), device=flat.device)}
            self._adamw.state[flat] = state | {kind: torch.zeros_like(flat) for kind in MOMENTS}
        if not self._weights.is_sharded:
            zero._lazy_init_hp_params_optimizer_state()  # what it calls after its first step

    def backward(self, loss: Tensor, *, is_last: bool) -> None:
        self.forward.set_gradient_accumulation_boundary(is_last)
        # The engine takes the mean over ranks; the weights of tokens are made for the sum.
        self.forward.backward(loss * self._ranks.size, scale_wrt_gas=False)

    def step(self, learning_rate: float, *, is_reduced: bool = False) -> float:
        assert not is_reduced, "the configuration refuses role gradients of sharded weights"
        for group in self._adamw.param_groups:
            group["lr"] = learning_rate
        self.forward.step()
        if not self.forward.was_step_applied():
            return math.inf
        return float(self.forward.get_global_grad_norm())

    def clear_gradients(self) -> None:
        """Do nothing: a step of the engine does it, and its buffers must stay."""

    def restart(self) -> None:
        for state in self._adamw.state.values():
            for value in state.values():
                value.zero_()

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        self._weights.load(weights)
        for name, parameter in self._weights.trained.items():
            value = weights[name].to(self.forward.device, torch.float32)
            self._utils.safe_set_full_fp32_param(parameter, value)

    def _full(self, parameter: nn.Parameter) -> dict[str, Tensor]:
        moment = self._utils.safe_get_full_optimizer_state
        return {"model": self._utils.safe_get_full_fp32_param(parameter)} | {
            kind: moment(parameter, kind) for kind in MOMENTS
        }

    def _num_steps(self) -> int:
        return int(next(iter(self._adamw.state.values()))["step"])

    def _set_moments(self, moments: Mapping[str, Mapping[str, Tensor]], num_steps: int) -> None:
        for name, parameter in self._weights.trained.items():
            for kind, values in moments.items():
                moment = values[name].to(self.forward.device)
                self._utils.safe_set_full_optimizer_state(parameter, moment, kind)
        for state in self._adamw.state.values():
            state["step"].fill_(num_steps)


def _settings(
    config: OptimizerConfig, precision: str, deepspeed: DeepSpeedConfig
) -> dict[str, Any]:
    """What DeepSpeed calls its configuration."""
    on_cpu = {"device": "cpu", "pin_memory": torch.cuda.is_available()}
    zero: dict[str, Any] = {"stage": deepspeed.stage}
    if deepspeed.offload != "none":
        zero["offload_optimizer"] = on_cpu
    if deepspeed.offload == "all":
        zero["offload_param"] = on_cpu
    if deepspeed.stage == 3:
        zero["stage3_param_persistence_threshold"] = 0  # no weight is whole between two passes
        zero["memory_efficient_linear"] = False  # it replaces a function of torch for good
    settings: dict[str, Any] = {
        "train_micro_batch_size_per_gpu": 1,
        "gradient_accumulation_steps": 1,  # mini-batches differ; see `_backward`
        "gradient_clipping": config.max_grad_norm,
        "zero_optimization": zero,
        "zero_allow_untested_optimizer": True,
        "zero_force_ds_cpu_optimizer": False,  # it is compiled when it is first used
    }
    if precision == "bfloat16":
        settings["bf16"] = {"enabled": True, "check_grad_overflow": True}
        settings["data_types"] = {"grad_accum_dtype": "fp32"}
    return settings


def _prepared() -> Any:
    """The package, ready to be used by processes that torch has connected, or by one."""
    has_gpu = torch.cuda.is_available()
    if not has_gpu:
        os.environ.setdefault("DS_ACCELERATOR", "cpu")
    os.environ.setdefault("LOCAL_RANK", "0")
    check_deepspeed()
    logging.getLogger("DeepSpeed").setLevel(logging.ERROR)
    # The package calls torch by names that still work.
    warnings.filterwarnings("ignore", r"`torch\.distributed\.\w+` is deprecated", FutureWarning)
    if not has_gpu:
        # Compiled when it is first used; gloo does the same.
        import_module("deepspeed.ops").__compatible_ops__["deepspeed_shm_comm"] = False
    connect_alone()
    return import_module("deepspeed")
