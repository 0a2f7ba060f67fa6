"""Outcome alignment: does the answer that pays best at once also end best?"""

from __future__ import annotations

import random
from collections.abc import Mapping

from pettingllms.testing.degenerate import LEVEL_SEEDS
from pettingllms.testing.play import Actor, AnyEnv, has_ended, play
from pettingllms.testing.report import SkippedCheck
from pettingllms.testing.subject import Subject

DECISIONS_PER_LEVEL = 4
"""Decisions of each level that are looked at."""
DRAWS = 2
"""Answers that every scripted policy gives to a decision."""
CONTINUATIONS = 4
"""Times that each answer is played on to the end."""
TOLERANCE = 1e-9
"""Rewards that differ by less are equal."""


def check_alignment(subject: Subject) -> Mapping[str, float]:
    """Measured, not demanded: the answer that pays best at once also ends best.

    At decisions along episodes of random answers, all that the scripted policies answer is tried
    in forks, and each fork is played to its end a few times by a mixture of the scripted policies,
    with equal chance for all answers. A decision is aligned if no answer is solved more often than
    those of the highest immediate reward. AT-GRPO, which compares by the reward of a step, rests on
    this: where few decisions that matter are aligned, the reward is sparse or misleads, and another
    algorithm suits the environment. Few continuations are noisy, so that the figure is rather too
    low.

    Source: Lemma 1 of Stronger-MAS (arXiv 2510.11062), of which this is the sampled version.
    """
    env = subject()
    if not env.scripted_policies:
        raise SkippedCheck("There is no scripted policy whose answers could be tried.")
    found = [aligned for seed in LEVEL_SEEDS for aligned in _decisions(env, seed)]
    deciding = [is_aligned for is_aligned, decides in found if decides]
    figures = {
        "outcome alignment": sum(is_aligned for is_aligned, _ in found) / len(found),
        "decisions whose answer decides the outcome": len(deciding) / len(found),
    }
    if deciding:
        figures["outcome alignment of these"] = sum(deciding) / len(deciding)
    return figures


def _decisions(env: AnyEnv, seed: int) -> list[tuple[bool, bool]]:
    """Return (is aligned, answers end differently) of the first decisions of a level."""
    rng = random.Random(seed)
    env.reset(seed=seed)
    found: list[tuple[bool, bool]] = []
    while not has_ended(env) and len(found) < DECISIONS_PER_LEVEL:
        agent = env.agent_selection
        texts = dict.fromkeys(
            env.scripted_action(agent, name, rng)
            for name in env.scripted_policies
            for _ in range(DRAWS)
        )
        tried = {text: _tried(env, agent, text, seed) for text in ["", *texts]}
        most = max(reward for reward, _ in tried.values())
        shares = [share for _, share in tried.values()]
        best = [share for reward, share in tried.values() if reward >= most - TOLERANCE]
        found.append((min(best) == max(shares), min(shares) != max(shares)))
        unsolved = [text for text, (_, share) in tried.items() if share < 1]
        env.step(rng.choice(unsolved or list(tried)))
    return found


def _tried(env: AnyEnv, agent: str, text: str, seed: int) -> tuple[float, float]:
    """Return what an answer earns at once, and the share of continuations that solve the task."""
    first = env.fork()
    first.step(text)
    num_solved = 0
    for index in range(CONTINUATIONS):
        fork = first.fork()
        if not has_ended(fork):
            play(fork, _mixture(random.Random(CONTINUATIONS * seed + index)))
        num_solved += any(info["success"] for info in fork.infos.values())
    return first.rewards[agent], num_solved / CONTINUATIONS


def _mixture(rng: random.Random) -> Actor:
    def actor(env: AnyEnv, agent: str) -> str:
        return env.scripted_action(agent, rng.choice(env.scripted_policies), rng)

    return actor
