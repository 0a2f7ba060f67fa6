"""Where metrics go besides metrics.jsonl: each tracker is optional, and none can end a run."""

from __future__ import annotations

import contextlib
import importlib.util
import logging
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Self

from pettingllms_trainers.config import Config, LoggingConfig
from pettingllms_trainers.errors import ConfigError
from pettingllms_trainers.runs.boards import (
    Board,
    Mlflow,
    Opener,
    TensorBoard,
    Trackio,
    WeightsAndBiases,
)

_LOG = logging.getLogger(__name__)


class _Kind(NamedTuple):
    key: str
    """Of `logging`: what asks for the tracker; also its package, up to an underscore."""
    name: str
    open: Opener
    advice: str
    """What to do where it cannot be used."""

    @property
    def package(self) -> str:
        return self.key.partition("_")[0]

    @property
    def is_installed(self) -> bool:
        return importlib.util.find_spec(self.package) is not None


_TENSORBOARD = _Kind(
    "tensorboard", "TensorBoard", TensorBoard, "logging.tensorboard = false leaves it out"
)
_KINDS = (
    _Kind(
        "wandb_project",
        "Weights & Biases",
        WeightsAndBiases,
        'log in with `wandb login`, or set logging.wandb_mode = "offline"',
    ),
    _Kind(
        "mlflow_experiment",
        "MLflow",
        Mlflow,
        "MLFLOW_TRACKING_URI names a server, or a database such as sqlite:///mlflow.db",
    ),
    _Kind(
        "trackio_project",
        "Trackio",
        Trackio,
        "TRACKIO_DIR names a folder to write to, TRACKIO_SPACE_ID a Space",
    ),
)
"""Those that a configuration has to ask for by name."""


def check_trackers(wanted: LoggingConfig) -> None:
    """Find out whether the trackers that a configuration asks for can be used.

    Raises:
        ConfigError: A package is missing.
    """
    for kind in _KINDS:
        value = getattr(wanted, kind.key)
        if value and not kind.is_installed:
            raise ConfigError(
                f"logging.{kind.key} = {value!r} needs the package {kind.package}, which is not "
                f'installed: pip install "pettingllms-trainers[{kind.package}]", or leave the key '
                "out"
            )


class Trackers:
    """The trackers of a run, closed at the end of this context.

    Args:
        directory: That of the run.
        config: The run's configuration.
        on_step: Called with the number and the metrics of each train step, from 1.
    """

    def __init__(
        self,
        directory: Path,
        config: Config,
        on_step: Callable[[int, Mapping[str, float]], None] | None = None,
    ) -> None:
        self._directory, self._config, self._on_step = directory, config, on_step
        self._boards: dict[_Kind, Board] = {}

    def __enter__(self) -> Self:
        """Nothing is opened before `start_at`."""
        return self

    def __exit__(self, *raised: Any) -> None:
        """Write what is buffered and report whether the run succeeded."""
        for kind, board in self._boards.items():
            with _only_warns(kind, "did not get all metrics"):
                board.close(has_failed=any(raised))

    def start_at(self, step: int) -> None:
        """Open the trackers for what follows a step, -1 for everything."""
        wanted = [kind for kind in _KINDS if getattr(self._config.logging, kind.key)]
        if self._config.logging.tensorboard and _TENSORBOARD.is_installed:
            wanted.append(_TENSORBOARD)
        for kind in wanted:
            with _only_warns(kind, "gets no metrics, it cannot start"):
                self._boards[kind] = kind.open(self._directory, self._config, step)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write the metrics of a step; a tracker that fails gets no further ones."""
        for kind, board in [*self._boards.items()]:
            del self._boards[kind]
            with _only_warns(kind, f"gets no more metrics, from step {step} on"):
                board.write(step, metrics)
                self._boards[kind] = board
        if self._on_step is not None and step > 0:
            self._on_step(step, metrics)


@contextlib.contextmanager
def _only_warns(kind: _Kind, what: str) -> Generator[None]:
    """Have what a tracker raises be a warning: the run keeps its metrics anyway.

    What fails is others' code, such as packages that do not fit one another: any exception.
    """
    try:
        yield
    except Exception as error:  # noqa: BLE001  see above
        reason = (str(error).strip().splitlines() or [""])[0].rstrip(".")
        _LOG.warning(
            "%s %s (%s: %s). metrics.jsonl has them; %s",
            kind.name,
            what,
            type(error).__name__,
            reason,
            kind.advice,
        )
