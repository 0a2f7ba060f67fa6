"""From finished episodes to figures with intervals, as data and in words; how two runs differ."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass
from statistics import fmean
from typing import Any

from pettingllms.ends import End
from pettingllms.errors import InvalidArgument, counted
from pettingllms.evaluation.episode import Bill, EpisodeResult, bill_of
from pettingllms.evaluation.plan import (
    MAIN,
    SWAPPED,
    EvaluationPlan,
    Price,
    manifest_of,
    names_of,
    policies_of,
)
from pettingllms.evaluation.statistics import (
    Interval,
    clustered_share,
    correlation_of,
    mean_interval,
    paired_share_difference,
    pass_at_k,
    sign_test,
)
from pettingllms.policies import Usage
from pettingllms.tables import Block, TextTable

Levels = Mapping[str, Sequence[EpisodeResult]]
"""Content of a level -> its plays, of all numbers that drew it."""


def tokens(usage: Usage) -> str:
    """Tokens in words; what a server did not report is not counted as 0."""
    if 0 < usage.num_requests == usage.num_unknown:
        return f"unknown: no usage reported for {counted(usage.num_requests, 'answer')}"
    cached = f" ({usage.cached_tokens:,} cached)" if usage.cached_tokens else ""
    hidden = f" ({usage.reasoning_tokens:,} reasoning)" if usage.reasoning_tokens else ""
    text = f"{usage.prompt_tokens:,} in{cached}, {usage.completion_tokens:,} out{hidden}"
    if usage.num_unknown:
        text = f"at least {text}; no usage reported for {counted(usage.num_unknown, 'answer')}"
    return text


def share(value: Interval) -> str:
    """A share with its interval, in percent."""
    return f"{value.value:.1%} [{value.low:.1%}, {value.high:.1%}]"


def share_difference(value: Interval) -> str:
    """A difference of shares with its interval, in points of percent."""
    return f"{100 * value.value:+.1f} [{100 * value.low:+.1f}, {100 * value.high:+.1f}] points"


def mean(value: Interval, sign: str = "") -> str:
    """A mean with its interval, if it has one."""
    text = number(value.value, sign)
    if not math.isfinite(value.low):
        return text
    return f"{text} [{number(value.low, sign)}, {number(value.high, sign)}]"


def number(value: float, sign: str = "") -> str:
    """A number with three decimals at most."""
    text = f"{value:{sign},.3f}"
    return text.rstrip("0").rstrip(".")


@dataclass(frozen=True, kw_only=True, slots=True)
class RoleReport:
    """How one role did in the finished episodes of a variant."""

    policy: str
    """Names of the policies that played it; empty when unknown."""
    num_actions: int
    """Its actions in all episodes."""
    reward: Interval
    """Mean, over episodes, of the sum of the rewards of the role's own actions."""
    parse_errors: Interval
    """Share of its actions that could not be read."""
    cut: float
    """Share of its completions that ended at the limit of tokens."""
    hidden: float
    """Share of its completions without a text, all of whose tokens went into hidden reasoning."""
    usage: Usage
    """What its answers in finished episodes cost."""
    cost_usd: float | None
    """`usage` in US dollars; None without a price, or if a server did not report its tokens."""
    spent: Usage
    """What all its answers cost, including failed episodes and earlier attempts."""
    spent_usd: float | None
    """`spent` in US dollars; None as for `cost_usd`."""
    has_price: bool
    """Whether the price of its policy is known."""
    models: Sequence[str]
    """Names that servers gave of the models that answered."""


