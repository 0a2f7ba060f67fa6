"""Mini-batches through a model: scores of sampled tokens, one optimizer step."""

from __future__ import annotations

import contextlib
import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from pettingllms_trainers.backends.hf.attention import flat_forward
from pettingllms_trainers.backends.hf.flex import FlexLayout, uses_flex
from pettingllms_trainers.backends.hf.grammars import Grammars
from pettingllms_trainers.backends.hf.layouts import PackedLayout
from pettingllms_trainers.backends.hf.model import bare_output, chunked_statistics
from pettingllms_trainers.backends.hf.optimizer import Optimizer, RoleGradients
from pettingllms_trainers.backends.hf.weights import ModelWeights
from pettingllms_trainers.config import OptimizerConfig
from pettingllms_trainers.errors import UpdateError
from pettingllms_trainers.learning.batch import (
    MicroBatch,
    PackedTokens,
    Scores,
    WeightedGroup,
    fitting_parts,
    micro_batches,
    shares,
    unweighted,
)
from pettingllms_trainers.learning.loss import MicroLoss, TokenStatistics, token_statistics
from pettingllms_trainers.ranks import Ranks
from pettingllms_trainers.types import TrainingCompletion, TrainingGroup


class _Pass(NamedTuple):
    """One way of a micro-batch through the model."""

    batch: MicroBatch
    is_own: bool
    """Whether its result counts."""
    role: str = ""
    """Whose samples it holds, where roles are kept apart."""


def arithmetic(model: PreTrainedModel, precision: str) -> contextlib.AbstractContextManager[Any]:
    """The context in which the model computes.

    Weights in float32, its own or those of adapters on it, may be cast on the way.
    """
    if precision == "bfloat16" and (model.dtype == torch.float32 or hasattr(model, "peft_config")):
        return torch.autocast(model.device.type, torch.bfloat16)
    return contextlib.nullcontext()


def freeze_dropout(model: nn.Module) -> None:
    """Turn dropout off, in training mode too: the policy that learns is the one that sampled.

    The configuration is left alone, so a saved model has its own dropout again.
    """
    for module in model.modules():
        if isinstance(module, nn.Dropout):
            # Not `eval()`: gradient checkpointing works in training mode only.
            module.p = 0.0
        if isinstance(getattr(module, "attention_dropout", None), float):
            setattr(module, "attention_dropout", 0.0)  # noqa: B010 - typed as Tensor | Module


def target_logits(model: PreTrainedModel, batch: MicroBatch, *, is_flex: bool = False) -> Tensor:
    """The logits ``[M, V]`` that predict the targets of a micro-batch.

    Args:
        model: Prepared by `use_layouts` for packed tokens.
        batch: On its device.
        is_flex: Whether packed tokens attend by FlexAttention.
    """
    inputs = batch.inputs
    if isinstance(inputs, PackedTokens):
        kind = FlexLayout if is_flex else PackedLayout
        layout = kind(inputs.prompt_lengths, inputs.completion_lengths, inputs.owners, model.device)
        return flat_forward(model, inputs.token_ids, inputs.positions, layout, inputs.kept)
    # Columns before the first target belong to prompts, whose logits nobody wants.
    first = int(inputs.columns.min())
    output = model(
        input_ids=inputs.token_ids,
        attention_mask=inputs.mask,
        use_cache=False,
        logits_to_keep=inputs.mask.shape[1] - first,
    )
    return output.logits[:, first - inputs.mask.shape[1] :][inputs.rows, inputs.columns - first]


