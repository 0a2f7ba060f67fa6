"""All that decides how a policy learns, and the schedule of its learning rate."""

from __future__ import annotations

import contextlib
import functools
import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from pettingllms.errors import InvalidArgument
from pettingllms.seeding import derive_seed
from pettingllms_trainers.backends.hf.critic import Critic
from pettingllms_trainers.backends.hf.learner import Learner
from pettingllms_trainers.backends.hf.model import LoadedModel
from pettingllms_trainers.backends.hf.optimizer import RoleGradients
from pettingllms_trainers.backends.hf.weights import Exporter, Weights, read_shares, write_share
from pettingllms_trainers.config import LossConfig, OptimizerConfig, ValueConfig
from pettingllms_trainers.errors import UpdateError
from pettingllms_trainers.learning.batch import Targets
from pettingllms_trainers.learning.diagnostics import Diagnostics, StepDiagnostics, update_figures
from pettingllms_trainers.learning.engine_gap import engine_gap, with_gap_check
from pettingllms_trainers.learning.loss import MicroLoss, TokenStatistics, mean_kl, policy_loss
from pettingllms_trainers.learning.minibatch import (
    UpdatePart,
    check_groups,
    mini_batch,
    mini_batches,
    parts_of,
    weighted_groups,
)
from pettingllms_trainers.learning.role_gradients import Products, role_figures
from pettingllms_trainers.learning.steering import (
    Steering,
    first_steering,
    moved_reference,
    steered,
)
from pettingllms_trainers.learning.weighted import Scores, WeightedGroup
from pettingllms_trainers.ranks import Ranks
from pettingllms_trainers.types import (
    Demonstration,
    Imitation,
    ImitationStep,
    TrainingCompletion,
    TrainingGroup,
    UpdateStats,
    ValueExample,
    ValueFit,
)

__all__ = ["Regulator", "TrainingSettings", "UpdateReport", "Updater", "imitate", "learning_rate"]


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
    """Mean distance of the trainer's log-probabilities from the engine's that is an error, in
    nats."""
    compares_roles: bool = False
    """Whether the gradients of roles are compared; see `RoleGradients`."""
    value: ValueConfig | None = None
    """How V is learnt; None without one."""
    memory_advice: tuple[str, ...] = ()
    """What helps when memory does not suffice, besides settings of the optimizer."""


def learning_rate(config: OptimizerConfig, step: int, num_steps: int) -> float:
    """The learning rate of a train step: linear warm-up, then linear decay.

    Args:
        config: Highest rate, warm-up steps, final fraction.
        step: Train step, from 0; beyond `num_steps` the rate stays at its last value.
        num_steps: Train steps of the run.
    """
    if step < config.num_warmup_steps:
        return config.learning_rate * (step + 1) / config.num_warmup_steps
    length = max(num_steps - 1 - config.num_warmup_steps, 1)
    progress = min((step - config.num_warmup_steps) / length, 1.0)
    return config.learning_rate * (1 - (1 - config.final_fraction) * progress)


