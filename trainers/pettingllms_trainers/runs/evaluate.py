"""Held-out success: levels played here, in the run's engines, by the team and by others."""

from __future__ import annotations

import asyncio
import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from pettingllms.ends import End
from pettingllms.evaluation import (
    EpisodeResult,
    RoleResult,
    distinct_levels,
    level_seed,
    summarise_variant,
    wilson_interval,
)
from pettingllms.evaluation.plan import begun
from pettingllms.policies import Completion, Usage
from pettingllms.seeding import derive_seed
from pettingllms_trainers.algorithms.base import Alone
from pettingllms_trainers.config import Config
from pettingllms_trainers.config.sections import qualified
from pettingllms_trainers.policies.pool import PolicyPool
from pettingllms_trainers.rollout.candidates import FailureLog, RolloutSettings, RolloutSpec
from pettingllms_trainers.rollout.demonstrations import ScriptedEpisode, play_scripted_episode
from pettingllms_trainers.rollout.environments import RunEnvironment, held_out_kwargs, scripted_of
from pettingllms_trainers.rollout.episode import Episodes
from pettingllms_trainers.rollout.player import play_episodes
from pettingllms_trainers.rollout.sampler import sampling_of
from pettingllms_trainers.types import RolloutTree

_FEW = 5
"""Held-out levels of which figures tell little."""
_NUM_SEEN = 8
"""Training levels of a stage that are looked for among them."""


class Played(NamedTuple):
    """Held-out episodes of one environment that were played."""

    results: Sequence[EpisodeResult]
    """One for each level; those that failed count as not solved."""
    failures: Counter[str]
    """Error of the infrastructure to the number of episodes that it failed."""


class HeldOutSet:
    """Levels of an environment that are never trained on, played alike at every evaluation.

    They are those of ``pettingllms eval`` with the same seed: each level is played once, so there
    are fewer than ``evaluation.num_episodes`` if the environment has no more that differ.

    Args:
        env: The environment; its held-out one is not changed.
        episodes: Where it is played.
        config: The run.
        failures: Counts failed rollouts.
        runner: Runs the episodes.
        first: Number of the first episode: those of several environments differ.
    """

    def __init__(
        self,
        env: RunEnvironment,
        episodes: Episodes,
        config: Config,
        failures: FailureLog,
        runner: asyncio.Runner,
        first: int = 0,
    ) -> None:
        self.env = env
        self._episodes = episodes
        self._config, self._failures, self._runner = config, failures, runner
        self._roles = [qualified(env.name, role) for role in env.roles]
        self.kwargs = held_out_kwargs(config, env.config)
        seed = config.evaluation.seed
        num = env.config.evaluation.num_episodes or config.evaluation.num_episodes
        # The same level twice would count as two trials, and make intervals too narrow.
        levels = distinct_levels(env.held_out, seed, num, {})
        self.specs = [
            RolloutSpec(
                first + index, level_seed(seed, index), derive_seed(seed, "held-out", index)
            )
            for index in levels
        ]
        """Its levels, each with the seed of its episode."""
        self._hashes = frozenset(levels.values())

    def advice(self) -> Iterator[str]:
        """Yield why its figures say little, or too much."""
        where = self.env.name or self.env.config.id
        if (num := len(self.specs)) < _FEW:
            low, high = wilson_interval(0.5, num)
            yield (
                f"so few held-out levels of {where} tell little, {num}: half of them solved would "
                f"mean {low:.0%} to {high:.0%}. Raise evaluation.num_episodes, if there are more"
            )
        seen = 0
        for stage, level in itertools.product(self.env.training, range(_NUM_SEEN)):
            probe = begun(stage, derive_seed(self._config.seed, "planned level", level))
            seen += probe.level_hash() in self._hashes
        if seen:
            yield (
                f"{seen} of {_NUM_SEEN * len(self.env.training)} training levels of {where} are "
                "held-out levels too: held-out success is then memory, not skill. Keep the tasks "
                "of train and test apart"
            )

    def trees(self, pool: PolicyPool, temperature: float) -> list[RolloutTree]:
        """Play all levels, one answer per decision; a temperature of 0 is greedy.

        Raises:
            RolloutError: More rollouts failed than allowed.
        """
        env, rollout = self.env, self._config.rollout
        sampling = {
            role: sampling_of(rollout, qualified(env.name, role), temperature) for role in env.roles
        }
        settings = RolloutSettings(sampling=sampling, env=env.name)
        return self._runner.run(
            play_episodes(self._episodes, pool, self.specs, settings, Alone(), self._failures)
        )

    def of_trees(self, trees: Sequence[RolloutTree]) -> Played:
        """What was played, as the core's evaluation knows it."""
        results = [self._of_tree(spec, tree) for spec, tree in zip(self.specs, trees, strict=True)]
        # They stay in `results`, as not solved: leaving them out would flatter a team that crashes.
        failed = [tree.cause or "unknown" for tree in trees if tree.has_failed]
        return Played(results, Counter(failed))

    def of_scripted(self, name: str) -> Played:
        """Play all levels with a scripted policy of the environment in all roles."""
        return Played([self._of_scripted(spec, name) for spec in self.specs], Counter())

    def _of_tree(self, spec: RolloutSpec, tree: RolloutTree) -> EpisodeResult:
        roles = {role: RoleResult() for role in self._roles}
        for decision in tree.decisions:
            # One answer per decision: best-of-K would show the branching, not the policy.
            (answer,) = decision.candidates
            written, is_error = answer.completion, answer.parse_error is not None
            usage = Usage(completion_tokens=len(written.token_ids))
            completion = Completion(written.text, written.finish_reason)
            roles[decision.role].add(answer.reward, is_error, completion, usage)
        is_solved = tree.outcome is not None and tree.outcome.success
        num_turns = 1 + max((decision.key.turn for decision in tree.decisions), default=-1)
        return _result(spec, tree.initial_state_hash, is_solved, tree.end, num_turns, roles)

    def _of_scripted(self, spec: RolloutSpec, name: str) -> EpisodeResult:
        env = self.env
        assignment = {role: {name: 1.0} for role in env.roles}
        played: ScriptedEpisode = play_scripted_episode(env.held_out, spec, assignment)
        roles = {role: RoleResult() for role in self._roles}
        for decision in played.decisions:
            role, is_error = qualified(env.name, decision.role), decision.parse_error is not None
            roles[role].add(decision.reward, is_error, Completion("", "stop"), Usage())
        state_hash, num_turns = played.initial_state_hash, played.num_turns
        return _result(spec, state_hash, played.success, played.end, num_turns, roles)


