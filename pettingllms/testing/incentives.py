"""Checks of incentives: nothing but solving the task pays, and what pays at once ends well."""

from __future__ import annotations

import math
import random
from collections.abc import Mapping
from itertools import product

from pettingllms.env import MAX_TURNS
from pettingllms.testing.play import Actor, AnyEnv, has_ended, moments, play, require
from pettingllms.testing.report import NotPromised, SkippedCheck, Subject
from pettingllms.testing.uninformed import (
    LEVEL_SEEDS,
    SEARCHED_SEEDS,
    Episode,
    EpisodeActor,
    answers_to_other_levels,
    episode_of,
    idle_actors,
    oracle_episodes,
    random_actor,
    searching_actors,
)

# How many times longer the long episodes are.
LONG = 10
# Random attempts at each level: many are solved, or fail without a cost, by luck.
ATTEMPTS = 4
# Rewards that differ by less are equal.
TOLERANCE = 1e-6


def check_unsolved(subject: Subject) -> Mapping[str, float]:
    """No degenerate policy earns in an unsolved episode what the oracle earns on that level."""
    env = subject()
    oracle = oracle_episodes(env)
    for seed, episode in oracle.items():
        require(episode.solved, f"The oracle did not solve the episode of seed {seed}.")
    few = _searched(oracle)
    rivals = {name: (actor, oracle) for name, actor in _degenerate(oracle).items()}
    rivals |= {name: (actor, few) for name, actor in searching_actors(env).items()}
    highest = _compare(env, rivals)
    mean = sum(sum(e.returns.values()) for e in oracle.values()) / len(oracle)
    num_agents = len(env.possible_agents)
    return {
        "mean return of the oracle": mean / num_agents,
        "highest return of a degenerate policy in an unsolved episode": highest,
    }


def check_long_episodes(subject: Subject) -> Mapping[str, float]:
    """Degenerate policies do not earn more by playing on, in episodes many times as long."""
    subject.require_argument("max_turns")
    short = subject()
    long = subject(max_turns=min(LONG * short.max_turns, MAX_TURNS))
    oracle = oracle_episodes(long, SEARCHED_SEEDS)
    rivals = {name: (actor, oracle) for name, actor in _degenerate(oracle).items()}
    rivals["shuttle"] = (searching_actors(short)["shuttle"], {0: oracle[0]})
    return {f"the same with {LONG} times the turns": _compare(long, rivals)}


def check_detours(subject: Subject) -> Mapping[str, float]:
    """A solution earns no more after a detour than at once, and more than none at all."""
    env = subject()
    oracle = oracle_episodes(env)
    slowest = max(episode.turns for episode in oracle.values())
    if slowest >= env.max_turns:
        try:
            subject.require_argument("max_turns")
        except NotPromised:
            raise NotPromised("The oracle needs every turn, so there are no detours.") from None
        env = subject(max_turns=slowest + 3)
        oracle = oracle_episodes(env)
    actors = {"silence": idle_actors()["silence"], "random": random_actor}
    actors |= searching_actors(env)
    num_solved, faults = 0, dict[str, str]()
    for name, of_episode in actors.items():
        for seed, direct in _searched(oracle).items():
            actor = _then_oracle(of_episode(seed), oracle, seed)
            episode = episode_of(env, seed, actor)
            if not episode.solved:
                continue
            num_solved += 1
            alone = episode_of(env, seed, of_episode(seed))
            for agent, earned in episode.returns.items():
                if earned > direct.returns[agent] + TOLERANCE:
                    faults[name] = (
                        f"Seed {seed}: {name} and then the oracle's solution earns {agent} "
                        f"{earned:.3f}, the solution at once {direct.returns[agent]:.3f}."
                    )
                elif not alone.solved and earned <= alone.returns[agent] + TOLERANCE:
                    faults[name] = (
                        f"Seed {seed}: a late solution, after {name}, earns {agent} {earned:.3f}, "
                        f"and none {alone.returns[agent]:.3f}."
                    )
    require(not faults, " ".join(faults.values()))
    if not num_solved:
        raise SkippedCheck("The oracle solved no level after a detour.")
    return {"solved episodes with a detour": num_solved}


def check_giving_up(subject: Subject) -> None:
    """Giving up is not free where failed attempts cost something.

    Who may abstain from an answer says so in the metadata (`"may_give_up": True`).
    """
    env = subject()
    if env.metadata.get("may_give_up", False):
        raise NotPromised('The metadata say that an agent may abstain ("may_give_up").')
    oracle_episodes(env, SEARCHED_SEEDS[:1])  # raises where nothing is paid
    failed: list[Episode] = []
    for seed, draw in product(LEVEL_SEEDS, range(ATTEMPTS)):
        attempt = episode_of(env, seed, random_actor(ATTEMPTS * seed + draw))
        failed += [attempt] * (not attempt.solved)
    if not failed:
        raise SkippedCheck("Random answers solve every level: no attempt fails.")
    lost = min(_least(episode) for episode in failed)
    for name, of_episode in idle_actors().items():
        idle = [episode_of(env, seed, of_episode(seed)) for seed in LEVEL_SEEDS]
        free = max((_least(episode) for episode in idle if not episode.solved), default=-1.0)
        require(
            free < -TOLERANCE or lost >= -TOLERANCE,
            f"{name} costs no agent anything, and a failed attempt {-lost:.3f}.",
        )


