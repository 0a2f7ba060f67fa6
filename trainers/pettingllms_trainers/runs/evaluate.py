"""Held-out evaluation of a run: of all its environments, reported by the core."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from pettingllms.evaluation import RoleResult, summarise_variant
from pettingllms_trainers.config import Config
from pettingllms_trainers.policies.pool import PolicyPool
from pettingllms_trainers.rollout.environments import scripted_of
from pettingllms_trainers.runs.held_out import HeldOutSet, Played
from pettingllms_trainers.types import RolloutTree

Figures = dict[str, Any]
"""Figures of one way to play the held-out levels, as JSON data; see `_figures`."""


class HeldOut:
    """The held-out levels of all environments of a run.

    Figures of several environments are over all levels of all of them, and have the figures of
    each under ``environments``.

    Args:
        sets: Those of each environment.
        config: The run's configuration.
    """

    def __init__(self, sets: Sequence[HeldOutSet], config: Config) -> None:
        self._sets, self._config = sets, config
        self.examples: Sequence[RolloutTree] = ()
        """First episodes of the latest play of each environment, by the first way of decoding, for
        people to look at."""

    def play(self, pool: PolicyPool) -> dict[str, Figures]:
        """Return the figures of each way of decoding, one answer per decision.

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
        """Return the figures of the scripted policies of the configuration, each in all roles."""
        played: dict[str, dict[str, Played]] = {}
        for own in self._sets:
            for name in scripted_of(self._config, own.env.config):
                played.setdefault(name, {})[own.env.name] = own.of_scripted(name)
        return {f"scripted:{name}": _together(parts) for name, parts in played.items()}

    def play_swapped(self, pool: PolicyPool) -> dict[str, Figures]:
        """Return the figures of greedy play in each other's roles; none for a shared policy."""
        parts: dict[str, Played] = {}
        for own in self._sets if self._config.evaluation.swap_roles else ():
            swapped = _of_env(pool, own).swapped()
            if swapped is not None:
                parts[own.env.name] = own.of_trees(own.trees(swapped, 0.0))
        return {"swapped": _together(parts)} if parts else {}

    def line(self, variants: Mapping[str, Figures]) -> dict[str, Any]:
        """Return a line of evaluations.jsonl."""
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
    """Return the figures over all environments, with those of each if there are several."""
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
    """Return the metrics of an evaluation, by the names of who played."""
    names = ("success", "success_low", "success_high", "num_turns", "num_failed")
    metrics: dict[str, float] = {}
    for variant, figures in variants.items():
        metrics |= {f"eval/{variant}/{name}": figures[name] for name in names}
        for role, found in figures["roles"].items():
            metrics |= {f"eval/{variant}/{role}/{n}": found[n] for n in ("reward", "parse_errors")}
        for env, found in figures.get("environments", {}).items():
            metrics |= {f"eval/{variant}/{env}/{name}": found[name] for name in names}
    return metrics


_UNTOUCHED = "untouched:"


def untouched(variants: Mapping[str, Figures]) -> dict[str, Figures]:
    """Return the figures of policies before their warm start, by names that say so."""
    return {f"{_UNTOUCHED}{name}": figures for name, figures in variants.items()}


def is_untouched(name: str) -> bool:
    """Return whether a name of an evaluation is that of policies before their warm start."""
    return name.startswith(_UNTOUCHED)


def is_scripted(name: str) -> bool:
    """Return whether a name of an evaluation is that of a scripted policy."""
    return name.startswith("scripted:")
