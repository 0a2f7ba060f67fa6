"""From the rewards of a run file to who scores answers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any, cast

from pettingllms.sources import load_source
from pettingllms_trainers.config import Config
from pettingllms_trainers.config.sections import RewardConfig
from pettingllms_trainers.errors import ConfigError
from pettingllms_trainers.policies.fixed import FixedPolicy
from pettingllms_trainers.ranks import Ranks
from pettingllms_trainers.rollout.judging import (
    AnswerFunction,
    FunctionScorer,
    Ledger,
    PolicyScorer,
    Reward,
    Rewards,
    Scorer,
)


def build_rewards(
    config: Config,
    fixed_policies: Mapping[str, FixedPolicy],
    verdicts: Path | None = None,
    ranks: Ranks | None = None,
) -> Rewards:
    """Build what answers of a run earn beside the environments' rewards.

    Args:
        fixed_policies: Opened ones, the judges among them.
        verdicts: File that keeps all verdicts; None keeps them in memory.
        ranks: The processes that share the budgets; None for this one alone.

    Raises:
        PettingLLMsError: A function or a model cannot be loaded.
    """
    num_shares = 1 if ranks is None else ranks.size
    return Rewards(
        [
            Reward(
                name,
                reward,
                _scorer(name, reward, fixed_policies),
                Ledger(verdicts, name, reward, num_shares),
            )
            for name, reward in config.rewards.items()
        ]
    )


def _scorer(name: str, reward: RewardConfig, fixed_policies: Mapping[str, FixedPolicy]) -> Scorer:
    if reward.judge:
        fixed = fixed_policies[reward.judge]
        kwargs = fixed.template_kwargs
        return PolicyScorer(
            fixed.policy, reward, {"chat_template_kwargs": kwargs} if kwargs else {}
        )
    if reward.model:
        # Imported here: torch and transformers take seconds.
        from pettingllms_trainers.backends.hf.reward_model import RewardModel

        return RewardModel.from_pretrained(reward.model)
    function: Any = load_source(reward.function, f"rewards.{name}.function")
    if not callable(function):
        raise ConfigError(
            f"rewards.{name}.function = {reward.function!r} is a {type(function).__name__}; name a "
            "function (messages, answer) that returns a number"
        )
    return FunctionScorer(cast(AnswerFunction, function))
