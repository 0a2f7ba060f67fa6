"""Metrics of a run: how each is computed; what it means stands in metrics.toml.

`METRICS`, the progress view and the table in METRICS.md are made from that file:
``python -m pettingllms_trainers.runs.metrics trainers/METRICS.md`` writes the table.
"""

from __future__ import annotations

import itertools
import math
import re
import sys
import tomllib
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import product
from pathlib import Path
from statistics import fmean, pvariance
from typing import NamedTuple, TypeVar

from pettingllms.ends import End, EndKind
from pettingllms.files import write_whole
from pettingllms_trainers.config import Config
from pettingllms_trainers.config.sections import qualified
from pettingllms_trainers.errors import TrainerError
from pettingllms_trainers.learning.groups import ScoredDecisions, sampled_tokens
from pettingllms_trainers.rollout.judging import AGAIN, Rewards
from pettingllms_trainers.rollout.sampler import Records
from pettingllms_trainers.types import (
    STATS_FIELDS,
    Candidate,
    RolloutTree,
    Shown,
    TrainingGroup,
    TreeOutcome,
    UpdateStats,
    ValueFit,
)

SubjectT = TypeVar("SubjectT")
Computed = Mapping[str, Callable[[SubjectT], float]]
"""The last part of a metric's name to how it is computed from its subject."""


class Metric(NamedTuple):
    """What is known of a metric besides its name."""

    doc: str
    """What it means."""
    shown: Shown | None = None
    """How it appears in the progress view; None: not at all."""


_UPDATE = ("num_groups", "num_completions", "num_tokens", "num_optimizer_steps", "skipped")


def _declared() -> Iterator[tuple[str, Metric]]:
    """Yield the metrics of metrics.toml, and before the last table the fields of `UpdateStats`."""
    tables = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    shown = {name: Shown(*pair) for name, pair in tables.pop("shown").items()}
    for title, table in tables.items():
        for name, field in STATS_FIELDS.items() if title == "others" else ():
            section = "update" if name in _UPDATE else "loss"
            marker = next((one for one in field.metadata if isinstance(one, Shown)), None)
            doc = " ".join((field.description or "").split())
            yield f"{section}/<policy>/{name}", Metric(doc, marker)
        for name, doc in table.items():
            yield name, Metric(doc, shown.get(name))


METRICS: Mapping[str, Metric] = dict(_declared())
"""Every metric that a run may log, by its name."""

# Names of roles and policies have no slash: a part in angle brackets is one part.
_PATTERNS = {name: re.compile(re.sub(r"<\w+>", "[^/]+", name)) for name in METRICS}


class _Rollouts(NamedTuple):
    """The rollouts of a train step."""

    trees: Sequence[RolloutTree]

    @property
    def usable(self) -> list[RolloutTree]:
        return [tree for tree in self.trees if not tree.has_failed]

    def outcomes(self) -> list[TreeOutcome]:
        return [tree.outcome for tree in self.trees if tree.outcome is not None]

    def num_failed(self) -> int:
        return len(self.trees) - len(self.usable)

    def share_of(self, kind: EndKind) -> float:
        return _mean(tree.end.kind == kind for tree in self.trees)


class _Role(NamedTuple):
    """A role in a train step."""

    candidates: Sequence[Candidate]
    num_decisions: int
    num_used: int
    num_alike: int


