"""Learning with FSDP2 of torch: weights, gradients and moments sharded over ranks.

Source: PyTorch FSDP (arXiv 2304.11277), in its second form, `torch.distributed.fsdp.fully_shard`.
Each layer of a model is a unit whose weights are put together for its own computation only; the
embeddings and the output head are another one. The main rank reads the model; the others get their
shards from it.
"""

from __future__ import annotations

import contextlib
from collections.abc import Generator, Mapping
from typing import Any

import torch
import torch.distributed
from torch import Tensor, nn
from torch.distributed.checkpoint.state_dict import StateDictOptions, set_model_state_dict
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import MixedPrecisionPolicy, fully_shard
from torch.distributed.tensor import DTensor, distribute_tensor
from transformers import PreTrainedModel

from pettingllms_trainers.backends.hf.learner import Learner
from pettingllms_trainers.backends.hf.optimizer import MOMENTS, ShardedOptimizer
from pettingllms_trainers.backends.hf.weights import ModelWeights, Replicated
from pettingllms_trainers.config import OptimizerConfig
from pettingllms_trainers.ranks import Ranks, connect_alone


def fsdp_learner(
    model: PreTrainedModel, config: OptimizerConfig, precision: str, ranks: Ranks
) -> Learner:
    """A learner of which every rank holds a part; the weights are in float32.

    Args:
        model: The weights, on the CPU of the main rank; on the others it has none (device meta).
        config: Betas, weight decay, clipping, packing, micro-batch size, checkpointing.
        precision: ``float32``, or ``bfloat16``, in which weights are put together.
        ranks: The processes that train the model together.
    """
    connect_alone()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    full = model.state_dict() if ranks.is_main else {}
    buffers = dict(model.named_buffers()) if ranks.is_main else {}
    empty: Any = model
    empty.to("meta")
    # `to("meta")` has taken tied weights apart.
    empty.tie_weights()
    _divide(empty, precision, device)
    empty.to_empty(device=device)
    options = StateDictOptions(full_state_dict=True, broadcast_from_rank0=True)
    set_model_state_dict(empty, full, options=options)
    for name, buffer in empty.named_buffers():  # those that no file holds, such as of positions
        if ranks.is_main:
            buffer.copy_(buffers[name])
        torch.distributed.broadcast(buffer, 0)
    weights = ModelWeights(model, ranks, _FsdpPlacement())
    return Learner(weights, _FsdpOptimizer(weights, config, ranks), config, precision, ranks)


def _divide(model: PreTrainedModel, precision: str, device: torch.device) -> None:
    """Make each layer a unit, and all that is left another one."""
    half = torch.bfloat16 if precision == "bfloat16" else None
    settings: dict[str, Any] = {
        "mesh": init_device_mesh(device.type, (torch.distributed.get_world_size(),)),
        "mp_policy": MixedPrecisionPolicy(param_dtype=half, reduce_dtype=torch.float32),
        "reshard_after_forward": True,  # else a forward pass could meet weights of before a step
    }
    # What transformers itself keeps on one device.
    layers = set(model._no_split_modules or ())
    for module in model.modules():
        if type(module).__name__ in layers:
            fully_shard(module, **settings)
    fully_shard(model, **settings)


def _shard(parameter: nn.Parameter) -> Any:
    """A weight as the DTensor that FSDP has made of it, without its gradient."""
    assert isinstance(parameter, DTensor)
    return parameter.detach()


def _divided(full: Tensor, like: nn.Parameter) -> DTensor:
    """This rank's part of a tensor that every rank has in full."""
    shard = _shard(like)
    value = full.to(shard.device, torch.float32)
    return distribute_tensor(value, shard.device_mesh, shard.placements, src_data_rank=None)


class _FsdpPlacement(Replicated):
    """Every process holds a part of every weight; see `Replicated`."""

    is_sharded = True

    @contextlib.contextmanager
    def full(self, parameter: nn.Parameter) -> Generator[Tensor]:
        yield _shard(parameter).full_tensor()

    def write(self, parameter: nn.Parameter, value: Tensor) -> None:
        self.held(parameter).copy_(_divided(value, parameter).to_local())

    def held(self, parameter: nn.Parameter) -> Tensor:
        return _shard(parameter).to_local()

    @contextlib.contextmanager
    def exchanged(self, held: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> Generator[None]:
        """Numbers change places, since FSDP keeps the memory."""
        _swap(held, other)
        try:
            yield
        finally:
            _swap(held, other)


@torch.no_grad()
def _swap(held: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> None:
    for name, tensor in held.items():
        kept = tensor.clone()
        tensor.copy_(other[name])
        other[name].copy_(kept)


class _FsdpOptimizer(ShardedOptimizer):
    """AdamW whose moments are sharded as FSDP shards the weights."""

    def backward(self, loss: Tensor, *, is_last: bool) -> None:
        # FSDP takes the mean over ranks; the weights of tokens are made for the sum.
        (loss * self._ranks.size).backward()

    def step(self, learning_rate: float, *, is_reduced: bool = False) -> float:
        assert not is_reduced, "the configuration refuses role gradients of sharded weights"
        norm: Any = nn.utils.clip_grad_norm_(
            self._weights.trained.values(), self._config.max_grad_norm
        )
        return self._take_step(learning_rate, norm.full_tensor())

    def _full(self, parameter: nn.Parameter) -> dict[str, Tensor]:
        # Before the first step there are no moments; a checkpoint may be written then, too.
        state = self._adamw.state[parameter] or dict.fromkeys(MOMENTS, torch.zeros_like(parameter))
        parts: dict[str, Any] = {"model": parameter} | {kind: state[kind] for kind in MOMENTS}
        return {kind: part.detach().full_tensor() for kind, part in parts.items()}

    def _num_steps(self) -> int:
        return max((int(state["step"]) for state in self._adamw.state.values() if state), default=0)

    def _set_moments(self, moments: Mapping[str, Mapping[str, Tensor]], num_steps: int) -> None:
        for name, parameter in self._weights.trained.items():
            own = {kind: _divided(values[name], parameter) for kind, values in moments.items()}
            step = torch.tensor(float(num_steps), device=parameter.device)
            self._adamw.state[parameter] = {"step": step, **own}
