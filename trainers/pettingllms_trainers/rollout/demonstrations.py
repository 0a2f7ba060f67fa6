"""The warm start of a run: policies imitate scripted policies, or recorded answers."""

from __future__ import annotations

import math
import random
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from fractions import Fraction
from statistics import fmean
from typing import Any, NamedTuple

from pettingllms import TextEnv, role_of
from pettingllms.ends import End
from pettingllms.errors import counted, readable, stated
from pettingllms.evaluation.rows import read_rows
from pettingllms.seeding import derive_seed
from pettingllms_trainers.config import Config
from pettingllms_trainers.config.root import warm_start_rates
from pettingllms_trainers.config.sections import entry_of, qualified
from pettingllms_trainers.errors import ConfigError, EpisodeFailure
from pettingllms_trainers.policies.pool import ModelPolicy, PolicyPool
from pettingllms_trainers.ranks import StopRequest
from pettingllms_trainers.rollout.candidates import RolloutSpec
from pettingllms_trainers.rollout.environments import RunEnvironment
from pettingllms_trainers.rollout.sampler import apportioned
from pettingllms_trainers.types import Demonstration, Imitation, ImitationStep

Record = Callable[[str, ImitationStep], None]
"""Takes the name of a policy and what a supervised step of it did."""

_NUM_LAST_STEPS = 10
_NOTE_S = 5.0
"""Least time between two lines about the same fit."""


def collect_demonstrations(
    env: TextEnv[Any],
    policies: Mapping[str, ModelPolicy],
    demonstrators: Mapping[str, Mapping[str, float]],
    *,
    num_episodes: int,
    seed: int,
) -> dict[str, list[Demonstration]]:
    """The demonstrations for each role, in play order.

    Args:
        env: Training environment; it is not changed.
        policies: Role to the policy that is to learn the role; its tokenizer is used. Nothing is
            collected for other roles.
        demonstrators: Role to scripted policies with their weights, for every role of the team.
        seed: Chooses levels and chance; the levels are others than those of train steps.
    """
    found: dict[str, list[Demonstration]] = defaultdict(list)
    for index in range(num_episodes):
        spec = RolloutSpec(
            index,
            derive_seed(seed, "demonstrated level", index),
            derive_seed(seed, "demonstration", index),
        )
        for decision in play_scripted_episode(env, spec, demonstrators).decisions:
            policy = policies.get(decision.role)
            if policy is None:
                continue
            found[decision.role].append(
                Demonstration(policy.encode(decision.messages), policy.encode_answer(decision.text))
            )
    return dict(found)


class WarmStart:
    """Supervised steps of all trainable policies.

    Args:
        config: The run.
        environments: What the run plays; demonstrations are of the first stage of each.
        pool: Has the policies.
        stop: Asked after every step.
    """

    def __init__(
        self,
        config: Config,
        environments: Sequence[RunEnvironment],
        pool: PolicyPool,
        stop: StopRequest,
    ) -> None:
        self.doing: tuple[str, int, int] = ("warm start", 0, 0)
        """What is being done; supervised steps done so far, and in all (of all policies)."""
        self._stop = stop
        self._config = config
        self._environments = environments
        self._pool = pool

    def run(self, note: Callable[[str], None], record: Record) -> dict[str, float]:
        """Fit the policies; return the metrics. Does nothing when no steps are wanted.

        Raises:
            StopRequested: A signal asked to stop.
        """
        settings = self._config.warm_start
        if not settings.num_steps:
            return {}
        episodes = counted(settings.num_episodes, "demonstrated episode")
        note(f"warm start: {settings.data or episodes}")
        data = self._demonstrations(note)
        # All are begun before one is followed: policies of other processes fit at the same time.
        fits = {
            name: updater.imitate(data[name], self._imitation(name))
            for name, updater in self._pool.updaters().items()
        }
        self.doing = ("warm start", 0, len(fits) * settings.num_steps)
        return {
            f"warm_start/{name}/loss": self._follow(name, steps, note, record)
            for name, steps in fits.items()
        }

    def _demonstrations(self, note: Callable[[str], None]) -> dict[str, list[Demonstration]]:
        data: dict[str, list[Demonstration]] = defaultdict(list)
        silent: dict[str, str] = {}
        weights = [env.config.weight for env in self._environments]
        counts = apportioned(weights, self._config.warm_start.num_episodes, Fraction(1, 2))
        for index, (env, count) in enumerate(zip(self._environments, counts, strict=True)):
            # Of one environment the seed of the run: as ever.
            seed = derive_seed(self._config.seed, index) if index else self._config.seed
            by_role = self._by_role(env, max(count, 1), seed)
            for role, found in by_role.items():
                data[env.roles[role]] += found
            trained = {role for role, policy in env.roles.items() if policy in self._config.models}
            for role in sorted(trained - {*by_role}):
                silent[qualified(env.name, role)] = env.roles[role]
        for role, policy in silent.items():
            told = f"the scripted policies never came to the turn of {role}"
            if not data[policy]:
                raise ConfigError(
                    f"warm_start: {told}, so that {policy} has nothing to imitate; play more "
                    "episodes (warm_start.num_episodes), or name others in "
                    "warm_start.demonstrators"
                )
            note(f"warm start: {told}; {policy} imitates its other roles")
        return data

    def _by_role(
        self, env: RunEnvironment, num_episodes: int, seed: int
    ) -> dict[str, list[Demonstration]]:
        settings = self._config.warm_start
        policies = {
            role: self._pool.policies[name]
            for role, name in env.roles.items()
            if name in self._config.models
        }
        if settings.data:
            return recorded_demonstrations(settings.data, env.config.id, policies)
        demonstrators = {
            role: entry_of(settings.demonstrators, qualified(env.name, role)) or {}
            for role in env.roles
        }
        return collect_demonstrations(
            env.training[0], policies, demonstrators, num_episodes=num_episodes, seed=seed
        )

    def _imitation(self, name: str) -> Imitation:
        settings = self._config.warm_start
        return Imitation(
            num_steps=settings.num_steps,
            batch_size=settings.batch_size,
            learning_rate=warm_start_rates(self._config)[name],
            seed=derive_seed(self._config.seed, "warm start", name),
        )

    def _follow(
        self,
        name: str,
        steps: Iterator[ImitationStep],
        note: Callable[[str], None],
        record: Record,
    ) -> float:
        """Report the progress of a fit; return its loss in the end."""
        losses: list[float] = []
        num_steps, said_s = self._config.warm_start.num_steps, -math.inf
        told = f"warm start of {name}: step"
        _, before, total = self.doing
        self.doing = (f"{told} 1 of {num_steps}", before, total)
        for step in steps:
            self._stop.check()
            losses.append(step.loss)
            now = f"{told} {len(losses) + 1} of {num_steps}"
            self.doing = (now, before + len(losses), total)
            record(name, step)
            if len(losses) == num_steps or time.monotonic() - said_s >= _NOTE_S:
                said_s = time.monotonic()
                note(f"{told} {len(losses)} of {num_steps}, loss {step.loss:.3f}")
        return fmean(losses[-_NUM_LAST_STEPS:])