class UpdateReport:
    """Collects the diagnostics of all optimizer steps of one update."""

    def __init__(self, engine_gap: tuple[float, float]) -> None:
        self._engine_gap = engine_gap
        self.steps: list[StepDiagnostics] = []
        self._norms: list[float] = []
        self._products: list[Products] = []

    def add(self, diagnostics: Diagnostics, grad_norm: float, roles: RoleGradients | None) -> None:
        """Add one optimizer step."""
        self.steps.append(diagnostics.total())
        self._norms.append(grad_norm)
        if roles is not None:
            self._products.append(roles.products)

    def last_kl(self, ranks: Ranks) -> float:
        """`UpdateStats.approx_kl` of the last mini-batch, from before its step. Collective.

        Source: the early stopping of PPO in OpenAI Spinning Up, by mini-batch as in Stable
            Baselines 3. Changed: no factor of 1.5, and the step of the mini-batch that shows it is
            taken.
        """
        last = StepDiagnostics.merged(ranks.gather(self.steps[-1:]))
        return update_figures([last])["approx_kl"]

    def stats(
        self, parts: Sequence[UpdatePart], rate: float, update_kl: float, ranks: Ranks
    ) -> UpdateStats:
        """The statistics of the update. Collective.

        Args:
            parts: Those that were trained on.
            rate: Learning rate.
            update_kl: See `UpdateStats`.
            ranks: The processes that train together.
        """
        shares = ranks.gather([self.steps])
        steps = [StepDiagnostics.merged(parts) for parts in zip(*shares, strict=True)]
        lengths = [len(c.token_ids) for part in parts for c in part.group.completions]
        return UpdateStats(
            num_groups=len({part.source for part in parts}),
            num_completions=len(lengths),
            num_tokens=sum(lengths),
            num_optimizer_steps=len(steps),
            engine_gap_mean=self._engine_gap[0],
            engine_gap_max=self._engine_gap[1],
            update_kl=update_kl,
            grad_norm=sum(self._norms) / len(steps),
            learning_rate=rate,
            role_gradients=role_figures(self._products),
            **update_figures(steps),
        )


class Regulator:
    """The loss of a policy's updates, as it changes from one to the next.

    Args:
        weights: Of the policy.
        config: The loss of the run file.
    """

    def __init__(self, weights: Weights, config: LossConfig) -> None:
        self._weights, self._config = weights, config
        self._steering = first_steering(config)
        self.reference: Mapping[str, Tensor] | None = None
        """Weights that updates are held near to; None without a KL penalty."""

    @property
    def loss(self) -> LossConfig:
        """The loss with the coefficients that are in effect."""
        return self._steering.applied(self._config)

    def begin(self, step: int) -> None:
        """Begin the update of a train step, from 0: the reference is taken, or moves."""
        config = self._config
        if not config.kl_coefficient:
            return
        if self.reference is None:
            self.reference = self._weights.copy()
        elif config.reference_every and step % config.reference_every == 0:
            own = self._weights.copy()
            self.reference = moved_reference(self.reference, own, config.reference_mix)

    def end(self, stats: UpdateStats) -> UpdateStats:
        """Let the coefficients follow an update; return its statistics with those that it had."""
        loss = self.loss
        self._steering = steered(self._steering, self._config, kl=stats.kl, entropy=stats.entropy)
        return replace(
            stats, kl_coefficient=loss.kl_coefficient, entropy_coefficient=loss.entropy_coefficient
        )

    def state_dict(self) -> dict[str, Any]:
        """What a checkpoint keeps. Collective."""
        state: dict[str, Any] = {"steering": tuple(self._steering)}
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
        self._steering = Steering(*state["steering"])


