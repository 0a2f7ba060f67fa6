"""What the page of a run opens on: results, instructive decisions, one level twice, failures.

A candidate did badly when it could not be read, or when it has a negative advantage; where the run
compares no candidates, when it has a negative reward. It did well the other way round.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations, pairwise, permutations
from operator import attrgetter
from typing import Any, NamedTuple

from pettingllms.types import role_of
from pettingllms.viewer.episodes import Decision, ShownEpisode, followed
from pettingllms.viewer.runs import OpenedRun, variant_name

# Set of the episodes that are trained on, and their group.
TRAINING = "training"


class RunSummary:
    """Gathers the summary of a run while its episodes pass."""

    def __init__(self, run: OpenedRun) -> None:
        self._blame, self._crossplay = run.blame, run.crossplay
        self._grouping = _Training(run) if run.kind == TRAINING else _Played(run)
        self._groups: dict[Hashable, None] = {}
        self._decisions, self._failures = InstructiveDecisions(), FailureCounts()
        self._levels = LevelPairs()
        self._num_episodes = 0

    def add(self, episode: ShownEpisode) -> None:
        """Take an episode into account; they come in the order of the page."""
        position, group = self._num_episodes, self._grouping.group(episode)
        self._num_episodes += 1
        self._groups[group] = None
        self._decisions.add(position, self._grouping.step(episode), episode)
        self._failures.add(position, group, episode)
        self._levels.add(position, group, episode)

    def to_json(self) -> dict[str, Any]:
        """The parts of the summary as JSON data, as the page's scripts read them."""
        columns = self._grouping.columns(list(self._groups))
        plays = self._levels.best(self._grouping.pairs(list(columns.values())))
        names = {group: name for name, group in columns.items()}
        return {
            "blame": self._blame,
            "crossplay": self._crossplay,
            "milestones": self._grouping.milestones(),
            "instructive": self._decisions.to_json(),
            "pair": [{"name": names[play.group], "episode": play.episode} for play in plays],
            "failures": self._failures.table(columns),
        }


class _Training:
    """Groups of a training run: the held-out episodes of each train step, and all trained on."""

    def __init__(self, run: OpenedRun) -> None:
        self._evaluations = run.curves["evaluations"]
        self._num_steps = run.settings.get("num_steps")

    def group(self, episode: ShownEpisode) -> Hashable:
        tree_set, step, _ = episode.key
        return TRAINING if tree_set == TRAINING else step

    def step(self, episode: ShownEpisode) -> int:
        # After how many train steps the episode was played.
        return int(episode.key[1])

    def columns(self, groups: list[Hashable]) -> Mapping[str, Hashable]:
        # Heading -> group, of the groups that are shown.
        steps = sorted(group for group in groups if isinstance(group, int))
        trained = [TRAINING] if TRAINING in groups else []
        return {self._name(group): group for group in (*steps[:1], *trained, *steps[1:][-1:])}

    def pairs(self, groups: list[Hashable]) -> Iterable[tuple[Hashable, Hashable]]:
        # Which of the shown groups are compared level by level.
        return combinations((group for group in groups if group != TRAINING), 2)

    def _name(self, group: Hashable) -> str:
        if not isinstance(group, int):
            return "in training"
        return f"held-out, {moment_name(group, self._evaluations, self._num_steps)}"

    def milestones(self) -> dict[str, Any]:
        return training_table(self._evaluations, self._num_steps)


class _Played:
    """Groups of an evaluation, which are its variants; recorded episodes are one group."""

    def __init__(self, run: OpenedRun) -> None:
        self._is_evaluation = run.kind == "evaluation"
        self._figures = run.figures

    def group(self, episode: ShownEpisode) -> Hashable:
        return episode.key[0] if self._is_evaluation else "recorded"

    def step(self, episode: ShownEpisode) -> int:
        return 0

    def columns(self, groups: list[Hashable]) -> Mapping[str, Hashable]:
        return {str(group): group for group in groups}

    def pairs(self, groups: list[Hashable]) -> Iterable[tuple[Hashable, Hashable]]:
        return permutations(groups, 2)

    def milestones(self) -> dict[str, Any]:
        return evaluation_table(self._figures)


