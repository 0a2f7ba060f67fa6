"""Degenerate policies: what a learner finds if a reward pays for something else than success.

None of them knows the game. They repeat, vary and combine what the scripted policies write, try
texts on forks, and keep those that pay best without solving anything.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping
from typing import NamedTuple

from pettingllms.testing.answers import shorter, shuttles, singles
from pettingllms.testing.play import Actor, AnyEnv, has_ended, scripted_actor
from pettingllms.testing.report import SkippedCheck

LEVEL_SEEDS = (0, 1, 2, 3, 4, 5)
"""Seeds of the levels on which degenerate policies compete with the oracle."""

SEARCHED_SEEDS = LEVEL_SEEDS[:3]
"""Those of them on which policies that search do: every candidate is a step of its own."""

EpisodeActor = Callable[[int], Actor]
"""Seed of an episode -> the actor of that episode."""


class Episode(NamedTuple):
    """A whole episode."""

    returns: Mapping[str, float]
    """Agent -> sum of its rewards."""
    solved: bool
    truncated: bool
    turns: int
    """Turns that were begun."""
    texts: tuple[tuple[str, str], ...]
    """(agent, text) of every action."""


def episode_of(env: AnyEnv, seed: int, actor: Actor, max_steps: int = 10_000) -> Episode:
    """Play the episode of a seed to its end."""
    env.reset(seed=seed)
    rewards: dict[str, list[float]] = {agent: [] for agent in env.possible_agents}
    texts: list[tuple[str, str]] = []
    while not has_ended(env):
        if len(texts) == max_steps:
            raise AssertionError(f"the episode did not end within {max_steps} steps")
        agent = env.agent_selection
        text = actor(env, agent)
        texts.append((agent, text))
        env.step(text)
        for other, series in rewards.items():
            series.append(env.rewards[other])
    info = env.infos[texts[-1][0]]
    returns = {agent: math.fsum(series) for agent, series in rewards.items()}
    is_truncated = any(env.truncations.values())
    return Episode(returns, bool(info["success"]), is_truncated, info["turn"] + 1, tuple(texts))


def oracle_episodes(env: AnyEnv, seeds: Iterable[int] = LEVEL_SEEDS) -> dict[int, Episode]:
    """Return seed -> the oracle's episode.

    Raises:
        SkippedCheck: If the environment has no oracle, or pays no team reward.
    """
    if "oracle" not in env.scripted_policies:
        raise SkippedCheck("There is no scripted policy 'oracle' to compare with.")
    if not env.alpha:
        raise SkippedCheck("alpha=0 pays for no success; check the environment with alpha=1.")
    return {
        seed: episode_of(env, seed, scripted_actor("oracle", random.Random(seed))) for seed in seeds
    }


def idle_actors() -> dict[str, EpisodeActor]:
    """Return the policies that do no work, by name."""
    constant = {"silence": "", "a constant": "0", "an empty list": "#### []"}
    constant["a long text"] = "so " * 5000
    actors: dict[str, EpisodeActor] = {
        name: lambda _seed, text=text: lambda _env, _agent: text for name, text in constant.items()
    }
    actors["echoing the prompt"] = lambda _seed: lambda env, agent: str(env.observe(agent))
    return actors


def answers_to_other_levels(oracle: Mapping[int, Episode]) -> EpisodeActor:
    """Return the policy that answers what the oracle answered to the level before."""
    seeds = list(oracle)

    def of_episode(seed: int) -> Actor:
        other = oracle[seeds[seeds.index(seed) - 1]]
        by_agent: dict[str, list[str]] = {}
        for agent, text in other.texts:
            by_agent.setdefault(agent, []).append(text)

        def actor(env: AnyEnv, agent: str) -> str:
            texts = by_agent.get(agent, [""])
            return texts[env.turn % len(texts)]

        return actor

    return of_episode


def random_actor(seed: int) -> Actor:
    """Return the scripted policy `"random"`, or, without one, random texts of all policies."""
    rng = random.Random(seed)

    def actor(env: AnyEnv, agent: str) -> str:
        names = [name for name in env.scripted_policies if name != "oracle"]
        if not names:
            return str(rng.randrange(100))
        name = "random" if "random" in names else rng.choice(names)
        return env.scripted_action(agent, name, rng)

    return actor


def searching_actors(env: AnyEnv) -> dict[str, EpisodeActor]:
    """Return the policies that look for pay on forks, by name.

    Shuttle: the best of the answers that go there and back. Greedy with retreat: the best of all
    known answers, and of the oracle's without its last item; having come near the solution it goes
    back, if that is cheaper, and comes near again.
    """
    texts = _known_texts(env)
    moves = {agent: shuttles(known) for agent, known in texts.items()}
    steps = {agent: singles(known) for agent, known in texts.items()}

    def shuttle(_env: AnyEnv, agent: str, _rng: random.Random) -> list[str]:
        return [*moves[agent], *steps[agent]]

    def greedy(env: AnyEnv, agent: str, rng: random.Random) -> list[str]:
        answers = [env.scripted_action(agent, name, rng) for name in env.scripted_policies]
        near = [text for answer in answers for text in shorter(answer)]
        return [*answers, *near, *steps[agent], *moves[agent], "", "#### []"]

    return {"shuttle": _best_of(shuttle), "greedy with retreat": _best_of(greedy)}


def _best_of(candidates: Callable[[AnyEnv, str, random.Random], list[str]]) -> EpisodeActor:
    """Return the policy that takes the candidate which pays its agent best and solves nothing."""

    def of_episode(seed: int) -> Actor:
        rng = random.Random(seed)

        def actor(env: AnyEnv, agent: str) -> str:
            best, most = "", -math.inf
            for text in dict.fromkeys(candidates(env, agent, rng)):
                fork = env.fork()
                fork.step(text)
                if fork.rewards[agent] > most and not fork.infos[agent]["success"]:
                    best, most = text, fork.rewards[agent]
            return best

        return actor

    return of_episode


def _known_texts(env: AnyEnv) -> dict[str, list[str]]:
    """Return agent -> what the scripted policies write in a few episodes."""
    texts: dict[str, list[str]] = {agent: [] for agent in env.possible_agents}
    for seed in LEVEL_SEEDS[:2]:
        for name in reversed(env.scripted_policies):
            actor = scripted_actor(name, random.Random(seed))
            for agent, text in episode_of(env, seed, actor).texts:
                texts[agent].append(text)
    return texts