def imitate(
    learner: Learner,
    demonstrations: Sequence[Demonstration],
    imitation: Imitation,
) -> Iterator[ImitationStep]:
    """Fit a model to demonstrations: maximum likelihood of the completion tokens.

    Every demonstration is seen once before any is seen again. The learning rate falls linearly to a
    tenth. Equal arguments and weights give equal results.

    Args:
        learner: Has the model, which is trained in place, and a fresh optimizer.
        demonstrations: What to imitate.
        imitation: How.

    Yields:
        What each step did, after it.

    Raises:
        InvalidArgument: There is no demonstration, or one is empty.
        UpdateError: Loss or gradient is not finite.
    """
    groups = [_as_group(demonstration) for demonstration in demonstrations]
    if not groups and imitation.num_steps:
        raise InvalidArgument(
            "demonstrations", "none", "at least one",
            "set the demonstrators of the warm start, or its number of steps to 0",
        )  # fmt: skip
    order: list[int] = []
    epoch = 0
    for step in range(imitation.num_steps):
        while len(order) < imitation.batch_size:
            generator = np.random.default_rng((imitation.seed, epoch))
            order += generator.permutation(len(groups)).tolist()
            epoch += 1
        size = imitation.batch_size
        chosen, order = [groups[index] for index in order[:size]], order[size:]
        rate = imitation.learning_rate * (1 - 0.9 * step / imitation.num_steps)
        loss, norm = learner.step(weighted_groups(chosen, "token_mean", 1), _likelihood, rate)
        yield ImitationStep(step, loss, norm)


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
        learner: Has its weights.
        settings: How it learns.
        exporter: Writes the trained weights.
        ranks: The processes that train the policy together; None for this one alone.
    """

    def __init__(
        self,
        loaded: LoadedModel,
        learner: Learner,
        settings: TrainingSettings,
        exporter: Exporter,
        ranks: Ranks | None = None,
    ) -> None:
        self._loaded, self._learner, self._settings = loaded, learner, settings
        self._ranks = ranks or Ranks()
        self.save_pretrained = exporter.save_pretrained
        self._regulator = Regulator(learner.weights, settings.loss)
        self._num_updates = 0
        self._critic = None if settings.value is None else self._new_critic(settings.value)

    def _new_critic(self, config: ValueConfig) -> Critic:
        text = self._loaded.model.config.get_text_config()
        return Critic(
            config,
            self._learner.hidden,
            hidden_size=text.hidden_size,
            vocab_size=text.vocab_size,
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
        with self._loaded.active(), self._enough_memory():
            return self._learner.score(groups)

    def update(self, groups: Sequence[TrainingGroup]) -> UpdateStats:
        """Train on the groups of one train step.

        Without groups nothing is trained; the schedule continues, since the train step has passed.

        Raises:
            InvalidArgument: A group cannot be trained on.
            UpdateError: Loss or gradient is not finite, memory does not suffice, or the engine has
                other weights than the trainer.
        """
        check_groups(groups)
        with self._loaded.active():
            return self._update(groups)

    def _update(self, groups: Sequence[TrainingGroup]) -> UpdateStats:
        settings, step = self._settings, self._num_updates
        rate = learning_rate(settings.optimizer, step, settings.num_steps)
        self._regulator.begin(step)
        self._num_updates += 1
        if not groups:
            return UpdateStats(num_groups=0, skipped="no groups to train on", learning_rate=rate)
        # All scores are taken before the first step: they are of the weights that sampled, and of
        # the reference, whatever the mini-batches of this update do to the weights.
        old = reference = None
        if settings.loss.old_logprobs == "recompute" or self._is_engine_rounded(groups[0]):
            old = self.score(groups)
        gap = engine_gap(groups, old, settings.max_logprob_gap) if old else (0.0, 0.0)
        if self._regulator.reference is not None:
            with self._learner.weights.holding(self._regulator.reference):
                reference = self.score(groups)
        parts = parts_of(groups, old, reference, by_completion=settings.optimizer.spread_prompts)
        report = UpdateReport(gap)
        target_kl = settings.loss.target_kl
        used: set[int] = set()
        for indices in mini_batches(parts, settings.optimizer, (settings.seed, step)):
            used.update(indices)
            self._step([parts[index] for index in indices], rate, report)
            if target_kl and report.last_kl(self._ranks) > target_kl:
                break
        moved = self._update_kl(groups, old)
        trained = [parts[index] for index in sorted(used)]
        return self._regulator.end(report.stats(trained, rate, moved, self._ranks))

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
        with self._loaded.active(), self._enough_memory():
            total = self._learner.forward_backward(
                self._mini_batch(parts), loss or self._policy_loss(diagnostics)
            )
        return {"loss": total} if loss else update_figures([diagnostics.total()])

    def optim_step(self, learning_rate: float) -> float:
        with self._loaded.active():
            return self._learner.optim_step(learning_rate)

    def _update_kl(self, groups: Sequence[TrainingGroup], old: Sequence[Scores] | None) -> float:
        """How far the update has moved the policy, on the first of its groups.

        Measured after the last step: what a mini-batch sees is always from before its own.
        """
        probe = groups[:_NUM_PROBED]
        before = [c.logprobs for group in probe for c in group.completions]
        if old is not None:
            before = [part for score in old[:_NUM_PROBED] for part in score]
        after = [part for score in self.score(probe) for part in score]
        return mean_kl(before, after)

    def _is_engine_rounded(self, group: TrainingGroup) -> bool:
        """Whether the engine's log-probabilities are too rough as denominators of ratios.

        In float32 they are those of the trainer. In bfloat16 both round, at different places, and
        ratios that should be 1 are clipped by chance. One group shows it.
        """
        if self._learner.precision == "float32":
            return False
        own = [value for part in self.score([group])[0] for value in part]
        engine = [value for completion in group.completions for value in completion.logprobs]
        ratio = (torch.tensor(own) - torch.tensor(engine)).exp()
        return bool((ratio - 1).abs().max() > _MAX_ROUNDING)

    def imitate(
        self, demonstrations: Sequence[Demonstration], imitation: Imitation
    ) -> Iterator[ImitationStep]:
        """The optimizer begins anew, before and after."""
        self._learner.optimizer.restart()
        steps = imitate(self._learner, demonstrations, imitation)
        try:
            while True:
                # Not active between two steps, when policies on the same base may compute.
                with self._loaded.active(), self._enough_memory():
                    step = next(steps, None)
                if step is None:
                    return
                yield step
        finally:
            self._learner.optimizer.restart()

    def _step(self, parts: Sequence[UpdatePart], rate: float, report: UpdateReport) -> None:
        settings, diagnostics = self._settings, Diagnostics()
        groups, loss = self._mini_batch(parts), self._policy_loss(diagnostics)
        if not report.steps and groups[0].old_logprobs is None:
            loss = with_gap_check(loss, settings.max_logprob_gap)
        roles = None
        if settings.compares_roles:
            roles = RoleGradients(self._learner.weights.trained.values(), self._ranks)
        with self._enough_memory():
            _, norm = self._learner.step(groups, loss, rate, roles)
        report.add(diagnostics, norm, roles)

    def _mini_batch(self, parts: Sequence[UpdatePart]) -> list[WeightedGroup]:
        settings = self._settings
        return mini_batch(parts, settings.loss.aggregation, settings.max_completion_tokens)

    def _policy_loss(self, diagnostics: Diagnostics) -> MicroLoss:
        return functools.partial(policy_loss, config=self._regulator.loss, diagnostics=diagnostics)

    @contextlib.contextmanager
    def _enough_memory(self) -> Iterator[None]:
        try:
            yield
        except torch.OutOfMemoryError as error:
            optimizer = self._settings.optimizer
            advice = [
                f"lower optimizer.tokens_per_microbatch (now {optimizer.tokens_per_microbatch})",
                *self._settings.memory_advice,
            ]
            if not optimizer.gradient_checkpointing:
                advice.insert(1, "set optimizer.gradient_checkpointing = true (now false)")
            raise UpdateError(
                f"update: memory does not suffice ({str(error).splitlines()[0]}). The weights are "
                f"those of the last optimizer step. What helps: {'; '.join(advice)}. Then continue "
                "with --resume; only another deepspeed.stage or fsdp.enabled needs a new run"
            ) from error

    def save_state(self, directory: Path) -> None:
        """Every rank writes its share. Collective."""
        state = self._learner.optimizer.state_dict() | self._regulator.state_dict()
        state["num_updates"] = self._num_updates
        if self._critic is not None and self._ranks.is_main:
            state["critic"] = self._critic.state_dict()
        write_share(directory, self._ranks.rank, state)

    def load_state(self, directory: Path) -> None:
        """Collective.

        Raises:
            CheckpointError: The state is damaged or of another model; nothing was changed.
        """
        state = read_shares(directory)
        self._learner.optimizer.load_state_dict(state)
        self._regulator.load_state_dict(state)
        if self._critic is not None:
            self._critic.load_state_dict(state["critic"])
        self._num_updates = state["num_updates"]

    def load_weights(self, directory: Path) -> None:
        """Take only the weights that `save_state` wrote.

        Raises:
            CheckpointError: The state is damaged or of another model; nothing was changed.
        """
        self._learner.optimizer.load_weights(read_shares(directory)["model"])
