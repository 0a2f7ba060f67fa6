"""The learner with DeepSpeed: optimizer state, gradients and weights shared out among ranks (ZeRO).

Source: ZeRO (arXiv 1910.02054); DeepSpeed's engine is driven directly. Differs from the plain
learner in where things are, not in what is computed.
"""

from __future__ import annotations

import atexit
import contextlib
import io
import logging
import math
import os
import warnings
from collections.abc import Iterator, Mapping
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils.versions import require_version

from pettingllms_trainers.algorithm.minibatch import WeightedGroup
from pettingllms_trainers.backends.hf.learner import Learner
from pettingllms_trainers.config import DeepSpeedConfig, OptimizerConfig
from pettingllms_trainers.errors import CheckpointError, ConfigError
from pettingllms_trainers.ranks import Ranks, leave_group
from pettingllms_trainers.types import TrainingCompletion, TrainingGroup

__all__ = ["DeepSpeedLearner", "check_deepspeed"]

_MOMENTS = ("exp_avg", "exp_avg_sq")
_REQUIREMENT = "deepspeed>=0.19.8"
"""Older ones take a step in float32 although the gradient is not finite."""


def check_deepspeed() -> None:
    """Find out whether DeepSpeed can be used.

    Raises:
        ConfigError: It is not installed, or too old.
    """
    try:
        import_module("deepspeed")
        require_version(_REQUIREMENT)
    except ImportError as error:
        raise ConfigError(
            f"deepspeed.stage needs the package deepspeed, which cannot be used ({error}). "
            'Install it with: pip install "pettingllms-trainers[deepspeed]"'
        ) from error


