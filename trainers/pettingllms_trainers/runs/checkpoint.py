"""Checkpoints: written whole or not at all, read back exactly or refused with the reason."""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import shutil
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from pydantic import TypeAdapter

from pettingllms.curriculum import LevelRecord
from pettingllms.files import PARTIAL, load_json
from pettingllms_trainers.errors import CheckpointError
from pettingllms_trainers.files import partial_of, whole_directory
from pettingllms_trainers.policies.protocols import Update
from pettingllms_trainers.ranks import Ranks
from pettingllms_trainers.rollout.sampler import PendingStep, Records

_FORMAT = 14
_MANIFEST = "checkpoint.json"
# Has the SHA-256 of the manifest, which has that of every other file; as `sha256sum` writes it.
_SEAL = "checkpoint.sha256"
_PENDING_FILE = "rollouts.json"
_PLAIN = ("step", "num_levels_used", "memory", "records", "unevaluated", "is_updated")
_NAME = re.compile(r"step-(\d{8})")


@dataclass(frozen=True, kw_only=True, slots=True)
class TrainingProgress:
    """How far a run has come, beside the states of its policies."""

    step: int
    """Train steps that are done."""
    num_levels_used: int
    """Level cursor: training levels drawn so far."""
    pending: Sequence[PendingStep] = ()
    """Rollouts of the next train steps that have begun, in order: the weights that wrote their
    answers are gone."""
    memory: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """What the algorithm remembers; see `Algorithm.remember`."""
    records: Records = field(default_factory=dict[str, Any])
    """Name of an environment to the records of its curriculum's stages."""
    unevaluated: Mapping[str, float] = field(default_factory=dict[str, float])
    """Metrics of its train step if a signal stopped the evaluation that follows it; else empty."""
    is_updated: bool = False
    """Whether the next train step has updated its policies, and V, before it failed."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Checkpoint(TrainingProgress):
    """All that a run needs to continue as if it had never stopped."""

    policies: Mapping[str, Path]
    """Trainable policy to the directory of its state; see `Update.load_state`."""


def save_checkpoint(
    directory: Path,
    policies: Mapping[str, Update],
    progress: TrainingProgress,
    *,
    config_hash: str,
    keep: int,
    ranks: Ranks | None = None,
) -> Path:
    """Write a checkpoint, unless that of its step exists, and remove the oldest beyond `keep`.

    A crash, a full disk or SIGKILL at any moment leaves all earlier checkpoints usable and no half
    one under a checkpoint's name.

    Args:
        keep: Number of newest checkpoints that stay, at least 1.
        ranks: The processes that write it together, on a file system that all see; None for this
            one alone. Collective.

    Returns:
        The directory of the new checkpoint.
    """
    ranks = ranks or Ranks()
    final = directory / _folder(progress.step)
    if ranks.broadcast(final.exists()):
        return final
    folders = {name: f"policy-{index}" for index, name in enumerate(policies)}
    # What a crash has left: half a checkpoint of a step that may not come again.
    for leftover in directory.glob(f"*{PARTIAL}*") if ranks.is_main else ():
        shutil.rmtree(leftover)
    # One rank makes and renames the directory; all write their share of the policies in between.
    whole = whole_directory(final) if ranks.is_main else contextlib.nullcontext(partial_of(final))
    with whole as partial:
        for folder in folders.values() if ranks.is_main else ():
            (partial / folder).mkdir()
        ranks.barrier()
        for name, policy in policies.items():
            policy.save_state(partial / folders[name])
        ranks.barrier()
        pending = _of_all(progress.pending, ranks)
        if ranks.is_main:
            if pending:
                # Not `dump_json`: that refuses half a surrogate pair, which a game may have shown.
                text = json.dumps(_PENDING.dump_python(pending, mode="json"))
                (partial / _PENDING_FILE).write_text(text, encoding="utf-8")
            manifest = {
                "format": _FORMAT,
                "config_hash": config_hash,
                **{name: getattr(progress, name) for name in _PLAIN},
                "policies": folders,
                "files": _contents(partial),
            }
            (partial / _MANIFEST).write_text(json.dumps(manifest, indent=2), encoding="utf-8")
            # The manifest cannot hold its own hash; one flipped bit in it would go unseen.
            (partial / _SEAL).write_bytes(_seal(partial))
    if ranks.is_main:
        # After the new one has its name: at every moment one whole checkpoint is there.
        for old in _all(directory)[:-keep]:
            shutil.rmtree(old.rename(partial_of(old)))
    return ranks.broadcast(final)


def load_checkpoint(
    directory: Path, *, config_hash: str, step: int | None = None
) -> Checkpoint | None:
    """Read a checkpoint of a run; None when it has none yet.

    Args:
        step: Train steps that are done; None for the newest checkpoint.

    Raises:
        CheckpointError: There is none of that step, or it is damaged, of another format, or of
            another configuration.
    """
    found = {int(path.name.removeprefix("step-")): path for path in _all(directory)}
    if not found:
        return None
    path = found.get(max(found) if step is None else step)
    if path is None:
        raise CheckpointError(
            f"{directory} has no checkpoint of train step {step}; it has those of "
            f"{', '.join(map(str, found))} (checkpoint.keep decides how many stay)"
        )
    manifest = _read_manifest(path)
    if manifest["format"] != _FORMAT:
        raise CheckpointError(
            f"{path} has the checkpoint format {manifest['format']}; this version reads "
            f"{_FORMAT}. Resume with the version that wrote it"
        )
    if manifest["step"] != int(path.name.removeprefix("step-")):
        raise CheckpointError(
            f"{path} has the checkpoint of train step {manifest['step']}: the directory was "
            f"renamed or copied. Name it {_folder(manifest['step'])} again, or remove it"
        )
    if manifest["config_hash"] != config_hash:
        raise CheckpointError(
            f"{path} was written by a run of another configuration (hash "
            f"{manifest['config_hash']}, this one has {config_hash})"
        )
    # Every byte, before anything is loaded: half a state would train on without an error.
    _check_files(path, manifest["files"])
    return Checkpoint(
        **{name: manifest[name] for name in _PLAIN if name != "records"},
        pending=_read_pending(path / _PENDING_FILE) if _PENDING_FILE in manifest["files"] else (),
        records=_RECORDS.validate_python(manifest["records"]),
        policies={name: path / folder for name, folder in manifest["policies"].items()},
    )


_PENDING = TypeAdapter(list[PendingStep])
_RECORDS = TypeAdapter(dict[str, list[LevelRecord]])


def _of_all(pending: Sequence[PendingStep], ranks: Ranks) -> list[PendingStep]:
    """Add what the other ranks were answered: each asks for its own levels."""
    found = list(pending)
    for known in ranks.gather([[(one.answers, one.values) for one in pending]]):
        found = [
            replace(one, answers=one.answers | answers, values=one.values | values)
            for one, (answers, values) in zip(found, known, strict=True)
        ]
    return found


def _read_pending(path: Path) -> list[PendingStep]:
    try:
        return _PENDING.validate_python(load_json(path))
    except ValueError as error:
        raise _damaged(path.parent, f"{path.name}: {error}") from error


def _contents(directory: Path) -> dict[str, dict[str, Any]]:
    """Size in bytes and SHA-256 of the files below a directory."""
    files = (path for path in sorted(directory.rglob("*")) if path.is_file())
    return {
        path.relative_to(directory).as_posix(): {
            "num_bytes": path.stat().st_size,
            "sha256": _sha256(path),
        }
        for path in files
    }


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _seal(directory: Path) -> bytes:
    return f"{_sha256(directory / _MANIFEST)}  {_MANIFEST}\n".encode("ascii")


def _folder(step: int) -> str:
    return f"step-{step:08d}"


def _all(directory: Path) -> list[Path]:
    if not directory.is_dir():
        return []
    return sorted(path for path in directory.iterdir() if _NAME.fullmatch(path.name))


def _read_manifest(path: Path) -> dict[str, Any]:
    try:
        is_sealed = (path / _SEAL).read_bytes() == _seal(path)
    except OSError as error:
        raise _damaged(path, str(error)) from error
    if not is_sealed:
        raise _damaged(path, f"{_MANIFEST} has other bytes than {_SEAL} says")
    return load_json(path / _MANIFEST)


def _check_files(path: Path, files: Mapping[str, Any]) -> None:
    present = {file.relative_to(path).as_posix() for file in path.rglob("*") if file.is_file()}
    # Not left alone: a share of the weights too many would be read with the others.
    if foreign := sorted(present - {*files, _MANIFEST, _SEAL}):
        raise CheckpointError(
            f"the checkpoint {path} has files that were not written with it: "
            f"{', '.join(foreign)}. Remove them to resume from it"
        )
    for name, content in files.items():
        file = path / name
        found = file.stat().st_size if file.is_file() else 0
        if found != content["num_bytes"]:
            raise _damaged(path, f"{name} has {found} of {content['num_bytes']} bytes")
        if _sha256(file) != content["sha256"]:
            raise _damaged(path, f"{name} has other bytes than were written (SHA-256 differs)")


def _damaged(path: Path, problem: str) -> CheckpointError:
    return CheckpointError(
        f"the checkpoint {path} is damaged: {problem}. Remove this directory to resume from the "
        "checkpoint before it, or from the start"
    )