def _result(
    spec: RolloutSpec,
    state_hash: str,
    is_solved: bool,
    end: End,
    num_turns: int,
    roles: Mapping[str, RoleResult],
) -> EpisodeResult:
    """An episode as the core's evaluation knows it; a failed one is not solved."""
    return EpisodeResult(
        variant="",
        level=spec.episode,
        sample=0,
        level_seed=spec.env_seed,
        seed=spec.seed,
        initial_state_hash=state_hash,
        success=is_solved,
        end=end,
        num_turns=num_turns,
        returns={},
        roles=roles,
        wall_s=0.0,
    )


Figures = dict[str, Any]
"""Figures of one way to play the held-out levels, as JSON data; see `_figures`."""


class HeldOut:
    """The held-out levels of all environments of a run.

    Figures of several environments are over all their levels, with the figures of each environment
    under ``environments``.

    Args:
        sets: The levels of each environment.
        config: The run.
    """

    def __init__(self, sets: Sequence[HeldOutSet], config: Config) -> None:
        self._sets, self._config = sets, config
        self.examples: Sequence[RolloutTree] = ()
        """First episodes of the latest play of each environment, by the first way of decoding, for
        people to look at."""
        envs = [own.env.held_out for own in sets]
        self.most_decisions = max(env.max_turns * len(env.possible_agents) for env in envs)
        """Decisions of an episode, at most."""

    @property
    def most_completions(self) -> int:
        """Completions of one evaluation, at most."""
        num_levels = sum(len(own.specs) for own in self._sets)
        return num_levels * self.most_decisions * len(self._config.evaluation.ways)

    def advice(self) -> Iterator[str]:
        """Yield why the figures of an environment say little, or too much."""
        return itertools.chain.from_iterable(own.advice() for own in self._sets)

    def play(self, pool: PolicyPool) -> dict[str, Figures]:
        """Play all levels in each way of decoding, one answer per decision.

        Raises:
            RolloutError: More rollouts failed than allowed.
        """
        config = self._config.evaluation
        temperatures = {"greedy": 0.0, "sampled": config.temperature}
        played = {
            name: [own.trees(_of_env(pool, own), temperatures[name]) for own in self._sets]
            for name in config.ways
        }
        num = self._config.logging.num_held_out
        self.examples = [tree for trees in played[config.ways[0]] for tree in trees[:num]]
        return {name: self._of_trees(trees) for name, trees in played.items()}

    def play_scripted(self) -> dict[str, Figures]:
        """Play all levels with each scripted policy of the configuration, in all roles."""
        played: dict[str, dict[str, Played]] = {}
        for own in self._sets:
            for name in scripted_of(self._config, own.env.config):
                played.setdefault(name, {})[own.env.name] = own.of_scripted(name)
        return {f"scripted:{name}": _together(parts) for name, parts in played.items()}

    def play_swapped(self, pool: PolicyPool) -> dict[str, Figures]:
        """Play greedily in each other's roles; no figures for a shared policy."""
        parts: dict[str, Played] = {}
        for own in self._sets if self._config.evaluation.swap_roles else ():
            swapped = _of_env(pool, own).swapped()
            if swapped is not None:
                parts[own.env.name] = own.of_trees(own.trees(swapped, 0.0))
        return {"swapped": _together(parts)} if parts else {}

    def line(self, variants: Mapping[str, Figures]) -> dict[str, Any]:
        """A line of evaluations.jsonl, without its step."""
        first = next(iter(variants.values()))
        kwargs = {own.env.name: own.kwargs for own in self._sets}
        return {
            "manifest": first["manifest"],
            "num_episodes": first["num_episodes"],
            "env": kwargs.get("", kwargs),
            "variants": dict(variants),
        }

    def _of_trees(self, trees: Sequence[Sequence[RolloutTree]]) -> Figures:
        pairs = zip(self._sets, trees, strict=True)
        return _together({own.env.name: own.of_trees(played) for own, played in pairs})