_ROLLOUT: Computed[_Rollouts] = {
    "num_trees": lambda s: len(s.usable),
    "num_failed_trees": _Rollouts.num_failed,
    "ends_policy": lambda s: s.share_of("policy"),
    "ends_limit": lambda s: s.share_of("limit"),
    "ends_infrastructure": lambda s: s.share_of("infrastructure"),
    "num_fixed_actions": lambda s: sum(
        not d.prompt_ids for tree in s.usable for d in tree.decisions
    ),
    "success": lambda s: _mean(outcome.success for outcome in s.outcomes()),
    "num_turns": lambda s: _mean(outcome.num_turns for outcome in s.outcomes()),
    "num_continuation_tokens": lambda s: sum(tree.num_continuation_tokens for tree in s.usable),
}
_ENVIRONMENT: Computed[_Rollouts] = {
    name: _ROLLOUT[name] for name in ("num_trees", "num_failed_trees", "success", "num_turns")
}
_CANDIDATES: Computed[_Role] = {
    "reward": lambda s: _mean(c.reward for c in s.candidates),
    "team": lambda s: _mean(c.team for c in s.candidates),
    "local": lambda s: _mean(c.local for c in s.candidates),
    "value": lambda s: _mean(c.value for c in s.candidates),
    "parse_errors": lambda s: _mean(c.parse_error is not None for c in s.candidates),
    "truncated": lambda s: _mean(c.completion.finish_reason == "length" for c in s.candidates),
    "same_answer": lambda s: _commonest([c.completion.text for c in s.candidates]),
}
_COMPARED: Computed[_Role] = {
    "num_tokens": lambda s: _mean(len(c.completion.token_ids) for c in s.candidates),
    "num_decisions": lambda s: s.num_decisions,
    "decisions_used": lambda s: s.num_used / s.num_decisions,
    "one_answer": lambda s: s.num_alike / s.num_decisions,
}


def rollout_metrics(trees: Sequence[RolloutTree], scored: ScoredDecisions) -> dict[str, float]:
    """Metrics of the rollouts of a train step."""
    metrics = _computed("rollout", _ROLLOUT, _Rollouts(trees))
    ends = Counter(tree.end for tree in trees)
    metrics |= {f"rollout/end/{end}": ends[end] / max(len(trees), 1) for end in End}
    # Of all trees: tokens of failed rollouts took their time, too.
    metrics["rollout/num_completion_tokens"] = num_sampled_tokens(trees)
    for env in dict.fromkeys(tree.env for tree in trees if tree.env):
        played = _Rollouts([tree for tree in trees if tree.env == env])
        metrics |= _computed(f"env/{env}", _ENVIRONMENT, played)
    candidates: dict[str, list[Candidate]] = defaultdict(list)
    num_alike = Counter[str]()
    for tree in _Rollouts(trees).usable:
        for decision in tree.decisions:
            candidates[decision.role] += decision.candidates
            num_alike[decision.role] += len({c.completion.text for c in decision.candidates}) == 1
    for role, found in candidates.items():
        num_decisions = scored.num_decisions.get(role, 0)  # 0 for a fixed policy
        table = {**_CANDIDATES, **(_COMPARED if num_decisions else {})}
        subject = _Role(found, num_decisions, scored.num_used.get(role, 0), num_alike[role])
        metrics |= _computed(f"role/{role}", table, subject)
    return metrics


def age_metrics(trees: Sequence[RolloutTree], step: int) -> dict[str, float]:
    """How old the tokens of a train step are.

    Args:
        step: From 0: train steps that the policies have taken when they learn from them.
    """
    num_tokens: Counter[int] = Counter()
    for decision in (decision for tree in trees for decision in tree.decisions):
        if decision.version is not None:
            for candidate in decision.candidates:
                found, age = candidate.completion, step - decision.version
                # Weights may change within an answer: each part is as old as what drew it.
                starts = (0, *found.swaps, len(found.token_ids))
                for num_swaps, (start, end) in enumerate(itertools.pairwise(starts)):
                    num_tokens[age - num_swaps] += end - start
    total = sum(age * number for age, number in num_tokens.items())
    return {
        "rollout/mean_age": total / max(num_tokens.total(), 1),
        # The plus leaves out ages without tokens, such as before a swap at the first token.
        "rollout/max_age": max(+num_tokens, default=0),
    }


def num_sampled_tokens(trees: Sequence[RolloutTree]) -> int:
    """How many tokens were sampled for rollouts, those of continuations included."""
    decisions = (decision for tree in trees for decision in tree.decisions)
    own = sum(len(c.completion.token_ids) for decision in decisions for c in decision.candidates)
    return own + sum(tree.num_continuation_tokens for tree in trees)


def _computed(prefix: str, table: Computed[SubjectT], subject: SubjectT) -> dict[str, float]:
    return {f"{prefix}/{name}": compute(subject) for name, compute in table.items()}


