"""What a run is told at its start: settings that are legal and rarely meant."""

from __future__ import annotations

from collections.abc import Iterator

from pettingllms_trainers.config.data import ConfigData
from pettingllms_trainers.config.policies import TINY

__all__ = ["start_advice"]


def start_advice(config: ConfigData) -> Iterator[str]:
    """Yield what will teach little or nothing, each with what to set instead."""
    for label, env in zip(config.env_names, config.env, strict=True):
        if config.algorithm.is_by_step and env.kwargs.get("reward") == "outcome":
            yield (
                f'reward = "outcome" of {label or env.id} pays at the end of an episode alone, and '
                f"{config.algorithm.name} compares candidates by the reward of their own step: "
                "decisions before the last teach next to nothing. Compare whole episodes by what "
                'followed: algorithm.name = "reinforce", or "vine" where episodes are long'
            )
    for name, policy in config.models.items():
        if policy.frozen and policy.model == TINY:
            yield (
                f'policies.{name} is frozen and has the model "{TINY}": it plays with random '
                "weights, and the warm start teaches it nothing. Remove frozen, name a trained "
                'model, or let a scripted policy play: fixed = "oracle"'
            )