def _of_env(pool: PolicyPool, own: HeldOutSet) -> PolicyPool:
    return pool.in_env(own.env.name, own.env.roles)


def _together(parts: Mapping[str, Played]) -> Figures:
    """Figures over all environments, with those of each if there are several."""
    if "" in parts:
        return _figures(parts[""])
    # Roles of the other environments have no actions in an episode.
    roles = {role: RoleResult() for part in parts.values() for role in part.results[0].roles}
    results = [replace(r, roles={**roles, **r.roles}) for p in parts.values() for r in p.results]
    failures = sum((part.failures for part in parts.values()), Counter[str]())
    whole = _figures(Played(results, failures))
    return {**whole, "environments": {name: _figures(part) for name, part in parts.items()}}


def _figures(played: Played) -> Figures:
    results, failures = played
    report = summarise_variant(results)
    return {
        "success": report.success.value,
        "success_low": report.success.low,
        "success_high": report.success.high,
        "num_episodes": report.num_episodes,
        "num_success": report.num_success,
        "num_failed": failures.total(),
        "failures": dict(failures.most_common()),
        "ends": dict(Counter(result.end for result in results).most_common()),
        "num_turns": report.num_turns.value,
        "roles": {
            role: {
                "num_actions": found.num_actions,
                "reward": math.fsum(result.roles[role].reward for result in results)
                / max(found.num_actions, 1),
                "parse_errors": found.parse_errors.value,
            }
            for role, found in report.roles.items()
        },
        "manifest": report.manifest,
    }


def evaluation_metrics(variants: Mapping[str, Figures]) -> dict[str, float]:
    """Metrics of an evaluation, by the names of who played."""
    # A count of levels is in evaluations.jsonl; it does not change over a run.
    names = ("success", "success_low", "success_high", "num_turns", "num_failed")
    metrics: dict[str, float] = {}
    for variant, figures in variants.items():
        metrics |= {f"eval/{variant}/{name}": figures[name] for name in names}
        metrics |= {
            f"eval/{variant}/end/{end}": num / figures["num_episodes"]
            for end, num in figures["ends"].items()
        }
        for role, found in figures["roles"].items():
            metrics |= {f"eval/{variant}/{role}/{n}": found[n] for n in ("reward", "parse_errors")}
        for env, found in figures.get("environments", {}).items():
            metrics |= {f"eval/{variant}/{env}/{name}": found[name] for name in names}
    return metrics


_UNTOUCHED = "untouched:"


def untouched(variants: Mapping[str, Figures]) -> dict[str, Figures]:
    """Name figures as those of policies before their warm start."""
    return {f"{_UNTOUCHED}{name}": figures for name, figures in variants.items()}


def is_untouched(name: str) -> bool:
    """Whether a name of an evaluation is that of policies before their warm start."""
    return name.startswith(_UNTOUCHED)


def is_scripted(name: str) -> bool:
    """Whether a name of an evaluation is that of a scripted policy."""
    return name.startswith("scripted:")
