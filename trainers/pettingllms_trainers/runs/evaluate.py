"""Held-out evaluation of a run: played here, in the run's engines; reported by the core."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from pettingllms import TextEnv, role_of
from pettingllms.evaluation import (
    EpisodeResult,
    RoleResult,
    distinct_levels,
    level_seed,
    summarise_variant,
)
from pettingllms.policies import Usage
from pettingllms.seeding import derive_seed
from pettingllms_trainers.config import Config
from pettingllms_trainers.policies.pool import PolicyPool
from pettingllms_trainers.rollout.environments import held_out_kwargs
from pettingllms_trainers.rollout.episode import Episodes
from pettingllms_trainers.rollout.failures import FailureLog
from pettingllms_trainers.rollout.playing import play_episodes
from pettingllms_trainers.rollout.sampler import sampling_of
from pettingllms_trainers.rollout.scripted import ScriptedEpisode, play_scripted_episode
from pettingllms_trainers.rollout.settings import RolloutSettings, RolloutSpec
from pettingllms_trainers.types import RolloutStatus, RolloutTree

__all__ = [
    "Figures",
    "HeldOutSet",
    "evaluation_metrics",
    "is_scripted",
    "is_untouched",
    "untouched",
]

Figures = dict[str, Any]
"""Figures of one way to play the held-out levels, as JSON data; see `_figures`."""


class _Action(NamedTuple):
    """What an evaluation keeps of an action."""

    role: str
    reward: float
    is_error: bool
    finish_reason: str = "stop"
    num_tokens: int = 0


class HeldOutSet:
    """Levels that are never trained on, played alike at every evaluation.

    They are those of ``pettingllms eval`` with the same seed: each level is played once, so there
    are fewer than ``evaluation.num_episodes`` if the environment has no more that differ.

    Args:
        env: Environment of the held-out split; it is not changed.
        episodes: Where it is played.
        config: The run's configuration.
        failures: Counts and logs what fails.
        runner: Runs the rollouts.
    """

    def __init__(
        self,
        env: TextEnv[Any],
        episodes: Episodes,
        config: Config,
        failures: FailureLog,
        runner: asyncio.Runner,
    ) -> None:
        self._env, self._episodes = env, episodes
        self._config, self._failures, self._runner = config, failures, runner
        self.examples: Sequence[RolloutTree] = ()
        """First episodes of the latest greedy play, for people to look at."""
        self._roles = list(dict.fromkeys(map(role_of, env.possible_agents)))
        seed = config.evaluation.seed
        self._specs = [
            RolloutSpec(index, level_seed(seed, index), derive_seed(seed, "held-out", index))
            for index in distinct_levels(env, seed, config.evaluation.num_episodes, {})
        ]

    def play(self, pool: PolicyPool) -> dict[str, Figures]:
        """Return the figures of greedy play and of play by sampling, one answer per decision.

        Raises:
            RolloutError: More rollouts failed than allowed.
        """
        greedy = self._trees(pool, 0.0)
        self.examples = greedy[: self._config.logging.num_held_out]
        sampled = self._trees(pool, self._config.evaluation.temperature)
        return {"greedy": self._of_trees(greedy), "sampled": self._of_trees(sampled)}

    def play_scripted(self) -> dict[str, Figures]:
        """Return the figures of the scripted policies of the configuration, each in all roles."""
        return {
            f"scripted:{name}": self._figures(
                [self._of_scripted(spec, name) for spec in self._specs], num_failed=0
            )
            for name in self._config.evaluation.scripted
        }

    def play_swapped(self, pool: PolicyPool) -> dict[str, Figures]:
        """Return the figures of greedy play in each other's roles; none for a shared policy."""
        swapped = pool.swapped() if self._config.evaluation.swap_roles else None
        return {} if swapped is None else {"swapped": self._of_trees(self._trees(swapped, 0.0))}

    def line(self, variants: Mapping[str, Figures]) -> dict[str, Any]:
        """Return a line of evaluations.jsonl."""
        return {
            "manifest": next(iter(variants.values()))["manifest"],
            "num_episodes": len(self._specs),
            "env": held_out_kwargs(self._config),
            "variants": dict(variants),
        }

    def _trees(self, pool: PolicyPool, temperature: float) -> list[RolloutTree]:
        rollout = self._config.rollout
        sampling = {role: sampling_of(rollout, role, temperature) for role in self._config.roles}
        settings = RolloutSettings(num_candidates=1, sampling=sampling)
        return self._runner.run(
            play_episodes(self._episodes, pool, self._specs, settings, self._failures)
        )

    def _of_trees(self, trees: Sequence[RolloutTree]) -> Figures:
        results = [self._of_tree(spec, tree) for spec, tree in zip(self._specs, trees, strict=True)]
        return self._figures(results, sum(tree.status is not RolloutStatus.OK for tree in trees))

    def _of_tree(self, spec: RolloutSpec, tree: RolloutTree) -> EpisodeResult:
        actions: list[_Action] = []
        for decision in tree.decisions:
            (answer,) = decision.candidates
            written = answer.completion
            actions.append(
                _Action(
                    role=decision.role,
                    reward=answer.reward,
                    is_error=answer.parse_error is not None,
                    finish_reason=written.finish_reason,
                    num_tokens=len(written.token_ids),
                )
            )
        is_solved = tree.outcome is not None and tree.outcome.success
        num_turns = 1 + max((decision.key.turn for decision in tree.decisions), default=-1)
        return self._result(spec, tree.initial_state_hash, is_solved, num_turns, actions)

    def _of_scripted(self, spec: RolloutSpec, name: str) -> EpisodeResult:
        line_up = {role: {name: 1.0} for role in self._roles}
        played: ScriptedEpisode = play_scripted_episode(self._env, spec, line_up)
        actions = [
            _Action(decision.role, decision.reward, decision.parse_error is not None)
            for decision in played.decisions
        ]
        return self._result(
            spec, played.initial_state_hash, played.success, played.num_turns, actions
        )

    def _result(
        self,
        spec: RolloutSpec,
        state_hash: str,
        is_solved: bool,
        num_turns: int,
        actions: Iterable[_Action],
    ) -> EpisodeResult:
        """Return an episode as the core's evaluation knows it; a failed one is not solved."""
        roles = {role: RoleResult() for role in self._roles}
        for action in actions:
            usage = Usage(completion_tokens=action.num_tokens)
            roles[action.role].add(action.reward, action.is_error, action.finish_reason, usage)
        return EpisodeResult(
            variant="",
            level=spec.episode,
            sample=0,
            level_seed=spec.env_seed,
            seed=spec.seed,
            initial_state_hash=state_hash,
            success=is_solved,
            terminated=is_solved,
            truncated=not is_solved,
            num_turns=num_turns,
            returns={},
            roles=roles,
            wall_s=0.0,
        )

    def _figures(self, results: Sequence[EpisodeResult], num_failed: int) -> Figures:
        report = summarise_variant(results)
        return {
            "success": report.success.value,
            "success_low": report.success.low,
            "success_high": report.success.high,
            "num_episodes": report.num_episodes,
            "num_success": report.num_success,
            "num_failed": num_failed,
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
    return metrics


_UNTOUCHED = "untouched:"


def untouched(variants: Mapping[str, Figures]) -> dict[str, Figures]:
    """Return the figures of policies before their warm start, by names that say so."""
    return {f"{_UNTOUCHED}{name}": figures for name, figures in variants.items()}


def is_untouched(name: str) -> bool:
    """Return whether a name of an evaluation is that of policies before their warm start."""
    return name.startswith(_UNTOUCHED)


def is_scripted(name: str) -> bool:
    """Return whether a name of an evaluation is that of a scripted policy, of an old run too."""
    return name.startswith(("scripted:", "scripted:"))
