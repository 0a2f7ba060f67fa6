"""From finished episodes to figures with intervals."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, is_dataclass
from functools import partial
from statistics import fmean
from typing import Any

from pettingllms.errors import InvalidArgument
from pettingllms.evaluation.episode import EpisodeResult
from pettingllms.evaluation.levels import manifest_of
from pettingllms.evaluation.plan import EvaluationPlan
from pettingllms.evaluation.statistics import Interval, clustered_share, mean_interval, pass_at_k

Levels = Mapping[int, Sequence[EpisodeResult]]
"""Level -> its plays."""


@dataclass(frozen=True, kw_only=True, slots=True)
class RoleReport:
    """How one role did."""

    policy: str
    """Who played it; empty when unknown."""
    num_actions: int
    reward: Interval
    """Mean, over episodes, of the sum of the rewards of the role's own actions."""
    parse_errors: Interval
    """Share of its actions that could not be read."""
    cut: float
    """Share of its completions that ended at the limit of tokens."""
    num_requests: int
    num_retries: int
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float | None
    """None without a price."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ArmReport:
    """How one line-up of policies did."""

    num_episodes: int
    """Finished episodes."""
    num_expected: int
    """Episodes of the plan."""
    num_levels: int
    """Levels with a finished episode."""
    num_distinct_levels: int
    """Different ones among them."""
    num_success: int
    success: Interval
    """Share of solved episodes; plays of one level count as dependent."""
    pass_at_k: Mapping[int, Interval]
    """k -> unbiased pass@k, for k = 1, 2, 4, ... up to the plays of every level."""
    num_truncated: int
    """Episodes that ran out of turns."""
    num_turns: Interval
    """Turns of an episode."""
    returns: Mapping[str, Interval]
    """Agent -> return of an episode."""
    roles: Mapping[str, RoleReport]
    manifest: str
    """Hash over the initial states, in order: equal for equal sets of levels."""

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON data; intervals are objects, infinite ends null."""
        return figures_json(self)


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """All arms of an evaluation."""

    plan: EvaluationPlan
    arms: Mapping[str, ArmReport]

    @property
    def is_complete(self) -> bool:
        """Whether every episode of the plan is finished."""
        return sum(arm.num_episodes for arm in self.arms.values()) == self.plan.num_episodes

    def to_json(self) -> dict[str, Any]:
        """Return the report as JSON data."""
        return {
            "is_complete": self.is_complete,
            "plan": self.plan.to_json(),
            "arms": {name: arm.to_json() for name, arm in self.arms.items()},
        }


def summarise(plan: EvaluationPlan, results: Iterable[EpisodeResult]) -> Report:
    """Return the figures of an evaluation, also of one that is not finished.

    Arms without a finished episode are left out.

    Args:
        plan: What was to be played.
        results: Finished episodes, in any order.
    """
    by_arm: dict[str, list[EpisodeResult]] = {arm: [] for arm in plan.arms}
    for result in results:
        by_arm[result.arm].append(result)
    num_expected = plan.num_levels * plan.num_samples
    arms = {
        arm: summarise_arm(
            found, num_expected=num_expected, policies=plan.arms[arm], prices=plan.prices
        )
        for arm, found in by_arm.items()
        if found
    }
    return Report(plan=plan, arms=arms)


