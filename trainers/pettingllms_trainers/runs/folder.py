"""The directory of a run: what lies where, and lines that survive a crash.

::

    RUN/config.toml            the resolved configuration; loads back equal
    RUN/metrics.jsonl          one line per train step
    RUN/warm_start.jsonl       one line per supervised step of a policy
    RUN/evaluations.jsonl      one line per held-out evaluation
    RUN/rollouts.jsonl         some rollout trees and held-out episodes, for people
    RUN/verdicts/RANK.jsonl    what judges said of which answers, and what it cost
    RUN/checkpoints/step-N/    what `--resume` continues from
    RUN/policies/NAME/         trained policies as ordinary Hugging Face directories
    RUN/eval.json              before, after and reference lines
    RUN/learning_curve.png     held-out success over train steps
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any

from pettingllms.errors import counted
from pettingllms.files import (
    LOCK,
    PARTIAL,
    checked_line,
    json_line,
    open_to_append,
    owned,
    warn_of_damage,
    whole_file,
    write_whole,
)
from pettingllms.sources import run_directory
from pettingllms.types import flat_table
from pettingllms_trainers.config import Config, config_hash
from pettingllms_trainers.config.loading import dump_config, load_config, read_layer
from pettingllms_trainers.config.root import deciding, learning_rates
from pettingllms_trainers.config.vetting import ALGORITHM, named_code
from pettingllms_trainers.errors import CheckpointError, OutputDirError

_LINE_FILES = ("metrics.jsonl", "warm_start.jsonl", "evaluations.jsonl", "rollouts.jsonl")
_TRACKER_NAMES = ("tensorboard", "wandb", "wandb_run_id.txt", "mlflow_run.json", "trackio_run.json")
_STEP = re.compile(rb'\{"step": (\d+)[,}]')
# What a run writes before its first checkpoint.
_OWN_NAMES = {LOCK, "config.toml", *_LINE_FILES, *_TRACKER_NAMES, "verdicts", "checkpoints"}


class RunDirectory:
    """The files of one run."""

    def __init__(self, directory: Path) -> None:
        directory = self.directory = run_directory(directory)
        self.config = directory / "config.toml"
        self.metrics = directory / "metrics.jsonl"
        self.warm_start = directory / "warm_start.jsonl"
        self.evaluations = directory / "evaluations.jsonl"
        self.rollouts = directory / "rollouts.jsonl"
        self.checkpoints = directory / "checkpoints"
        self.policies = directory / "policies"
        self.report = directory / "eval.json"
        self.curve = directory / "learning_curve.png"

    def check(self, config: Config, *, is_resumed: bool) -> None:
        """Find out whether a run may use the directory, without writing anything.

        Args:
            is_resumed: Whether the run continues what is there. A directory in which nothing
                was written yet is fine: the run then starts from the beginning.

        Raises:
            OutputDirError: It is not a directory, not empty, or holds something else than a run.
            CheckpointError: It is the run of another configuration.
        """
        if self.directory.exists() and not self.directory.is_dir():
            raise OutputDirError(f"the output directory {self.directory} is a file")
        paths = self.directory.iterdir() if self.directory.is_dir() else ()
        if all(path.name.endswith(PARTIAL) or path.name == LOCK for path in paths):
            return
        if self._is_abandoned():
            return  # it ended before its first checkpoint: this one starts from the beginning
        if not is_resumed:
            raise OutputDirError(
                f"the output directory {self.directory} is not empty. Give another "
                "output_dir, remove it, or continue its run with resume=True (on the command line: "
                f"pettingllms-train {shlex.quote(str(self.directory))} --resume)"
            )
        if not self.config.is_file():
            raise OutputDirError(f"{self.directory} holds no run: it has no config.toml")
        # What `auto` chose on the first machine holds for the whole run.
        config = self.settled(config)
        saved = self._saved(config)
        if config_hash(saved) != config_hash(config):
            raise CheckpointError(
                f"{self.directory} is a run of another configuration; it differs in "
                f"{', '.join(_differences(saved, config))}. Resume with the configuration in "
                f"{self.config}, or start a new run in another directory"
            )
        # Equal hashes do not show it: num_steps may differ when a run is resumed.
        if (done := self.last_step() or 0) > config.num_steps:
            raise CheckpointError(
                f"{self.directory} has done {counted(done, 'train step')}, and num_steps = "
                f"{config.num_steps}; give at least {done}"
            )

    def settled(self, config: Config) -> Config:
        """Take over the precision of the run here, unless the configuration names one."""
        if config.engine.precision != "auto" or not self.config.is_file():
            return config
        saved = self._saved(config).engine.precision
        engine = config.engine.model_copy(update={"precision": saved})
        return config.model_copy(update={"engine": engine})

    def changes(self, config: Config) -> list[str]:
        """Say in words what a resumed run does otherwise than before; nothing for a new one.

        Args:
            config: With which it is resumed; `check` has accepted it.
        """
        if not self._has_results() or not self.config.is_file():
            return []
        saved = self._saved(config)
        keys = ("num_steps", "evaluation.every", "checkpoint.every", "checkpoint.keep")
        one, other = (flat_table(c.model_dump(mode="json")) for c in (saved, config))
        lines = [f"{key} = {other[key]}, was {one[key]}" for key in keys if one[key] != other[key]]
        if saved.num_steps != config.num_steps:
            lines.append(_schedule(config, saved.num_steps))
        return lines

    @contextlib.contextmanager
    def owned(self) -> Generator[None]:
        """Hold the directory, which is made if it is new, while the run writes; see `owned`.

        Raises:
            OutputDirError: It cannot be created.
            RunFolderError: Another process writes into it.
        """
        with contextlib.ExitStack() as stack:
            try:
                stack.enter_context(owned(self.directory))
            except OSError as error:
                raise OutputDirError(
                    f"the output directory {self.directory} cannot be created: {error}"
                ) from error
            yield

    def open(self, config: Config) -> None:
        """Write the resolved configuration into the directory, which is there."""
        write_whole(self.config, dump_config(config))

    def verdicts(self, rank: int) -> Path:
        """File of the verdicts that a process has asked for; its directory is made."""
        folder = self.directory / "verdicts"
        folder.mkdir(exist_ok=True)
        return folder / f"{rank}.jsonl"

    def append(
        self, path: Path, step: int, values: Mapping[str, Any], *, is_durable: bool = True
    ) -> None:
        """Append one line of a step and make it durable, unless a crash may take it.

        Raises:
            ValueError: A value is not a finite number or not JSON.
        """
        # NaN is not JSON: other readers of the file would refuse the whole line.
        line = json_line({"step": step, **values}, allow_nan=False)
        with open_to_append(path) as file:
            file.write(line)
            file.flush()
            if is_durable:
                os.fsync(file.fileno())

    def forget_after(self, step: int) -> None:
        """Remove the lines of later steps, which a resumed run writes again, and damaged ones.

        A crash comes between lines and checkpoint: the files may be steps ahead of it.
        """
        for path in (self.metrics, self.warm_start, self.evaluations, self.rollouts):
            if path.exists():
                self._forget_lines(path, step)

    def _forget_lines(self, path: Path, step: int) -> None:
        damaged: dict[int, str] = {}
        with path.open("rb") as file, whole_file(path, "wb") as kept:
            for number, line in enumerate(file, 1):
                # The checksum and the step suffice: a resume needs no tree, and reads none.
                try:
                    found = _STEP.match(checked_line(line))
                except ValueError:
                    found = None
                if found is None and line.endswith(b"\n"):
                    damaged[number] = "it is not what was written"
                elif found is not None and line.endswith(b"\n") and int(found[1]) <= step:
                    kept.write(line)
        warn_of_damage(path, damaged)

    def last_step(self) -> int | None:
        """Train step of the newest checkpoint; None if there is none."""
        return max(self._steps(), default=None)

    def _steps(self) -> list[int]:
        """Train steps of the checkpoints."""
        names = (path.name for path in self.checkpoints.glob("step-*"))
        return [int(name.removeprefix("step-")) for name in names if name[5:].isdecimal()]

    def _is_abandoned(self) -> bool:
        """Whether a run has begun here, has no checkpoint, and nothing else is here."""
        if not self.config.is_file() or self._has_results():
            return False
        names = {path.name for path in self.directory.iterdir()}
        if any(name not in _OWN_NAMES and not name.endswith(PARTIAL) for name in names):
            return False
        # A run file of a person, with this directory as output_dir, is not overwritten.
        saved = read_layer(self.config).table.get("output_dir", "")
        return Path(saved).resolve() == self.directory.resolve()

    def _saved(self, config: Config) -> Config:
        """Read the saved configuration, to be compared with that of the run."""
        known = named_code(config.model_dump(mode="json"), ALGORITHM)
        return load_config(self.config, known=known, is_read=True)

    def _has_results(self) -> bool:
        return bool(self._steps()) or self.policies.exists()


def _schedule(config: Config, old: int) -> str:
    optimizer = config.optimizer
    if optimizer.final_fraction == 1:
        return "the learning rate stays constant, as before"
    rates = " and ".join(f"{rate:g}" for rate in sorted({*learning_rates(config).values()}))
    return (
        f"the learning rate now falls to {optimizer.final_fraction:g} of "
        f"{rates} at train step {config.num_steps} instead of {old}, on one "
        "line from the end of the warm-up: it jumps where this part begins"
    )


def _differences(saved: Config, given: Config) -> list[str]:
    one, other = deciding(saved), deciding(given)
    return [key for key in sorted({*one, *other}) if one.get(key) != other.get(key)]
