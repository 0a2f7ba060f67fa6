"""Is one run better than another? Paired: both played the same levels."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean
from typing import Any

from pettingllms.errors import InvalidArgument
from pettingllms.evaluation.episode import EpisodeResult
from pettingllms.evaluation.report import by_content, figures_json, role_reward, solved_of
from pettingllms.evaluation.statistics import (
    Interval,
    clustered_share,
    correlation_of,
    mean_interval,
    paired_share_difference,
    sign_test,
)


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One figure of both sides, and the second minus the first on the same levels."""

    first: float
    second: float
    difference: Interval


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Two runs on the levels that both played, or, not paired, on all levels of each."""

    is_paired: bool
    """Whether they are compared level by level."""
    num_levels: int
    """Levels that both played; only these count. 0 when they are not paired."""
    num_only_first: int
    """Levels that only the first played."""
    num_only_second: int
    """Levels that only the second played."""
    success: Difference
    first_success: Interval
    """Share of solved plays on the common levels."""
    second_success: Interval
    num_better: int = 0
    """Levels of which the second solved a greater share."""
    num_worse: int = 0
    """Levels of which it solved a smaller share."""
    p_value: float | None = None
    """Two-sided sign test over these levels (McNemar's exact test for one play a level)."""
    figures: dict[str, Difference] = field(default_factory=dict[str, Difference])
    """Turns, tokens, and `<role> reward` per episode."""

    def to_json(self) -> dict[str, Any]:
        """Return the comparison as JSON data."""
        return figures_json(self)


def compare(first: Iterable[EpisodeResult], second: Iterable[EpisodeResult]) -> Comparison:
    """Compare two variants on the levels that both played; levels are known by their content.

    Args:
        first: Episodes of one variant.
        second: Episodes of another variant, of the same or another run.

    Raises:
        InvalidArgument: If they have no level in common.
    """
    sides = by_content(first), by_content(second)
    common = [content for content in sides[0] if content in sides[1]]
    if not common:
        raise InvalidArgument(
            "runs",
            f"{len(sides[0])} and {len(sides[1])} levels, none of them equal",
            "runs on the same levels: same environment, arguments, options and seed",
            "Other levels of one kind can be compared without pairs (compare --anyway).",
        )
    one, other = ({content: side[content] for content in common} for side in sides)
    pairs = list(zip(one.values(), other.values(), strict=True))
    solved = [[fmean(play.success for play in plays) for plays in pair] for pair in pairs]
    num_better = sum(a < b for a, b in solved)
    num_worse = sum(a > b for a, b in solved)
    a, b = (clustered_share(*solved_of(side)) for side in (one, other))
    correlation = correlation_of([a for a, _ in solved], [b for _, b in solved])
    difference = paired_share_difference(a, b, correlation)
    return Comparison(
        is_paired=True,
        num_levels=len(common),
        num_only_first=len(sides[0]) - len(common),
        num_only_second=len(sides[1]) - len(common),
        success=Difference(first=a.value, second=b.value, difference=difference),
        first_success=a,
        second_success=b,
        num_better=num_better,
        num_worse=num_worse,
        p_value=sign_test(num_better, num_worse),
        figures=_figures(pairs),
    )


def compare_shares(first: Interval, second: Interval, *, num_levels: tuple[int, int]) -> Comparison:
    """Compare two shares of solved plays without pairs: of other levels, or without episodes.

    Args:
        first: Share of one side, as `clustered_share` gives it.
        second: Share of the other side.
        num_levels: Levels that each of them played.

    Source:
        Newcombe, "Interval estimation for the difference between independent proportions" (1998),
        method 10.
    """
    difference = paired_share_difference(first, second, 0.0)
    return Comparison(
        is_paired=False,
        num_levels=0,
        num_only_first=num_levels[0],
        num_only_second=num_levels[1],
        success=Difference(first=first.value, second=second.value, difference=difference),
        first_success=first,
        second_success=second,
    )


Pair = tuple[Sequence[EpisodeResult], Sequence[EpisodeResult]]


def _figures(pairs: Sequence[Pair]) -> dict[str, Difference]:
    one, other = pairs[0][0][0], pairs[0][1][0]
    figures = {
        "turns": _difference(pairs, lambda play: play.num_turns),
        "completion tokens": _difference(
            pairs, lambda play: sum(part.usage.completion_tokens for part in play.roles.values())
        ),
    }
    for role in one.roles:
        if role in other.roles:
            figures[f"{role} reward"] = _difference(pairs, partial(role_reward, role))
    return figures


def _difference(pairs: Sequence[Pair], value: Callable[[EpisodeResult], float]) -> Difference:
    means = [(fmean(map(value, first)), fmean(map(value, second))) for first, second in pairs]
    return Difference(
        first=fmean(a for a, _ in means),
        second=fmean(b for _, b in means),
        difference=mean_interval([b - a for a, b in means]),
    )
