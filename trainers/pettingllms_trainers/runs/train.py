"""The training loop: rollouts, groups, advantages, updates; evaluated, recorded, resumable."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

from pettingllms import TextEnv
from pettingllms.errors import counted
from pettingllms_trainers.config import Config, config_hash
from pettingllms_trainers.config.algorithm import StepContext
from pettingllms_trainers.errors import (
    BudgetSpent,
    GenerationError,
    GroupError,
    RolloutError,
    StuckError,
)
from pettingllms_trainers.learning.groups import score_decisions, training_groups
from pettingllms_trainers.policies.pool import PolicyPool
from pettingllms_trainers.ranks import StopRequest, StopRequested
from pettingllms_trainers.rollout.candidates import FailureLog
from pettingllms_trainers.rollout.demonstrations import WarmStart
from pettingllms_trainers.rollout.environments import RunEnvironment
from pettingllms_trainers.rollout.episode import EpisodesOfEnv
from pettingllms_trainers.rollout.judging import Rewards
from pettingllms_trainers.rollout.sampler import (
    Sample,
    Sampler,
    TrainingEnvironment,
    TrainingRollouts,
)
from pettingllms_trainers.runs.checkpoint import TrainingProgress, load_checkpoint, save_checkpoint
from pettingllms_trainers.runs.evaluate import (
    Figures,
    HeldOut,
    HeldOutSet,
    evaluation_metrics,
    untouched,
)
from pettingllms_trainers.runs.folder import RunDirectory
from pettingllms_trainers.runs.metrics import (
    age_metrics,
    cost_metrics,
    curriculum_metrics,
    judged_metrics,
    ledger_metrics,
    phase_metrics,
    rollout_metrics,
    timing_metrics,
    update_metrics,
    value_metrics,
)
from pettingllms_trainers.runs.recorder import Doing, Recorder
from pettingllms_trainers.types import ValueExample


@dataclass(frozen=True, kw_only=True, slots=True)
class Trainer:
    """The training loop over the parts of a run, which `build_trainer` puts together.

    Source:
        The loop is that of Stronger-MAS (arXiv 2510.11062), algorithm 1. Changed: see the
        algorithm, and `loss.py`.
    """

    config: Config
    pool: PolicyPool
    warm_start: WarmStart
    rollouts: TrainingRollouts
    held_out: HeldOut
    recorder: Recorder
    checkpoints: Path
    stop: StopRequest
    rewards: Rewards = field(default_factory=Rewards)
    scripted: Mapping[str, TextEnv[Any]] = field(default_factory=dict[str, TextEnv[Any]])
    """Name to the environment in which an algorithm may let scripted policies play before the run
    begins; empty if the run has rewards besides the environment's."""
    updated: set[int] = field(default_factory=set[int])
    """Train steps, from 1, that have updated their policies, and may have failed after that."""
    durations: dict[str, tuple[float, int]] = field(default_factory=dict[str, tuple[float, int]])
    """Kind of work to the seconds and completions of its last time."""

    def run(self) -> dict[str, Any]:
        """Train from the newest checkpoint to the end; return the report.

        Raises:
            TrainerError: A checkpoint cannot be used, too many rollouts failed, or the training
                has diverged.
            StuckError: Nothing is learnt any more, and the run was to stop then.
            StopRequested: A signal stopped the run; what was learnt by then is in a checkpoint.
        """
        config, (step, metrics) = self.config, self._restore()
        if step is None:
            self._begin()
            step = 0
        while (metrics or step < config.num_steps) and not self.stop.is_wanted():
            if not metrics:
                with self._saved_if_it_fails(step):
                    metrics = self._take_step(step)
                if metrics is None:
                    break
                step += 1
            if step == config.num_steps or _is_due(step, config.evaluation.every):
                try:
                    metrics |= self._evaluate(step, may_stop=True)
                except StopRequested:
                    self.recorder.note(
                        f"the evaluation after train step {step} was stopped; when the run is "
                        "resumed, it is played, and the metrics of the step are written"
                    )
                    break
            self.recorder.metrics(step, metrics)
            metrics = None
            if _is_due(step, config.checkpoint.every):
                self._save(step)
            # The main rank alone watches, and all have to leave the loop after the same step.
            if config.stop_when_stalled and self.pool.ranks.any(self.recorder.is_stalled):
                break
        # Also after a signal: what is learnt since the last checkpoint is not lost.
        self._save(step, metrics)
        if step == config.num_steps and not metrics:
            return self.recorder.finish(self.pool)
        self.stop.check()
        raise StuckError(
            f"stopped after train step {step}, because nothing is learnt (stop_when_stalled). "
            f"{' '.join(self.recorder.warnings())}"
        )

    def measure(self) -> tuple[float, float]:
        """Take a train step and play one evaluation; return the seconds of both.

        With rollouts in flight the first steps do not count: they have found none.

        Raises:
            TrainerError: As for `run`.
            StopRequested: A signal came.
        """
        self.pool.push_weights()
        metrics: Mapping[str, float] = {}
        for step in range(1 + self.config.rollout.max_staleness):
            metrics = self._take_step(step) or {}  # nothing only after a signal
            self.stop.check()
        evaluation = self._evaluate(1 + self.config.rollout.max_staleness)
        return metrics["time/step_s"], evaluation["time/evaluate_s"]

    def _restore(self) -> tuple[int | None, dict[str, float] | None]:
        """Load the newest checkpoint, if any; return its step, and its metrics if not written."""
        checkpoint = load_checkpoint(self.checkpoints, config_hash=config_hash(self.config))
        # Lines after the checkpoint are of steps that are taken again, and written again.
        step = -1 if checkpoint is None else checkpoint.step
        # The main rank alone has the files.
        is_written = self.pool.ranks.broadcast(self.recorder.start_at(step))
        if checkpoint is None:
            return None, None
        for name, updater in self.pool.updaters().items():
            updater.load_state(checkpoint.policies[name])
        self._go_back(checkpoint)
        self.pool.push_weights()
        if checkpoint.is_updated:
            self.updated.add(checkpoint.step + 1)
        self.recorder.note(f"continuing after train step {checkpoint.step}")
        return checkpoint.step, None if is_written else dict(checkpoint.unevaluated)

    def _begin(self) -> None:
        """Imitate demonstrations, if wanted, and evaluate before the first train step."""
        imitates = bool(self.config.warm_start.num_steps)
        variants: dict[str, Figures] = {}
        with self.stop.at_once():
            self._decide_by(self.config.algorithm.begin(self.scripted, self.config.seed))
            # Engines with a copy, and other ranks, have no weights of ours before the first push.
            self.pool.push_weights()
            if imitates:
                self.recorder.note("evaluating the untouched policies")
                most = self.held_out.most_completions
                with self._busy("evaluation", " of the untouched policies", most):
                    variants = untouched(self.held_out.play(self.pool))
            metrics = {} if imitates else self._evaluate(0)
        if imitates:
            # Supervised steps may need the memory in which engines keep what they have read.
            self.pool.release_engines()
            with self.recorder.busy(lambda: Doing(*self.warm_start.doing)):
                metrics = self.warm_start.run(self.recorder.note, self.recorder.imitation)
            self.pool.push_weights()
            metrics |= self._evaluate(0, variants)
        self.recorder.metrics(0, self._decided() | metrics)
        self._save(0)

    @contextlib.contextmanager
    def _saved_if_it_fails(self, step: int) -> Iterator[None]:
        """Keep what is learnt up to a train step that ends the run, as a signal's checkpoint does.

        Of several ranks one alone may fail, and a checkpoint is written by all: there the last one
        of `checkpoint.every` stays. So it does when an update fails: it has perhaps changed some
        weights, which would learn from the same answers again.
        """
        # Memory and records are replaced and never changed, so these are of before the step.
        before = self._progress(step)
        try:
            yield
        except (BudgetSpent, GenerationError, GroupError, RolloutError):
            if self.pool.ranks.size == 1:
                self._go_back(before)
                self._save(step)
                self.recorder.note(f"a checkpoint has what was learnt up to train step {step}")
            raise

    @contextlib.contextmanager
    def _busy(self, kind: str, where: str = "", most: int = 0) -> Iterator[None]:
        """Let the progress view say what is being done, if it takes long.

        Args:
            kind: What it is: the last one of its kind says how long this one will take.
            most: Completions that the first one of its kind writes at most; 0: none.
        """
        before, started = self.pool.num_completions, time.monotonic()
        last_s, last = self.durations.get(kind, (0.0, 0))

        def activity() -> Doing:
            written, passed_s = self.pool.num_completions - before, time.monotonic() - started
            if not written:
                return Doing(kind + where, passed_s, last_s)
            total = max(last or most, written)
            told = f"{written} of {'about' if last else 'at most'} {counted(total, 'completion')}"
            return Doing(f"{kind}{where}: {told}", written, total)

        with self.recorder.busy(activity):
            yield
        self.durations[kind] = time.monotonic() - started, self.pool.num_completions - before

    def _decide_by(self, memory: Mapping[str, Any]) -> None:
        """Give the algorithm what it is to know from now on, and say what that changes."""
        algorithm, sampler = self.config.algorithm, self.rollouts.sampler
        if (says := algorithm.says(memory)) != algorithm.says(sampler.memory):
            self.recorder.note(f"{algorithm.name}: {says}")
        sampler.memory = memory

    def _decided(self) -> dict[str, float]:
        found = self.config.algorithm.metrics(self.rollouts.sampler.memory)
        return {f"algorithm/{name}": value for name, value in found.items()}

    def _take_step(self, step: int) -> dict[str, float] | None:
        """Sample and learn; None when a signal came before anything has changed."""
        started = time.perf_counter()
        algorithm = self.config.algorithm
        num = algorithm.episodes_per_level * algorithm.candidates_per_decision
        most = self.config.rollout.num_levels * num * self.held_out.most_decisions
        with self._busy("rollouts", f" of train step {step + 1}", most):
            sample = self.rollouts.take(step)
        if sample is None:
            return None
        wait_s = time.perf_counter() - started
        metrics = self._learn(step + 1, sample)
        return metrics | {
            "rollout/num_refills": sample.num_refills,
            "rollout/num_stale_episodes": sample.num_stale,
            **phase_metrics(self.config, step),
            **curriculum_metrics(sample.trees, self.rollouts.sampler.records),
            **judged_metrics(sample.trees),
            **cost_metrics(self.rewards),
            "time/rollout_s": sample.rollout_s,
            "time/wait_s": wait_s + metrics["time/wait_s"],
            "time/step_s": time.perf_counter() - started,
        }

    def _learn(self, step: int, sample: Sample) -> dict[str, float]:
        """Update policies on their groups; the next rollouts may be played meanwhile."""
        config, trees = self.config, sample.trees
        # What was known when they began: with rollouts in flight, more is known by now.
        is_trained = partial(config.trains, step=step - 1)
        context = StepContext(step - 1, sample.memory)
        algorithm = config.algorithm.at(context)
        scored = score_decisions(trees, algorithm, is_trained, context)
        data = training_groups(
            scored.decisions, mask_truncated=self.config.loss.mask_truncated_completions
        )
        examples = algorithm.value_examples(trees, context)
        self._decide_by(self.rollouts.remembered(step - 1, trees))
        entered = time.perf_counter()
        with self._busy("update", f" of train step {step}"), self.rollouts.playing_next(step - 1):
            self.pool.release_engines()
            started = time.perf_counter()
            is_new = step not in self.updated
            stats = self.pool.update(
                data, lambda name: is_new and config.updates_policy(name, step - 1)
            )
            update_s = time.perf_counter() - started
            fits = self._fit_values(examples) if is_new else {}
            self.updated.add(step)
            learn_s = time.perf_counter() - started
        # What is left of the block is spent on the next rollouts, before or after the update.
        wait_s = time.perf_counter() - entered - learn_s
        started = time.perf_counter()
        self.pool.push_weights()
        sync_s = time.perf_counter() - started
        self.recorder.rollouts(step, trees, scored, self.pool)
        return {
            **rollout_metrics(trees, scored),
            **age_metrics(trees, step - 1),
            **self._decided(),
            **ledger_metrics(scored, data, stats),
            **update_metrics(stats),
            **timing_metrics(trees, stats, generate_s=sample.generate_s, update_s=update_s),
            **fits,
            "time/wait_s": wait_s,
            "time/sync_s": sync_s,
        }

    def _fit_values(self, examples: Mapping[str, Sequence[ValueExample]]) -> dict[str, float]:
        """Fit V after the policies, whose hidden states it reads; return its metrics."""
        if self.config.algorithm.critic is None:
            return {}
        started = time.perf_counter()
        fits = self.pool.fit_values(examples)
        return {
            **value_metrics(fits),
            "time/value_s": self.pool.take_value_s(),
            "time/fit_value_s": time.perf_counter() - started,
        }

    def _evaluate(
        self, step: int, before: Mapping[str, Figures] | None = None, *, may_stop: bool = False
    ) -> dict[str, float]:
        """Play the held-out levels; what was played before counts to the evaluation too.

        Args:
            may_stop: Whether a signal stops it at once.

        Raises:
            StopRequested: A signal has stopped it.
        """
        started, most = time.perf_counter(), self.held_out.most_completions
        stopping = self.stop.at_once() if may_stop else contextlib.nullcontext()
        with stopping, self._busy("evaluation", f" after train step {step}", most):
            variants = {**(before or {}), **self.held_out.play(self.pool)}
            if step == self.config.num_steps:
                variants |= self.held_out.play_swapped(self.pool)
        if step == 0:
            # Scripted policies do not learn: one evaluation of them holds for the whole run.
            variants |= self.held_out.play_scripted()
        # Else the next train step would count these seconds as its own.
        self.pool.take_generate_s()
        self.recorder.evaluation(step, self.held_out.line(variants))
        if step in (0, self.config.num_steps):
            self.recorder.held_out(step, self.held_out.examples, self.pool)
        return {**evaluation_metrics(variants), "time/evaluate_s": time.perf_counter() - started}

    def _progress(
        self, step: int, unevaluated: Mapping[str, float] | None = None
    ) -> TrainingProgress:
        rollouts = self.rollouts
        return TrainingProgress(
            step=step,
            num_levels_used=rollouts.sampler.num_levels_used,
            pending=list(rollouts.pending),
            memory=rollouts.sampler.memory,
            records=rollouts.sampler.records,
            unevaluated=unevaluated or {},
            is_updated=step + 1 in self.updated,
        )

    def _go_back(self, to: TrainingProgress) -> None:
        self.rollouts.restore(to.num_levels_used, to.pending, to.memory, to.records)

    def _save(self, step: int, unevaluated: Mapping[str, float] | None = None) -> None:
        save_checkpoint(
            self.checkpoints,
            self.pool.updaters(),
            self._progress(step, unevaluated),
            config_hash=config_hash(self.config),
            keep=self.config.checkpoint.keep,
            ranks=self.pool.ranks,
        )