def recorded_demonstrations(
    path: str, env_id: str, policies: Mapping[str, ModelPolicy]
) -> dict[str, list[Demonstration]]:
    """The demonstrations of a file for each role, in its order.

    Args:
        path: A `.jsonl` or `.parquet` file of rows with `role`, `prompt` and `completion`, the last
            two as chats, and with `env_id`, unless they are for all environments.
        env_id: Id of the environment; rows of others are left out.
        policies: Role to the policy that is to learn it; its tokenizer is used.

    Raises:
        InvalidArgument: If the file is missing, of another kind, or damaged.
        ConfigError: If a row lacks something, or there is none for a role.
    """
    found: dict[str, list[Demonstration]] = defaultdict(list)
    for number, row in enumerate(read_rows(path), 1):
        what = f"warm_start.data: row {number} of {path} is not a prompt with one answer"
        with readable(ConfigError, what, "Write it with: pettingllms data export RUN --view sft"):
            policy = policies.get(row["role"])
            if policy is None or row.get("env_id", env_id) != env_id:
                continue
            (answer,) = row["completion"]
            found[row["role"]].append(
                Demonstration(policy.encode(row["prompt"]), policy.encode_answer(answer["content"]))
            )
    if missing := [role for role in policies if role not in found]:
        raise ConfigError(
            f"warm_start.data: {path} has no answer of {', '.join(missing)} in {env_id}"
        )
    return dict(found)


class ScriptedDecision(NamedTuple):
    """A decision of a scripted policy."""

    role: str
    """Role of the agent, as the environment has it."""
    messages: Sequence[Mapping[str, str]]
    """The prompt, as chat messages."""
    text: str
    reward: float
    """Reward of the agent for it."""
    parse_error: str | None
    """Why the answer could not be read; None when it could."""


class ScriptedEpisode(NamedTuple):
    """An episode that scripted policies played to its end."""

    initial_state_hash: str
    """Hash of the initial state: equal levels have equal hashes."""
    decisions: tuple[ScriptedDecision, ...]
    success: bool
    end: End
    num_turns: int
    """Turns that have begun."""


def play_scripted_episode(
    env: TextEnv[Any], spec: RolloutSpec, policies: Mapping[str, Mapping[str, float]]
) -> ScriptedEpisode:
    """Play one episode with scripted policies.

    Args:
        env: Environment to take a fork of; it is not changed.
        policies: Role to scripted policies of the environment with their weights, for every
            role; one is drawn anew for every action.

    Raises:
        InvalidArgument: The environment has no such scripted policy.
        EpisodeFailure: The environment has failed.
    """
    with stated(EpisodeFailure, "the environment has failed"):
        return _played(env.fork(), spec, policies)


def _played(
    env: TextEnv[Any], spec: RolloutSpec, policies: Mapping[str, Mapping[str, float]]
) -> ScriptedEpisode:
    env.reset(seed=spec.env_seed)
    initial = env.state_hash()
    rng = random.Random(derive_seed(spec.seed, "reference"))
    decisions: list[ScriptedDecision] = []
    agent, turn = env.agent_selection, env.turn
    while env.end is None:
        role, turn = role_of(agent), env.turn
        messages = env.messages(agent)
        (name,) = rng.choices(list(policies[role]), list(policies[role].values()))
        text = env.scripted_action(agent, name, rng)
        env.step(text)
        info = env.infos[agent]
        decisions.append(
            ScriptedDecision(role, messages, text, env.rewards[agent], info["parse_error"])
        )
        agent = env.agent_selection
    assert env.end is not None, "it was played to its end"
    success = env.infos[agent]["success"]
    return ScriptedEpisode(initial, tuple(decisions), success, env.end, turn + 1)
