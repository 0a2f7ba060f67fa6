"""`Config`: settled defaults, every rule kept, and what makes two runs the same.

Defaults follow what is trained; they are settled once, when a configuration is complete.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import model_validator

from pettingllms.types import flat_table
from pettingllms_trainers.config.data import ConfigData
from pettingllms_trainers.config.rules import AFTER_DEFAULTS, BEFORE_DEFAULTS
from pettingllms_trainers.config.sections import (
    COSMETIC,
    PROLONGING,
    TINY,
    PolicyConfig,
    keys_of,
)

Kind = Literal["full", "adapter", "tiny"]

# Full weights: as in the paper. An adapter starts at nothing and has few weights: ten times that of
# full weights (Schulman et al. 2025, "LoRA Without Regret"). Random weights have nothing to lose:
# measured with the embedded default.
_LEARNING_RATES: Mapping[Kind, float] = {"full": 1e-6, "adapter": 1e-5, "tiny": 1e-3}
# Usual for supervised training. At 1e-3 six steps took the perplexity of a plain sentence under
# SmolLM2-135M from 32 to 130.
_WARM_START_RATES: Mapping[Kind, float] = {"full": 1e-5, "adapter": 2e-4, "tiny": 3e-3}
# An answer in one token per character, an answer with some words around it or a short program, and
# the length of the paper.
_COMPLETION_TOKENS = {"tiny": 64, "plain": 512, "thinking": 4096}
# A pretrained model keeps megabytes per token for the backward pass, a tiny one kilobytes.
_MICROBATCH_TOKENS = {"tiny": 16384, "pretrained": 4096}
# Completions shorter than this end while a model still thinks.
_THINKING_TOKENS = 1024


def settled(config: ConfigData) -> dict[str, Any]:
    """The sections of a configuration with every default that follows what is trained.

    A rate stays 0 where policies of several kinds learn: see `learning_rates`.
    """
    rollout, optimizer, start = config.rollout, config.optimizer, config.warm_start
    if not rollout.max_completion_tokens:
        tokens = max(_completion_tokens(policy) for policy in config.models.values())
        rollout = rollout.model_copy(update={"max_completion_tokens": tokens})
    changes: dict[str, Any] = {"learning_rate": _common(learning_rates(config))}
    if not optimizer.tokens_per_microbatch:
        is_tiny = all(policy.model == TINY for policy in config.models.values())
        changes["tokens_per_microbatch"] = _MICROBATCH_TOKENS["tiny" if is_tiny else "pretrained"]
    # The shortest limit counts: a thought that is cut off is an answer that cannot be read.
    limits = {role: own.max_completion_tokens for role, own in rollout.per_role.items()}
    policies = dict(config.policies)
    for name, policy in config.models.items():
        if policy.chat_template_kwargs is None:
            roles = config.roles_of(name)
            room = min(limits.get(role) or rollout.max_completion_tokens for role in roles)
            cannot_think = policy.model != TINY and room < _THINKING_TOKENS
            kwargs = {"enable_thinking": False} if cannot_think else {}
            policies[name] = policy.model_copy(update={"chat_template_kwargs": kwargs})
    if start.num_steps:
        start = start.model_copy(update={"learning_rate": _common(warm_start_rates(config))})
    return {
        "policies": policies,
        "rollout": rollout,
        "optimizer": optimizer.model_copy(update=changes),
        "warm_start": start,
    }


def learning_rates(config: ConfigData) -> dict[str, float]:
    """The maximum learning rate of every policy that is trained."""
    return _rates(config, config.optimizer.learning_rate, _LEARNING_RATES)


def warm_start_rates(config: ConfigData) -> dict[str, float]:
    """The learning rate of the supervised steps of every policy that is trained."""
    return _rates(config, config.warm_start.learning_rate, _WARM_START_RATES)


def _rates(config: ConfigData, given: float, defaults: Mapping[Kind, float]) -> dict[str, float]:
    return {
        name: given or defaults[_kind(policy)]
        for name, policy in config.models.items()
        if not policy.frozen
    }


def _kind(policy: PolicyConfig) -> Kind:
    # A tiny base is random: an adapter on it has as little to lose.
    if policy.model == TINY:
        return "tiny"
    return "adapter" if policy.has_adapter else "full"


def _completion_tokens(policy: PolicyConfig) -> int:
    if policy.model == TINY:
        return _COMPLETION_TOKENS["tiny"]
    thinks = (policy.chat_template_kwargs or {}).get("enable_thinking") is True
    return _COMPLETION_TOKENS["thinking" if thinks else "plain"]


def _common(rates: Mapping[str, float]) -> float:
    """The rate that all policies have; 0 where they differ, or there are none."""
    return min(rates.values()) if len(set(rates.values())) == 1 else 0.0


def deciding(config: ConfigData, *, exclude_defaults: bool = False) -> dict[str, Any]:
    """The keys with whose values a run is another run, by more than rounding, with their values.

    Where a run writes, what it shows, on which machines it computes and how it fits into their
    memory may differ when it is resumed. So may its number of train steps and how often it is
    evaluated and saved: what is done stays as it is.
    """
    may_differ = {
        key.path
        for key in keys_of(config)
        if any(mark in (COSMETIC, PROLONGING) for *_, mark in key.marks)
    }
    # Flat, since keys are what is exempt.
    table = flat_table(config.model_dump(mode="json", exclude_defaults=exclude_defaults))
    return {key: value for key, value in table.items() if key not in may_differ}


def config_hash(config: ConfigData) -> str:
    """16 hexadecimal digits of all that decides a run's results.

    Keys with their default values are left out, so that a version with more keys than the one that
    wrote a checkpoint can resume from it.
    """
    given = deciding(config, exclude_defaults=True)
    if not config.optimizer.learning_rate:
        given["optimizer.learning_rate"] = learning_rates(config)
    if config.warm_start.num_steps and not config.warm_start.learning_rate:
        given["warm_start.learning_rate"] = warm_start_rates(config)
    # Sorted, since files have any order.
    text = json.dumps(given, sort_keys=True, ensure_ascii=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:16]


class Config(ConfigData):
    """Training of teams of agents on one environment or several."""

    @model_validator(mode="after")
    def _settle_and_check(self) -> Config:
        for rule in BEFORE_DEFAULTS:
            rule(self)
        # The model is frozen for everybody else; what it is made of is complete after this.
        vars(self).update(settled(self))
        for rule in AFTER_DEFAULTS:
            rule(self)
        return self
