"""Checks of readers and judges: a text has one answer, and one that only contains it is wrong."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from pettingllms.testing.play import AnyEnv, moments, require
from pettingllms.testing.report import Subject
from pettingllms.testing.uninformed import (
    ListAnswer,
    answers_to_other_levels,
    list_answer,
    oracle_episodes,
)

# Decisions of each level at which texts are tried.
DECISIONS = 4
# Decisions of a role at which a text must have gone wrong: one may be an accident of a level.
MIN_CASES = 3
# Items of a list that is longer than any game lets one play at once.
MANY_ITEMS = 40
# Wrong answers that are tried beside the right one.
WRONG = 2
_TOLERANCE = 1e-9
# What stands around the answer itself: a box, a mark, a fence.
_FRAMES = (
    re.compile(r"(?P<before>.*\\boxed\{)(?P<answer>.*)(?P<after>\}\W*)", re.DOTALL),
    re.compile(r"(?P<before>(?:.*\n)?####[ \t]*)(?P<answer>.+?)(?P<after>\s*)", re.DOTALL),
    re.compile(r"(?P<before>.*```\w*\n)(?P<answer>.*)(?P<after>\n```\s*)", re.DOTALL),
)
_WORD, _WHOLE = re.compile(r"\w+"), re.compile(r"-?\d{1,15}")


class Framed(NamedTuple):
    """A text, divided into an answer and what surrounds it."""

    before: str
    """The text before the answer, such as `#### `."""
    answer: str
    """The answer itself, such as a number or a JSON list."""
    after: str
    """The text after the answer."""

    def with_answer(self, answer: str) -> str:
        """The text with another answer in its place."""
        return self.before + answer + self.after


def framed(text: str) -> Framed:
    """The answer of a text that a scripted policy wrote, and what it stands in."""
    found = list_answer(text)
    if found is not None:
        end = len(text) - len(found.after)
        return Framed(found.before, text[len(found.before) : end], found.after)
    for frame in _FRAMES:
        if (match := frame.fullmatch(text)) is not None:
            return Framed(match["before"], match["answer"], match["after"])
    return Framed("", text, "")


class _Effect(NamedTuple):
    """What a text did when it was played on a fork."""

    state: str
    """Hash of the state afterwards."""
    paid: float
    """Reward of the agent that wrote it."""
    refused: bool
    """Whether it could not be read."""


class _Decision(NamedTuple):
    """A moment at which the right answer, the wrong ones and silence lead to different states."""

    env: AnyEnv
    right: str
    """The oracle's text."""
    wrong: tuple[str, ...]
    """Other readable texts, one or two."""
    effects: Mapping[str, _Effect]
    """Text -> its effect, of the right one, the wrong ones and the empty text."""

    def is_taken_for(self, text: str, answer: str) -> bool:
        """Whether a text has the effect of an answer, and not that of another known text."""
        found, meant = _effect(self.env, text), self.effects[answer]
        if found.refused:
            return False
        others = [effect for known, effect in self.effects.items() if known != answer]
        least = max(effect.paid for effect in others) + _TOLERANCE
        return found.state == meant.state or least < meant.paid <= found.paid + _TOLERANCE


def check_one_answer(subject: Subject) -> Mapping[str, float]:
    """A right answer counts alone: not within a thought, among others, in part, or nearly.

    At decisions of the oracle's episodes its answer is hidden in texts that hold others too, or
    only a piece of it. None of them may do what the answer does. And what a text considers within
    `<think>` is not what it answers.
    """
    tried: dict[tuple[str, str], int] = defaultdict(int)
    taken: dict[tuple[str, str], list[str]] = defaultdict(list)
    num_decisions = 0
    for decision in _decisions(subject):
        num_decisions += 1
        agent = decision.env.agent_selection.rpartition("_")[0]
        for kind, text in _texts_with(decision):
            tried[agent, kind] += 1
            taken[agent, kind] += [text] * decision.is_taken_for(text, decision.right)
        swayed = f"<think>{decision.wrong[0]}</think>\n{decision.right}"
        tried[agent, _SWAYED] += 1
        is_swayed = decision.is_taken_for(swayed, decision.wrong[0])
        taken[agent, _SWAYED] += [swayed] * is_swayed
    faults = [
        f"{role}: {kind}: {texts[0][-200:]!r}, at {len(texts)} of {tried[role, kind]} decisions."
        for (role, kind), texts in taken.items()
        if 2 * len(texts) > tried[role, kind] and len(texts) >= min(MIN_CASES, num_decisions)
    ]
    require(not faults, " ".join(faults))
    return {"decisions at which answers were hidden in other texts": num_decisions}


_SWAYED = "a thought is executed instead of the answer after it"


