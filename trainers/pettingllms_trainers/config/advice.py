"""What a run is told at its start: settings that are legal and rarely meant."""

from __future__ import annotations

from collections.abc import Iterator

from pettingllms.sources import WORKFLOW_PREFIX
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
                'followed: algorithm.name = "reinforce", or "lockstep"'
            )
    if config.algorithm.trusts_rewards:
        for what, how in _untested_rewards(config):
            yield (
                f"{config.algorithm.name} takes for granted that what is paid is in line with "
                f"how the episode ends, and nothing has tested that for {what}: where it is "
                f'not, success may fall. {how}; or take algorithm.name = "lockstep", which follows '
                "such rewards once it has shown that those who earn more are solved more often"
            )
    for name, policy in config.models.items():
        if policy.frozen and policy.model == TINY:
            yield (
                f'policies.{name} is frozen and has the model "{TINY}": it plays with random '
                "weights, and the warm start teaches it nothing. Remove frozen, name a trained "
                'model, or let a scripted policy play: fixed = "oracle"'
            )


def _untested_rewards(config: ConfigData) -> Iterator[tuple[str, str]]:
    """Yield what pays and was tested by nobody, and how to test it."""
    for label, env in zip(config.env_names, config.env, strict=True):
        # Announced environments are tested before; workflows have to ask for rewards of steps.
        is_unannounced = "." in env.id and not env.id.startswith(WORKFLOW_PREFIX)
        if is_unannounced and env.reward_scale and env.kwargs.get("reward") != "outcome":
            how = f"Look at the outcome alignment of `pettingllms check {env.id}`"
            yield f"the rewards of {label or env.id}", how
    for name, reward in config.rewards.items():
        if not reward.weights or any(reward.weights.values()):
            how = f"Watch judged/{name}/outcome_alignment, which should stay above 0.5"
            yield f"rewards.{name}", how
