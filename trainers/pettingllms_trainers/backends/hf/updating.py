"""One policy update of AT-GRPO: epochs, mini-batches, schedule, reference, statistics."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from pettingllms.errors import InvalidArgument
from pettingllms.seeding import derive_seed
from pettingllms_trainers.backends.hf.critic import Critic
from pettingllms_trainers.backends.hf.exporting import Exporter
from pettingllms_trainers.backends.hf.imitation import imitate
from pettingllms_trainers.backends.hf.learner import Learner
from pettingllms_trainers.backends.hf.model import LoadedModel
from pettingllms_trainers.backends.hf.regulator import Regulator
from pettingllms_trainers.backends.hf.role_gradients import RoleGradients
from pettingllms_trainers.backends.hf.state_file import read_shares, write_share
from pettingllms_trainers.backends.hf.training_settings import TrainingSettings, learning_rate
from pettingllms_trainers.backends.hf.update_report import UpdateReport
from pettingllms_trainers.config import ValueConfig
from pettingllms_trainers.errors import UpdateError
from pettingllms_trainers.learning.diagnostics import Diagnostics, update_figures
from pettingllms_trainers.learning.engine_gap import engine_gap, with_gap_check
from pettingllms_trainers.learning.loss import MicroLoss, mean_kl, policy_loss
from pettingllms_trainers.learning.minibatch import (
    UpdatePart,
    check_groups,
    mini_batch,
    mini_batches,
    parts_of,
)
from pettingllms_trainers.learning.weighted import Scores, WeightedGroup
from pettingllms_trainers.ranks import Ranks
from pettingllms_trainers.types import (
    Demonstration,
    Imitation,
    ImitationStep,
    TrainingGroup,
    UpdateStats,
    ValueExample,
    ValueFit,
)

__all__ = ["Updater"]


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
        """See `Update.values`."""
        assert self._critic is not None, "there is no V without an algorithm that learns it"
        with self._loaded.active(), self._enough_memory():
            return self._critic.values(prompts)

    def fit_values(self, examples: Sequence[ValueExample]) -> ValueFit:
        """See `Update.fit_values`."""
        assert self._critic is not None, "there is no V without an algorithm that learns it"
        with self._loaded.active(), self._enough_memory():
            return self._critic.fit(examples)

    def score(self, groups: Sequence[TrainingGroup]) -> list[Scores]:
        """Return log-probabilities of sampled tokens under the present weights, as trained on."""
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
        """See `OpenPolicy.forward_backward`."""
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
        """See `OpenPolicy.optim_step`."""
        with self._loaded.active():
            return self._learner.optim_step(learning_rate)

    def _update_kl(self, groups: Sequence[TrainingGroup], old: Sequence[Scores] | None) -> float:
        """Return how far the update has moved the policy, on the first of its groups.

        Measured after the last step: what a mini-batch sees is always from before its own.
        """
        probe = groups[:_NUM_PROBED]
        before = [c.logprobs for group in probe for c in group.completions]
        if old is not None:
            before = [part for score in old[:_NUM_PROBED] for part in score]
        after = [part for score in self.score(probe) for part in score]
        return mean_kl(before, after)

    def _is_engine_rounded(self, group: TrainingGroup) -> bool:
        """Return whether the engine's log-probabilities are too rough as denominators of ratios.

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
        """See `Update.imitate`. The optimizer begins anew, before and after."""
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
        """See `Update.save_state`; every rank writes its share. Collective."""
        state = self._learner.optimizer.state_dict() | self._regulator.state_dict()
        state["num_updates"] = self._num_updates
        if self._critic is not None and self._ranks.is_main:
            state["critic"] = self._critic.state_dict()
        write_share(directory, self._ranks.rank, state)

    def load_state(self, directory: Path) -> None:
        """See `Update.load_state`. Collective.

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