def _commonest(texts: Sequence[str]) -> float:
    return max(Counter(texts).values(), default=0) / max(len(texts), 1)


def _mean(values: Iterable[float]) -> float:
    found = [float(value) for value in values]
    return fmean(found) if found else 0.0


def ledger_metrics(
    scored: ScoredDecisions,
    data: Mapping[str, Sequence[TrainingGroup]],
    stats: Mapping[str, UpdateStats],
) -> dict[str, float]:
    """Where the sampled tokens of a train step went, by policy.

    What the optimizer steps have measured (`flat`, `masked`, `clipped`) is a mean over them.

    Args:
        scored: All decisions of the step that were to be learnt from.
    """
    metrics: dict[str, float] = {}
    compared = sampled_tokens(scored.decisions)
    for policy in sorted({*scored.num_tokens, *stats}):
        sampled = scored.num_tokens.get(policy, 0)  # 0: no agent of it has acted in the step
        groups, update = data.get(policy, ()), stats.get(policy, UpdateStats(num_groups=0))
        given = sum(len(c.token_ids) for group in groups for c in group.completions)
        trained = update.num_tokens
        parts = {
            "equal_rewards": sampled - compared[policy],
            "truncated": compared[policy] - given,
            "unused": given - trained,
            "flat": trained * update.flat_fraction,
            "masked": trained * update.masked_fraction,
            "clipped": trained * update.clip_fraction,
        }
        parts["learnt"] = max(sampled - math.fsum(parts.values()), 0.0)
        metrics[f"tokens/{policy}/sampled"] = sampled
        metrics |= {f"tokens/{policy}/{name}": n / max(sampled, 1) for name, n in parts.items()}
    return metrics


def phase_metrics(config: Config, step: int) -> dict[str, float]:
    """Which phase of the updates a train step, from 0, is in, if there are phases."""
    updates = config.updates
    return {"update/phase": 1.0 + updates.phase_at(step)} if updates.phases else {}


def curriculum_metrics(trees: Sequence[RolloutTree], records: Records) -> dict[str, float]:
    """How much the stages of curricula were played, and how well.

    Args:
        records: Of the stages, by environment, after the step.
    """
    metrics: dict[str, float] = {}
    for env, stages in records.items():
        played = Counter(tree.stage for tree in trees if tree.env == env)
        for stage, record in enumerate(stages) if len(stages) > 1 else ():
            prefix = f"curriculum/{qualified(env, str(stage + 1))}"
            metrics[f"{prefix}/share"] = played[stage] / max(played.total(), 1)
            metrics[f"{prefix}/success"] = record.success
    return metrics


def update_metrics(stats: Mapping[str, UpdateStats]) -> dict[str, float]:
    """Metrics of the updates of a train step, by policy name."""
    metrics: dict[str, float] = {}
    for policy, values in stats.items():
        for found in values.role_gradients:
            prefix = f"gradient/{policy}/{found.role}"
            metrics |= {f"{prefix}/norm": found.norm, f"{prefix}/share": found.share}
            metrics |= {
                f"{prefix}/{other}/cosine": cosine
                for other, cosine in found.cosines.items()
                if found.role < other
            }
        for name in STATS_FIELDS:
            if name == "skipped":
                metrics[f"update/{policy}/skipped"] = float(values.skipped is not None)
            elif name in _UPDATE:
                metrics[f"update/{policy}/{name}"] = getattr(values, name)
            elif values.skipped is None:  # else there was no loss, and 0 would be made up
                metrics[f"loss/{policy}/{name}"] = getattr(values, name)
    return metrics


def value_metrics(fits: Mapping[str, ValueFit]) -> dict[str, float]:
    """Metrics of the fits of V of a train step, by policy name."""
    return {
        f"value/{policy}/{name}": float(value)
        for policy, fit in fits.items()
        for name, value in fit._asdict().items()
    }