@dataclass(frozen=True, kw_only=True, slots=True)
class VariantReport:
    """How one assignment of policies did."""

    num_episodes: int
    """Finished episodes."""
    num_expected: int
    """Episodes of the plan."""
    num_levels: int
    """Levels with a finished episode."""
    num_distinct_levels: int
    """Levels that differ up to symmetry: the independent draws of every interval."""
    num_success: int
    """Solved episodes."""
    success: Interval
    """Share of solved episodes; plays of equal levels count as dependent."""
    pass_at_k: Mapping[int, Interval]
    """k -> unbiased pass@k, for k = 1, 2, 4, ... up to the plays of every level."""
    ends: Mapping[str, int]
    """Why episodes ended (see `End`) -> how many of them, the commonest first."""
    causes: Mapping[str, int]
    """Error with which an answer made code fail -> episodes, the commonest first."""
    num_turns: Interval
    """Turns of an episode."""
    returns: Mapping[str, Interval]
    """Agent -> return of an episode."""
    roles: Mapping[str, RoleReport]
    """Role -> how it did."""
    manifest: str
    """Hash over the initial states, in order: equal for equal sets of levels."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Report:
    """The figures of an evaluation."""

    plan: EvaluationPlan
    variants: Mapping[str, VariantReport]
    """Variant -> its figures; variants without a finished episode are left out."""
    bill: Bill
    """Variant -> role -> what was spent, also on variants without a finished episode."""
    failures: Mapping[str, int] | None = None
    """Cause -> episodes that could not be finished; None: unknown."""
    comparison: Comparison | None = None
    """Of the variants main and swapped; None where they have no level in common yet."""

    @property
    def is_complete(self) -> bool:
        """Whether every episode of the plan is finished."""
        return (
            sum(variant.num_episodes for variant in self.variants.values())
            == self.plan.num_episodes
        )

    def to_json(self) -> dict[str, Any]:
        """The report as JSON data."""
        data = {
            "is_complete": self.is_complete,
            "plan": self.plan.to_json(),
            "variants": figures_json(self.variants),
            "spent": figures_json(self.bill),
        }
        if self.failures is not None:
            data["failures"] = dict(self.failures)
        if self.comparison is not None:
            data["comparison"] = figures_json(self.comparison)
        return data

    def parts(self) -> list[Block]:
        """The report as headings, paragraphs and tables."""
        plan = self.plan
        arguments = ", ".join(f"{key}={value!r}" for key, value in plan.env_kwargs.items())
        setting = f"Arguments: {arguments or 'none'}. "
        levels, plays = counted(plan.num_levels, "level"), counted(plan.num_samples, "play")
        setting += f"Seed {plan.seed}, {levels}, {plays} each."
        if plan.num_wanted is not None:
            setting += f" {pool_note(plan)}"
        parts: list[Block] = [f"# Evaluation of {plan.env_id}", setting]
        if not self.is_complete:
            parts.append("Incomplete: figures are of the finished episodes only.")
        for name, variant in self.variants.items():
            figures = TextTable(["", "figure [95 % interval]"], variant_rows(variant))
            parts += [f"## {name}", figures, TextTable(_ROLE_HEAD, _role_rows(variant))]
        if self.comparison is not None:
            parts += [f"## {MAIN} and {SWAPPED}", *self.comparison.parts(MAIN, SWAPPED)]
        return parts


_REPEATED = "levels repeat: play more that differ; intervals count only those"


def pool_note(plan: EvaluationPlan) -> str:
    """In one sentence that an environment has fewer levels than were asked for."""
    return (
        f"No more than these {plan.num_levels} of the {plan.num_wanted} levels asked for differ up "
        "to symmetry; each is drawn once."
    )


def variant_rows(variant: VariantReport) -> list[tuple[str, str]]:
    """The figures of a variant as (name, text)."""
    episodes = f"{variant.num_episodes} of {variant.num_expected}"
    levels = f"{counted(variant.num_levels, 'level')}, {variant.num_distinct_levels} different"
    repeated = "" if variant.num_distinct_levels == variant.num_levels else _REPEATED
    rows = [
        ("success", share(variant.success) + f", {variant.num_success} solved"),
        *[(f"pass@{k}", share(value)) for k, value in variant.pass_at_k.items() if k > 1],
        ("episodes", f"{episodes} ({levels})"),
        *([("warning", repeated)] if repeated else []),
        ("ended", ", ".join(f"{end} {num}" for end, num in variant.ends.items())),
        *_warnings(variant),
        ("turns", mean(variant.num_turns)),
        *[(f"return of {agent}", mean(value)) for agent, value in variant.returns.items()],
        ("manifest", variant.manifest),
    ]
    return [*rows, *_bill_rows(variant)]


def _warnings(variant: VariantReport) -> Iterator[tuple[str, str]]:
    """Yield what figures do not say by themselves."""
    cut = sum(variant.ends.get(end, 0) for end in (End.CODE, End.CONTEXT, End.TIME))
    if cut > _MANY_CUT * variant.num_episodes:
        cut_off = counted(cut, "episode")
        why = "".join(f"; most often {cause}" for cause in [*variant.causes][:1])
        yield "warning", f"{cut_off} cut off: an answer made code fail, or met a limit{why}"
    for name, role in variant.roles.items():
        if role.hidden > _MANY_CUT:
            share = f"{role.hidden:.0%}".replace("%", " %")
            yield "warning", f"{share} of the answers of {name} {_HIDDEN}"


_MANY_CUT = 0.05
"""Share from which it is said."""
_HIDDEN = (
    "are empty: all of their text is hidden reasoning (reasoning_content). Raise "
    "max_completion_tokens, switch thinking off, or start the server without its reasoning parser"
)


def _bill_rows(variant: VariantReport) -> list[tuple[str, str]]:
    """What was spent, and how much of it went into finished episodes."""
    roles = variant.roles.values()
    spent = sum((role.spent for role in roles), Usage())
    used = sum((role.usage for role in roles), Usage())
    if not spent.num_requests:
        return []
    rows = [("tokens spent", tokens(spent))]
    # Only where attempts were lost: otherwise two rows would say the same.
    if spent != used:
        rows.append(("of finished episodes", tokens(used)))
    priced = [role for role in roles if role.has_price]
    if priced:
        rows.append(("cost", _dollars_text([role.spent_usd for role in priced])))
        if spent != used:
            rows.append(("of finished episodes", _dollars_text([role.cost_usd for role in priced])))
    served = sorted({name for role in roles for name in role.models})
    return [*rows, ("models that answered", ", ".join(served))] if served else rows


def _dollars_text(costs: Sequence[float | None]) -> str:
    known = [cost for cost in costs if cost is not None]
    return f"{math.fsum(known):.4g} US dollars" if len(known) == len(costs) else "unknown"


# Column heads of `_role_rows`.
_ROLE_HEAD = (
    "role", "policy", "actions", "own reward", "unreadable", "truncated", "tokens in", "out"
)  # fmt: skip


def _role_rows(variant: VariantReport) -> list[tuple[str, ...]]:
    """One row per role of a variant."""
    return [
        (
            name,
            role.policy,
            f"{role.num_actions:,}",
            mean(role.reward),
            share(role.parse_errors),
            f"{role.cut:.1%}",
            *_counts(role.usage),
        )
        for name, role in variant.roles.items()
    ]


def _counts(usage: Usage) -> tuple[str, str]:
    if usage.num_unknown:
        return "unknown", "unknown"
    return f"{usage.prompt_tokens:,}", f"{usage.completion_tokens:,}"


def summarise(
    plan: EvaluationPlan, results: Iterable[EpisodeResult], bill: Bill | None = None
) -> Report:
    """The figures of an evaluation, also of one that is not finished.

    Variants without a finished episode are left out.

    Args:
        plan: What was to be played.
        results: Finished episodes, in any order.
        bill: What was spent (`RunFolder.bill`); None: what the finished episodes cost.
    """
    by_variant: dict[str, list[EpisodeResult]] = {variant: [] for variant in plan.variants}
    for result in results:
        by_variant[result.variant].append(result)
    if bill is None:
        bill = bill_of((), [result for found in by_variant.values() for result in found])
    num_expected = plan.num_levels * plan.num_samples
    variants = {
        variant: summarise_variant(
            found,
            num_expected=num_expected,
            policies=names_of(plan.variants[variant]),
            prices=plan.prices,
            spent=bill.get(variant),
        )
        for variant, found in by_variant.items()
        if found
    }
    sides = [by_variant.get(one, []) for one in (MAIN, SWAPPED)]
    # An interrupted run may have no level that both have played.
    common = set.intersection(*({play.content for play in side} for side in sides))
    both = compare(*sides) if common else None
    return Report(plan=plan, variants=variants, bill=bill, comparison=both)


def summarise_variant(
    results: Sequence[EpisodeResult],
    *,
    num_expected: int | None = None,
    policies: Mapping[str, str] | None = None,
    prices: Mapping[str, Price] | None = None,
    spent: Mapping[str, Usage] | None = None,
) -> VariantReport:
    """The figures of one variant.

    Args:
        results: Its finished episodes, at least one, in any order.
        num_expected: Episodes that were to be played; None: as many as there are.
        policies: Role, or agent -> name of its policy.
        prices: Policy -> what its tokens cost.
        spent: Role -> what was spent on it; None: what its answers in these episodes cost.

    Raises:
        InvalidArgument: If there are no results.
    """
    if not results:
        raise InvalidArgument("results", results, "at least one finished episode")
    ordered = sorted(results, key=lambda result: (result.level, result.sample))
    levels = by_content(ordered)
    # By the number of the level: the manifest names what was drawn, repeats included.
    hashes = {result.level: result.initial_state_hash for result in ordered}
    solved, played = solved_of(levels)
    return VariantReport(
        num_episodes=len(ordered),
        num_expected=len(ordered) if num_expected is None else num_expected,
        num_levels=len(hashes),
        num_distinct_levels=len(levels),
        num_success=sum(solved),
        success=clustered_share(solved, played),
        pass_at_k=_pass_at_k(solved, played),
        ends=dict(Counter(str(result.end) for result in ordered).most_common()),
        causes=dict(Counter(filter(None, (result.cause for result in ordered))).most_common()),
        num_turns=level_mean(levels, lambda play: play.num_turns),
        returns={
            agent: level_mean(levels, lambda play, agent=agent: play.returns[agent])
            for agent in ordered[0].returns
        },
        roles={
            role: _role(
                role,
                levels,
                policies_of(policies or {}, role),
                prices or {},
                (spent or {}).get(role),
            )
            for role in ordered[0].roles
        },
        manifest=manifest_of(hashes.values()),
    )


def by_content(results: Iterable[EpisodeResult]) -> dict[str, list[EpisodeResult]]:
    """Content of a level -> its plays, both in the order of their numbers."""
    levels: defaultdict[str, list[EpisodeResult]] = defaultdict(list)
    for result in sorted(results, key=lambda result: (result.level, result.sample)):
        levels[result.content].append(result)
    return dict(levels)


def solved_of(levels: Levels) -> tuple[list[int], list[int]]:
    """How many plays of each level were solved, and how many there were."""
    plays = levels.values()
    return [sum(play.success for play in own) for own in plays], list(map(len, plays))


def level_mean(levels: Levels, value: Callable[[EpisodeResult], float]) -> Interval:
    """The mean over levels of a value's mean over the plays of a level."""
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
    role: str, levels: Levels, policy: str, prices: Mapping[str, Price], spent: Usage | None
) -> RoleReport:
    plays = [[play.roles[role] for play in level] for level in levels.values()]
    flat = [part for level in plays for part in level]
    num_actions = sum(part.num_actions for part in flat)
    usage = sum((part.usage for part in flat), Usage())
    spent = spent or usage
    price = prices.get(policy)
    return RoleReport(
        policy=policy,
        num_actions=num_actions,
        reward=level_mean(levels, lambda play: play.roles[role].reward),
        # A role that never acted has no share that could be estimated.
        parse_errors=clustered_share(
            [sum(part.parse_errors for part in level) for level in plays],
            [sum(part.num_actions for part in level) for level in plays],
        )
        if num_actions
        else Interval(0.0, 0.0, 1.0),
        cut=sum(part.cut for part in flat) / max(1, num_actions),
        hidden=sum(part.hidden for part in flat) / max(1, num_actions),
        usage=usage,
        cost_usd=_dollars(usage, price),
        spent=spent,
        spent_usd=_dollars(spent, price),
        has_price=price is not None,
        models=sorted({name for part in flat for name in part.models}),
    )