def check_whole_answer(subject: Subject) -> None:
    """All of a list is executed, unless prompt or page say how much of it."""
    cut: dict[int, str] = {}
    # Where a limit cuts longer lists than a policy writes -> is said, text.
    limits: dict[int, dict[str, bool]] = defaultdict(dict)
    for decision in _decisions(subject):
        for text in decision.wrong:
            _note_limit(decision, text, limits)
        answer = list_answer(decision.right)
        if answer is None or len(answer.items) < 2:
            continue
        num_counted = _num_counted(decision, answer)
        if num_counted < len(answer.items) and not _is_said(decision, num_counted):
            cut[num_counted] = decision.right[-200:]
    # Lists that stop to matter at one length, whatever is in them, are cut there.
    if len(limits) == 1:
        ((number, texts),) = limits.items()
        if len(texts) >= MIN_CASES and not all(texts.values()):
            cut[number] = next(iter(texts))[-200:]
    require(
        not cut,
        "".join(f"Of {text!r} the first {number} items count. " for number, text in cut.items()),
    )


def _note_limit(decision: _Decision, text: str, limits: dict[int, dict[str, bool]]) -> None:
    """Note how many items of a list count that is repeated until it is far too long."""
    answer = list_answer(text)
    if answer is None or len(answer.items) < 2:
        return
    times = -(-MANY_ITEMS // len(answer.items))
    longer = answer._replace(items=answer.items * times)
    num_counted = _num_counted(decision, longer)
    if len(answer.items) < num_counted < len(longer.items):
        limits[num_counted][longer.with_items(longer.items)] = _is_said(decision, num_counted)


def _is_said(decision: _Decision, number: int) -> bool:
    """Whether the page or the prompt of a decision has the number."""
    page = type(decision.env).__doc__ or ""
    said = f"{page} {decision.env.observe(decision.env.agent_selection)}"
    return re.search(rf"(?<!\d){number}(?!\d)", said) is not None


def _num_counted(decision: _Decision, answer: ListAnswer) -> int:
    """How many of the first items do what all do; 0 items are no answer."""
    whole = _effect(decision.env, answer.with_items(answer.items))
    for number in range(1, len(answer.items)):
        part = _effect(decision.env, answer.with_items(answer.items[:number]))
        if not part.refused and part == whole:
            return number
    return len(answer.items)


def _decisions(subject: Subject) -> Iterator[_Decision]:
    """Yield the decisions of the oracle's episodes at which its answer makes a difference."""
    env = subject()
    oracle = oracle_episodes(env)
    to_others = answers_to_other_levels(oracle)
    for seed, episode in oracle.items():
        rng, other = random.Random(seed), to_others(seed)
        env.reset(seed=seed)
        texts = iter(episode.texts)
        for agent in moments(env, DECISIONS):
            _, right = next(texts)
            names = [name for name in env.scripted_policies if name != "oracle"]
            wrong = [other(env, agent)]
            wrong += [env.scripted_action(agent, name, rng) for name in names]
            yield from _decision(env, right, wrong)
            env.step(right)


def _decision(env: AnyEnv, right: str, wrong: Sequence[str]) -> Iterator[_Decision]:
    effects = {text: _effect(env, text) for text in dict.fromkeys((right, "", *wrong))}
    meant = effects[right]
    # A text that is refused, or has the same effect, is not a different answer.
    others = [
        text
        for text in dict.fromkeys(wrong)
        if not effects[text].refused and effects[text].state != meant.state and text != right
    ][:WRONG]
    if others and not meant.refused and effects[""].state != meant.state:
        kept = {text: effects[text] for text in (right, "", *others)}
        yield _Decision(env, right, tuple(others), kept)


def _effect(env: AnyEnv, text: str) -> _Effect:
    agent, fork = env.agent_selection, env.fork()
    fork.step(text)
    refused = fork.infos[agent]["parse_error"] is not None
    return _Effect(fork.state_hash(), fork.rewards[agent], refused)


def _texts_with(decision: _Decision) -> Iterator[tuple[str, str]]:
    """Yield (kind, text) of texts that hold the right answer, or some of it, and are not right."""
    right, first, last = decision.right, decision.wrong[0], decision.wrong[-1]
    frame = framed(right)
    one, other = framed(first).answer, framed(last).answer
    yield "an answer within a thought counts", f"<think>{right}</think>\n{first}"
    yield "an answer within a thought counts", f"<think>{right}</think>"
    yield "an answer within a thought that is not closed counts", f"<think>Perhaps {right}"
    yield "one of several answers counts", f"{first}\n{right}\n{last}"
    for between in (", ", " ", "\n"):
        yield (
            "one of several answers counts",
            frame.with_answer(between.join((one, frame.answer, other))),
        )
    # Whichever comes first or last may count, but not the right one wherever it stands.
    if decision.is_taken_for(f"{right}\n{first}", right):
        yield "the right one of two answers counts, in any order", f"{first}\n{right}"
    yield from _near(frame)


def _near(frame: Framed) -> Iterator[tuple[str, str]]:
    """Yield (kind, text) of answers that are nearly right."""
    answer = frame.answer
    if _WHOLE.fullmatch(answer):
        number = int(answer)
        for near in {number + 1, number - 1, number + 10, -number, 10 * number} - {number}:
            yield f"a number counts that is off ({near - number:+d})", frame.with_answer(str(near))
    if _WORD.fullmatch(answer):
        for text in (f"9{answer}9", f"{answer}9", f"9{answer}", f"x{answer}x"):
            yield "an answer within a longer word counts", frame.with_answer(text)
        for text in {answer[:1], answer[-1:], answer[: len(answer) // 2]} - {answer}:
            yield "a part of an answer counts", frame.with_answer(text)
