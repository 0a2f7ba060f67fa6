"""Trained policies out of a run's checkpoint, as ordinary Hugging Face directories."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path

from pettingllms.errors import suggestion
from pettingllms.files import owned
from pettingllms_trainers.config import Config, config_hash
from pettingllms_trainers.config.loading import load_config
from pettingllms_trainers.errors import CheckpointError, ConfigError, OutputDirError
from pettingllms_trainers.files import whole_directory
from pettingllms_trainers.runs.checkpoint import load_checkpoint
from pettingllms_trainers.runs.folder import RunDirectory


def export_policies(
    run: Path,
    directory: Path,
    *,
    policy: str | None = None,
    step: int | None = None,
    is_merged: bool = False,
    trust: bool = False,
) -> tuple[dict[str, Path], int]:
    """Write the trained policies of a run; the directory has all of it or is not there.

    Args:
        directory: Where to write; new or empty. Of several policies each has a folder in it,
            called after it.
        policy: Name of the only policy that is written; None: all that the run trains.
        step: Train step of the checkpoint; None for the newest.
        is_merged: Whether a LoRA adapter is added to the weights of its base model, instead of
            being written alone.
        trust: Whether the run may name code and servers; see `pettingllms.trust`.

    Returns:
        Name of each policy -> its folder; and the train step.

    Raises:
        UntrustedName: The run names an algorithm by its place, and is not trusted.
        CheckpointError: There is no such run, checkpoint or policy, or it is damaged.
        OutputDirError: The directory is a file or not empty.
        RunFolderError: It is within the run, which another process writes.
        ConfigError: The model that the policy began with cannot be loaded, or there is no adapter
            to merge.
    """
    _check_target(directory)
    files = RunDirectory(run)
    if not files.config.is_file():
        raise CheckpointError(f"{run} holds no run: it has no {files.config.name}")
    config = load_config(files.config, trust=trust, is_read=True)
    checkpoint = load_checkpoint(files.checkpoints, config_hash=config_hash(config), step=step)
    if checkpoint is None:
        raise CheckpointError(f"{run} has no checkpoint yet; the first one follows evaluation")
    names = _chosen(policy, list(checkpoint.policies))
    for name in names if is_merged else ():
        if not config.models[name].has_adapter:
            raise ConfigError(
                f"the policy {name!r} has no LoRA adapter to merge; leave --merge out"
            )
    places = {name: Path(name) if len(names) > 1 else Path() for name in names}
    # Elsewhere nobody else writes; within the run a training or another export may.
    is_within = run.resolve() in directory.resolve().parents
    with owned(run) if is_within else nullcontext():
        _write(config, places, checkpoint.policies, directory, is_merged=is_merged)
    return {name: directory / place for name, place in places.items()}, checkpoint.step


def _check_target(directory: Path) -> None:
    if directory.exists() and not directory.is_dir():
        raise OutputDirError(f"{directory} is a file; name a new directory")
    if directory.is_dir() and any(directory.iterdir()):
        raise OutputDirError(f"the directory {directory} is not empty; name a new one")


def _chosen(policy: str | None, known: Sequence[str]) -> Sequence[str]:
    if policy is None:
        return known
    if policy not in known:
        raise CheckpointError(
            f"the run trains no policy {policy!r}{suggestion(policy, known)}; it trains: "
            f"{', '.join(known) or 'none'}"
        )
    return [policy]


def _write(
    config: Config,
    places: Mapping[str, Path],
    states: Mapping[str, Path],
    directory: Path,
    *,
    is_merged: bool,
) -> None:
    # Imported here: torch and transformers take seconds, and bad input needs neither.
    from pettingllms_trainers.backends.build import build_policies

    # A checkpoint of any engine and any number of processes is read by one, without a GPU.
    engine = {"kind": "transformers", "attention": "expanded", "precision": "float32"}
    alone = config.model_copy(
        update={
            "device": "cpu",
            "fsdp": config.fsdp.model_copy(update={"enabled": False}),
            "deepspeed": config.deepspeed.model_copy(update={"stage": 0, "offload": "none"}),
            "engine": config.engine.model_copy(update=engine),
            "policies": {name: config.policies[name] for name in places},
        }
    )
    policies = build_policies(alone)
    with whole_directory(directory) as partial:
        for name, place in places.items():
            policy = policies[name]
            assert policy.updater is not None, f"{name} is frozen"
            policy.updater.load_weights(states[name])
            (partial / place).mkdir(exist_ok=True)
            if is_merged:
                policy.save_merged(partial / place)
            else:
                # Inside, files name the final place: an adapter says where its base model is.
                policy.save_pretrained(partial / place, final=directory / place)
