"""Mini-batches through a model: scores of sampled tokens, one optimizer step."""

from __future__ import annotations

import contextlib
import itertools
import math
from collections.abc import Generator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from pettingllms_trainers.backends.hf.adapters import Adapter
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
    Targets,
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
    """A forward pass of a micro-batch."""

    batch: MicroBatch
    is_own: bool
    """Whether its result counts; else it only keeps the rank in step with the others."""
    role: str = ""
    """Role of its samples, where roles are kept apart; else empty."""


def arithmetic(model: PreTrainedModel, precision: str) -> contextlib.AbstractContextManager[Any]:
    """The context in which the model computes.

    Its weights in float32 may be cast on the way; adapters cast their own.
    """
    if precision == "bfloat16" and model.dtype == torch.float32:
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
    """The weights of a policy and their optimizer, behind the model; see `Together`.

    With several ranks each computes a share of a mini-batch; all must call the same methods with
    the same arguments, and have the same weights afterwards.

    Args:
        weights: Are trained in place.
        optimizer: Takes the steps.
        config: Packing, micro-batch size, checkpointing.
        precision: ``float32`` or ``bfloat16`` arithmetic.
        ranks: The processes that train the model together; None for this one alone.
        adapter: Has the weights; None: they are the model's own.
    """

    def __init__(
        self,
        weights: ModelWeights,
        optimizer: Optimizer,
        config: OptimizerConfig,
        precision: str,
        ranks: Ranks | None = None,
        adapter: Adapter | None = None,
    ) -> None:
        self.weights, self.optimizer, self.adapter = weights, optimizer, adapter
        self.model, self.config = weights.model, config
        self.precision = precision
        """Arithmetic of the forward pass."""
        self.ranks = ranks or Ranks()
        self.is_packed = config.packing
        """Whether the prompt of a group is computed once for all its completions."""
        self.is_flex = config.packing and uses_flex(self.model, config.packed_attention)
        """Whether packed tokens attend by FlexAttention."""
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
        adapter: Adapter | None = None,
    ) -> Learner:
        """A learner that holds all weights in every process."""
        weights = ModelWeights(model, ranks, trained=adapter.train() if adapter else None)
        return cls(weights, Optimizer(weights, config, ranks), config, precision, ranks, adapter)

    def micro_batches(self, groups: Sequence[WeightedGroup]) -> list[MicroBatch]:
        """Groups in as many micro-batches as they need."""
        size = self.config.tokens_per_microbatch
        return list(micro_batches(groups, max_tokens=size, is_packed=self.is_packed))

    def masks(self, targets: Targets) -> Tensor | None:
        """Which tokens the forms of the answers allowed; see `token_statistics`."""
        if targets.grammars is None:
            return None
        assert self.grammars is not None, "forms are enforced where decoding is guided"
        return self.grammars.masks(targets.grammars, targets)

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
            for batch in self.micro_batches(unweighted(groups)):
                moved = batch.to(self.device)
                logits = target_logits(self.model, moved, is_flex=self.is_flex)
                parts.append(logits.float())
        return torch.cat(parts)

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
    def device(self) -> torch.device:
        """Where passes are computed; sharded weights may be kept elsewhere."""
        return self.optimizer.forward.device


