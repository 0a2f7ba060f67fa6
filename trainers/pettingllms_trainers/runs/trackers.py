"""Trackers that get the metrics besides metrics.jsonl, each through its own library."""

from __future__ import annotations

import contextlib
import importlib
import importlib.util
import json
import logging
import os
import secrets
import time
from collections.abc import Callable, Generator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, Protocol, Self

from pettingllms.files import load_json, write_whole
from pettingllms.types import flat_table
from pettingllms_trainers.config import Config, LoggingConfig
from pettingllms_trainers.errors import ConfigError, MissingPackage, reason_of

# Parameters of one request to MLflow, at most.
_PARAMETERS = 100
# Characters of a parameter that every MLflow server takes.
_PARAMETER_LENGTH = 500


class Board(Protocol):
    """Takes the metrics of a run; an error of it is a warning, and the run goes on without it."""

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write the metrics of a step."""
        ...

    def close(self, has_failed: bool) -> None:
        """Write what is buffered; report whether the run failed, where it can be reported."""
        ...


Opener = Callable[[Path, Config, int], Board]
"""``(directory, config, step) -> board``: opens a board for the steps that follow a step."""


class TensorBoard(Board):
    """Files of TensorBoard below the directory of the run."""

    def __init__(self, directory: Path, config: Config, step: int) -> None:
        from torch.utils.tensorboard import SummaryWriter  # slow, and only when it is used

        self._writer: Any = SummaryWriter(str(directory / "tensorboard"), purge_step=step + 1)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def close(self, has_failed: bool) -> None:
        self._writer.close()


class WeightsAndBiases(Board):
    """A run at Weights & Biases; a resumed run continues there.

    It cannot forget: the steps that a resumed run repeats stay there as they are.
    """

    def __init__(self, directory: Path, config: Config, step: int) -> None:
        # A file of the working directory, which may be a stranger's, does not say who gets the key.
        local = Path(os.environ.get("WANDB_DIR", ""), "wandb", "settings")
        names_server = local.is_file() and "base_url" in local.read_text("utf-8", "replace")
        if names_server and "WANDB_BASE_URL" not in os.environ:
            raise ConfigError(
                f"{local} names a server, which would get your key of Weights & Biases. Remove it, "
                "or name the server in the environment variable WANDB_BASE_URL"
            )
        wandb = importlib.import_module("wandb")  # slow, and only when it is used
        # The id of the run there, the same when it is resumed.
        path = directory / "wandb_run_id.txt"
        if not path.is_file():
            write_whole(path, secrets.token_hex(8) + "\n")
        wanted = config.logging
        self._run: Any = wandb.init(
            project=wanted.wandb_project,
            entity=wanted.wandb_entity or None,
            name=wanted.wandb_name or directory.name,
            id=path.read_text(encoding="utf-8").strip(),
            resume="allow",
            dir=str(directory),
            mode=None if wanted.wandb_mode == "auto" else wanted.wandb_mode,
            config=config.model_dump(mode="json"),
            # A table that is redrawn would fill the console log.
            settings=wandb.Settings(console="off"),
        )

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        # Steps must not decrease there; what is repeated after a resume would be dropped noisily.
        if step >= self._run.step:
            self._run.log(dict(metrics), step=step, commit=True)

    def close(self, has_failed: bool) -> None:
        self._run.finish(exit_code=1 if has_failed else 0)


class Mlflow(Board):
    """A run in an experiment of MLflow, at the place that MLFLOW_TRACKING_URI names.

    What a resumed run repeats is not sent again.
    """

    def __init__(self, directory: Path, config: Config, step: int) -> None:
        mlflow = importlib.import_module("mlflow")  # slow, and only when it is used
        self._metric: Any = mlflow.entities.Metric
        self._client: Any = mlflow.MlflowClient()
        self._sent = _Sent(directory / "mlflow_run.json")
        if self._sent.run_id:
            self._client.update_run(self._sent.run_id, status="RUNNING")
        else:
            self._begin(mlflow, directory, config)

    def _begin(self, mlflow: Any, directory: Path, config: Config) -> None:
        name = config.logging.mlflow_experiment
        known = self._client.get_experiment_by_name(name)
        experiment = known.experiment_id if known else self._client.create_experiment(name)
        run_id = self._client.create_run(experiment, run_name=directory.name).info.run_id
        parameters = [
            mlflow.entities.Param(key, str(value)[:_PARAMETER_LENGTH])
            for key, value in flat_table(config.model_dump(mode="json")).items()
        ]
        # The server refuses larger requests as a whole.
        for first in range(0, len(parameters), _PARAMETERS):
            self._client.log_batch(run_id, params=parameters[first : first + _PARAMETERS])
        self._sent.begin(run_id)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        if step > self._sent.step:
            now = int(time.time() * 1000)
            values = [self._metric(name, value, now, step) for name, value in metrics.items()]
            self._client.log_batch(self._sent.run_id, metrics=values)
            self._sent.up_to(step)

    def close(self, has_failed: bool) -> None:
        self._client.set_terminated(self._sent.run_id, "FAILED" if has_failed else "FINISHED")


class Trackio(Board):
    """A run in a project of Trackio: on this machine, or where TRACKIO_SPACE_ID says.

    What a resumed run repeats is not sent again.
    """

    def __init__(self, directory: Path, config: Config, step: int) -> None:
        trackio = importlib.import_module("trackio")  # slow, and only when it is used
        self._sent = _Sent(directory / "trackio_run.json")
        if not self._sent.run_id:
            # Trackio knows runs by their names, and directories of several runs may be named alike.
            self._sent.begin(f"{directory.name}-{secrets.token_hex(3)}")
        self._run: Any = trackio.init(
            project=config.logging.trackio_project,
            name=self._sent.run_id,
            config=config.model_dump(mode="json"),
            resume="allow",
        )

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        if step > self._sent.step:
            self._run.log(dict(metrics), step=step)
            self._sent.up_to(step)

    def close(self, has_failed: bool) -> None:
        # Trackio does not record whether it failed.
        self._run.finish()


class _Sent:
    """The id of a run on a board, and the last step that was sent; kept in a JSON file."""

    def __init__(self, path: Path) -> None:
        self._path = path
        known = load_json(path) if path.is_file() else {}
        self.run_id: str = known.get("run_id", "")
        self.step: int = known.get("step", -1)

    def begin(self, run_id: str) -> None:
        self.run_id = run_id
        self.up_to(-1)

    def up_to(self, step: int) -> None:
        self.step = step
        content = {"run_id": self.run_id, "step": step}
        write_whole(self._path, json.dumps(content) + "\n")


_LOG = logging.getLogger(__name__)


class _Kind(NamedTuple):
    """A tracker."""

    key: str
    """Key of `logging` that asks for it; up to an underscore it is the name of its package."""
    name: str
    open: Opener
    """Opens its board."""
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
# Those that a configuration has to ask for by name.
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


def check_trackers(wanted: LoggingConfig) -> None:
    """Find out whether the trackers that a configuration asks for can be used.

    Raises:
        ConfigError: A package is missing.
    """
    for kind in _KINDS:
        value = getattr(wanted, kind.key)
        if value and not kind.is_installed:
            raise MissingPackage(f"logging.{kind.key} = {value!r}", kind.package, kind.package)


class Trackers:
    """The trackers of a run, closed at the end of this context.

    Args:
        directory: The directory of the run.
        config: Names the trackers.
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
        # On by default, so a missing package is not an error as it is for those asked for by name.
        if self._config.logging.tensorboard and _TENSORBOARD.is_installed:
            wanted.append(_TENSORBOARD)
        for kind in wanted:
            with _only_warns(kind, "gets no metrics, it cannot start"):
                self._boards[kind] = kind.open(self._directory, self._config, step)

    def write(self, step: int, metrics: Mapping[str, float]) -> None:
        """Write the metrics of a step; a tracker that fails gets no further ones."""
        for kind, board in [*self._boards.items()]:
            # Out first: one that raises stays out, and the next step does not wait for it again.
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
        _LOG.warning(
            "%s %s (%s: %s). metrics.jsonl has them; %s",
            kind.name,
            what,
            type(error).__name__,
            reason_of(error).rstrip("."),
            kind.advice,
        )
