"""Metrics of a run: each is declared once, with its documentation and how it is computed.

`METRICS`, the progress view and the table in METRICS.md are made from these declarations:
``python -m pettingllms_trainers.runs.metrics trainers/METRICS.md`` writes the table. Parts in angle
brackets stand for a role, a policy, a variant of the evaluation, a stage or one of several
environments.
"""

from __future__ import annotations

import itertools
import math
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from statistics import fmean, pvariance
from typing import Any, Generic, NamedTuple, TypeVar

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


@dataclass(frozen=True, slots=True)
class Metric(Generic[SubjectT]):
    """A metric, apart from its name."""

    doc: str
    """What it means."""
    of: Callable[[SubjectT], float] | None = None
    """How it is computed from the subject of its table; None when it is measured elsewhere."""
    shown: Shown | None = None
    """How it appears in the progress view; None: not at all."""


AnyMetric = Metric[Any]
"""A metric of whatever subject."""


class _Rollouts(NamedTuple):
    """Subject of `_ROLLOUT`: the rollouts of a train step."""

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
    """Subject of `_CANDIDATES` and `_COMPARED`: a role in a train step."""

    candidates: Sequence[Candidate]
    num_decisions: int
    num_used: int


_ROLLOUT: Mapping[str, Metric[_Rollouts]] = {
    "num_trees": Metric("Rollouts of the step that can be used.", lambda s: len(s.usable)),
    "num_failed_trees": Metric(
        "Rollouts left out because the infrastructure failed, also when they were played again.",
        _Rollouts.num_failed,
    ),
    "ends_policy": Metric(
        "Share of all rollouts whose end is the policy's: an answer that ended the game, the last "
        "turn, or an answer that made code fail.",
        lambda s: s.share_of("policy"),
    ),
    "ends_limit": Metric(
        "Share that met a limit, of the context or of time; trained on with rollout.cut_reward.",
        lambda s: s.share_of("limit"),
    ),
    "ends_infrastructure": Metric(
        "Share of the failed ones, at most rollout.max_failed_fraction.",
        lambda s: s.share_of("infrastructure"),
    ),
    "num_fixed_actions": Metric(
        "Actions of fixed policies: one per decision, not compared and not trained.",
        lambda s: sum(not d.prompt_ids for tree in s.usable for d in tree.decisions),
    ),
    "success": Metric(
        "Share of rollouts whose followed path solves the task. With a greedy branch choice "
        "this is best-of-K, not a learning curve.",
        lambda s: _mean(outcome.success for outcome in s.outcomes()),
    ),
    "num_turns": Metric(
        "Mean number of turns of a rollout.",
        lambda s: _mean(outcome.num_turns for outcome in s.outcomes()),
    ),
    "num_completion_tokens": Metric(
        "Sampled tokens of the step, also of failed rollouts and of continuations."
    ),
    "mean_age": Metric(
        "Mean age of the sampled tokens: train steps that the policies have taken since their "
        "weights drew them; 0 without rollout.max_staleness."
    ),
    "max_age": Metric("Age of the oldest of these tokens."),
    "num_stale_episodes": Metric(
        "Episodes that were given up, since by the next train step they would have been older than "
        "rollout.max_staleness; they are in no other figure."
    ),
    "num_continuation_tokens": Metric(
        "Those of continuations among them.",
        lambda s: sum(tree.num_continuation_tokens for tree in s.usable),
    ),
    "num_refills": Metric(
        "Rounds of further levels, played because a policy had too few groups whose rewards differ."
    ),
}
_ENVIRONMENT: Mapping[str, Metric[_Rollouts]] = {
    "num_trees": Metric("Usable rollouts of the environment.", lambda s: len(s.usable)),
    "num_failed_trees": Metric("Those that failed.", _Rollouts.num_failed),
    "success": Metric(
        "Share of them whose followed path solves the task.",
        _ROLLOUT["success"].of,
        Shown("success", ".0%"),
    ),
    "num_turns": Metric("Mean number of their turns.", _ROLLOUT["num_turns"].of),
}
_CANDIDATES: Mapping[str, Metric[_Role]] = {
    "reward": Metric(
        "Mean reward of the role's candidates, alpha * team + local.",
        lambda s: _mean(c.reward for c in s.candidates),
        Shown("reward", "+.3f"),
    ),
    "team": Metric(
        "Mean team part of that reward, alpha included.",
        lambda s: _mean(c.team for c in s.candidates),
    ),
    "local": Metric(
        "Mean local part of that reward.", lambda s: _mean(c.local for c in s.candidates)
    ),
    "value": Metric(
        "Mean of what was expected to follow the role's candidates, by V or continuations.",
        lambda s: _mean(c.value for c in s.candidates),
    ),
    "parse_errors": Metric(
        "Share of the role's candidates that could not be read.",
        lambda s: _mean(c.parse_error is not None for c in s.candidates),
        Shown("unreadable", ".0%"),
    ),
    "truncated": Metric(
        "Share of the role's candidates that reached the token limit.",
        lambda s: _mean(c.completion.finish_reason == "length" for c in s.candidates),
        Shown("truncated", ".0%"),
    ),
    "same_answer": Metric(
        "Share of the role's candidates that have its commonest text, over all prompts; near 1 the "
        "role answers all prompts alike.",
        lambda s: _commonest([c.completion.text for c in s.candidates]),
    ),
}
_COMPARED: Mapping[str, Metric[_Role]] = {
    "num_tokens": Metric(
        "Mean tokens of the role's candidates.",
        lambda s: _mean(len(c.completion.token_ids) for c in s.candidates),
    ),
    "num_decisions": Metric("Decisions of the role.", lambda s: s.num_decisions),
    "decisions_used": Metric(
        "Share of the role's decisions in groups whose rewards differ; the others are dropped.",
        lambda s: s.num_used / s.num_decisions,
        Shown("used", ".0%"),
    ),
}

