"""What a policy learns to imitate before reinforcement learning: reference policies at work."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, NamedTuple

from pettingllms import TextEnv
from pettingllms_trainers.policy import PolicyPool
from pettingllms_trainers.reference import play_reference
from pettingllms_trainers.rollout import EpisodeSpec
from pettingllms_trainers.seeding import derive_seed

__all__ = ["Demonstration", "collect_demonstrations"]


class Demonstration(NamedTuple):
    """A prompt and the text to write after it."""

    role: str
    """Role that acts."""
    prompt_ids: tuple[int, ...]
    """Prompt tokens, as in rollouts."""
    text: str
    """What the reference policy wrote."""


def collect_demonstrations(
    env: TextEnv[Any],
    pool: PolicyPool,
    demonstrators: Mapping[str, str],
    *,
    num_episodes: int,
    seed: int,
) -> dict[str, list[Demonstration]]:
    """Return the demonstrations for each policy, in play order.

    Args:
        env: Training environment; it is not changed.
        pool: Gives each role's policy and its tokenizer.
        demonstrators: Role to reference policy, for every role.
        num_episodes: Episodes that are played.
        seed: Chooses levels and chance; the levels are others than those of training steps.
    """
    found: dict[str, list[Demonstration]] = defaultdict(list)
    for index in range(num_episodes):
        spec = EpisodeSpec(
            index, derive_seed(seed, "demonstration level", index), derive_seed(seed, "demo", index)
        )
        for decision in play_reference(env, spec, demonstrators).decisions:
            policy = pool.for_role(decision.role)
            found[policy.name].append(
                Demonstration(decision.role, policy.encode(decision.messages), decision.text)
            )
    return dict(found)
