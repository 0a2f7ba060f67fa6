"""Decisions of a run that show most: answers differ, a role saves another, a failure repeats.

A candidate did badly when it could not be read, or when it has a negative advantage; where the run
compares no candidates, when it has a negative reward. It did well the other way round.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass
from itertools import pairwise
from operator import attrgetter
from typing import Any, NamedTuple

from pettingllms.types import role_of
from pettingllms.viewer.episodes import Decision, ShownEpisode, followed

Worth = tuple[float, ...]
"""How instructive a decision is, compared with others of its kind: more is more."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Instructive:
    """A decision to look at, and why."""

    title: str
    text: str
    decision: int
    """Its position in the episode."""
    candidate: int
    """The candidate that is shown first."""
    other: int | None = None
    """The candidate that it is compared with."""
    answers: Sequence[tuple[int, int]]
    """Position of decision and candidate of the answers that tell it."""


class Found(NamedTuple):
    """A decision and how much it shows."""

    worth: Worth
    shown: Instructive


class InstructiveDecisions:
    """Chooses the most instructive decision of every kind, each of another episode if it can."""

    def __init__(self) -> None:
        self._found: dict[Callable[..., Any], list[tuple[Worth, int, Instructive]]] = {
            find: [] for find in (rescues, repetitions, spreads)
        }

    def add(self, position: int, step: int, episode: ShownEpisode) -> None:
        """Look through an episode.

        Args:
            position: Its position on the page.
            step: After how many train steps it was played; 0 where nothing is trained.
            episode: The episode.
        """
        for find, found in self._found.items():
            best = max(find(episode), key=attrgetter("worth"), default=None)
            if best is not None:
                # What an untrained policy does shows little: any trained one comes first.
                found.append(((step > 0, *best.worth, step), position, best.shown))

    def to_json(self) -> list[dict[str, Any]]:
        """Return the decisions with the positions of their episodes."""
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


def spreads(episode: ShownEpisode) -> Iterator[Found]:
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
        yield Found(
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


def rescues(episode: ShownEpisode) -> Iterator[Found]:
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
        yield Found(
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


def repetitions(episode: ShownEpisode) -> Iterator[Found]:
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
            yield Found(
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
    """Return the advantage, the reward where there is none, 0 where neither is a number."""
    values = (candidate[name] for name in ("advantage", "reward"))
    return next((value for value in values if isinstance(value, int | float)), 0.0)


def _numbers(decision: Decision, name: str) -> dict[int, float]:
    candidates: Iterable[dict[str, Any]] = decision["candidates"]
    return {k: c[name] for k, c in enumerate(candidates) if isinstance(c[name], int | float)}


def _signed(value: float) -> str:
    return f"{value:+.2f}".replace("-", "\N{MINUS SIGN}")