ROLLOUTS: Mapping[str, AnyMetric] = {
    **{f"rollout/{name}": metric for name, metric in _ROLLOUT.items()},
    "rollout/end/<end>": Metric(
        "Share of all rollouts that ended so: answered, unreadable, tokens, turns, code; context, "
        "time; server, connection, sandbox, environment. `pettingllms.ends` says what each means."
    ),
    **{f"env/<env>/{name}": metric for name, metric in _ENVIRONMENT.items()},
    **{f"role/<role>/{name}": metric for name, metric in {**_CANDIDATES, **_COMPARED}.items()},
}
"""Metrics of rollouts, by name."""


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
    for tree in _Rollouts(trees).usable:
        for decision in tree.decisions:
            candidates[decision.role] += decision.candidates
    for role, found in candidates.items():
        num_decisions = scored.num_decisions.get(role, 0)  # 0 for a fixed policy
        table = {**_CANDIDATES, **(_COMPARED if num_decisions else {})}
        subject = _Role(found, num_decisions, scored.num_used.get(role, 0))
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


def _computed(
    prefix: str, table: Mapping[str, Metric[SubjectT]], subject: SubjectT
) -> dict[str, float]:
    return {f"{prefix}/{name}": m.of(subject) for name, m in table.items() if m.of is not None}


def _commonest(texts: Sequence[str]) -> float:
    return max(Counter(texts).values(), default=0) / max(len(texts), 1)


def _mean(values: Iterable[float]) -> float:
    found = [float(value) for value in values]
    return fmean(found) if found else 0.0


LEDGER: Mapping[str, AnyMetric] = {
    "tokens/<policy>/sampled": Metric(
        "Sampled tokens of the roles that the policy is trained on in the step. The seven shares "
        "below say where each of them went, and add up to 1."
    ),
    "tokens/<policy>/equal_rewards": Metric("In groups whose answers all earned the same."),
    "tokens/<policy>/truncated": Metric(
        "In answers at the token limit, with loss.mask_truncated_completions."
    ),
    "tokens/<policy>/unused": Metric(
        "Not trained on: the policy rests, or loss.target_kl ended the update before them."
    ),
    "tokens/<policy>/flat": Metric("Trained on with an advantage of 0."),
    "tokens/<policy>/masked": Metric('Without a gradient by loss.importance_mode = "mask".'),
    "tokens/<policy>/clipped": Metric("Without a gradient by the clip."),
    "tokens/<policy>/learnt": Metric("With a gradient."),
}
"""The account of the sampled tokens of a train step."""


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


_UPDATE = ("num_groups", "num_completions", "num_tokens", "num_optimizer_steps", "skipped")


def _stats_metrics() -> dict[str, AnyMetric]:
    """Declare the metrics that are fields of `UpdateStats`, documented there."""
    metrics: dict[str, AnyMetric] = {}
    for name, field in STATS_FIELDS.items():
        section = "update" if name in _UPDATE else "loss"
        shown = next((marker for marker in field.metadata if isinstance(marker, Shown)), None)
        doc = " ".join((field.description or "").split())
        metrics[f"{section}/<policy>/{name}"] = Metric(doc, shown=shown)
    return metrics


STATS: Mapping[str, AnyMetric] = _stats_metrics()
"""Metrics of the updates, by name."""


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


JUDGED: Mapping[str, AnyMetric] = {
    "judged/<reward>/score": Metric("Mean score of `rewards.NAME` over the answers of the step."),
    "judged/<reward>/noise": Metric(
        "Standard deviation of two scores of one answer around their mean, over the answers that "
        "were judged twice (`judged_twice`)."
    ),
    "judged/<reward>/reliability": Metric(
        "1 - noise² / variance of the scores: the share of their variance that is of the answers. "
        "Near 0 a comparison of answers compares noise."
    ),
    "judged/<reward>/outcome_alignment": Metric(
        "Of pairs of answers to one prompt of which one solves the task and the other does not, "
        "the share in which the score of the first is higher; equal scores count half. 0.5: the "
        "score says nothing about the outcome; missing where there is no such pair."
    ),
    "cost/<reward>/num_verdicts": Metric(
        "Verdicts that were asked for since the run began, by this process; others were kept."
    ),
    "cost/<reward>/dollars": Metric("US dollars that they cost."),
    "cost/<reward>/seconds": Metric("Seconds that they took, all together."),
}
"""Metrics of rewards, by name."""


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


