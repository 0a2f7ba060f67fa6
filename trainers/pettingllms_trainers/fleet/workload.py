"""What a run asks of its engines: episodes as sequences of decisions, with the tokens of each."""

from __future__ import annotations

import json
import math
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from pettingllms import TextEnv, role_of
from pettingllms.errors import counted
from pettingllms.files import read_lines
from pettingllms.seeding import derive_seed
from pettingllms.sources import run_directory
from pettingllms_trainers.backends.hf.shapes import chat_of
from pettingllms_trainers.config import Config
from pettingllms_trainers.config.sections import qualified
from pettingllms_trainers.errors import ConfigError
from pettingllms_trainers.rollout.environments import RunEnvironment
from pettingllms_trainers.rollout.sampler import sampling_of

_NUM_SCRIPTED = 16
_SPREAD = 0.8
"""Of the logarithm of lengths that are not known: what the answers of reasoning models have."""
_SHARE = 0.25
"""Median of such a length as a share of `max_completion_tokens`."""
_BYTES_PER_TOKEN = 4
_FIXED_TOKEN_S = 1 / 50


class Step(NamedTuple):
    """A decision of an episode."""

    agent: str
    turn: int
    """Turn of the environment, from 0."""
    num_prompt_tokens: int
    lengths: tuple[int, ...]
    """Tokens of answers that were given here, of which one is drawn for each candidate; empty:
    unknown, so that `Workload.length` assumes a distribution."""


class Workload(NamedTuple):
    """Episodes as sequences of decisions, and the seconds that environments take."""

    episodes: tuple[tuple[Step, ...], ...]
    """Episodes that stand for the levels, in turn."""
    stages: tuple[tuple[str, ...], ...]
    """Agents of each stage, who act simultaneously."""
    branch_s: float
    """Seconds in which the environment carries out one answer."""
    used: Mapping[str, float]
    """Agent to the share of its decisions that have a signal, so that they are learnt from."""
    source: str
    """Where it comes from, for people."""
    fixed_token_s: float = 0.0
    """Seconds in which the model of a fixed policy writes a token; 0: they are part of
    `branch_s`."""

    def length(self, step: Step, longest: int, rng: random.Random) -> int:
        """Draw the tokens of an answer, from 1 to a limit."""
        if step.lengths:
            return rng.choice(step.lengths)
        # Lognormal, as few answers are much longer than most, and those are what others wait for.
        drawn = _SHARE * longest * math.exp(rng.gauss(0.0, _SPREAD))
        return max(1, min(longest, round(drawn)))


def from_run(config: Config, environments: Sequence[RunEnvironment], path: Path) -> Workload:
    """What a run of the same environment has recorded.

    The trees of the last recorded train step, whose mean tokens are those of all its trees: kept
    are those that were most instructive. A branch takes what the rollouts took besides generation,
    fixed policies included.

    Raises:
        ConfigError: There is no recorded tree, or one of other agents.
    """
    stages = _only(environments).training[0].stages
    known = {agent for stage in stages for agent in stage}
    path = run_directory(path)
    trees = _trees(path)
    if not trees:
        raise ConfigError(
            f"{path} has no recorded rollouts of a train step; name a run with "
            "logging.rollouts_every above 0"
        )
    if strange := {step["agent"] for tree in trees for step in tree["decisions"]} - known:
        raise ConfigError(
            f"{path} was played by {', '.join(sorted(strange))}, and {config.env[0].id} by "
            f"{', '.join(sorted(known))}; name a run of the same team"
        )
    step = trees[0]["step"]
    lines = read_lines(path / "metrics.jsonl", "step")
    if (metrics := next((line for line in lines if line["step"] == step), None)) is None:
        raise ConfigError(f"{path} has no readable metrics of train step {step}; name another run")
    lengths = [_lengths(decision) for tree in trees for decision in tree["decisions"]]
    num_tokens = metrics["rollout/num_completion_tokens"]
    # Continuations are not recorded. Recorded are the most instructive trees, whose answers need
    # not be of the usual length.
    own = (num_tokens - metrics["rollout/num_continuation_tokens"]) / metrics["rollout/num_trees"]
    scale = own / (sum(map(sum, lengths)) / len(trees))
    # Those of continuations are carried out, too; they are as long as the others.
    num_branches = sum(map(len, lengths)) / len(trees) * num_tokens / own
    waited_s = max(metrics["time/rollout_s"] - metrics["time/generate_s"], 0.0)
    return Workload(
        tuple(tuple(_recorded(tree, scale)) for tree in trees),
        stages,
        waited_s / num_branches,
        {agent: metrics.get(f"role/{role_of(agent)}/decisions_used", 0.0) for agent in known},
        f"{counted(len(trees), 'rollout')} of train step {step} of {path}",
    )