Columns = Mapping[str, Any]
"""Figures of a variant over the steps at which it was evaluated; see `runs.variant_columns`."""

# Begins the names of variants in which policies play as they were before a warm start.
UNTOUCHED = "untouched:"
_SCRIPTED = ("scripted:", "reference:")
_FIGURES = ("success", "success_low", "success_high", "num_episodes", "num_expected", "failures")


def moment_name(step: int, evaluations: Mapping[str, Columns], num_steps: Any) -> str:
    """What the moment after a train step is called."""
    if step == 0:
        has_warm_start = any(name.startswith(UNTOUCHED) for name in evaluations)
        return "after warm start" if has_warm_start else "before training"
    return "after training" if step == num_steps else f"after train step {step}"


def training_table(evaluations: Mapping[str, Columns], num_steps: Any) -> dict[str, Any]:
    """Held-out success of a training run at its first and its latest evaluation.

    Returns:
        `columns`: names of the moments. `rows`: who plays, with a cell for each moment: its
        figures, or null where it was not evaluated. Scripted policies, which learn nothing, have
        one cell, of their first evaluation.
    """
    learnt = [n for n in evaluations if not n.startswith((*_SCRIPTED, UNTOUCHED))]
    steps = sorted({step for name in learnt for step in evaluations[name]["step"]})
    # One column as long as the first evaluation is also the latest.
    moments = [(step, "") for step in dict.fromkeys((*steps[:1], *steps[-1:]))]
    columns = [moment_name(step, evaluations, num_steps) for step, _ in moments]
    if any(name.startswith(UNTOUCHED) for name in evaluations):
        moments, columns = [(0, UNTOUCHED), *moments], ["before training", *columns]
    rows = [
        {
            "name": variant_name(name),
            "variant": name,
            "cells": [_cell(evaluations.get(prefix + name), step) for step, prefix in moments],
        }
        for name in learnt
    ]
    rows += [
        {
            "name": variant_name(name),
            "cells": [_cell(evaluations[name], evaluations[name]["step"][0])],
        }
        for name in evaluations
        if name.startswith(_SCRIPTED)
    ]
    return {"columns": columns, "rows": rows}


def evaluation_table(figures: Mapping[str, Any] | None) -> dict[str, Any]:
    """The success of the variants of an evaluation, in the form of `training_table`."""
    cells = [
        {
            "success": one["success"]["value"],
            "success_low": one["success"]["low"],
            "success_high": one["success"]["high"],
            "num_episodes": one["num_episodes"],
            "num_expected": one["num_expected"],
            "failures": one["failures"],
        }
        for one in (figures or {}).values()
    ]
    rows = [{"name": "solved", "cells": cells}] if cells else []
    return {"columns": list(figures or ()), "rows": rows}


def _cell(columns: Columns | None, step: int) -> dict[str, Any] | None:
    if columns is None or step not in columns["step"]:
        return None
    at = list(columns["step"]).index(step)
    return {figure: columns[figure][at] for figure in _FIGURES}


# Causes in the table, the most frequent first; the others are counted together.
MAX_CAUSES = 8
_MAX_CAUSE = 100
# Causes that differ in numbers or quotes alone are one row of the table.
_VARYING = re.compile(r"'[^']*'|\"[^\"]*\"|\d+")
_ENDINGS = {
    "answered": "ended unsolved",
    "unreadable": "ended with an unreadable answer",
    "tokens": "ended at the token limit",
    "turns": "out of turns",
    "code": "an answer made code fail",
    "context": "outgrew the context",
    "time": "out of time",
    "unfinished": "not finished",
}
_EPISODES = "episodes"
_TOKEN_LIMIT = "truncated at the token limit"