_ELSEWHERE = {
    "gradient/<policy>/<role>/norm": Metric(
        "With `optimizer.role_gradients`: mean norm of the role's part of the gradient of a shared "
        "policy, before clipping."
    ),
    "gradient/<policy>/<role>/share": Metric(
        "Inner product of that part with the whole gradient, over the squared norm of the whole. "
        "Shares add up to 1; below 0 the update harms the role, to first order."
    ),
    "gradient/<policy>/<role>/<role>/cosine": Metric(
        "Mean cosine between the parts of two roles; below 0 they pull the policy apart."
    ),
    "update/phase": Metric(
        "Phase of `updates.phases`, from 1; a policy that it does not update has no metrics of an "
        "update or a loss in the step.",
        shown=Shown("phase", ".0f"),
    ),
    "curriculum/<stage>/share": Metric(
        "Share of the rollouts that played a stage of `env.curriculum`, which are numbered from 1; "
        "`ENV.NUMBER` in a run of several environments."
    ),
    "curriculum/<stage>/success": Metric(
        "Estimate of the share of its rollouts that are solved; later train steps weigh more."
    ),
    "algorithm/z": Metric(
        "With `auto`: by how many standard errors it is shown that episodes which lead on the way "
        "are solved more often. Absent as long as no level was both solved and failed, or nobody "
        "led."
    ),
    "algorithm/follows_steps": Metric(
        "With `auto`: 1 in train steps of `at_grpo`, once `algorithm/z` was above 4; 0 in those "
        "of whole episodes by success."
    ),
    "warm_start/<policy>/loss": Metric(
        "Mean loss of the last 10 supervised steps, in nats per token."
    ),
    "eval/<variant>/success": Metric(
        "Share of held-out levels that are solved, one sample per decision.",
        shown=Shown("held-out", ".1%"),
    ),
    "eval/<variant>/<env>/success": Metric(
        "Of the levels of one environment, in a run of several; so are the next four.",
        shown=Shown("held-out", ".1%"),
    ),
    "eval/<variant>/<env>/success_low": Metric("Lower end of its 95 % Wilson interval."),
    "eval/<variant>/<env>/success_high": Metric("Upper end of its 95 % Wilson interval."),
    "eval/<variant>/<env>/num_turns": Metric("Mean number of turns of its held-out episodes."),
    "eval/<variant>/<env>/num_failed": Metric("Its held-out rollouts that failed."),
    "eval/<variant>/success_low": Metric("Lower end of its 95 % Wilson interval."),
    "eval/<variant>/success_high": Metric("Upper end of its 95 % Wilson interval."),
    "eval/<variant>/num_turns": Metric("Mean number of turns of held-out episodes."),
    "eval/<variant>/num_failed": Metric(
        "Held-out rollouts that the infrastructure failed; they count as not solved."
    ),
    "eval/<variant>/end/<end>": Metric(
        "Share of held-out rollouts that ended so; see rollout/end/<end>."
    ),
    "eval/<variant>/<role>/reward": Metric("Mean reward of the role's actions on held-out levels."),
    "eval/<variant>/<role>/parse_errors": Metric(
        "Share of its held-out actions that could not be read."
    ),
    "value/<policy>/num_examples": Metric("Decisions that V was fitted to in the step."),
    "value/<policy>/target": Metric("Mean return that V was to predict for them."),
    "value/<policy>/r2": Metric(
        "Share of the variance of these returns that V predicted before it had seen them."
    ),
    "value/<policy>/loss": Metric("Mean squared error of V in the last pass of its fit."),
    "time/value_s": Metric("Wall time in which V was evaluated during the rollouts."),
    "time/fit_value_s": Metric("Wall time of the fits of V."),
    "time/rollout_s": Metric(
        "Wall time in which the rollouts were in flight, also beside updates."
    ),
    "time/wait_s": Metric("Wall time of the train step in which policies waited for rollouts."),
    "time/generate_s": Metric(
        "Time in which engines generated, added up over policies; the rest of the rollouts may "
        "overlap with it."
    ),
    "time/update_s": Metric("Wall time of the updates."),
    "time/sync_s": Metric("Wall time of moving new weights to the engines."),
    "time/evaluate_s": Metric("Wall time of the held-out evaluation."),
    "time/step_s": Metric("Wall time of the train step without evaluation."),
    "throughput/sampled_tokens_per_s": Metric(
        "Sampled tokens per second of generation.", shown=Shown("tokens/s", ",.0f")
    ),
    "throughput/trained_tokens_per_s": Metric("Trained tokens per second of update."),
}

METRICS: Mapping[str, AnyMetric] = {
    **ROLLOUTS,
    **LEDGER,
    **JUDGED,
    **STATS,
    **_ELSEWHERE,
}
"""Every metric that a run may log, by its name."""

# Names of roles and policies have no slash: a part in angle brackets is one part.
_PATTERNS = {name: re.compile(re.sub(r"<\w+>", "[^/]+", name)) for name in METRICS}


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
