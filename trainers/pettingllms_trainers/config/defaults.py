"""Defaults that follow what is trained; they are settled once, when a configuration is complete."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

from pettingllms_trainers.config.data import ConfigData
from pettingllms_trainers.config.policies import TINY, PolicyConfig

Kind = Literal["full", "adapter", "tiny"]

_LEARNING_RATES: Mapping[Kind, float] = {"full": 1e-6, "adapter": 1e-5, "tiny": 1e-3}
"""Full weights: as in the paper. An adapter starts at nothing and has few weights: ten times that
of full weights (Schulman et al. 2025, "LoRA Without Regret"). Random weights have nothing to lose:
measured with the embedded default."""
_WARM_START_RATES: Mapping[Kind, float] = {"full": 1e-5, "adapter": 2e-4, "tiny": 3e-3}
"""Usual for supervised training. At 1e-3 six steps took the perplexity of a plain sentence under
SmolLM2-135M from 32 to 130."""
_COMPLETION_TOKENS = {"tiny": 64, "plain": 512, "thinking": 4096}
"""An answer in one token per character, an answer with some words around it or a short program, and
the length of the paper."""
_MICROBATCH_TOKENS = {"tiny": 16384, "pretrained": 4096}
"""A pretrained model keeps megabytes per token for the backward pass, a tiny one kilobytes."""
_THINKING_TOKENS = 1024
"""Completions shorter than this end while a model still thinks."""


def settled(config: ConfigData) -> dict[str, Any]:
    """Return the sections of a configuration with every default that follows what is trained.

    A rate stays 0 where policies of several kinds learn: see `learning_rates`.

    Args:
        config: All else in it is valid.
    """
    rollout, optimizer, start = config.rollout, config.optimizer, config.warm_start
    if not rollout.max_completion_tokens:
        tokens = max(_completion_tokens(policy) for policy in config.models.values())
        rollout = rollout.model_copy(update={"max_completion_tokens": tokens})
    changes: dict[str, Any] = {"learning_rate": _common(learning_rates(config))}
    if not optimizer.tokens_per_microbatch:
        is_tiny = all(policy.model == TINY for policy in config.models.values())
        changes["tokens_per_microbatch"] = _MICROBATCH_TOKENS["tiny" if is_tiny else "pretrained"]
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
    """Return the maximum learning rate of every policy that is trained."""
    return _rates(config, config.optimizer.learning_rate, _LEARNING_RATES)


def warm_start_rates(config: ConfigData) -> dict[str, float]:
    """Return the learning rate of the supervised steps of every policy that is trained."""
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
    """Return the rate that all policies have; 0 where they differ, or there are none."""
    return min(rates.values()) if len(set(rates.values())) == 1 else 0.0
