"""Metrics of a run, and whether they say that it has stopped learning: since when, and why.

How each is computed stands here, what it means in metrics.toml, and what may help in stalled.toml.

`METRICS`, the progress view and the table in METRICS.md are made from metrics.toml:
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
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean, pvariance
from typing import Any, NamedTuple, TypeVar

from pettingllms.ends import End, EndKind
from pettingllms.files import write_whole
from pettingllms_trainers.config import Config
from pettingllms_trainers.config.loading import allowed
from pettingllms_trainers.config.root import learning_rates
from pettingllms_trainers.config.sections import qualified
from pettingllms_trainers.errors import TrainerError
from pettingllms_trainers.learning.groups import ScoredDecisions, sampled_tokens
from pettingllms_trainers.rollout.judging import AGAIN, Rewards
from pettingllms_trainers.rollout.sampler import Records, sampling_of
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
"""Last part of a metric's name to the function that computes it from its subject."""


class Metric(NamedTuple):
    """The meaning of a metric, and how it is shown."""

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
    """The decisions of a role in a train step."""

    candidates: Sequence[Candidate]
    """Candidates of all decisions, also of those that are not compared."""
    num_decisions: int
    """Decisions that were collected for training; 0 for a fixed policy."""
    num_used: int
    """Those of them that are trained on."""
    num_alike: int
    """Decisions whose candidates have the same text."""


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
    "same_answer": lambda s: (
        max(Counter(c.completion.text for c in s.candidates).values()) / len(s.candidates)
    ),
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
                f"{name} is {value}: training has diverged. Take a lower optimizer.learning_rate, "
                f"or another seed, {_ADVICE['anew']}"
            )
    return dict(metrics)


# Training success from which equal rewards and equal answers are not a problem.
_SOLVED = 0.95
# Share of answers from which their fault is named as the cause.
_MOST = 0.5
# Share of its tokens from which a policy has to learn something.
_LEAST = 0.01
# Share of one answer among all of a role from which the role has collapsed.
_SAME = 0.95

# Share of the gradient from which one role has captured a shared policy; the limits are ours, the
# failure is described in arXiv 2605.24202.
_CAPTURED = 0.95
# Train step from which V should explain some of the returns; it begins as 0 everywhere.
_BLIND_FROM = 10
# KL divergence of one update, in nats per token, from which it is reported at once: useful updates
# of the recipes move a policy by less than 0.1, those that destroy it by more than 2.
_MOVED = 1.0
# Share of the rollouts that are cut off in one way, which is bought with what levels teach.
_CUT = 0.1
# Cosine of the gradients of two roles from which they pull a policy apart.
_OPPOSED = -0.5


_Symptoms = Iterator[tuple[str, tuple[str, str, str]]]
"""Key, and the policy (empty: all), what is wrong and its likely cause."""


@dataclass(slots=True)
class _Finding:
    """Successive train steps in which one thing was wrong with a policy or role."""

    policy: str
    """Name of the policy; empty: all."""
    what: str
    cause: str
    """Its likely cause, and what may help."""
    first: int
    """Train step in which it began."""
    last: int
    """Train step in which it was last seen."""
    num_steps: int
    """Train steps in which it was seen; those that did not update the policy do not count."""
    is_stalled: bool
    """Whether nothing is learnt; else one role learns at the cost of another, or from noise."""
    num_needed: int
    """`num_steps` from which it is reported."""

    def __str__(self) -> str:
        steps = f"train steps {self.first} to {self.last}"
        if self.first == self.last:
            steps = f"train step {self.first}"
        return f"{steps}: {self.what}. Likely cause: {self.cause}"


