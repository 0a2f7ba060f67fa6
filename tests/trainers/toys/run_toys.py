"""Configurations and episodes for tests that need no game: the least that a run or a tree has."""

import tomllib
from pathlib import Path

from pettingllms_trainers.config import Config
from pettingllms_trainers.types import (
    Candidate,
    Decision,
    DecisionKey,
    GenerateRequest,
    RolloutTree,
    SamplingSettings,
    TokenCompletion,
)

TINY = {"model": "tiny"}
EACH_ITS_OWN = {
    "policies": {"caller": TINY, "echo": TINY},
    "roles": {"caller": "caller", "echo": "echo"},
}
"""Sections of a run in which policies have the names of their roles."""
SOLO = {
    "id": "plan_path_v0",
    "name": "solo",
    "kwargs": {
        "size": 4,
        "min_moves": 2,
        "max_turns": 1,
        "moves_per_turn": 2,
        "team": "single",
        "view": "centred",
        "prompts": {"planner": {"system": "", "user": "{board_flat}"}},
    },
}
"""A single planner, beside a team of two, in runs of several environments."""
ANSWER = TokenCompletion(token_ids=(1,), logprobs=(-0.5,), text="", finish_reason="stop")


def config_of(*policies, **sections):
    """A run of the two-agent toy: one tiny policy p plays both roles, or p and q one each."""
    policies = policies or (TINY,)
    return Config.model_validate(
        {
            "env": {"id": "toy_echo_v0"},
            "policies": dict(zip("pq", policies, strict=False)),
            "roles": {"caller": "p", "echo": "pq"[len(policies) - 1]},
            **sections,
        }
    )


def candidate(reward, *, local=0.0, completion=ANSWER, **more):
    """A candidate whose team part is what its local part leaves of the reward."""
    return Candidate(completion=completion, reward=reward, team=reward - local, local=local, **more)


def decision(rewards, *, episode=0, index=0, agent="echo_0", turn=0, local=0.0, value=0.0, **more):
    """A decision with a candidate for each reward, of the policy that is named as the role."""
    candidates = tuple(candidate(reward, local=local, value=value) for reward in rewards)
    role = agent.rpartition("_")[0]
    defaults = {"role": role, "policy": role, "prompt_ids": (1, 2), "observation": "", "chosen": 0}
    key = DecisionKey(episode, index, agent, turn)
    return Decision(**defaults | {"key": key, "candidates": candidates} | more)


def tree(*decisions, episode=0, env_seed=None, outcome=None, **more):
    """An episode, on a level of its own unless a seed says which."""
    return RolloutTree(
        episode=episode,
        env_seed=episode if env_seed is None else env_seed,
        initial_state_hash="",
        decisions=decisions,
        outcome=outcome,
        **more,
    )


def program(name):
    """The text of a program for processes of their own."""
    return tomllib.loads(Path(__file__).parents[1].joinpath("programs.toml").read_text())[name]


def number(prompt, candidate, seed):
    """A script of an engine: candidates of a request differ, and so do requests."""
    return str((seed + candidate) % 50)


def request(seed, num_candidates=1):
    return GenerateRequest(
        prompt_ids=(65,), num_candidates=num_candidates, sampling=SamplingSettings(), seed=seed
    )


def announce(site, name, groups):
    """What the metadata of an installed package announces: group -> name -> value."""
    info = site / f"{name.replace('-', '_')}-0.dist-info"
    info.mkdir(parents=True)
    info.joinpath("METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 0\n")
    lines = []
    for group, points in groups.items():
        lines += [f"[{group}]", *(f"{point} = {value}" for point, value in points.items())]
    info.joinpath("entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
