"""Weights and their optimizer: scores of sampled tokens, one optimizer step on a mini-batch."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from pettingllms_trainers.algorithm.batch import MicroBatch, PackedTokens, Targets, micro_batches
from pettingllms_trainers.algorithm.loss import TokenStatistics, token_statistics
from pettingllms_trainers.algorithm.minibatch import (
    Scores,
    WeightedGroup,
    fitting_parts,
    shares,
    weighted_groups,
)
from pettingllms_trainers.backends.hf.attention import flat_forward
from pettingllms_trainers.backends.hf.packed import PackedLayout
from pettingllms_trainers.config import OptimizerConfig
from pettingllms_trainers.errors import CheckpointError, UpdateError
from pettingllms_trainers.ranks import Ranks
from pettingllms_trainers.types import TrainingGroup

__all__ = ["Learner", "arithmetic", "freeze_dropout", "target_logits"]


class _Pass(NamedTuple):
    """One way of a micro-batch through the model."""

    batch: MicroBatch
    is_own: bool
    """Whether its result counts."""


MicroLoss = Callable[[TokenStatistics, Targets], Tensor]
"""Statistics and targets of a micro-batch to its share of the loss of the mini-batch."""


def arithmetic(model: PreTrainedModel, precision: str) -> contextlib.AbstractContextManager[Any]:
    """Return the context in which the model computes: float32 weights may be cast on the way."""
    if precision == "bfloat16" and model.dtype == torch.float32:
        return torch.autocast(model.device.type, torch.bfloat16)
    return contextlib.nullcontext()


def freeze_dropout(model: nn.Module) -> None:
    """Turn dropout off, in training mode too: the policy that learns is the one that sampled.

    The configuration is left alone, so a saved model has its own dropout again.
    """
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            module.p = 0.0
        if isinstance(getattr(module, "attention_dropout", None), float):
            setattr(module, "attention_dropout", 0.0)  # noqa: B010 - typed as Tensor | Module


def target_logits(model: PreTrainedModel, batch: MicroBatch) -> Tensor:
    """Return the logits ``[M, V]`` that predict the targets of a micro-batch."""
    inputs = batch.inputs
    if isinstance(inputs, PackedTokens):
        layout = PackedLayout(
            inputs.prompt_lengths, inputs.completion_lengths, inputs.owners, model.device
        )
        return flat_forward(model, inputs.token_ids, inputs.positions, layout, inputs.kept)
    first = int(inputs.columns.min())
    output = model(
        input_ids=inputs.token_ids,
        attention_mask=inputs.mask,
        use_cache=False,
        logits_to_keep=inputs.mask.shape[1] - first,
    )
    return output.logits[:, first - inputs.mask.shape[1] :][inputs.rows, inputs.columns - first]


class Learner:
    """A model with AdamW. Knows how to fit a mini-batch into memory, and nothing of the algorithm.

    With several ranks each computes a share of a mini-batch; all must call the same methods with
    the same arguments, and have the same weights afterwards.

    Args:
        model: The weights; those that require a gradient are trained in place.
        config: Betas, weight decay, clipping, packing, micro-batch size, checkpointing.
        precision: ``float32`` or ``bfloat16`` arithmetic.
        ranks: The processes that train the model together; None for this one alone.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        config: OptimizerConfig,
        precision: str,
        ranks: Ranks | None = None,
    ) -> None:
        self.model, self._config, self._precision = model, config, precision
        self._ranks = ranks or Ranks()
        freeze_dropout(model)
        self._trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self._shapes = {name: tuple(p.shape) for name, p in self._trained.items()}
        groups = [
            {"params": [p for p in self._trained.values() if p.ndim >= 2]},
            # Biases and the gains of norms are not decayed.
            {"params": [p for p in self._trained.values() if p.ndim < 2], "weight_decay": 0.0},
        ]
        self.optimizer = torch.optim.AdamW(
            [group for group in groups if group["params"]],
            lr=config.learning_rate,
            betas=config.betas,
            weight_decay=config.weight_decay,
            fused=model.device.type in ("cpu", "cuda"),
        )
        if config.gradient_checkpointing:
            model.gradient_checkpointing_enable({"use_reentrant": False})

    @property
    def _forward(self) -> Any:
        """What computes with the weights: the model, or what wraps it."""
        return self.model

    def _micro_batches(self, groups: Sequence[WeightedGroup]) -> list[MicroBatch]:
        size, is_packed = self._config.tokens_per_microbatch, self._config.packing
        return list(micro_batches(groups, max_tokens=size, is_packed=is_packed))

    def _passes(self, groups: Sequence[WeightedGroup], own: Sequence[int]) -> list[_Pass]:
        """Return what this rank computes: its own groups, and then what only keeps it in step.

        Where ranks meet in the middle of a model, all must go through it equally often.
        """
        passes = [_Pass(batch, True) for batch in self._micro_batches([groups[i] for i in own])]
        num_missing = max(self._ranks.gather([len(passes)])) - len(passes)
        if num_missing:
            shortest = min(groups, key=lambda weighted: weighted.num_tokens(is_packed=True))
            (filler, *_) = fitting_parts(shortest, 1, is_packed=True)
            passes += [_Pass(self._micro_batches([filler])[0], False)] * num_missing
        return passes

    def _share(self, groups: Sequence[WeightedGroup]) -> list[int]:
        return shares(groups, self._ranks.size, self._config.packing)[self._ranks.rank]

    def _statistics(self, batch: MicroBatch) -> TokenStatistics:
        with arithmetic(self.model, self._precision):
            logits = target_logits(self._forward, batch)
        return token_statistics(logits, batch.targets.token_ids, batch.targets.temperatures)

    @torch.no_grad()
    def score(self, groups: Sequence[TrainingGroup]) -> list[Scores]:
        """Return the log-probabilities of the sampled tokens, at the sampling temperature."""
        weighted = weighted_groups(groups, "token_mean", 1)
        own = self._share(weighted)
        values: list[float] = []
        for batch, is_own in self._passes(weighted, own):
            found = self._statistics(batch.to(self._forward.device)).logprobs
            values += found.tolist() if is_own else ()
        scores: dict[int, Scores] = {}
        start = 0
        for index in own:
            parts: list[tuple[float, ...]] = []
            for completion in groups[index].completions:
                parts.append(tuple(values[start : start + len(completion.token_ids)]))
                start += len(completion.token_ids)
            scores[index] = tuple(parts)
        scores = dict(self._ranks.gather(list(scores.items())))
        return [scores[index] for index in range(len(groups))]

    def step(
        self, groups: Sequence[WeightedGroup], loss: MicroLoss, learning_rate: float
    ) -> tuple[float, float]:
        """Take one optimizer step on a mini-batch, cut into as many micro-batches as it needs.

        Args:
            groups: The mini-batch.
            loss: Share of a micro-batch in the loss of the mini-batch.
            learning_rate: Of this step.

        Returns:
            The loss of the mini-batch and the norm of its gradient before clipping.

        Raises:
            UpdateError: Loss or gradient is not finite; the weights are as they were.
        """
        own = sorted(self._share(groups), key=lambda index: len(groups[index].group.prompt_ids))
        passes = self._passes(groups, own)
        self.model.train(self._config.gradient_checkpointing)
        losses: list[Tensor] = []
        try:
            for left, (batch, is_own) in zip(range(len(passes) - 1, -1, -1), passes, strict=True):
                moved = batch.to(self._forward.device)
                statistics = self._statistics(moved)
                if is_own:
                    part = loss(statistics, moved.targets)
                    losses.append(part.detach())
                else:
                    part = statistics.logprobs.sum() * 0
                self._backward(part, is_last=left == 0)
            share = float(torch.stack(losses).sum()) if losses else 0.0
            total = sum(self._ranks.gather([share]))
            norm = self._take_step(learning_rate) if math.isfinite(total) else math.nan
        finally:
            self.model.eval()
            self._clear_gradients()
        if not math.isfinite(norm):
            raise UpdateError(
                f"update: the loss is {total} and its gradient norm {norm}; both must be finite. "
                "The weights were not changed. Go back to a checkpoint and lower the learning rate"
            )
        return total, norm

    def _backward(self, part: Tensor, *, is_last: bool) -> None:
        """Add the gradient of a micro-batch to that of the mini-batch."""
        part.backward()

    def _take_step(self, learning_rate: float) -> float:
        """Change the weights, unless the gradient is not finite; return its norm."""
        parameters = list(self._trained.values())
        if self._ranks.size > 1:
            for parameter in parameters:
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
            self._ranks.add([p.grad for p in parameters if p.grad is not None])
        norm = float(nn.utils.clip_grad_norm_(parameters, self._config.max_grad_norm))
        if math.isfinite(norm):
            self._set_learning_rate(learning_rate)
            self.optimizer.step()
        return norm

    def _clear_gradients(self) -> None:
        self.optimizer.zero_grad()

    def _set_learning_rate(self, learning_rate: float) -> None:
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate

    def restart(self) -> None:
        """Forget the moments of the gradients: the next step is as the first one."""
        self.optimizer.state.clear()

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield all weights of the model, whole; tied ones once."""
        for name, parameter in self.model.named_parameters():
            yield name, parameter.detach()

    def save_pretrained(self, directory: Path) -> None:
        """Write the model as an ordinary Hugging Face directory; the main rank does."""
        if self._ranks.is_main:
            self.model.save_pretrained(directory)
        self._ranks.barrier()

    def copy_weights(self) -> dict[str, Tensor]:
        """Return a copy of what this rank holds of the trained weights; see `holding`."""
        return {name: p.detach().clone() for name, p in self._trained.items()}

    @contextlib.contextmanager
    def holding(self, weights: Mapping[str, Tensor]) -> Iterator[None]:
        """Compute with other weights for a while: a reference costs no second model."""
        own = {name: p.data for name, p in self._trained.items()}
        try:
            for name, parameter in self._trained.items():
                parameter.data = weights[name]
            yield
        finally:
            for name, parameter in self._trained.items():
                parameter.data = own[name]

    def export_copy(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return whole weights of a copy, on the CPU: those that this rank saves."""
        return _copied(weights) if self._ranks.is_main else {}

    def import_copy(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return a copy, as `copy_weights` does, of whole weights.

        Raises:
            CheckpointError: They are of another model.
        """
        self.check_weights(weights)
        return {name: weights[name].to(p.device, p.dtype) for name, p in self._trained.items()}

    def state_dict(self) -> dict[str, Any]:
        """Return copies of trained weights and optimizer state on the CPU: what this rank saves."""
        if not self._ranks.is_main:
            return {}
        return {
            "model": _copied(self._trained),
            "optimizer": _copied(self.optimizer.state_dict()),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from a state of the same model.

        Raises:
            CheckpointError: The state is of another model or optimizer; nothing was changed.
        """
        self.check_weights(state["model"])
        try:
            self.optimizer.load_state_dict(_copied(state["optimizer"]))
        except (KeyError, ValueError) as error:
            raise CheckpointError(
                f"checkpoint: its optimizer state does not fit ({error}); it needs the state of "
                "the same model and optimizer. Resume with the configuration of the run"
            ) from error
        self.load_weights(state["model"])

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Take trained weights of the same model.

        Raises:
            CheckpointError: They are of another model; nothing was changed.
        """
        self.check_weights(weights)
        with torch.no_grad():
            for name, parameter in self._trained.items():
                parameter.copy_(weights[name])

    def check_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Raise `CheckpointError` unless the weights have names and shapes of the trained ones."""
        own = self._shapes
        given = {name: tuple(tensor.shape) for name, tensor in weights.items()}
        if own != given:
            different = sorted(name for name in own | given if own.get(name) != given.get(name))
            raise CheckpointError(
                f"checkpoint: {len(different)} of {len(own)} weights differ in name or shape, "
                f"first {different[0]!r}: {given.get(different[0])} instead of "
                f"{own.get(different[0])}. Resume with the model that the run was started with"
            )


def _copied(value: Any, seen: dict[int, Tensor] | None = None) -> Any:
    """Return a copy on the CPU of nested state; tensors that share memory (tied) still do."""
    seen = {} if seen is None else seen
    if isinstance(value, Tensor):
        key = value.data_ptr() if value.numel() else id(value)
        if key not in seen or seen[key].shape != value.shape:
            seen[key] = value.detach().to("cpu", copy=True)
        return seen[key]
    if isinstance(value, Mapping):
        return {name: _copied(part, seen) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(_copied(part, seen) for part in value)
    return value