class _Failure(NamedTuple):
    """A kind of failure, a row of the table."""

    of: str
    """`episodes`, or the role whose answers are counted."""
    cause: str


class _Seen(NamedTuple):
    """A failure in an episode."""

    failure: _Failure
    decision: int
    """Index of the decision; the last one where the episode itself failed."""
    candidate: int | None
    """Index of the candidate; None where the episode itself failed."""


class FailureCounts:
    """Counts failures of episodes, and of all answers of their decisions, by groups of episodes."""

    def __init__(self) -> None:
        self._counts: dict[Hashable, Counter[_Failure]] = {}
        self._totals: dict[Hashable, Counter[str]] = {}
        self._places: dict[tuple[_Failure, Hashable], tuple[int, int, int | None]] = {}

    def add(self, position: int, group: Hashable, episode: ShownEpisode) -> None:
        """Count an episode."""
        counts = self._counts.setdefault(group, Counter())
        totals = self._totals.setdefault(group, Counter())
        totals[_EPISODES] += 1
        for decision in episode.decisions:
            totals[role_of(decision["agent"])] += len(decision["candidates"])
        for failure, decision, candidate in failures_of(episode):
            counts[failure] += 1
            # The first one: somewhere to look, wherever that is.
            self._places.setdefault((failure, group), (position, decision, candidate))

    def table(self, columns: Mapping[str, Hashable]) -> dict[str, Any]:
        """The most frequent causes.

        Returns:
            `columns`: the headings. `rows`: `of`, what is counted; its `cause`; for each column
            `counts` and, of how many, `totals`; `place`: episode, decision and candidate of one
            in the last column that has any. `num_others`: failures of causes without a row.
        """
        groups = list(columns.values())
        all_counts = [self._counts.get(group, Counter()) for group in groups]
        summed = sum(all_counts, Counter[_Failure]())
        kept = summed.most_common(MAX_CAUSES)
        return {
            "columns": list(columns),
            "rows": [
                {
                    "of": failure.of,
                    "cause": failure.cause,
                    "counts": [counts[failure] for counts in all_counts],
                    "totals": [self._totals.get(g, Counter())[failure.of] for g in groups],
                    "place": self._place(failure, groups),
                }
                for failure, _ in kept
            ],
            "num_others": summed.total() - sum(count for _, count in kept),
        }

    def _place(self, failure: _Failure, groups: Sequence[Hashable]) -> tuple[int, int, int | None]:
        known = (self._places.get((failure, group)) for group in reversed(groups))
        return next(place for place in known if place is not None)


def failures_of(episode: ShownEpisode) -> Iterator[_Seen]:
    """Yield what went wrong: with the episode, and with every answer, also of those not followed.

    An answer that was truncated is counted as that, whether or not it could be read.
    """
    last = max(0, len(episode.decisions) - 1)
    if episode.ending == "failed":
        yield _Seen(
            _Failure(_EPISODES, f"rollout failed: {_alike(episode.cause or 'unknown')}"), last, None
        )
    elif episode.ending in _ENDINGS:
        yield _Seen(_Failure(_EPISODES, _ENDINGS[episode.ending]), last, None)
    for n, decision in enumerate(episode.decisions):
        role = role_of(decision["agent"])
        for k, candidate in enumerate(decision["candidates"]):
            if candidate["finish_reason"] == "length":
                yield _Seen(_Failure(role, _TOKEN_LIMIT), n, k)
            elif candidate["cause"] is not None:
                cause = f"made code fail: {_alike(str(candidate['cause']))}"
                yield _Seen(_Failure(role, cause), n, k)
            elif candidate["parse_error"] is not None:
                cause = f"unreadable: {_alike(str(candidate['parse_error']))}"
                yield _Seen(_Failure(role, cause), n, k)


