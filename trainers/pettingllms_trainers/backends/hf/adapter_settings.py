"""Which layers may have a LoRA adapter, and which saved adapters can be used."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

import peft
from torch import nn
from transformers import PreTrainedModel

from pettingllms.errors import InvalidArgument

__all__ = ["check_targets", "linear_layers", "read_settings", "unusable"]

_PLAIN = {
    "auto_mapping", "base_model_name_or_path", "exclude_modules", "inference_mode",
    "layers_pattern", "layers_to_transform", "lora_alpha", "lora_dropout", "peft_version", "r",
    "revision", "runtime_config", "target_modules", "task_type", "use_rslora",
}  # fmt: skip
"""Settings of peft with which an adapter is one that all engines compute, and its base the same."""


def linear_layers(model: PreTrainedModel) -> tuple[str, ...]:
    """Return the paths of the linear layers besides the output head."""
    head = model.get_output_embeddings()
    return tuple(
        path
        for path, module in model.named_modules()
        if isinstance(module, nn.Linear) and module is not head
    )


def check_targets(targets: Collection[str], layers: Collection[str]) -> None:
    """Find out whether adapters can have their targets.

    Args:
        targets: Names of layers, or the last parts of their paths.
        layers: See `linear_layers`.

    Raises:
        InvalidArgument: There is none, or one is no such layer.
    """
    given = sorted(targets)
    unknown = [
        target for target in given if not any(f".{path}".endswith(f".{target}") for path in layers)
    ]
    if unknown or not given:
        known = sorted({path.rpartition(".")[2] for path in layers})
        raise InvalidArgument(
            "lora.targets", unknown or given, f"linear layers of the model: {', '.join(known)}",
            "embeddings and the output head cannot have an adapter: vLLM has none for them",
        )  # fmt: skip


def read_settings(directory: Path) -> peft.LoraConfig:
    """Return the settings of a saved adapter, if it is a plain LoRA adapter.

    Raises:
        InvalidArgument: It is not, or cannot be read.
    """
    try:
        settings = peft.PeftConfig.from_pretrained(str(directory))
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise unusable(directory, f"{type(error).__name__}: {error}") from error
    if not isinstance(settings, peft.LoraConfig):
        raise unusable(directory, f"it is of the kind {settings.peft_type}, not LORA")
    if settings.init_lora_weights in (False, "gaussian"):
        settings.init_lora_weights = True  # read from the file all the same
    usual, given = peft.LoraConfig().to_dict(), settings.to_dict()
    special = [name for name in usual if name not in _PLAIN and usual[name] != given.get(name)]
    if isinstance(settings.target_modules, str):
        special.append("a pattern as target_modules")
    if special:
        raise unusable(directory, f"it has {', '.join(special)}; only plain LoRA can be")
    settings.inference_mode, settings.base_model_name_or_path = False, None
    return settings


def unusable(directory: Path, reason: str) -> InvalidArgument:
    """Return the error that says why an adapter cannot be used."""
    return InvalidArgument(
        "model", str(directory), f"a directory with a LoRA adapter that can be used ({reason})",
        "name a directory that peft wrote for a causal language model",
    )  # fmt: skip
