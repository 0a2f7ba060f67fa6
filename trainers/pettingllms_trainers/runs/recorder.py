"""Everything a run writes for people and programs, apart from checkpoints."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from pettingllms.files import read_lines, write_whole
from pettingllms.sources import short_name
from pettingllms_trainers.config import Config
from pettingllms_trainers.files import whole_directory
from pettingllms_trainers.learning.groups import ScoredDecisions
from pettingllms_trainers.policies.pool import PolicyPool
from pettingllms_trainers.runs.folder import RunDirectory
from pettingllms_trainers.runs.metrics import checked
from pettingllms_trainers.runs.plots import learning_curve
from pettingllms_trainers.runs.progress import ProgressView
from pettingllms_trainers.runs.report import build_report
from pettingllms_trainers.runs.stuck import StuckWatch
from pettingllms_trainers.runs.trackers import Trackers
from pettingllms_trainers.runs.tree_file import TreeFile
from pettingllms_trainers.types import ImitationStep, RolloutTree


class Recorder:
    """Writes the lines of train steps and evaluations, and the results at the end.

    Args:
        files: Where to.
        config: The run's configuration.
        progress: What people see meanwhile.
        trackers: Get the metrics too.
    """

    def __init__(
        self, files: RunDirectory, config: Config, progress: ProgressView, trackers: Trackers
    ) -> None:
        self._files = files
        self._config = config
        self._progress = progress
        self._trackers = trackers
        self._trees = TreeFile(files, config, progress.note)
        self._watch = StuckWatch(config)

    @property
    def is_stuck(self) -> bool:
        """Whether nothing is learnt any more; only the main rank finds out."""
        return self._watch.is_stuck

    def warnings(self) -> list[str]:
        """Return what was wrong for several train steps."""
        return self._watch.warnings()

    def start_at(self, step: int) -> None:
        """Forget what was written after a step, -1 for everything."""
        self._files.forget_after(step)
        self._trackers.start_at(step)
        for line in read_lines(self._files.metrics):
            if line["step"] > 0:
                self._watch.step(line["step"], line)

    def busy(self, activity: Callable[[], str]) -> contextlib.AbstractContextManager[None]:
        """Return a context in which long silence is broken by what is being done."""
        return self._progress.busy(activity)

    def imitation(self, policy: str, step: ImitationStep) -> None:
        """Write what a supervised step did."""
        values = {"policy": policy, "supervised_step": step.step + 1}
        values |= {"loss": step.loss, "grad_norm": step.grad_norm}
        # A warm start that is interrupted begins again, so its lines need not survive a crash.
        self._files.append(self._files.warm_start, 0, values, is_durable=False)

    def note(self, text: str) -> None:
        """Report what happens outside train steps."""
        self._progress.note(text)

    def metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write the metrics after a train step; step 0 is the start.

        Raises:
            TrainerError: A value is not finite.
        """
        self._files.append(self._files.metrics, step, checked(metrics))
        self._trackers.write(step, metrics)
        if step > 0:
            self._progress.step(step, metrics)
            for warning in self._watch.step(step, metrics):
                self._progress.warn(warning)

    def rollouts(
        self, step: int, trees: Sequence[RolloutTree], scored: ScoredDecisions, pool: PolicyPool
    ) -> None:
        """Write some rollout trees of a train step, when the configuration wants them."""
        self._trees.training(step, trees, scored, pool)

    def held_out(self, step: int, trees: Sequence[RolloutTree], pool: PolicyPool) -> None:
        """Write some held-out episodes, when the configuration wants rollout trees."""
        self._trees.held_out(step, trees, pool)

    def evaluation(self, step: int, line: Mapping[str, Any]) -> None:
        """Write a held-out evaluation."""
        self._files.append(self._files.evaluations, step, line)

    def policies(self, pool: PolicyPool) -> None:
        """Write the trainable policies as ordinary Hugging Face directories."""
        for name, updater in pool.updaters().items():
            final = self._files.policies / name
            with whole_directory(final) as partial:
                updater.save_pretrained(partial, final=final)

    def finish(self, pool: PolicyPool, final_variants: Mapping[str, Any]) -> dict[str, Any]:
        """Write policies, report and learning curve; return the report."""
        evaluations = read_lines(self._files.evaluations)
        report = build_report(evaluations, final_variants) | {"warnings": self.warnings()}
        self.policies(pool)
        write_whole(self._files.report, json.dumps(report, indent=2) + "\n")
        title = ", ".join(short_name(env.id) for env in self._config.env)
        learning_curve(evaluations, title).savefig(self._files.curve, dpi=150)
        return report


class SilentRecorder(Recorder):
    """That of a rank which is not the main one: writes nothing, and helps where all are needed."""

    def _nothing(self, *arguments: Any, **named: Any) -> None:
        """Do nothing."""

    start_at = note = imitation = rollouts = held_out = evaluation = _nothing

    def busy(self, activity: Callable[[], str]) -> contextlib.AbstractContextManager[None]:
        """Return a context that does nothing."""
        return contextlib.nullcontext()

    def metrics(self, step: int, metrics: Mapping[str, float]) -> None:
        """Check the metrics; see `Recorder.metrics`."""
        checked(metrics)

    def policies(self, pool: PolicyPool) -> None:
        """Have a part in writing the policies: the main rank has the files."""
        for name, updater in pool.updaters().items():
            updater.save_pretrained(self._files.policies / name)

    def finish(self, pool: PolicyPool, final_variants: Mapping[str, Any]) -> dict[str, Any]:
        """Have a part in writing the policies; return an empty report."""
        self.policies(pool)
        return {}