def _alike(cause: str) -> str:
    """A cause without what varies between its cases: numbers, and what is quoted."""
    (first, *_) = cause.strip().splitlines() or [""]
    text = _VARYING.sub(lambda match: "'…'" if match[0][0] in "'\"" else "N", first)
    return text if len(text) <= _MAX_CAUSE else text[: _MAX_CAUSE - 1] + "…"


Worth = tuple[float, ...]
"""How instructive a decision is: of two of one kind the greater one is more so."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Instructive:
    """A decision to look at, and why."""

    title: str
    """What kind of decision it is, as a heading."""
    text: str
    """What happened, in a sentence."""
    decision: int
    """Index of the decision in the episode."""
    candidate: int
    """Index of the candidate that is shown first."""
    other: int | None = None
    """Index of the candidate that it is compared with; None: none."""
    answers: Sequence[tuple[int, int]]
    """(index of a decision, index of a candidate) of the answers that show what happened."""


class Ranked(NamedTuple):
    """A decision with its rank among those of its kind."""

    worth: Worth
    shown: Instructive


class InstructiveDecisions:
    """Chooses the most instructive decision of every kind, each of another episode if it can."""

    def __init__(self) -> None:
        self._found: dict[Callable[..., Any], list[tuple[Worth, int, Instructive]]] = {
            find: [] for find in (rescues, repetitions, spreads)
        }

    def add(self, position: int, step: int, episode: ShownEpisode) -> None:
        """Look through an episode."""
        for find, found in self._found.items():
            best = max(find(episode), key=attrgetter("worth"), default=None)
            if best is not None:
                # What an untrained policy does shows little: any trained one comes first.
                found.append(((step > 0, *best.worth, step), position, best.shown))

    def to_json(self) -> list[dict[str, Any]]:
        """The decisions with the positions of their episodes."""
        chosen: dict[int, list[Instructive]] = {}
        for found in self._found.values():
            best = max(found, key=lambda one: (one[1] not in chosen, one[0]), default=None)
            if best is not None:
                chosen.setdefault(best[1], []).append(best[2])
        return [
            {"episode": position, **asdict(one)}
            for position, all_ in chosen.items()
            for one in all_
        ]


def spreads(episode: ShownEpisode) -> Iterator[Ranked]:
    """Yield decisions whose candidates have different advantages, worth their difference.

    Advantages are often divided by the deviation of their group, and then differ alike in many
    decisions: of about equal ones, rewards that differ more are worth more.
    """
    for n, decision in enumerate(episode.decisions):
        advantages = _numbers(decision, "advantage")
        if len(set(advantages.values())) < 2:
            continue
        best, worst = (choose(advantages, key=lambda k: advantages[k]) for choose in (max, min))
        rewards = _numbers(decision, "reward").values()
        difference = advantages[best] - advantages[worst]
        yield Ranked(
            (round(difference, 1), max(rewards, default=0) - min(rewards, default=0)),
            Instructive(
                title="The answers differ most",
                text=f"{decision['agent']} gave {len(advantages)} answers to one prompt, with "
                f"advantages from {_signed(advantages[worst])} to {_signed(advantages[best])}.",
                decision=n,
                candidate=best,
                other=worst,
                answers=((n, best), (n, worst)),
            ),
        )


def rescues(episode: ShownEpisode) -> Iterator[Ranked]:
    """Yield decisions that went well right after another role's had gone badly.

    Worth most: the episode is solved; then, the other role could not be read; then, the level is
    solved at once; then, the difference of their advantages (rewards, where there are none).
    """
    for (n, before), (_, decision) in pairwise(enumerate(episode.decisions)):
        bad, good = followed(before), followed(decision)
        is_other = role_of(before["agent"]) != role_of(decision["agent"])
        if bad is None or good is None or not is_other or decision["turn"] > before["turn"] + 1:
            continue
        if not _did_badly(bad) or not _did_well(good):
            continue
        is_unreadable = bad["parse_error"] is not None
        result = "solved the level" if good["success"] else "did well"
        yield Ranked(
            (episode.success, is_unreadable, good["success"], _merit(good) - _merit(bad)),
            Instructive(
                title="A role saves another",
                text=f"The answer of {before['agent']} {_fault(bad)}; {decision['agent']} {result} "
                "all the same.",
                decision=n + 1,
                candidate=decision["chosen"],
                answers=((n, before["chosen"]), (n + 1, decision["chosen"])),
            ),
        )


def repetitions(episode: ShownEpisode) -> Iterator[Ranked]:
    """Yield the first of answers that went badly and that an agent nevertheless gave again.

    Worth most: the episode was not solved; then, how often it was given.
    """
    given: dict[tuple[str, str], list[int]] = {}
    for n, decision in enumerate(episode.decisions):
        answer = followed(decision)
        if answer is not None and _did_badly(answer):
            given.setdefault((decision["agent"], answer["text"]), []).append(n)
    for (agent, _), places in given.items():
        if len(places) > 1:
            answers = [(n, episode.decisions[n]["chosen"]) for n in places]
            yield Ranked(
                (not episode.success, len(places)),
                Instructive(
                    title="A failure that repeats",
                    text=f"{agent} gave the same bad answer {len(places)} times in one episode.",
                    decision=places[0],
                    candidate=answers[0][1],
                    answers=answers,
                ),
            )


def _did_badly(candidate: dict[str, Any]) -> bool:
    return candidate["parse_error"] is not None or _merit(candidate) < 0


def _fault(candidate: dict[str, Any]) -> str:
    if candidate["parse_error"] is not None:
        return "could not be read"
    has_advantage = isinstance(candidate["advantage"], int | float)
    return "was worse than its siblings" if has_advantage else "lost reward"


def _did_well(candidate: dict[str, Any]) -> bool:
    return candidate["parse_error"] is None and (candidate["success"] or _merit(candidate) > 0)


def _merit(candidate: dict[str, Any]) -> float:
    """The advantage, the reward where there is none, 0 where neither is a number."""
    values = (candidate[name] for name in ("advantage", "reward"))
    return next((value for value in values if isinstance(value, int | float)), 0.0)


def _numbers(decision: Decision, name: str) -> dict[int, float]:
    candidates: Iterable[dict[str, Any]] = decision["candidates"]
    return {k: c[name] for k, c in enumerate(candidates) if isinstance(c[name], int | float)}


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "\N{MINUS SIGN}")


class LevelPlay(NamedTuple):
    """A group's episode on a level."""

    group: Hashable
    """As in `RunSummary`: a variant, a train step, or the training set."""
    episode: int
    """Index of the episode on the page."""
    success: bool
    num_turns: int


class LevelPairs:
    """Finds the level on which two groups of episodes differ most."""

    def __init__(self) -> None:
        self._levels: dict[tuple[int, str], dict[Hashable, LevelPlay]] = {}

    def add(self, position: int, group: Hashable, episode: ShownEpisode) -> None:
        """Remember an episode; of several plays of a level by one group, the first."""
        plays = self._levels.setdefault((episode.seed, episode.state_hash), {})
        plays.setdefault(group, LevelPlay(group, position, episode.success, episode.num_turns))

    def best(self, pairs: Iterable[tuple[Hashable, Hashable]]) -> tuple[LevelPlay, ...]:
        """Both plays of the level that changed most for the better, () if none has two.

        A level that only the second solved changed most; then, one that it solved in fewer turns.

        Args:
            pairs: Groups to compare, the one whose plays come first on the left.
        """
        found = [
            (plays[first], plays[second])
            for first, second in pairs
            for plays in self._levels.values()
            if first in plays and second in plays
        ]
        return max(found, key=_change, default=())


def _change(plays: tuple[LevelPlay, LevelPlay]) -> tuple[int, int]:
    first, second = plays
    return second.success - first.success, first.num_turns - second.num_turns
