"""How a policy learns: one update of its weights per train step, and the warm start before.

An update goes one way: the scores before it, parts and mini-batches of the groups, an optimizer
step for each, the statistics of all.
"""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

import numpy as np
import torch
from torch import Tensor

from pettingllms.errors import InvalidArgument
from pettingllms.seeding import derive_seed
from pettingllms_trainers.backends.hf.critic import Critic
from pettingllms_trainers.backends.hf.learner import Learner, Together
from pettingllms_trainers.backends.hf.model import LoadedModel
from pettingllms_trainers.backends.hf.optimizer import RoleGradients
from pettingllms_trainers.backends.hf.weights import ModelWeights, read_shares, write_share
from pettingllms_trainers.config import LossConfig, OptimizerConfig, ValueConfig
from pettingllms_trainers.errors import UpdateError, reason_of
from pettingllms_trainers.learning.batch import (
    Targets,
    WeightedGroup,
    check_groups,
    mini_batch,
    mini_batches,
    parts_of,
    weighted_groups,
)
from pettingllms_trainers.learning.loss import (
    Diagnostics,
    LossCoefficients,
    MicroLoss,
    Products,
    StepDiagnostics,
    TokenStatistics,
    mean_kl,
    mismatch,
    moved_reference,
    policy_loss,
    role_figures,
    update_figures,
    with_mismatch_check,
    with_own_denominators,
)
from pettingllms_trainers.ranks import Ranks
from pettingllms_trainers.types import (
    Demonstration,
    Imitation,
    ImitationStep,
    Scores,
    TrainingCompletion,
    TrainingGroup,
    UpdateStats,
    ValueExample,
    ValueFit,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingSettings:
    """All that decides how a policy learns."""

    loss: LossConfig
    """The clipped policy loss."""
    optimizer: OptimizerConfig
    """AdamW, schedule, mini-batches."""
    num_steps: int
    """Train steps of the run: where the decay of the learning rate ends."""
    max_completion_tokens: int
    """Length limit at sampling time; the constant of the length-free loss."""
    seed: int
    """Decides the order of the groups."""
    max_logprob_gap: float = math.inf
    """Mean distance of the engine's log-probabilities from the trainer's above which the update is
    refused, in nats."""
    compares_roles: bool = False
    """Whether the gradients of roles are compared; see `RoleGradients`."""
    value: ValueConfig | None = None
    """How V is learnt; None without one."""
    memory_advice: Callable[[], Iterable[str]] = tuple
    """Gives advice for an error of memory, besides settings of micro-batches."""


def learning_rate(config: OptimizerConfig, step: int, num_steps: int) -> float:
    """The learning rate of a train step: linear warm-up, then linear decay.

    Args:
        config: Highest rate, warm-up steps, final fraction.
        step: Train step, from 0; beyond `num_steps` the rate stays at its last value.
        num_steps: Train steps of the run.
    """
    # The first step already learns: with step / warmup its rate would be 0.
    if step < config.num_warmup_steps:
        return config.learning_rate * (step + 1) / config.num_warmup_steps
    length = max(num_steps - 1 - config.num_warmup_steps, 1)
    progress = min((step - config.num_warmup_steps) / length, 1.0)
    return config.learning_rate * (1 - (1 - config.final_fraction) * progress)


class _OptimizerStep(NamedTuple):
    """What the statistics of an update need of one optimizer step."""

    diagnostics: StepDiagnostics
    """Diagnostics of this rank's share of the mini-batch, before the step."""
    grad_norm: float
    """Norm of the gradient before clipping."""
    products: Products | None
    """Inner products of the gradients of roles; None where roles are not compared."""


class AdaptiveKLController:
    """Keeps the reference of the KL penalty, and adapts the coefficients of the loss.

    Args:
        weights: The policy's weights, from which the reference is taken.
        config: Initial coefficients and their targets.
    """

    def __init__(self, weights: ModelWeights, config: LossConfig) -> None:
        self._weights, self._config = weights, config
        self._coefficients = LossCoefficients.of(config)
        self.reference: Mapping[str, Tensor] | None = None
        """Weights of the reference policy; None without a KL penalty."""

    @property
    def loss(self) -> LossConfig:
        """The loss with the coefficients that are in effect."""
        return self._coefficients.applied(self._config)

    def begin(self, step: int) -> None:
        """Take the reference in the first update, from 0; move it later, if it moves."""
        config = self._config
        if not config.kl_coefficient:
            return
        if self.reference is None:
            self.reference = self._weights.copy()
        # Not in the update that took it.
        elif config.reference_every and step and step % config.reference_every == 0:
            own = self._weights.copy()
            self.reference = moved_reference(self.reference, own, config.reference_mix)

    def end(self, stats: UpdateStats) -> UpdateStats:
        """Let the coefficients follow an update; return its statistics with those that it had."""
        # Before the coefficients move: the statistics are of the update that is over.
        loss = self.loss
        self._coefficients = self._coefficients.adapted(
            self._config, kl=stats.kl, entropy=stats.entropy
        )
        return replace(
            stats, kl_coefficient=loss.kl_coefficient, entropy_coefficient=loss.entropy_coefficient
        )

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps. Collective."""
        state: dict[str, Any] = {"steering": tuple(self._coefficients)}
        if self.reference is not None:
            state["reference"] = self._weights.export_copy(self.reference)
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state_dict` returned. Collective.

        Raises:
            CheckpointError: It is of another model; nothing was changed.
        """
        reference = state.get("reference")
        self.reference = None if reference is None else self._weights.import_copy(reference)
        self._coefficients = LossCoefficients(*state["steering"])


_BEFORE, _STEP, _AFTER = range(3)
"""Parts of an update. Updates that are computed together enter each part together."""


class _Wanted(NamedTuple):
    """A computation of an update, which is joined with those of others on its base."""

    part: int
    """Part of the update: `_BEFORE`, `_STEP` or `_AFTER`."""
    compute: Callable[..., list[Any]]
    """Method of `Together`."""
    learner: Learner
    """Whose weights it is about."""
    arguments: tuple[Any, ...]
    """Its arguments of the method, of each of which there is one for every learner."""


_ResultT = TypeVar("_ResultT")
_Updating = Generator[_Wanted, Any, _ResultT]
"""An update that says what it wants computed, is sent the result, and returns what it found."""


def _run(updates: Sequence[_Updating[UpdateStats]]) -> list[UpdateStats]:
    """Compute what updates want, part by part for all at once."""
    results: dict[int, UpdateStats] = {}
    wanted: dict[int, _Wanted] = {}
    answers: dict[int, Any] = dict.fromkeys(range(len(updates)))
    while answers:
        for index, answer in answers.items():
            try:
                wanted[index] = updates[index].send(answer)
            except StopIteration as end:
                results[index] = end.value
        part = min((one.part for one in wanted.values()), default=_AFTER)
        chosen = [index for index, one in wanted.items() if one.part == part]
        asked = [wanted.pop(index) for index in chosen]
        found: list[Any] = []
        if asked:
            passes = Together([one.learner for one in asked])
            # Argument by argument, one of each update.
            found = asked[0].compute(passes, *zip(*(one.arguments for one in asked), strict=True))
        answers = dict(zip(chosen, found, strict=True))
    return [results[index] for index in range(len(updates))]


def _likelihood(statistics: TokenStatistics, targets: Targets) -> Tensor:
    return -(statistics.logprobs * targets.weights).sum()


def _as_group(demonstration: Demonstration) -> TrainingGroup:
    if not demonstration.prompt_ids or not demonstration.completion_ids:
        raise InvalidArgument(
            "demonstrations", "one with an empty prompt or completion", "token ids in both",
            "end every demonstrated answer with the end token",
        )  # fmt: skip
    logprobs = (0.0,) * len(demonstration.completion_ids)
    completion = TrainingCompletion(demonstration.completion_ids, logprobs, 0.0)
    return TrainingGroup(role="", prompt_ids=demonstration.prompt_ids, completions=(completion,))


_MAX_ROUNDING = 1e-2
"""Distance of an engine's ratio from 1 above which the trainer computes the denominators itself."""


_NUM_PROBED = 4
"""Groups on which the distance of an update is measured: a forward pass of a few completions."""


class Updater:
    """Trains a policy on the groups of each train step; see `Update`.

    Args:
        loaded: The model.
        learner: Its trained weights, with their optimizer.
        settings: How it learns.
        save_pretrained: See `Update.save_pretrained`.
        ranks: The processes that train it together; None for this one alone.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        learner: Learner,
        settings: TrainingSettings,
        save_pretrained: Callable[..., None],
        ranks: Ranks | None = None,
    ) -> None:
        self._loaded, self.learner, self._settings = loaded, learner, settings
        self._ranks = ranks or Ranks()
        self.save_pretrained = save_pretrained
        self._controller = AdaptiveKLController(learner.weights, settings.loss)
        self._num_updates = 0
        self._critic = None if settings.value is None else self._new_critic(settings.value)

    def _new_critic(self, config: ValueConfig) -> Critic:
        text = self._loaded.model.config.get_text_config()
        return Critic(
            config,
            self.learner.hidden,
            hidden_size=text.hidden_size,
            device=self._loaded.model.device,
            seed=derive_seed(self._settings.seed, "value"),
            ranks=self._ranks,
        )

    def values(self, prompts: Sequence[tuple[int, ...]]) -> list[float]:
        assert self._critic is not None, "there is no V without an algorithm that learns it"
        with self._loaded.active(), self._enough_memory():
            return self._critic.values(prompts)

    def fit_values(self, examples: Sequence[ValueExample]) -> ValueFit:
        assert self._critic is not None, "there is no V without an algorithm that learns it"
        with self._loaded.active(), self._enough_memory():
            return self._critic.fit(examples)

    def score(self, groups: Sequence[TrainingGroup]) -> list[Scores]:
        """Log-probabilities of sampled tokens under the present weights, as trained on."""
        with self._enough_memory():
            return Together([self.learner]).score([groups])[0]

    @property
    def base(self) -> object:
        """What updaters have in common that compute in the same passes; see `update_together`."""
        adapter = self._loaded.adapter
        return self if adapter is None else adapter.base

    def update(self, groups: Sequence[TrainingGroup]) -> UpdateStats:
        """Train on the groups of one train step; see `update_together`."""
        return self.update_together([(self, groups)])[0]

    @staticmethod
    def update_together(
        updates: Sequence[tuple[Updater, Sequence[TrainingGroup]]],
    ) -> list[UpdateStats]:
        """Train each policy of a base on its groups of one train step, in passes of all.

        A policy without groups does not learn; its schedule continues, since the train step has
        passed.

        Args:
            updates: Updaters with one `base`, and their groups.

        Raises:
            InvalidArgument: A group cannot be trained on.
            UpdateError: Loss or gradient is not finite, memory does not suffice, or the engine has
                other weights than the trainer.
        """
        # A refused or failed update has not taken place: no schedule moves before its end.
        for _, groups in updates:
            check_groups(groups)
        with updates[0][0]._enough_memory():
            found = _run([updater._updating(groups) for updater, groups in updates])
        return [updater._ended(stats) for (updater, _), stats in zip(updates, found, strict=True)]

    def _ended(self, stats: UpdateStats) -> UpdateStats:
        self._num_updates += 1
        return stats if stats.skipped else self._controller.end(stats)

    def _updating(self, groups: Sequence[TrainingGroup]) -> _Updating[UpdateStats]:
        settings, step = self._settings, self._num_updates
        rate = learning_rate(settings.optimizer, step, settings.num_steps)
        self._controller.begin(step)
        if not groups:
            return UpdateStats(num_groups=0, skipped="no groups to train on", learning_rate=rate)
        # All scores are taken before the first step: they are of the weights that sampled, and
        # of the reference, whatever the mini-batches of this update do to the weights.
        reference = None
        if self._controller.reference is not None:
            reference = yield self._scoring(groups, self._controller.reference)
        parted = functools.partial(
            parts_of,
            groups,
            reference=reference,
            by_completion=settings.optimizer.shuffle,
        )
        is_single = len([*mini_batches(parted(None), settings.optimizer, (0, 0))]) == 1
        old = yield from self._old_logprobs(groups, is_single)
        gap = (0.0, 0.0)
        if old:
            gap = mismatch(groups[: len(old)], old, settings.max_logprob_gap)
        parts = parted(None if is_single else old)
        has_own = is_single and old is not None
        trained, steps = yield from self._optimizer_steps(parts, rate, step, has_own=has_own)
        stats = self._statistics(trained, steps)
        moved = yield from self._update_kl(groups, old)
        return replace(
            stats,
            engine_gap_mean=gap[0],
            engine_gap_max=gap[1],
            update_kl=moved,
            learning_rate=rate,
        )

    def _scoring(
        self,
        groups: Sequence[TrainingGroup],
        weights: Mapping[str, Tensor] | None = None,
        part: int = _BEFORE,
    ) -> _Wanted:
        return _Wanted(part, Together.score, self.learner, (groups, weights))

    def _old_logprobs(
        self, groups: Sequence[TrainingGroup], is_single: bool
    ) -> _Updating[list[Scores] | None]:
        """Denominators of the ratios; None: those of the engine, which are good enough.

        In float32 the engine's log-probabilities are those of the trainer. In bfloat16 both round,
        at different places, and ratios that should be 1 are clipped by chance. One group shows it.

        A single optimizer step has them of its own forward pass: the groups on which the distance
        of the update is measured are enough, and a third of its time is saved.
        """
        probe = groups[: _NUM_PROBED if is_single else 1]
        if self._settings.loss.old_logprobs != "recompute":
            if self.learner.precision == "float32":
                return None
            found = yield self._scoring(probe)
            own = [value for score in found for part in score for value in part]
            engine = [value for group in probe for c in group.completions for value in c.logprobs]
            ratio = (torch.tensor(own) - torch.tensor(engine)).exp()
            if not (ratio - 1).abs().max() > _MAX_ROUNDING:
                return None
            if is_single:
                return found
        return (yield self._scoring(probe if is_single else groups))

    def _optimizer_steps(
        self, parts: Sequence[WeightedGroup], rate: float, step: int, *, has_own: bool
    ) -> _Updating[tuple[list[WeightedGroup], list[_OptimizerStep]]]:
        """Take a step on each mini-batch; give the parts that were used, and what steps left.

        Source: the early stopping of PPO in OpenAI Spinning Up, by mini-batch as in Stable
            Baselines 3. Changed: no factor of 1.5, and the step of the mini-batch that shows it is
            taken.
        """
        settings, steps = self._settings, list[_OptimizerStep]()
        used: set[int] = set()
        for indices in mini_batches(parts, settings.optimizer, (settings.seed, step)):
            used.update(indices)
            mini_batch = self._mini_batch([parts[index] for index in indices])
            is_first = not steps
            steps.append((yield from self._step(mini_batch, rate, is_first, has_own=has_own)))
            if settings.loss.target_kl:
                # Of all ranks, or they would stop at different steps and wait for each other.
                last = StepDiagnostics.merged(self._ranks.gather([steps[-1].diagnostics]))
                if update_figures([last])["approx_kl"] > settings.loss.target_kl:
                    break
        return [parts[index] for index in sorted(used)], steps

    def _step(
        self, mini_batch: Sequence[WeightedGroup], rate: float, is_first: bool, *, has_own: bool
    ) -> _Updating[_OptimizerStep]:
        settings, diagnostics, roles = self._settings, Diagnostics(), None
        loss = self._policy_loss(diagnostics)
        if has_own:
            loss = with_own_denominators(loss)
        elif is_first and mini_batch[0].old_logprobs is None:
            # Where nothing is recomputed, the first forward pass shows the mismatch.
            loss = with_mismatch_check(loss, settings.max_logprob_gap)
        if settings.compares_roles:
            roles = RoleGradients(self.learner.weights.trained.values(), self._ranks)
        arguments = (mini_batch, loss, rate, roles)
        _, norm = yield _Wanted(_STEP, Together.step, self.learner, arguments)
        return _OptimizerStep(diagnostics.total(), norm, roles.products if roles else None)

    def _statistics(
        self, trained: Sequence[WeightedGroup], steps: Sequence[_OptimizerStep]
    ) -> UpdateStats:
        shares = self._ranks.gather([[step.diagnostics for step in steps]])
        merged = [StepDiagnostics.merged(parts) for parts in zip(*shares, strict=True)]
        lengths = [len(c.token_ids) for part in trained for c in part.group.completions]
        return UpdateStats(
            num_groups=len({part.source for part in trained}),
            num_completions=len(lengths),
            num_tokens=sum(lengths),
            num_optimizer_steps=len(steps),
            grad_norm=sum(step.grad_norm for step in steps) / len(steps),
            role_gradients=role_figures([s.products for s in steps if s.products is not None]),
            **update_figures(merged),
        )

    def _update_kl(
        self, groups: Sequence[TrainingGroup], old: Sequence[Scores] | None
    ) -> _Updating[float]:
        """How far the update has moved the policy, on the first of its groups.

        Measured after the last step: what a mini-batch sees is always from before its own.
        """
        probe = groups[:_NUM_PROBED]
        before = [c.logprobs for group in probe for c in group.completions]
        if old is not None:
            before = [part for score in old[:_NUM_PROBED] for part in score]
        after = yield self._scoring(probe, part=_AFTER)
        return mean_kl(before, [part for score in after for part in score])

    def forward_backward(
        self,
        groups: Sequence[TrainingGroup],
        loss: MicroLoss | None = None,
        *,
        old_logprobs: Sequence[Scores] | None = None,
        reference_logprobs: Sequence[Scores] | None = None,
    ) -> dict[str, float]:
        check_groups(groups)
        if loss is None and reference_logprobs is None and self._settings.loss.kl_coefficient:
            raise InvalidArgument(
                "reference_logprobs", "none",
                f"those of the reference, as loss.kl_coefficient is "
                f"{self._settings.loss.kl_coefficient:g}",
                "pass what `score` gave before training, or set loss.kl_coefficient to 0",
            )  # fmt: skip
        diagnostics = Diagnostics()
        parts = parts_of(groups, old_logprobs, reference_logprobs, by_completion=False)
        with self._enough_memory():
            (total,) = Together([self.learner]).forward_backward(
                [self._mini_batch(parts)], [loss or self._policy_loss(diagnostics)]
            )
        return {"loss": total} if loss else update_figures([diagnostics.total()])

    def optim_step(self, learning_rate: float) -> float:
        return self.learner.optim_step(learning_rate)

    def imitate(
        self, demonstrations: Sequence[Demonstration], imitation: Imitation
    ) -> Iterator[ImitationStep]:
        """Fit the policy to demonstrations: maximum likelihood of the completion tokens.

        Every demonstration is seen once before any is seen again. The learning rate falls linearly
        to a tenth. The optimizer begins anew, before and after.

        Raises:
            InvalidArgument: There is no demonstration, or one is empty.
            UpdateError: Loss or gradient is not finite.

        Source: the cold start of DeepSeek-R1 (arXiv 2501.12948, section 2.3.1): a policy that never
            earns a reward has no gradient, so it first imitates. Changed: demonstrations come from
            scripted policies of the environment.
        """
        groups = [_as_group(demonstration) for demonstration in demonstrations]
        if not groups and imitation.num_steps:
            raise InvalidArgument(
                "demonstrations", "none", "at least one",
                "set the demonstrators of the warm start, or its number of steps to 0",
            )  # fmt: skip
        order: list[int] = []
        epoch = 0
        # Moments of other losses would push the first steps.
        self.learner.optimizer.restart()
        try:
            for step in range(imitation.num_steps):
                # A batch may be larger than all demonstrations together.
                while len(order) < imitation.batch_size:
                    generator = np.random.default_rng((imitation.seed, epoch))
                    order += generator.permutation(len(groups)).tolist()
                    epoch += 1
                size = imitation.batch_size
                chosen, order = [groups[index] for index in order[:size]], order[size:]
                batch = weighted_groups(chosen, "token_mean", 1)
                rate = imitation.learning_rate * (1 - 0.9 * step / imitation.num_steps)
                with self._enough_memory():
                    ((loss, norm),) = Together([self.learner]).step([batch], [_likelihood], [rate])
                yield ImitationStep(step, loss, norm)
        finally:
            self.learner.optimizer.restart()

    def _mini_batch(self, parts: Sequence[WeightedGroup]) -> list[WeightedGroup]:
        settings = self._settings
        return mini_batch(parts, settings.loss.aggregation, settings.max_completion_tokens)

    def _policy_loss(self, diagnostics: Diagnostics) -> MicroLoss:
        return functools.partial(policy_loss, config=self._controller.loss, diagnostics=diagnostics)

    @contextlib.contextmanager
    def _enough_memory(self) -> Iterator[None]:
        try:
            yield
        except torch.OutOfMemoryError as error:
            optimizer = self._settings.optimizer
            advice = [
                f"a lower optimizer.tokens_per_microbatch (now {optimizer.tokens_per_microbatch})"
            ]
            if not optimizer.gradient_checkpointing:
                advice.append("optimizer.gradient_checkpointing = true (now false)")
            advice += self._settings.memory_advice()
            raise UpdateError(
                f"update: memory does not suffice ({reason_of(error)}). The weights are those of "
                f"the last optimizer step. What helps: {'; '.join(advice)}. Then continue from the "
                "last checkpoint with --resume; other values of deepspeed, fsdp, lora and "
                "state_bits need a new run"
            ) from error

    def save_state(self, directory: Path) -> None:
        """Every rank writes its share. Collective."""
        state = self.learner.optimizer.state_dict() | self._controller.state_dict()
        state["num_updates"] = self._num_updates
        # V is the same on all ranks.
        if self._critic is not None and self._ranks.is_main:
            state["critic"] = self._critic.state_dict()
        write_share(directory, self._ranks.rank, state)

    def load_state(self, directory: Path) -> None:
        """Collective.

        Raises:
            CheckpointError: The state is damaged or of another model; nothing was changed.
        """
        state = read_shares(directory)
        self.learner.optimizer.load_state_dict(state)
        self._controller.load_state_dict(state)
        if self._critic is not None:
            self._critic.load_state_dict(state["critic"])
        self._num_updates = state["num_updates"]

    def load_weights(self, directory: Path) -> None:
        """Take only the weights that `save_state` wrote.

        Raises:
            CheckpointError: The state is damaged or of another model; nothing was changed.
        """
        self.learner.optimizer.load_weights(read_shares(directory)["model"])