class Together:
    """Learners on one base, whose groups share passes; one learner alone is a special case.

    A micro-batch has rows of several adapters. Each learner has a loss of its own groups, so that
    its weights get the gradients that they would get alone.

    Args:
        learners: At least one; several have adapters of one base, and equal settings of packing,
            micro-batches and arithmetic.
    """

    def __init__(self, learners: Sequence[Learner]) -> None:
        self._learners, self._first = learners, learners[0]
        self._ranks = self._first.ranks

    def _share(self, groups: Sequence[WeightedGroup]) -> list[int]:
        return shares(groups, self._ranks.size, self._first.is_packed)[self._ranks.rank]

    def _passes(self, groups: Sequence[WeightedGroup], own: Sequence[int]) -> list[_Pass]:
        """What this rank computes: its own groups, and then what only keeps it in step.

        Where ranks meet in the middle of a model, all must go through it equally often.
        """
        cut = self._first.micro_batches
        passes = [_Pass(batch, True) for batch in cut([groups[index] for index in own])]
        num_missing = max(self._ranks.gather([len(passes)])) - len(passes)
        # The shortest one: what it computes is thrown away.
        if num_missing:
            shortest = min(groups, key=lambda weighted: weighted.num_tokens(is_packed=True))
            (filler, *_) = fitting_parts(shortest, 1, is_packed=True)
            passes += [_Pass(cut([filler])[0], False)] * num_missing
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
            for batch in self._first.micro_batches(part)
        ]

    @contextlib.contextmanager
    def _on_device(self, batch: MicroBatch) -> Generator[MicroBatch]:
        """The context of a pass, forward and backward, in which its rows have their adapters."""
        adapters = [learner.adapter for learner in self._learners]
        base = adapters[0].base if adapters[0] else None
        names = [adapter.name if adapter else None for adapter in adapters]
        routes = [(names[policy], count) for policy, count in batch.rows]
        with contextlib.nullcontext() if base is None else base.routed(routes):
            yield batch.to(self._first.device)

    def _statistics(self, batch: MicroBatch) -> list[tuple[int, TokenStatistics]]:
        """Those of each policy's targets, which follow each other."""
        first = self._first
        outer = bare_output(first.model) if first.is_chunked else contextlib.nullcontext()
        sizes = [len(targets.token_ids) for targets in batch.targets.values()]
        masks = [self._learners[policy].masks(own) for policy, own in batch.targets.items()]
        with arithmetic(first.model, first.precision):
            with outer as head:
                found = target_logits(first.optimizer.forward, batch, is_flex=first.is_flex)
            # [m, D] of each policy where they are chunked, else [m, V].
            parts = list(zip(batch.targets.items(), found.split(sizes), masks, strict=True))
            if head is not None:
                size = first.model.config.get_text_config().vocab_size
                return [
                    (policy, chunked_statistics(head, part, own, size, mask))
                    for (policy, own), part, mask in parts
                ]
        return [
            (policy, token_statistics(part, own.token_ids, own.temperatures, mask))
            for (policy, own), part, mask in parts
        ]

    def score(
        self,
        data: Sequence[Sequence[TrainingGroup]],
        weights: Sequence[Mapping[str, Tensor] | None] = (),
    ) -> list[list[Scores]]:
        """The log-probabilities of the sampled tokens, at the sampling temperature.

        Args:
            data: Groups, those of each learner.
            weights: Of each learner what it scores with in place of its own weights, or None.
        """
        with contextlib.ExitStack() as stack:
            for learner, other in zip(self._learners, weights, strict=False):
                if other is not None:
                    stack.enter_context(learner.weights.holding(other))
            return self._scores(data)

    @torch.no_grad()
    def _scores(self, data: Sequence[Sequence[TrainingGroup]]) -> list[list[Scores]]:
        weighted = _numbered([unweighted(groups) for groups in data])
        own = self._share(weighted)
        values: list[float] = []
        for batch, is_own, _ in self._passes(weighted, own):
            with self._on_device(batch) as moved:
                found = [part.logprobs for _, part in self._statistics(moved)]
            values += torch.cat(found).tolist() if is_own else ()
        scores: dict[int, Scores] = {}
        start = 0
        for index in own:
            parts: list[tuple[float, ...]] = []
            for completion in weighted[index].group.completions:
                parts.append(tuple(values[start : start + len(completion.token_ids)]))
                start += len(completion.token_ids)
            scores[index] = tuple(parts)
        scores = dict(self._ranks.gather(list(scores.items())))
        ordered = iter([scores[index] for index in range(len(weighted))])
        return [list(itertools.islice(ordered, len(groups))) for groups in data]

    def step(
        self,
        data: Sequence[Sequence[WeightedGroup]],
        losses: Sequence[MicroLoss],
        rates: Sequence[float],
        roles: Sequence[RoleGradients | None] = (None,),
    ) -> list[tuple[float, float]]:
        """Take an optimizer step of each learner on its mini-batch.

        A mini-batch is cut into as many micro-batches as it needs.

        Args:
            data: Mini-batches, one of each learner.
            losses: Share of a micro-batch in the loss of its mini-batch.
            rates: Learning rates of this step.
            roles: Get the gradients of the roles of a learner, which are then computed one after
                the other, each learner alone.

        Returns:
            The loss of each mini-batch and the norm of its gradient before clipping.

        Raises:
            UpdateError: A loss or gradient is not finite; those weights are as they were.
        """
        if any(roles) and len(self._learners) > 1:
            # Gradients of roles are told apart by the passes that they come from.
            every = zip(self._learners, data, losses, rates, roles, strict=True)
            return [
                Together([learner]).step([groups], [loss], [rate], [own])[0]
                for learner, groups, loss, rate, own in every
            ]
        totals = self.forward_backward(data, losses, roles[0])
        try:
            norms = [
                learner.optim_step(rate, is_reduced=any(roles))
                for learner, rate in zip(self._learners, rates, strict=True)
            ]
        finally:
            self.clear_gradients()
        return list(zip(totals, norms, strict=True))

    def forward_backward(
        self,
        data: Sequence[Sequence[WeightedGroup]],
        losses: Sequence[MicroLoss],
        roles: RoleGradients | None = None,
    ) -> list[float]:
        """Add the gradient of each learner's mini-batch to what it has; the losses of these.

        Args:
            data: Mini-batches, one of each learner.
            losses: Theirs; see `step`.
            roles: See `step`; of one learner only.

        Raises:
            UpdateError: A loss is not finite; no learner has a gradient any more.
        """
        groups = _numbered(data)
        # Neighbours of like length pad little, and the order changes nothing but rounding.
        own = sorted(self._share(groups), key=lambda index: len(groups[index].group.prompt_ids))
        passes = (self._passes_by_role if roles else self._passes)(groups, own)
        self._first.model.train(self._first.config.gradient_checkpointing)
        found: list[list[Tensor]] = [[] for _ in self._learners]
        try:
            for left, (batch, is_own, role) in zip(
                range(len(passes) - 1, -1, -1), passes, strict=True
            ):
                with self._on_device(batch) as moved:
                    loss = self._loss(moved, losses, found if is_own else None)
                    self._first.optimizer.backward(loss, is_last=left == 0)
                if roles and (left == 0 or passes[-left].role != role):
                    roles.take(role)
            if roles:
                roles.finish(sorted({weighted.group.role for weighted in groups}))
            own_losses = [float(torch.stack(parts).sum()) if parts else 0.0 for parts in found]
            # All ranks see the same totals, so that all raise or none.
            by_rank = self._ranks.gather([own_losses])
            totals = [math.fsum(column) for column in zip(*by_rank, strict=True)]
            for total in totals:
                if not math.isfinite(total):
                    raise _not_finite(f"the loss is {total}")
        except BaseException:
            self.clear_gradients()
            raise
        finally:
            self._first.model.eval()
        return totals

    def _loss(
        self, batch: MicroBatch, losses: Sequence[MicroLoss], found: list[list[Tensor]] | None
    ) -> Tensor:
        """The loss of a pass, which is noted by learner in `found`; None: it does not count."""
        parts: list[Tensor] = []
        for policy, statistics in self._statistics(batch):
            if found is None:
                # Zero, yet it needs a backward pass: other ranks wait in theirs.
                parts.append(statistics.logprobs.sum() * 0)
            else:
                parts.append(losses[policy](statistics, batch.targets[policy]))
                found[policy].append(parts[-1].detach())
        return torch.stack(parts).sum()

    def clear_gradients(self) -> None:
        """Forget the gradients of all learners."""
        for learner in self._learners:
            learner.optimizer.clear_gradients()


def _numbered(data: Sequence[Sequence[WeightedGroup]]) -> list[WeightedGroup]:
    """All groups, each with the index of its learner."""
    return [replace(one, policy=index) for index, part in enumerate(data) for one in part]


def _not_finite(what: str) -> UpdateError:
    return UpdateError(
        f"update: {what}, which must be finite. The weights were not changed. Go back to a "
        "checkpoint and lower the learning rate"
    )