class Learner:
    """Fits mini-batches into memory and takes optimizer steps; knows nothing of the algorithm.

    With several ranks each computes a share of a mini-batch; all must call the same methods with
    the same arguments, and have the same weights afterwards.

    Args:
        weights: Those that require a gradient are trained in place.
        optimizer: Takes the steps.
        config: Packing, micro-batch size, checkpointing.
        precision: ``float32`` or ``bfloat16`` arithmetic.
        ranks: The processes that train the model together; None for this one alone.
    """

    def __init__(
        self,
        weights: ModelWeights,
        optimizer: Optimizer,
        config: OptimizerConfig,
        precision: str,
        ranks: Ranks | None = None,
    ) -> None:
        self.weights, self.optimizer = weights, optimizer
        self.model, self._config = weights.model, config
        self.precision = precision
        """Arithmetic of the forward pass."""
        self._ranks = ranks or Ranks()
        self.is_packed = config.packing
        """Whether the prompt of a group is computed once for all its completions."""
        self._is_flex = config.packing and uses_flex(self.model, config.packed_attention)
        self.is_chunked = False
        """Whether logits are computed in chunks; right where `is_head_last`."""
        self.grammars: Grammars | None = None
        """Gives the masks of answers whose form was enforced."""
        freeze_dropout(self.model)
        if config.gradient_checkpointing:
            self.model.gradient_checkpointing_enable({"use_reentrant": False})

    @classmethod
    def plain(
        cls,
        model: PreTrainedModel,
        config: OptimizerConfig,
        precision: str,
        ranks: Ranks | None = None,
    ) -> Learner:
        """A learner that holds all weights in every process."""
        weights = ModelWeights(model, ranks)
        return cls(weights, Optimizer(weights, config, ranks), config, precision, ranks)

    def _micro_batches(self, groups: Sequence[WeightedGroup]) -> list[MicroBatch]:
        size = self._config.tokens_per_microbatch
        return list(micro_batches(groups, max_tokens=size, is_packed=self.is_packed))

    def _passes(self, groups: Sequence[WeightedGroup], own: Sequence[int]) -> list[_Pass]:
        """What this rank computes: its own groups, and then what only keeps it in step.

        Where ranks meet in the middle of a model, all must go through it equally often.
        """
        passes = [_Pass(batch, True) for batch in self._micro_batches([groups[i] for i in own])]
        num_missing = max(self._ranks.gather([len(passes)])) - len(passes)
        # The shortest one: what it computes is thrown away.
        if num_missing:
            shortest = min(groups, key=lambda weighted: weighted.num_tokens(is_packed=True))
            (filler, *_) = fitting_parts(shortest, 1, is_packed=True)
            passes += [_Pass(self._micro_batches([filler])[0], False)] * num_missing
        return passes

    def _passes_by_role(self, groups: Sequence[WeightedGroup], own: Sequence[int]) -> list[_Pass]:
        """What this rank computes, one role after the other.

        No pass is added to keep ranks in step: weights that are sharded know no roles.
        """
        by_role: dict[str, list[WeightedGroup]] = {}
        for index in own:
            by_role.setdefault(groups[index].group.role, []).append(groups[index])
        return [
            _Pass(batch, True, role)
            for role, part in by_role.items()
            for batch in self._micro_batches(part)
        ]

    def _share(self, groups: Sequence[WeightedGroup]) -> list[int]:
        return shares(groups, self._ranks.size, self.is_packed)[self._ranks.rank]

    def _statistics(self, batch: MicroBatch) -> TokenStatistics:
        forward, targets, masks = self.optimizer.forward, batch.targets, None
        if targets.grammars is not None:
            assert self.grammars is not None, "forms are enforced where decoding is guided"
            masks = self.grammars.masks(targets.grammars, targets)
        with arithmetic(self.model, self.precision):
            if self.is_chunked:
                with bare_output(self.model) as head:
                    hidden = target_logits(forward, batch, is_flex=self._is_flex)  # [M, D]
                size = self.model.config.get_text_config().vocab_size
                return chunked_statistics(head, hidden, targets, size, masks)
            logits = target_logits(forward, batch, is_flex=self._is_flex)  # [M, V]
        return token_statistics(logits, targets.token_ids, targets.temperatures, masks)

    @torch.no_grad()
    def hidden(self, prompts: Sequence[tuple[int, ...]]) -> Tensor:
        """The last hidden states ``[B, D]`` at the ends of prompts, in float32.

        This process computes all of them; not for sharded weights.
        """
        # The logits of a first token are those of the prompt's last one, whatever the token is.
        first = TrainingCompletion((0,), (0.0,), 0.0)
        groups = [
            TrainingGroup(role="", prompt_ids=prompt, completions=(first,)) for prompt in prompts
        ]
        self.model.eval()
        parts: list[Tensor] = []
        with arithmetic(self.model, self.precision), bare_output(self.model):
            for batch in self._micro_batches(unweighted(groups)):
                moved = batch.to(self._device)
                logits = target_logits(self.model, moved, is_flex=self._is_flex)
                parts.append(logits.float())
        return torch.cat(parts)

    @torch.no_grad()
    def score(self, groups: Sequence[TrainingGroup]) -> list[Scores]:
        """The log-probabilities of the sampled tokens, at the sampling temperature."""
        weighted = unweighted(groups)
        own = self._share(weighted)
        values: list[float] = []
        for batch, is_own, _ in self._passes(weighted, own):
            found = self._statistics(batch.to(self._device)).logprobs
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
        self,
        groups: Sequence[WeightedGroup],
        loss: MicroLoss,
        learning_rate: float,
        roles: RoleGradients | None = None,
    ) -> tuple[float, float]:
        """Take one optimizer step on a mini-batch, cut into as many micro-batches as it needs.

        Args:
            groups: The mini-batch.
            loss: Share of a micro-batch in the loss of the mini-batch.
            learning_rate: Of this step.
            roles: Gets the gradients of the roles, which are then computed one after the other.

        Returns:
            The loss of the mini-batch and the norm of its gradient before clipping.

        Raises:
            UpdateError: Loss or gradient is not finite; the weights are as they were.
        """
        total = self.forward_backward(groups, loss, roles)
        return total, self.optim_step(learning_rate, is_reduced=roles is not None)

    def forward_backward(
        self, groups: Sequence[WeightedGroup], loss: MicroLoss, roles: RoleGradients | None = None
    ) -> float:
        """Add the gradient of a mini-batch to what is there, and return its loss; see `step`.

        Raises:
            UpdateError: The loss is not finite; there is no gradient any more.
        """
        # Neighbours of like length pad little, and the order changes nothing but rounding.
        own = sorted(self._share(groups), key=lambda index: len(groups[index].group.prompt_ids))
        passes = (self._passes_by_role if roles else self._passes)(groups, own)
        self.model.train(self._config.gradient_checkpointing)
        losses: list[Tensor] = []
        try:
            for left, (batch, is_own, role) in zip(
                range(len(passes) - 1, -1, -1), passes, strict=True
            ):
                moved = batch.to(self._device)
                statistics = self._statistics(moved)
                if is_own:
                    part = loss(statistics, moved.targets)
                    losses.append(part.detach())
                else:
                    # Zero, yet it needs a backward pass: other ranks wait in theirs.
                    part = statistics.logprobs.sum() * 0
                self.optimizer.backward(part, is_last=left == 0)
                if roles and (left == 0 or passes[-left].role != role):
                    roles.take(role)
            if roles:
                roles.finish(sorted({weighted.group.role for weighted in groups}))
            share = float(torch.stack(losses).sum()) if losses else 0.0
            # All ranks see the same total, so that all raise or none.
            total = sum(self._ranks.gather([share]))
            if not math.isfinite(total):
                raise _not_finite(f"the loss is {total}")
        except BaseException:
            self.optimizer.clear_gradients()
            raise
        finally:
            self.model.eval()
        return total

    def optim_step(self, learning_rate: float, *, is_reduced: bool = False) -> float:
        """Change the weights by the gradient, and forget it; return its norm before clipping.

        Raises:
            UpdateError: The gradient is not finite; the weights are as they were.
        """
        try:
            norm = self.optimizer.step(learning_rate, is_reduced=is_reduced)
        finally:
            self.optimizer.clear_gradients()
        if not math.isfinite(norm):
            raise _not_finite(f"the norm of the gradient is {norm}")
        return norm

    @property
    def _device(self) -> torch.device:
        # Not the model's: that of sharded weights may be the CPU, where they are kept.
        return self.optimizer.forward.device


def _not_finite(what: str) -> UpdateError:
    return UpdateError(
        f"update: {what}, which must be finite. The weights were not changed. Go back to a "
        "checkpoint and lower the learning rate"
    )