def from_script(config: Config, environments: Sequence[RunEnvironment]) -> Workload:
    """What the environment's first scripted policy plays, with answers of any length.

    Prompts and decisions are those of the environment. What models will write is not known: lengths
    are lognormal around a quarter of `max_completion_tokens`, and a fixed policy's model writes as
    fast as hosted ones do as a rule.
    """
    env = _only(environments).training[0].fork()
    # The best one, and one that seldom solves anything: episodes of all lengths.
    policies = [
        name for name in env.scripted_policies if name in (env.scripted_policies[0], "random")
    ]

    def play(level: int) -> tuple[Step, ...]:
        env.reset(seed=derive_seed(config.seed, "planned level", level))
        policy = policies[level % len(policies)] if policies else None
        return tuple(_scripted(config, environments[0], env, policy))

    for level in range(len(policies)):
        play(level)  # what has to be started first, as sandboxes have, is not an answer's
    started = time.perf_counter()
    episodes = [play(level) for level in range(_NUM_SCRIPTED)]
    # Prompts are counted in the same time, as in a run.
    branch_s = (time.perf_counter() - started) / sum(map(len, episodes))
    who = " and ".join(policies) if policies else "silence"
    text = f"{_NUM_SCRIPTED} episodes of {who}; lengths of answers are assumed (give --from RUN)"
    used = dict.fromkeys(env.possible_agents, 1.0)
    return Workload(tuple(episodes), env.stages, branch_s, used, text, _FIXED_TOKEN_S)


def _only(environments: Sequence[RunEnvironment]) -> RunEnvironment:
    if len(environments) > 1:
        raise ConfigError(
            f"a fleet is planned for one environment, and the run has {len(environments)}; plan "
            "each in a run file of its own"
        )
    return environments[0]


def _trees(path: Path) -> list[Mapping[str, Any]]:
    lines = read_lines(path / "rollouts.jsonl", "step", "set", "outcome", "decisions")
    trees = [line for line in lines if line["set"] == "training" and line["outcome"] is not None]
    last = max((tree["step"] for tree in trees), default=0)
    return [tree for tree in trees if tree["step"] == last]


def _lengths(decision: Mapping[str, Any]) -> list[int]:
    return [candidate["num_tokens"] for candidate in decision["candidates"]]


def _recorded(tree: Mapping[str, Any], scale: float) -> Iterator[Step]:
    for decision in tree["decisions"]:
        lengths = tuple(max(1, round(scale * length)) for length in _lengths(decision))
        yield Step(decision["agent"], decision["turn"], decision["num_prompt_tokens"], lengths)


def _scripted(
    config: Config, environment: RunEnvironment, env: TextEnv[Any], policy: str | None
) -> Iterator[Step]:
    rng = random.Random(0)
    agent = env.agent_selection
    while not (env.terminations[agent] or env.truncations[agent]):
        yield Step(agent, env.turn, _num_tokens(config, environment, env, agent), ())
        env.step(env.scripted_action(agent, policy, rng) if policy else "")
        agent = env.agent_selection


def _num_tokens(config: Config, environment: RunEnvironment, env: TextEnv[Any], agent: str) -> int:
    messages = env.messages(agent)
    policy = config.models.get(config.policy_of(environment.role(agent)) or "")
    chat = chat_of(policy) if policy is not None else None
    if chat is None:
        return len(json.dumps(list(messages))) // _BYTES_PER_TOKEN
    return len(chat.encode(messages))


def longest_answer(config: Config, environment: RunEnvironment, agent: str) -> int:
    """The limit of an agent's answers in tokens."""
    name = qualified(environment.name, role_of(agent))
    return sampling_of(config.rollout, name).max_completion_tokens
