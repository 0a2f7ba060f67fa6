"""Weights and their optimizer: scores of sampled tokens, one optimizer step on a mini-batch."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from pettingllms_trainers.backends.attention import flat_forward
from pettingllms_trainers.backends.packed import PackedLayout
from pettingllms_trainers.batch import MicroBatch, PackedTokens, Targets, micro_batches
from pettingllms_trainers.config import OptimizerConfig
from pettingllms_trainers.errors import CheckpointError, UpdateError
from pettingllms_trainers.loss import TokenStatistics, token_statistics
from pettingllms_trainers.minibatch import Scores, WeightedGroup, weighted_groups
from pettingllms_trainers.types import TrainingGroup

__all__ = ["Learner", "arithmetic", "freeze_dropout", "target_logits"]

MicroLoss = Callable[[TokenStatistics, Targets], Tensor]
"""Statistics and targets of a micro-batch to its share of the loss of the mini-batch."""


def arithmetic(model: PreTrainedModel, precision: str) -> contextlib.AbstractContextManager[Any]:
    """Return the context in which the model computes: bfloat16 autocast, or nothing."""
    if precision == "bfloat16":
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

    Args:
        model: The weights; those that require a gradient are trained in place.
        config: Betas, weight decay, clipping, packing, micro-batch size, checkpointing.
        precision: ``float32`` or ``bfloat16`` arithmetic.
    """

    def __init__(self, model: PreTrainedModel, config: OptimizerConfig, precision: str) -> None:
        self.model, self._config, self._precision = model, config, precision
        freeze_dropout(model)
        self._trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
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

    def _micro_batches(self, groups: Sequence[WeightedGroup]) -> list[MicroBatch]:
        size, is_packed = self._config.tokens_per_microbatch, self._config.packing
        return list(micro_batches(groups, max_tokens=size, is_packed=is_packed))

    def _statistics(self, batch: MicroBatch) -> TokenStatistics:
        with arithmetic(self.model, self._precision):
            logits = target_logits(self.model, batch)
        return token_statistics(logits, batch.targets.token_ids, batch.targets.temperatures)

    @torch.no_grad()
    def score(self, groups: Sequence[TrainingGroup]) -> list[Scores]:
        """Return the log-probabilities of the sampled tokens, at the sampling temperature."""
        values: list[float] = []
        for batch in self._micro_batches(weighted_groups(groups, "token_mean", 1)):
            values += self._statistics(batch.to(self.model.device)).logprobs.tolist()
        scores: list[Scores] = []
        start = 0
        for group in groups:
            parts: list[tuple[float, ...]] = []
            for completion in group.completions:
                parts.append(tuple(values[start : start + len(completion.token_ids)]))
                start += len(completion.token_ids)
            scores.append(tuple(parts))
        return scores

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
        ordered = sorted(groups, key=lambda weighted: len(weighted.group.prompt_ids))
        self.model.train(self._config.gradient_checkpointing)
        self.optimizer.zero_grad()
        losses: list[Tensor] = []
        for batch in self._micro_batches(ordered):
            moved = batch.to(self.model.device)
            part = loss(self._statistics(moved), moved.targets)
            part.backward()
            losses.append(part.detach())
        self.model.eval()
        total = float(torch.stack(losses).sum())
        norm = float(nn.utils.clip_grad_norm_(self._trained.values(), self._config.max_grad_norm))
        if not (math.isfinite(total) and math.isfinite(norm)):
            self.optimizer.zero_grad()
            raise UpdateError(
                f"update: the loss is {total} and its gradient norm {norm}; both must be finite. "
                "The weights were not changed. Go back to a checkpoint and lower the learning rate"
            )
        for group in self.optimizer.param_groups:
            group["lr"] = learning_rate
        self.optimizer.step()
        self.optimizer.zero_grad()
        return total, norm

    def copy_weights(self) -> dict[str, Tensor]:
        """Return a copy of the trained weights, on their device; see `holding`."""
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

    def state_dict(self) -> dict[str, Any]:
        """Return copies of the trained weights and of the optimizer state, on the CPU."""
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
        own = {name: tuple(tensor.shape) for name, tensor in self._trained.items()}
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