def timing_metrics(
    trees: Sequence[RolloutTree],
    stats: Mapping[str, UpdateStats],
    *,
    generate_s: float,
    update_s: float,
) -> dict[str, float]:
    """Times and throughputs of a train step."""
    return {
        "time/generate_s": generate_s,
        "time/update_s": update_s,
        "throughput/sampled_tokens_per_s": _rate(num_sampled_tokens(trees), generate_s),
        "throughput/trained_tokens_per_s": _rate(
            sum(values.num_tokens for values in stats.values()), update_s
        ),
    }


def _rate(number: int, seconds: float) -> float:
    return number / seconds if seconds else 0.0


def judged_metrics(trees: Sequence[RolloutTree]) -> dict[str, float]:
    """Metrics of all scores in the rollouts of a train step."""
    candidates = [c for tree in trees for decision in tree.decisions for c in decision.candidates]
    names = dict.fromkeys(name.removesuffix(AGAIN) for c in candidates for name in c.judged)
    metrics: dict[str, float] = {}
    for name in names:
        found = [c.judged[name] for c in candidates if name in c.judged]
        values = {"score": fmean(found)}
        twice = [
            (c.judged[name], c.judged[name + AGAIN]) for c in candidates if name + AGAIN in c.judged
        ]
        if twice:
            # The mean squared difference of two scores of one answer is twice the variance of one.
            noise2 = fmean((one - other) ** 2 for one, other in twice) / 2
            values["noise"] = noise2**0.5
            if variance := pvariance(found):
                values["reliability"] = 1 - noise2 / variance
        if aligned := list(_aligned(trees, name)):
            values["outcome_alignment"] = fmean(aligned)
        metrics |= {f"judged/{name}/{figure}": value for figure, value in values.items()}
    return metrics


def cost_metrics(rewards: Rewards) -> dict[str, float]:
    """What scores have cost since the run began."""
    return {
        f"cost/{one.name}/{unit}": float(value)
        for one in rewards.rewards
        for unit, value in one.ledger.spent._asdict().items()
    }


def _aligned(trees: Sequence[RolloutTree], name: str) -> Iterator[float]:
    """Yield 1, 1/2 or 0 for every pair of answers to one prompt of which one solves the task."""
    prompts: dict[tuple[str, int, str], list[Candidate]] = defaultdict(list)
    for tree in trees:
        for decision in tree.decisions:
            prompts[tree.env, tree.env_seed, decision.observation] += decision.candidates
    for answers in prompts.values():
        solved = [c.judged[name] for c in answers if c.success and name in c.judged]
        others = [c.judged[name] for c in answers if not c.success and name in c.judged]
        for one, other in product(solved, others):
            yield (1 + (one > other) - (one < other)) / 2


def template_of(name: str) -> str | None:
    """Find the entry of `METRICS` that describes a metric; None when there is none."""
    return next((key for key, pattern in _PATTERNS.items() if pattern.fullmatch(name)), None)


def metrics_table() -> str:
    """The table of METRICS.md."""
    rows = [f"| `{name}` | {metric.doc} |" for name, metric in METRICS.items()]
    return "\n".join(["| name | meaning |", "| --- | --- |", *rows])


def is_timing(name: str) -> bool:
    """Whether a metric depends on the machine or on interruptions, not on the seed."""
    return name.startswith(("time/", "throughput/", "cost/"))


def checked(metrics: Mapping[str, float]) -> dict[str, float]:
    """Check that all metrics are documented and finite.

    Raises:
        TrainerError: A value is not finite: training has diverged.
        KeyError: A name is not in `METRICS`.
    """
    for name, value in metrics.items():
        if template_of(name) is None:
            raise KeyError(f"the metric {name!r} is not documented in METRICS")
        # Raised before the step is saved: its checkpoint would hold broken weights.
        if not math.isfinite(value):
            raise TrainerError(
                f"{name} is {value}: training has diverged. Lower optimizer.learning_rate, or "
                "resume from a checkpoint before this step with another seed"
            )
    return dict(metrics)


if __name__ == "__main__":
    page = Path(sys.argv[1])
    text = page.read_text(encoding="utf-8")
    table = metrics_table() + "\n"
    write_whole(page, re.sub(r"(?m)(^\|.*\n?)+", lambda _: table, text, count=1))
