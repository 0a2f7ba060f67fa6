"""Where metrics go besides metrics.jsonl: TensorBoard files and Weights & Biases, both optional."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import logging
import secrets
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any, Self

from pettingllms_trainers.config import Config, LoggingConfig
from pettingllms_trainers.errors import ConfigError
from pettingllms_trainers.files import write_atomically

_RUN_ID = "wandb_run_id.txt"
_WANDB_ADVICE = 'log in with `wandb login`, or set logging.wandb_mode = "offline"'
_LOG = logging.getLogger(__name__)


def check_trackers(wanted: LoggingConfig) -> None:
    """Find out whether the trackers that a configuration asks for can be used.

    Raises:
        ConfigError: A package is missing.
    """
    if wanted.wandb_project and importlib.util.find_spec("wandb") is None:
        raise ConfigError(
            f"logging.wandb_project = {wanted.wandb_project!r} needs the package wandb, which is "
            'not installed: pip install "pettingllms-trainers[wandb]", or leave the key out'
        )


class Trackers:
    """The trackers of a run, open while this object is used as a context.

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
        self._tensorboard: Any = None
        self._wandb: Any = None

    def __enter__(self) -> Self:
        """Open the run at Weights & Biases, if it is wanted; a resumed run continues there."""
        if self._config.logging.wandb_project:
            with _only_warns("Weights & Biases", _WANDB_ADVICE):
                self._wandb = _wandb_run(self._directory, self._config)
        return self

    def __exit__(self, *raised: Any) -> None:
        """Write what is buffered and report whether the run succeeded."""
        if self._tensorboard is not None:
            self._tensorboard.close()
        if self._wandb is not None:
            self._wandb.finish(exit_code=1 if any(raised) else 0)

    def start_at(self, step: int) -> None:
        """Forget what TensorBoard was given after a step, -1 for everything."""
        is_on = self._config.logging.tensorboard
        if is_on and importlib.util.find_spec("tensorboard") is not None:
            with _only_warns("TensorBoard", "logging.tensorboard = false leaves it out"):
                from torch.utils.tensorboard import SummaryWriter  # slow, and only when it is used

                folder = str(self._directory / "tensorboard")
                self._tensorboard = SummaryWriter(folder, purge_step=step + 1)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write the metrics of a step.

        Weights & Biases cannot forget: the steps that a resumed run repeats stay there as they are.
        """
        if self._tensorboard is not None:
            for name, value in metrics.items():
                self._tensorboard.add_scalar(name, value, step)
        if self._wandb is not None and step >= self._wandb.step:
            self._wandb.log(dict(metrics), step=step, commit=True)
        if self._on_step is not None and step > 0:
            self._on_step(step, metrics)


def _wandb_run(directory: Path, config: Config) -> Any:
    wandb = importlib.import_module("wandb")  # slow, and only when it is used
    wanted = config.logging
    return wandb.init(
        project=wanted.wandb_project,
        entity=wanted.wandb_entity or None,
        name=wanted.wandb_name or directory.name,
        id=_run_id(directory),
        resume="allow",
        dir=str(directory),
        mode=None if wanted.wandb_mode == "auto" else wanted.wandb_mode,
        config=config.model_dump(mode="json"),
        # A table that is redrawn would fill the console log.
        settings=wandb.Settings(console="off"),
    )


@contextlib.contextmanager
def _only_warns(name: str, advice: str) -> Generator[None]:
    """Have a tracker that cannot start be a warning: the run keeps its metrics anyway.

    What fails is others' code, such as packages that do not fit one another: any exception.
    """
    try:
        yield
    except Exception as error:  # noqa: BLE001  see above
        reason = (str(error).strip().splitlines() or [""])[0].rstrip(".")
        _LOG.warning(
            "%s gets no metrics, it cannot start (%s: %s). metrics.jsonl has them; %s",
            name,
            type(error).__name__,
            reason,
            advice,
        )


def _run_id(directory: Path) -> str:
    """Return the run's name at Weights & Biases, the same when it is resumed."""
    path = directory / _RUN_ID
    if not path.is_file():
        write_atomically(path, secrets.token_hex(8) + "\n")
    return path.read_text(encoding="utf-8").strip()