def _dollars(usage: Usage, price: Price | None) -> float | None:
    # A sum without the unknown part would look like a price.
    if price is None or usage.num_unknown:
        return None
    read, written, *kept = price
    # Without a price of their own, cached tokens cost what all prompt tokens cost.
    cached = usage.cached_tokens if kept else 0
    parts = [(usage.prompt_tokens - cached) * read, usage.completion_tokens * written]
    return math.fsum([*parts, *(cached * each for each in kept)]) / 1e6


def figures_json(value: Any) -> Any:
    """Figures as JSON data: intervals become objects, infinite ends null."""
    if isinstance(value, Interval):
        return {name: figures_json(end) for name, end in value._asdict().items()}
    if isinstance(value, Mapping):
        return {str(key): figures_json(part) for key, part in value.items()}
    if isinstance(value, list | tuple):
        return [figures_json(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if is_dataclass(value):
        return {part.name: figures_json(getattr(value, part.name)) for part in fields(value)}
    return value


@dataclass(frozen=True, kw_only=True, slots=True)
class Difference:
    """One figure of the two sides of a comparison."""

    first: float
    """Its mean on the first side."""
    second: float
    """Its mean on the second side."""
    difference: Interval
    """`second` minus `first`, with a 95 % interval."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Comparison:
    """Two runs on the levels that both played, or, not paired, on all levels of each."""

    is_paired: bool
    """Whether they are compared level by level."""
    num_levels: int
    """Levels that both played, the only ones that count; 0 when they are not paired."""
    num_only_first: int
    """Levels that only the first played."""
    num_only_second: int
    """Levels that only the second played."""
    success: Difference
    """Share of solved plays."""
    first_success: Interval
    """The first side's share, with its own 95 % interval."""
    second_success: Interval
    """The second side's share, with its own 95 % interval."""
    num_better: int = 0
    """Levels of which the second side solved a greater share of plays than the first."""
    num_worse: int = 0
    """Levels of which the second side solved a smaller share."""
    p_value: float | None = None
    """Two-sided sign test of `num_better` against `num_worse` (McNemar's exact test for one play a
    level); None when they are not paired."""
    figures: dict[str, Difference] = field(default_factory=dict[str, Difference])
    """Means per episode by name: `turns`, `completion tokens` and `<role> reward`."""

    def parts(self, first: str = "first", second: str = "second") -> list[Block]:
        """The comparison as a table, with the names of its sides, and what it rests on."""
        shares = map(share, (self.first_success, self.second_success))
        rows = [["success", *shares, share_difference(self.success.difference)]]
        rows += [
            [name, number(found.first), number(found.second), mean(found.difference, sign="+")]
            for name, found in self.figures.items()
        ]
        head = ["", first, second, "difference [95 % interval]"]
        return [TextTable(head, rows), self._note()]

    def _note(self) -> str:
        if not self.is_paired:
            return (
                f"Not paired: {counted(self.num_only_first, 'level')} of the first, "
                f"{self.num_only_second} of the second. Evaluations (pettingllms eval RUN) on "
                "the same levels are compared level by level."
            )
        note = (
            f"{counted(self.num_levels, 'common level')}: the second is better on "
            f"{self.num_better}, worse on {self.num_worse} (sign test p = {self.p_value:.3g})."
        )
        if self.num_only_first or self.num_only_second:
            levels = counted(self.num_only_first, "level")
            note += (
                f" Not compared: {levels} that only the first played, "
                f"{self.num_only_second} that only the second played."
            )
        return note


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
            reward = _difference(pairs, lambda play, role=role: play.roles[role].reward)
            figures[f"{role} reward"] = reward
    return figures


def _difference(pairs: Sequence[Pair], value: Callable[[EpisodeResult], float]) -> Difference:
    means = [(fmean(map(value, first)), fmean(map(value, second))) for first, second in pairs]
    return Difference(
        first=fmean(a for a, _ in means),
        second=fmean(b for _, b in means),
        difference=mean_interval([b - a for a, b in means]),
    )
