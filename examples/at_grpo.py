"""AT-GRPO in one file: rollout trees, groups, advantages, loss and updates in a loop of its own.

Two tiny models learn Plan-Path from random weights, as in `make train`.
Source: Stronger-MAS (arXiv 2510.11062), algorithm 1. Changed: the episode continues with any of the
candidates, not with the best one; a warm start on demonstrations that are mostly random.
"""

import argparse
import random
import statistics
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

import torch

import pettingllms
from pettingllms import TextEnv, role_of
from pettingllms_trainers import open_policies
from pettingllms_trainers.config.loading import load_config
from pettingllms_trainers.own_loop import Answers, OpenPolicy
from pettingllms_trainers.types import TrainingGroup

OPTIONS = {"seed": 0, "num-steps": 25, "num-warm-steps": 160, "num-levels": 48, "num-held-out": 256}
CLIP_LOW, CLIP_HIGH, ENTROPY_BONUS = 0.2, 0.28, 0.02
NUM_CANDIDATES, GROUPS_PER_STEP, LEARNING_RATE, WARM_START_RATE = 8, 64, 1e-3, 3e-3

Env = TextEnv[Any]
Policies = Mapping[str, OpenPolicy]
Groups = dict[str, list[TrainingGroup]]  # role to what it learns from


def likelihood(found: Any, targets: Any) -> torch.Tensor:
    """Return the negative log-likelihood per token: the loss of the warm start."""
    return -(found.logprobs * targets.weights).sum()


def clipped(found: Any, targets: Any) -> torch.Tensor:
    """Return the clipped surrogate of PPO, with a bonus for entropy; tensors are [M] tokens."""
    ratio = (found.logprobs - targets.logprobs).exp()
    bounded = ratio.clamp(1 - CLIP_LOW, 1 + CLIP_HIGH)
    gain = torch.minimum(ratio * targets.advantages, bounded * targets.advantages)
    return -((gain + ENTROPY_BONUS * found.entropy) * targets.weights).sum()


def start(env: Env, seed: int) -> Env:
    """Return an episode at the start of a level."""
    episode = env.fork()
    episode.reset(seed=seed)
    return episode


def is_over(env: Env) -> bool:
    """Return whether nobody acts any more."""
    return env.terminations[env.agent_selection] or env.truncations[env.agent_selection]


def is_solved(env: Env) -> bool:
    """Return whether the task is solved."""
    return env.infos[env.agent_selection]["success"]


def demonstrations(env: Env, policies: Policies, num: int, rng: random.Random) -> Groups:
    """Return what scripted policies do: a fifth of it is right, the rest random."""
    found: Groups = defaultdict(list)
    for _ in range(num):
        episode = start(env, rng.getrandbits(31))
        while not is_over(episode):
            agent, role = episode.agent_selection, role_of(episode.agent_selection)
            scripted = "oracle" if rng.random() < 0.2 else "random"
            text = episode.scripted_action(agent, scripted, rng)
            found[role].append(policies[role].demonstration(episode, text))
            episode.step(text)
    return found


def ask(
    episodes: list[Env], policies: Policies, num: int, **settings: Any
) -> Iterator[tuple[Env, Answers]]:
    """Yield every episode with answers of the agent that acts next; one engine call per role."""
    by_role: dict[str, list[Env]] = defaultdict(list)
    for episode in episodes:
        by_role[role_of(episode.agent_selection)].append(episode)
    for role, part in by_role.items():
        yield from zip(part, policies[role].sample(part, num, **settings), strict=True)


def rollouts(env: Env, policies: Policies, num: int, rng: random.Random) -> tuple[Groups, float]:
    """Play trees of levels side by side; return the groups that teach, and the share solved."""
    groups: Groups = defaultdict(list)
    playing, num_solved = [start(env, rng.getrandbits(31)) for _ in range(num)], 0
    while playing:
        followed: list[Env] = []
        for episode, answers in ask(playing, policies, NUM_CANDIDATES, seed=rng.getrandbits(31)):
            forks = [episode.fork() for _ in answers.actions]
            for fork, action in zip(forks, answers.actions, strict=True):
                fork.step(action)
            rewards = [fork.rewards[episode.agent_selection] for fork in forks]
            mean, spread = statistics.fmean(rewards), statistics.pstdev(rewards)
            if spread > 1e-9:
                scored = answers.group([(reward - mean) / spread for reward in rewards])
                groups[answers.role].append(scored)
            followed.append(rng.choice(forks))
        num_solved += sum(map(is_solved, followed))
        playing = [episode for episode in followed if not is_over(episode)]
    return groups, num_solved / num


def held_out_success(env: Env, policies: Policies, num: int) -> float:
    """Return the share of held-out levels that the team solves with greedy answers."""
    episodes = [start(env, seed) for seed in range(num)]
    while playing := [episode for episode in episodes if not is_over(episode)]:
        for episode, answers in ask(playing, policies, 1, seed=0, temperature=0):
            episode.step(answers.actions[0])
    return sum(map(is_solved, episodes)) / num


def main(options: argparse.Namespace) -> None:
    """Train, and tell held-out success before and after."""
    config, rng = load_config("recipe:plan_path"), random.Random(options.seed)
    kwargs = {**config.env[0].kwargs, "checks": False}
    env = pettingllms.make("plan_path_v0", **kwargs)
    held_out = pettingllms.make("plan_path_v0", **kwargs, split="test")
    with open_policies(config, seed=options.seed) as policies:
        shown = demonstrations(env, policies, 12 * options.num_levels, rng)
        for step in range(options.num_warm_steps):
            for role, policy in policies.items():
                policy.forward_backward(rng.choices(shown[role], k=64), likelihood)
                policy.optim_step(WARM_START_RATE * (1 - 0.9 * step / options.num_warm_steps))
        print("held-out success:", held_out_success(held_out, policies, options.num_held_out))
        for step in range(options.num_steps):
            groups, solved = rollouts(env, policies, options.num_levels, rng)
            for role, policy in policies.items():
                rng.shuffle(groups[role])
                for first in range(0, len(groups[role]), GROUPS_PER_STEP):
                    policy.forward_backward(groups[role][first : first + GROUPS_PER_STEP], clipped)
                    policy.optim_step(LEARNING_RATE * (1 - 0.9 * step / options.num_steps))
                policy.push()
            print(f"train step {step + 1}: {solved:.0%} of the training levels solved")
        print("held-out success:", held_out_success(held_out, policies, options.num_held_out))
        for role, policy in policies.items():
            policy.save(f"{options.out}/{role}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--out", default="trained", help="folder for the weights")
    for name, number in OPTIONS.items():
        parser.add_argument(f"--{name}", type=int, default=number)
    main(parser.parse_args())