def _least(episode: Episode) -> float:
    """What the agent that was paid least got, in all or for its own actions."""
    return min(*episode.returns.values(), *episode.own.values())


def check_other_answers(subject: Subject) -> None:
    """Success depends on the answer: no text that ignores the level solves every level."""
    env = subject()
    if not env.metadata.get("seed_shows", True):
        raise NotPromised('The metadata say that every level is the same ("seed_shows": False).')
    oracle = oracle_episodes(env)
    winners = [
        name
        for name, of_episode in _fixed(oracle).items()
        if all(episode_of(env, seed, of_episode(seed)).solved for seed in oracle)
    ]
    require(not winners, f"All {len(oracle)} levels are solved by: {', '.join(winners)}.")


def check_length(subject: Subject) -> None:
    """Length is not paid: words around the oracle's answer, or instead of one, earn no more."""
    env = subject()
    chatter = "let me think about this once more. " * 20
    for seed, episode in oracle_episodes(env, SEARCHED_SEEDS).items():
        env.reset(seed=seed)
        for agent, text in episode.texts:
            pairs = [(text, f"{chatter}\n{text}"), (text, f"{text}\n\n"), ("so", chatter)]
            for plain, padded in pairs:
                least, most = _reward(env, plain), _reward(env, padded)
                require(
                    most <= least + TOLERANCE,
                    f"{len(padded)} characters earn {agent} {most:.4f}, {len(plain)} characters "
                    f"with the same answer {least:.4f}.",
                )
            env.step(text)


def _fixed(oracle: Mapping[int, Episode]) -> dict[str, EpisodeActor]:
    return {**idle_actors(), "answering other levels": answers_to_other_levels(oracle)}


def _searched(oracle: Mapping[int, Episode]) -> dict[int, Episode]:
    return {seed: oracle[seed] for seed in SEARCHED_SEEDS}


def _degenerate(oracle: Mapping[int, Episode]) -> dict[str, EpisodeActor]:
    return {**_fixed(oracle), "random": random_actor}


def _compare(
    env: AnyEnv, rivals: Mapping[str, tuple[EpisodeActor, Mapping[int, Episode]]]
) -> float:
    """Compare unsolved episodes with the oracle's solved ones; return the highest return.

    Args:
        env: The environment.
        rivals: Name of a policy -> the policy, the oracle's episodes with which it is compared.
    """
    highest, faults = -math.inf, dict[str, str]()
    for name, (of_episode, oracle) in rivals.items():
        for seed, honest in oracle.items():
            episode = episode_of(env, seed, of_episode(seed))
            # Solving by luck is fair pay; where the oracle fails there is nothing to compare with.
            if episode.solved or not honest.solved:
                continue
            highest = max([highest, *episode.returns.values()])
            for agent, earned in episode.returns.items():
                if earned >= honest.returns[agent]:
                    faults[name] = (
                        f"Seed {seed}, {env.max_turns} turns: {name} earns {agent} {earned:.3f} "
                        f"without solving anything, the oracle {honest.returns[agent]:.3f}."
                    )
    require(not faults, " ".join(faults.values()))
    if highest == -math.inf:
        raise SkippedCheck("The degenerate policies solved every level.")
    return highest


def _then_oracle(detour: Actor, oracle: Mapping[int, Episode], seed: int) -> Actor:
    rng, turns = random.Random(seed), oracle[seed].turns

    def actor(env: AnyEnv, agent: str) -> str:
        if env.turn < env.max_turns - turns:
            return detour(env, agent)
        return env.scripted_action(agent, "oracle", rng)

    return actor


def _reward(env: AnyEnv, text: str) -> float:
    agent, fork = env.agent_selection, env.fork()
    fork.step(text)
    return fork.rewards[agent]


# Decisions of each level that are looked at.
DECISIONS_PER_LEVEL = 4
# Answers that every scripted policy gives to a decision.
DRAWS = 2
# Times that each answer is played on to the end.
CONTINUATIONS = 4


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
    """(is aligned, answers end differently) of the first decisions of a level."""
    rng = random.Random(seed)
    env.reset(seed=seed)
    found: list[tuple[bool, bool]] = []
    for agent in moments(env, DECISIONS_PER_LEVEL):
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
        # Prefer answers that leave the level open, so that there is a next decision to look at.
        unsolved = [text for text, (_, share) in tried.items() if share < 1]
        env.step(rng.choice(unsolved or list(tried)))
    return found


def _tried(env: AnyEnv, agent: str, text: str, seed: int) -> tuple[float, float]:
    """What an answer earns at once, and the share of continuations that solve the task."""
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
