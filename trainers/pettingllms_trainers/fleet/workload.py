"""What a run asks of its engines: episodes as sequences of decisions, with the tokens of each."""

from __future__ import annotations

import json
import math
import random
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from statistics import fmean
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
from pettingllms_trainers.types import RolloutTree

_NUM_SCRIPTED = 16
_SPREAD = 0.8
"""Of the logarithm of lengths that are not known: what the answers of reasoning models have."""
_SHARE = 0.25
"""Median of such a length as a share of `max_completion_tokens`."""
_BYTES_PER_TOKEN = 4
_MOST_CANDIDATES = 64


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
    used: Mapping[str, Sequence[float]]
    """Agent to the share of its decisions with a signal if they have 1, 2, ... candidates; the last
    one holds for any larger number."""
    source: str
    """Where it comes from, for people."""
    decision_s: float = 0.0
    """Further seconds of the process that plays for each decision; 0 where they are not known."""

    def length(self, step: Step, longest: int, rng: random.Random) -> int:
        """Draw the tokens of an answer, from 1 to a limit."""
        if step.lengths:
            return rng.choice(step.lengths)
        # Lognormal, as few answers are much longer than most, and those are what others wait for.
        drawn = _SHARE * longest * math.exp(rng.gauss(0.0, _SPREAD))
        return max(1, min(longest, round(drawn)))

    def share_used(self, agent: str, num_candidates: int) -> float:
        """The share of an agent's decisions that is learnt from."""
        shares = self.used[agent]
        return shares[min(num_candidates, len(shares)) - 1]


def from_trees(
    trees: Sequence[RolloutTree],
    stages: tuple[tuple[str, ...], ...],
    steps: Sequence[Mapping[str, float]],
    branch_s: float,
) -> Workload:
    """What was played in some train steps."""
    played = [
        tuple(
            Step(
                decision.key.agent,
                decision.key.turn,
                len(decision.prompt_ids),
                tuple(len(one.completion.token_ids) for one in decision.candidates),
            )
            for decision in tree.decisions
        )
        for tree in trees
        if tree.decisions
    ]
    lengths = [step.lengths for episode in played for step in episode]
    # Answers of continuations are carried out, too; they are as long as the others.
    more = 1 + sum(tree.num_continuation_tokens for tree in trees) / sum(map(sum, lengths))
    # What rollouts took beside engines and environments: the process that plays.
    waited_s = sum(map(_waited_s, steps)) - branch_s * more * sum(map(len, lengths))
    decision_s = max(waited_s, 0.0) / (more * len(lengths))
    text = f"{counted(len(played), 'rollout')} of {counted(len(steps), 'train step')} taken here"
    used = {agent: shares_with_signal(trees, agent) for stage in stages for agent in stage}
    return Workload(tuple(played), stages, branch_s, used, text, decision_s)


def shares_with_signal(trees: Sequence[RolloutTree], agent: str) -> tuple[float, ...]:
    """The share of decisions whose rewards differ among 1, 2, ... candidates.

    Source:
        Rarefaction: of the K candidates that were drawn any fewer are drawn, without replacement
        (Hurlbert, Ecology 52, 1971). Beyond K the differences go on shrinking by their last ratio.
        One candidate is compared with those of other episodes: it has a signal.
    """
    drawn = [
        [candidate.reward for candidate in decision.candidates]
        for tree in trees
        for decision in tree.decisions
        if decision.key.agent == agent
    ]
    most = max(map(len, drawn), default=1)
    found = [1.0]
    for num in range(2, most + 1):
        alike = [
            sum(math.comb(count, num) for count in Counter(rewards).values())
            / math.comb(len(rewards), num)
            for rewards in drawn
            if len(rewards) >= num
        ]
        found.append(1 - fmean(alike))
    # Too few points for a ratio: then the last share stands for all larger groups.
    if most > 3:
        ratio = (found[-1] - found[-2]) / max(found[-2] - found[-3], 1e-9)
        for _ in range(most, _MOST_CANDIDATES):
            found.append(min(found[-1] + ratio * (found[-1] - found[-2]), 1.0))
    return tuple(found)


def _waited_s(metrics: Mapping[str, float]) -> float:
    return max(metrics["time/rollout_s"] - metrics["time/generate_s"], 0.0)


def _used(stages: Sequence[Sequence[str]], metrics: Mapping[str, float]) -> dict[str, tuple[float]]:
    agents = [agent for stage in stages for agent in stage]
    keys = {agent: f"role/{role_of(agent)}/decisions_used" for agent in agents}
    return {agent: (metrics.get(key, 0.0),) for agent, key in keys.items()}


def from_run(config: Config, environments: Sequence[RunEnvironment], path: Path) -> Workload:
    """What a run of the same environment has recorded.

    The trees of the last recorded train step, whose mean tokens are those of all its trees: kept
    are those that were most instructive. A branch takes what the rollouts took besides generation.

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
    return Workload(
        tuple(tuple(_recorded(tree, scale)) for tree in trees),
        stages,
        _waited_s(metrics) / num_branches,
        _used(stages, metrics),
        f"{counted(len(trees), 'rollout')} of train step {step} of {path}",
    )


def from_script(config: Config, environments: Sequence[RunEnvironment]) -> Workload:
    """What the environment's first scripted policy plays, with answers of any length.

    Prompts and decisions are those of the environment. What models will write is not known: lengths
    are lognormal around a quarter of `max_completion_tokens`.
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
    used = dict.fromkeys(env.possible_agents, (1.0,))
    return Workload(tuple(episodes), env.stages, branch_s, used, text)


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
