"""Trained policies out of a run's checkpoint, as ordinary Hugging Face directories."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from pathlib import Path
from typing import Any

from pettingllms.errors import suggestion
from pettingllms.files import owned
from pettingllms_trainers.config import Config, config_hash
from pettingllms_trainers.config.loading import load_config
from pettingllms_trainers.errors import CheckpointError, ConfigError, OutputDirError
from pettingllms_trainers.files import whole_directory
from pettingllms_trainers.runs.checkpoint import Checkpoint, load_checkpoint
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
    if directory.exists() and not directory.is_dir():
        raise OutputDirError(f"{directory} is a file; name a new directory")
    if directory.is_dir() and any(directory.iterdir()):
        raise OutputDirError(f"the directory {directory} is not empty; name a new one")
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
        _write(config, places, checkpoint, directory, is_merged=is_merged)
    return {name: directory / place for name, place in places.items()}, checkpoint.step


def _chosen(policy: str | None, known: Sequence[str]) -> Sequence[str]:
    if policy is None:
        return known
    if policy not in known:
        raise CheckpointError(
            f"the run trains no policy {policy!r}{suggestion(policy, known) or '.'} It trains: "
            f"{', '.join(known) or 'none'}"
        )
    return [policy]


def _write(
    config: Config,
    places: Mapping[str, Path],
    checkpoint: Checkpoint,
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
            "num_threads": 0,
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
            policy.updater.load_weights(checkpoint.policies[name])
            (partial / place).mkdir(exist_ok=True)
            if is_merged:
                policy.save_merged(partial / place)
            else:
                # Inside, files name the final place: an adapter says where its base model is.
                policy.save_pretrained(partial / place, final=directory / place)
            card = _card(
                config,
                name,
                checkpoint.step,
                is_adapter=config.models[name].has_adapter and not is_merged,
            )
            card.save(partial / place / "README.md")


def _card(config: Config, name: str, step: int, *, is_adapter: bool) -> Any:
    """What a hub shows of a policy.

    It names no path of this machine: a base model only if it is on a hub itself.
    """
    from huggingface_hub import ModelCard, ModelCardData

    base = str(config.models[name].model)
    data = ModelCardData(
        base_model=base if re.fullmatch(r"[\w.-]+/[\w.-]+", base) else None,
        library_name="peft" if is_adapter else "transformers",
        pipeline_tag="text-generation",
        tags=["pettingllms", "reinforcement-learning", config.algorithm.name],
    )
    roles = ", ".join(role for role, policy in config.roles.items() if policy == name)
    envs = ", ".join(Path(env.id).name for env in config.env)
    return ModelCard(
        f"---\n{data.to_yaml()}\n---\n\n# {name}\n\nA policy of a team, trained by pettingllms.\n\n"
        f"- roles: {roles}\n- environment: {envs}\n- algorithm: {config.algorithm.name}\n"
        f"- train step: {step}\n- begun from: {Path(base).name}\n\n"
        '`model = "ADDRESS_OF_THIS_MODEL"` of a policy in a run file plays or trains it further.\n'
    )
