"""What an agent is asked, and how its answer is got: the step that all played episodes share."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from pettingllms.env import TextEnv
from pettingllms.policies import Completion, Policy, PolicyFailure, Prompt, Sampling, Usage

Chats = dict[str, Sequence[Mapping[str, str]]]
"""Agent -> what it has read and written, where observations are only what is new to it. A copy of
the mapping is independent: its values are replaced, never changed."""

_SEED_RANGE = 1 << 31
"""What servers accept as a seed: llama.cpp takes 32 bits."""


def prompt_of(env: TextEnv[Any], chats: Chats, seed: int) -> Prompt:
    """Return what the selected agent is asked: its chat so far and what it reads now.

    Args:
        env: The environment, before the end of the episode.
        chats: What was said so far; see `remember`.
        seed: Decides what is drawn; any non-negative number.
    """
    agent = env.agent_selection
    chat = [*chats.get(agent, ()), *env.messages(agent)]
    return Prompt(chat, agent, seed % _SEED_RANGE, env, env.constraints(agent))


def remember(chats: Chats, prompt: Prompt, text: str) -> None:
    """Keep what an agent has read and written, with `observation_mode="delta"`."""
    if prompt.env is not None and prompt.env.observation_mode == "delta":
        chats[prompt.agent] = [*prompt.messages, {"role": "assistant", "content": text}]


async def one_answer(
    policy: Policy, prompt: Prompt, sampling: Sampling
) -> tuple[Completion, Usage]:
    """Return one completion of a prompt, and what it cost.

    Raises:
        PolicyFailure: The prompt could not be answered.
    """
    answers = await policy.sample([prompt], 1, sampling)
    if len(answers) != 1 or len(answers[0].completions) != 1:
        raise PolicyFailure(f"{policy} did not give one completion of one prompt: {answers!r}")
    return answers[0].completions[0], answers[0].usage
