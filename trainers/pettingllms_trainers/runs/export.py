"""A trained policy out of a run's checkpoint, as an ordinary Hugging Face directory."""

from __future__ import annotations

from collections.abc import Sequence
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


def export_policy(
    run: Path,
    directory: Path,
    *,
    policy: str | None = None,
    step: int | None = None,
    is_merged: bool = False,
    trust: bool = False,
) -> tuple[str, int]:
    """Write a trained policy of a run; the directory has all of it or is not there.

    Args:
        run: Output directory of a run.
        directory: Where to write; new or empty.
        policy: Name of the policy; None when the run trains only one.
        step: Train step of the checkpoint; None for the newest.
        is_merged: Whether a LoRA adapter is added to the weights of its base model, instead of
            being written alone.
        trust: Whether the run may name code and servers; see `pettingllms.trust`.

    Returns:
        Name of the policy and train step.

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
    name = _chosen(policy, list(checkpoint.policies))
    if is_merged and not config.models[name].has_adapter:
        raise ConfigError(f"the policy {name!r} has no LoRA adapter to merge; leave --merge out")
    # Elsewhere nobody else writes; within the run a training or another export may.
    is_within = run.resolve() in directory.resolve().parents
    with owned(run) if is_within else nullcontext():
        _write(config, name, checkpoint.policies[name], directory, is_merged=is_merged)
    return name, checkpoint.step


def _check_target(directory: Path) -> None:
    if directory.exists() and not directory.is_dir():
        raise OutputDirError(f"{directory} is a file; name a new directory")
    if directory.is_dir() and any(directory.iterdir()):
        raise OutputDirError(f"the directory {directory} is not empty; name a new one")


def _chosen(policy: str | None, known: Sequence[str]) -> str:
    if policy is None and len(known) == 1:
        return known[0]
    if policy is None:
        raise CheckpointError(f"the run trains several policies; name one with --policy: "
                              f"{', '.join(known) or 'none'}")  # fmt: skip
    if policy not in known:
        raise CheckpointError(
            f"the run trains no policy {policy!r}{suggestion(policy, known)}; it trains: "
            f"{', '.join(known) or 'none'}"
        )
    return policy


def _write(config: Config, name: str, state: Path, directory: Path, *, is_merged: bool) -> None:
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
            "policies": {name: config.policies[name]},
        }
    )
    policy = build_policies(alone)[name]
    assert policy.updater is not None, f"{name} is frozen"
    policy.updater.load_weights(state)
    # Inside, files name the final place: an adapter says where its base model is.
    with whole_directory(directory) as partial:
        if is_merged:
            policy.save_merged(partial)
        else:
            policy.save_pretrained(partial, final=directory)