class DeepSpeedLearner(Learner):
    """A model with AdamW of which every rank has a part; see `Learner`.

    Args:
        model: The weights. With stage 3 they are nowhere whole afterwards; see `named_weights`.
        config: Betas, weight decay, clipping, packing, micro-batch size, checkpointing.
        precision: ``float32``, or ``bfloat16`` with weights in float32 for the optimizer alone.
        ranks: The processes that train the model together.
        deepspeed: What is shared out.

    Raises:
        ConfigError: DeepSpeed is not installed.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        config: OptimizerConfig,
        precision: str,
        ranks: Ranks,
        deepspeed: DeepSpeedConfig,
    ) -> None:
        super().__init__(model, config, precision, ranks)
        self._is_sharded = deepspeed.stage == 3
        self._deepspeed = _prepared()
        if precision == "bfloat16":
            for parameter in model.parameters():
                parameter.data = parameter.data.bfloat16()
        self._engine = self._start(_settings(config, precision, deepspeed))
        self._make_state()

    def _start(self, settings: dict[str, Any]) -> Any:
        if self._is_sharded:
            # Weight by weight, so that the model need not fit on one GPU.
            self._deepspeed.zero.Init(
                self.model, mem_efficient_linear=False, config_dict_or_path=settings
            )
            device = self._deepspeed.get_accelerator().current_device_name()
            for buffer in self.model.buffers():
                buffer.data = buffer.data.to(device)
        with contextlib.redirect_stdout(io.StringIO()):  # it prints how much memory is used
            engine, *_ = self._deepspeed.initialize(
                model=self.model, optimizer=self.optimizer, config=settings
            )
        return engine

    def _make_state(self) -> None:
        """Take a step that changes nothing: from now on AdamW has a state to read and to set."""
        self._set_learning_rate(0.0)
        if not self._is_sharded:
            # The engine knows the state of parameter groups that have one after its first step.
            parameters = [p for group in self.optimizer.param_groups for p in group["params"]]
            empty = [parameter for parameter in parameters if parameter.grad is None]
            for parameter in empty:
                parameter.grad = torch.zeros_like(parameter)
            self.optimizer.step()
            for parameter in empty:
                parameter.grad = None
        self.step([_FILLER], lambda statistics, _: statistics.logprobs.sum() * 0, 0.0)
        self.restart()

    @property
    def _forward(self) -> Any:
        return self._engine

    def _backward(self, part: Tensor, *, is_last: bool) -> None:
        self._engine.set_gradient_accumulation_boundary(is_last)
        # The engine takes the mean over ranks; the weights of tokens are made for the sum.
        self._engine.backward(part * self._ranks.size, scale_wrt_gas=False)

    def _take_step(self, learning_rate: float) -> float:
        self._set_learning_rate(learning_rate)
        self._engine.step()
        if not self._engine.was_step_applied():
            return math.inf
        return float(self._engine.get_global_grad_norm())

    def _clear_gradients(self) -> None:
        """Do nothing: a step of the engine does it, and its buffers must stay."""

    def restart(self) -> None:
        """See `Learner.restart`."""
        for state in self.optimizer.state.values():
            for value in state.values():
                value.zero_()

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """See `Learner.named_weights`; one at a time is whole."""
        for name, parameter in self.model.named_parameters():
            with self._whole(parameter):
                weight = parameter.detach().clone()
            yield name, weight

    def save_pretrained(self, directory: Path) -> None:
        """See `Learner.save_pretrained`."""
        if not self._is_sharded:
            super().save_pretrained(directory)
            return
        is_main = self._ranks.is_main
        weights = {name: w.cpu() for name, w in self.named_weights() if is_main}
        if is_main:
            self.model.save_pretrained(directory, state_dict=weights)
        self._ranks.barrier()

    def copy_weights(self) -> dict[str, Tensor]:
        """See `Learner.copy_weights`."""
        if not self._is_sharded:
            return super().copy_weights()
        self._engine.empty_partition_cache()
        shards: Any = self._trained
        return {name: p.ds_tensor.detach().clone() for name, p in shards.items()}

    @contextlib.contextmanager
    def holding(self, weights: Mapping[str, Tensor]) -> Iterator[None]:
        """See `Learner.holding`."""
        if not self._is_sharded:
            with super().holding(weights):
                yield
            return
        shards: Any = self._trained
        own = {name: p.ds_tensor.data for name, p in shards.items()}
        self._engine.empty_partition_cache()  # else whole weights that are still there would count
        try:
            for name, parameter in shards.items():
                parameter.ds_tensor.data = weights[name]
            yield
            self._engine.empty_partition_cache()
        finally:
            for name, parameter in shards.items():
                parameter.ds_tensor.data = own[name]

    def export_copy(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """See `Learner.export_copy`."""
        saved: dict[str, Tensor] = {}
        with self.holding(weights):
            for name, parameter, is_saved in self._dealt():
                with self._whole(parameter):
                    if is_saved:
                        saved[name] = parameter.detach().to("cpu", copy=True)
        return saved

    def import_copy(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """See `Learner.import_copy`."""
        self.check_weights(weights)
        held = self.copy_weights()
        with self.holding(held):
            for name, parameter in self._trained.items():
                self._write(parameter, weights[name])
        return held

    def state_dict(self) -> dict[str, Any]:
        """See `Learner.state_dict`; weights as the optimizer has them, in float32."""
        utils = self._deepspeed.utils
        saved: dict[str, Any] = {kind: {} for kind in ("model", *_MOMENTS)}
        for name, parameter, is_saved in self._dealt():
            whole = {"model": utils.safe_get_full_fp32_param(parameter)} | {
                kind: utils.safe_get_full_optimizer_state(parameter, kind) for kind in _MOMENTS
            }
            if is_saved:
                for kind, value in whole.items():
                    saved[kind][name] = value.to("cpu", copy=True)
        state = next(iter(self.optimizer.state.values()))
        return saved | {"num_optimizer_steps": int(state["step"])}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """See `Learner.load_state_dict`; the number of ranks may be another."""
        if not set(state) >= {*_MOMENTS, "num_optimizer_steps"}:
            raise CheckpointError(
                "checkpoint: it was written without DeepSpeed. Resume with the configuration of "
                "the run"
            )
        for kind in _MOMENTS:
            self.check_weights(state[kind])
        self.load_weights(state["model"])
        set_moment = self._deepspeed.utils.safe_set_full_optimizer_state
        for name, parameter in self._trained.items():
            for kind in _MOMENTS:
                set_moment(parameter, state[kind][name].to(self._engine.device), kind)
        for found in self.optimizer.state.values():
            found["step"].fill_(state["num_optimizer_steps"])

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """See `Learner.load_weights`."""
        self.check_weights(weights)
        for name, parameter in self._trained.items():
            value = weights[name].to(self._engine.device, torch.float32)
            self._deepspeed.utils.safe_set_full_fp32_param(parameter, value)
            self._write(parameter, value)

    def _dealt(self) -> Iterator[tuple[str, nn.Parameter, bool]]:
        """Yield the trained weights with their names, and whether this rank saves them."""
        for index, (name, parameter) in enumerate(self._trained.items()):
            yield name, parameter, index % self._ranks.size == self._ranks.rank

    @torch.no_grad()
    def _write(self, parameter: nn.Parameter, value: Tensor) -> None:
        with self._whole(parameter, writer=0):
            parameter.copy_(value)

    def _whole(
        self, parameter: nn.Parameter, writer: int | None = None
    ) -> contextlib.AbstractContextManager[Any]:
        """Return the context in which a weight is whole on every rank."""
        if not self._is_sharded:
            return contextlib.nullcontext()
        return self._deepspeed.zero.GatheredParameters([parameter], modifier_rank=writer)


_FILLER = WeightedGroup(
    group=TrainingGroup(
        role="", prompt_ids=(0,), completions=(TrainingCompletion((0,), (0.0,), 0.0),)
    ),
    weights=(0.0,),
)


def _settings(
    config: OptimizerConfig, precision: str, deepspeed: DeepSpeedConfig
) -> dict[str, Any]:
    """Return what DeepSpeed calls its configuration."""
    on_cpu = {"device": "cpu", "pin_memory": torch.cuda.is_available()}
    zero: dict[str, Any] = {"stage": deepspeed.stage}
    if deepspeed.offload != "none":
        zero["offload_optimizer"] = on_cpu
    if deepspeed.offload == "all":
        zero["offload_param"] = on_cpu
    if deepspeed.stage == 3:
        zero["stage3_param_persistence_threshold"] = 0  # no weight is whole between two passes
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
    """Return the package, ready to be used by processes that torch has connected, or by one."""
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
    if not torch.distributed.is_initialized():
        backend = "cpu:gloo,cuda:nccl" if has_gpu else "gloo"
        store = torch.distributed.HashStore()  # pyright: ignore[reportPrivateImportUsage]
        torch.distributed.init_process_group(backend, store=store, rank=0, world_size=1)
        atexit.register(leave_group)
    return import_module("deepspeed")