def summarise_arm(
    results: Sequence[EpisodeResult],
    *,
    num_expected: int | None = None,
    policies: Mapping[str, str] | None = None,
    prices: Mapping[str, tuple[float, float]] | None = None,
) -> ArmReport:
    """Return the figures of one arm.

    Args:
        results: Its finished episodes, at least one, in any order.
        num_expected: Episodes that were to be played; None: as many as there are.
        policies: Role -> name of its policy.
        prices: Policy -> US dollars per million prompt tokens and completion tokens.

    Raises:
        InvalidArgument: If there are no results.
    """
    if not results:
        raise InvalidArgument("results", results, "at least one finished episode")
    ordered = sorted(results, key=lambda result: (result.level, result.sample))
    levels = by_level(ordered)
    hashes = [plays[0].initial_state_hash for plays in levels.values()]
    solved = [sum(play.success for play in plays) for plays in levels.values()]
    played = [len(plays) for plays in levels.values()]
    return ArmReport(
        num_episodes=len(ordered),
        num_expected=len(ordered) if num_expected is None else num_expected,
        num_levels=len(levels),
        num_distinct_levels=len(set(hashes)),
        num_success=sum(solved),
        success=clustered_share(solved, played),
        pass_at_k=_pass_at_k(solved, played),
        num_truncated=sum(result.truncated for result in ordered),
        num_turns=level_mean(levels, lambda play: play.num_turns),
        returns={
            agent: level_mean(levels, partial(_return, agent)) for agent in ordered[0].returns
        },
        roles={
            role: _role(role, levels, (policies or {}).get(role, ""), prices or {})
            for role in ordered[0].roles
        },
        manifest=manifest_of(hashes),
    )


def role_reward(role: str, play: EpisodeResult) -> float:
    """Return the sum of the rewards of a role's own actions in an episode."""
    return play.roles[role].reward


def _return(agent: str, play: EpisodeResult) -> float:
    return play.returns[agent]


def by_level(results: Iterable[EpisodeResult]) -> dict[int, list[EpisodeResult]]:
    """Return level -> its plays."""
    levels: defaultdict[int, list[EpisodeResult]] = defaultdict(list)
    for result in results:
        levels[result.level].append(result)
    return dict(levels)


def level_mean(levels: Levels, value: Callable[[EpisodeResult], float]) -> Interval:
    """Return the mean over levels of a value's mean over the plays of a level."""
    return mean_interval([fmean(map(value, plays)) for plays in levels.values()])


def _pass_at_k(solved: Sequence[int], played: Sequence[int]) -> dict[int, Interval]:
    found: dict[int, Interval] = {}
    k = 1
    while k <= min(played):
        estimates = [pass_at_k(n, c, k) for n, c in zip(played, solved, strict=True)]
        # n plays hold n // k separate groups of k: no more independent draws of "solved by k".
        groups = [n // k for n in played]
        hits = [e * n for e, n in zip(estimates, groups, strict=True)]
        found[k] = clustered_share(hits, groups)
        k *= 2
    return found


def _role(
    role: str, levels: Levels, policy: str, prices: Mapping[str, tuple[float, float]]
) -> RoleReport:
    plays = [[play.roles[role] for play in level] for level in levels.values()]
    flat = [part for level in plays for part in level]
    num_actions = sum(part.num_actions for part in flat)
    prompt_tokens = sum(part.prompt_tokens for part in flat)
    completion_tokens = sum(part.completion_tokens for part in flat)
    price = prices.get(policy)
    cost = None if price is None else prompt_tokens * price[0] + completion_tokens * price[1]
    return RoleReport(
        policy=policy,
        num_actions=num_actions,
        reward=level_mean(levels, partial(role_reward, role)),
        parse_errors=clustered_share(
            [sum(part.parse_errors for part in level) for level in plays],
            [sum(part.num_actions for part in level) for level in plays],
        )
        if num_actions
        else Interval(0.0, 0.0, 1.0),
        cut=sum(part.cut for part in flat) / max(1, num_actions),
        num_requests=sum(part.num_requests for part in flat),
        num_retries=sum(part.num_retries for part in flat),
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        cost_usd=None if cost is None else cost / 1e6,
    )


def figures_json(value: Any) -> Any:
    """Return figures as JSON data: intervals become objects, infinite ends null."""
    if isinstance(value, Interval):
        return {name: figures_json(end) for name, end in value._asdict().items()}
    if isinstance(value, Mapping):
        return {str(key): figures_json(part) for key, part in value.items()}
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if is_dataclass(value):
        return {part.name: figures_json(getattr(value, part.name)) for part in fields(value)}
    return value