class StallWatch:
    """Finds policies that are not updated, and roles that give one answer to every prompt.

    Train steps that solve nearly all of their levels are left out: there equal rewards are success.
    So are policies whose answers look sound while another policy is updated.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._present: dict[str, _Finding] = {}
        self._past: list[_Finding] = []

    @property
    def is_stalled(self) -> bool:
        """Whether something has been wrong for `stalled_after` train steps up to the latest one."""
        return any(f.is_stalled and self._is_long(f) for f in self._present.values())

    def warnings(self) -> list[str]:
        """All that lasted for `stalled_after` train steps or more, oldest first."""
        found = [*self._past, *filter(self._is_long, self._present.values())]
        return [str(finding) for finding in sorted(found, key=lambda finding: finding.first)]

    def step(self, step: int, metrics: Mapping[str, float]) -> list[str]:
        """Take the metrics of a train step; return what now has lasted long enough for a warning.

        Args:
            step: From 1; each is the one after the last.
        """
        wrong = dict(self._moved(metrics)) | dict(self._wrong(metrics))
        wrong |= dict(self._untaught(metrics, wrong)) | dict(self._cut_off(metrics))
        if step >= _BLIND_FROM and metrics.get("rollout/success", 0.0) < _SOLVED:
            wrong |= dict(self._blind(metrics))
        # A policy that a phase does not update shows nothing, neither good nor bad.
        resting = [
            key
            for key, finding in self._present.items()
            if finding.policy and not self._config.updates_policy(finding.policy, step - 1)
        ]
        # What was wrong for too few steps to be reported is forgotten: single bad steps are noise.
        for key in [key for key in self._present if key not in wrong and key not in resting]:
            ended = self._present.pop(key)
            self._past += [ended] if self._is_long(ended) else []
        new: list[str] = []
        for key, (policy, what, cause) in wrong.items():
            old = self._present.get(key)
            first, num = (old.first, old.num_steps) if old else (step, 0)
            # One such update may have destroyed the policy; waiting for more helps nobody.
            needed = 1 if key.startswith("moved") else self._config.stalled_after
            self._present[key] = finding = _Finding(
                policy, what, cause, first, step, num + 1, not key.startswith(_BESIDE), needed
            )
            # Not `>=`: the same warning at every further step would drown the metrics.
            if finding.num_steps == needed:
                new.append(str(finding))
        return new

    def _is_long(self, finding: _Finding) -> bool:
        return finding.num_steps >= finding.num_needed

    def _wrong(self, metrics: Mapping[str, float]) -> _Symptoms:
        """Yield the policies that learn nothing, and the roles that always answer the same."""
        if metrics.get("rollout/success", 0.0) >= _SOLVED:
            return
        trained = [name for name in self._config.models if f"update/{name}/skipped" in metrics]
        is_idle = all(metrics[f"update/{name}/skipped"] for name in trained)
        for name in trained:
            yield from self._captured(name, metrics)
            logged = [key.split("/")[1] for key in metrics if key.endswith("/same_answer")]
            played = [role for role in logged if self._config.policy_of(role) == name]
            if metrics[f"update/{name}/skipped"]:
                cause = next(filter(None, (self._cause(role, metrics) for role in played)), None)
                # Sound answers that all earn the same: while others learn, it may be good enough.
                if cause is not None or is_idle:
                    what = f"the policy {name} was not updated"
                    yield f"skipped {name}", (name, what, cause or self._remedy(name, metrics))
            elif metrics[f"tokens/{name}/learnt"] < _LEAST:
                what = f"the policy {name} learns from none of its tokens"
                yield f"unlearnt {name}", (name, what, self._remedy(name, metrics))
            else:
                for role in played:
                    if (share := metrics[f"role/{role}/same_answer"]) >= _SAME:
                        what = f"{_percent(share)} of the answers of {role}"
                        what += " are the same one, whatever the prompt"
                        entropy = metrics.get(f"loss/{name}/entropy")
                        shown = "" if entropy is None else f" (entropy {entropy:.2f} nats)"
                        yield f"same {role}", (name, what + shown, self._collapse())

    def _moved(self, metrics: Mapping[str, float]) -> _Symptoms:
        """Yield the policies that one update has taken far from those that sampled."""
        for name in self._config.models:
            kl = metrics.get(f"loss/{name}/update_kl", 0.0)
            if kl >= _MOVED:
                what = f"one update has moved the policy {name} by {kl:.2g} nats per token"
                rate = learning_rates(self._config)[name]
                cause = self._advised(_ADVICE["too_far"], rate=rate)
                yield f"moved {name}", (name, what, f"{cause}, {_ADVICE['anew']}")

    def _cut_off(self, metrics: Mapping[str, float]) -> _Symptoms:
        """Yield the ways in which many rollouts are cut off."""
        for end, cause in _ADVICE["cut_off"].items():
            share = metrics.get(f"rollout/end/{end}", 0.0)
            if share >= _CUT:
                what = f"{_percent(share)} of the rollouts are cut off ({end})"
                yield f"cut {end}", ("", what, self._advised(cause))

    def _untaught(self, metrics: Mapping[str, float], wrong: Mapping[str, object]) -> _Symptoms:
        """Yield the roles whose candidates never differ, while others learn."""
        # Algorithms that compare whole episodes give every role the credit of the outcome.
        if not self._config.algorithm.is_by_step or metrics.get("rollout/success", 0.0) >= _SOLVED:
            return
        used = {
            key.split("/")[1]: share
            for key, share in metrics.items()
            if key.startswith("role/") and key.endswith("/decisions_used")
        }
        for role, share in used.items():
            name = self._config.policy_of(role)
            has_reason = any(key in wrong for key in (f"skipped {name}", f"same {role}"))
            # One that gives each prompt one answer is sure of it: there is nothing to compare.
            is_sure = metrics[f"role/{role}/one_answer"] >= _SAME
            if share == 0 and any(used.values()) and not has_reason and not is_sure:
                what = f"no decision of {role} has candidates whose rewards differ"
                yield f"untaught {role}", (name or "", what, self._advised(_ADVICE["untaught"]))

    def _blind(self, metrics: Mapping[str, float]) -> _Symptoms:
        """Yield the policies whose V is worse than the mean of its targets."""
        for name in self._config.models:
            r2 = metrics.get(f"value/{name}/r2")
            if r2 is not None and r2 < 0:
                what = f"V of {name} predicts returns worse than their mean does (R2 {r2:.2f})"
                yield f"value {name}", (name, what, self._advised(_ADVICE["blind"]))

    def _captured(self, policy: str, metrics: Mapping[str, float]) -> _Symptoms:
        """Yield what speaks for a policy that learns for one of its roles alone."""
        prefix = f"gradient/{policy}/"
        for key, value in metrics.items():
            if not key.startswith(prefix):
                continue
            role, *other, kind = key.removeprefix(prefix).split("/")
            if kind == "share" and value >= _CAPTURED:
                what = f"{_percent(value)} of the gradient of {policy} is that of {role}"
                why = f"{role} has captured the policy"
            elif kind == "cosine" and value <= _OPPOSED:
                what = f"the gradients of {role} and {other[0]} in {policy} are opposed"
                what += f" (cosine {value:.2f})"
                why = "the roles want different answers"
            else:
                continue
            yield f"roles {key}", (policy, what, self._advised(_ADVICE["apart"], why=why))

    def _cause(self, role: str, metrics: Mapping[str, float]) -> str | None:
        """Why the answers of a role may all earn the same; None where they look sound."""
        limit = sampling_of(self._config.rollout, role).max_completion_tokens
        if (unread := metrics[f"role/{role}/parse_errors"]) >= _MOST:
            unreadable = f"{_percent(unread)} of the answers of {role} cannot be read"
            if (truncated := metrics[f"role/{role}/truncated"]) >= _MOST:
                return (
                    f"{unreadable}, and {_percent(truncated)} are truncated at "
                    f"{limit} tokens. Raise rollout.max_completion_tokens; a model that thinks "
                    "first may do without (chat_template_kwargs = { enable_thinking = false })"
                )
            return (
                f"{unreadable}. Show the form of an answer in the prompt, or let the policy "
                "imitate demonstrations first ([warm_start])"
            )
        if metrics[f"role/{role}/same_answer"] >= _SAME:
            return f"the answers of {role} are all the same. {self._collapse()}"
        return None

    def _remedy(self, policy: str, metrics: Mapping[str, float]) -> str:
        # The account of the tokens says where most of them went.
        where = max(_ADVICE["lost"], key=lambda name: metrics[f"tokens/{policy}/{name}"])
        share = _percent(metrics[f"tokens/{policy}/{where}"])
        limit = self._config.rollout.max_completion_tokens
        rate = learning_rates(self._config)[policy]
        return self._advised(_ADVICE["lost"][where], share=share, limit=limit, rate=rate)

    def _collapse(self) -> str:
        rate = max(learning_rates(self._config).values())
        return f"{self._advised(_ADVICE['collapsed'], rate=rate)}, {_ADVICE['anew']}"

    def _advised(self, cause: Sequence[str], **figures: object) -> str:
        """A cause, and what may help; of settings what the run may take."""
        what, *helps = (text.format(**figures) for text in cause)
        taken = [
            one
            for text in helps
            for one in (allowed(self._config, [[text]]) if " = " in text else [text])
        ]
        return f"{what}. What may help: {', '.join(taken)}"


# Findings beside which something is learnt all the same.
_BESIDE = ("roles", "value", "untaught", "moved", "cut")
_ADVICE: Mapping[str, Any] = tomllib.loads(
    Path(__file__).with_name("stalled.toml").read_text(encoding="utf-8")
)


def _percent(share: float) -> str:
    return f"{share:.0%}".replace("%", " %")


if __name__ == "__main__":
    page = Path(sys.argv[1])
    text = page.read_text(encoding="utf-8")
    table = metrics_table() + "\n"
    write_whole(page, re.sub(r"(?m)(^\|.*\n?)+", lambda _: table, text, count=1))