def _is_due(step: int, every: int) -> bool:
    return every > 0 and step % every == 0


def build_trainer(
    config: Config,
    environments: Sequence[RunEnvironment],
    pool: PolicyPool,
    recorder: Recorder,
    files: RunDirectory,
    *,
    episodes: Sequence[EpisodesOfEnv],
    stop: StopRequest,
    runner: asyncio.Runner,
    rewards: Rewards | None = None,
) -> Trainer:
    """Put the parts of a run together.

    Args:
        runner: Runs rollouts; one event loop for the whole run.
    """
    rewards = rewards or Rewards()
    failures = FailureLog(config.rollout.max_failed_fraction)
    training = [
        TrainingEnvironment(
            name=env.name,
            config=env.config,
            roles=env.roles,
            episodes=own.training,
            rewards=rewards,
        )
        for env, own in zip(environments, episodes, strict=True)
    ]
    held_out: list[HeldOutSet] = []
    for env, own in zip(environments, episodes, strict=True):
        first = sum(len(one.specs) for one in held_out)
        held_out.append(HeldOutSet(env, own.held_out, config, failures, runner, first))
    # Beside an update ranks exchange rollouts and gradients at the same time.
    ranks = pool.ranks.apart() if config.plays_beside_updates else pool.ranks
    sampler = Sampler(training, replace(pool, ranks=ranks), config, failures, stop)
    return Trainer(
        config=config,
        pool=pool,
        warm_start=WarmStart(config, environments, pool, stop),
        rollouts=TrainingRollouts(sampler, config, stop, runner, pool.ranks),
        held_out=HeldOut(held_out, config),
        recorder=recorder,
        checkpoints=files.checkpoints,
        rewards=rewards,
        stop=stop,
        # Scripted answers are not written for judges and rewards of one's own.
        scripted={} if config.rewards else {env.name: env.training[0] for env in environments},
    )
