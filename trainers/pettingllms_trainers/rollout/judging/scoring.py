"""Who scores an answer: a judge that is asked, or a function."""

from __future__ import annotations

import asyncio
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from pettingllms.policies import Policy, PolicyFailure, Prompt, Sampling, Usage
from pettingllms.prompts import as_observation
from pettingllms_trainers.config.rewards import RewardConfig


class Exchange(NamedTuple):
    """What is scored: an answer, and what it answers."""

    messages: tuple[Mapping[str, str], ...]
    """The prompt, as chat messages."""
    answer: str
    """The answer's text."""


class Verdict(NamedTuple):
    """What a scorer says of an answer."""

    score: float | None
    """The score, finite; None when there is none."""
    text: str = ""
    """What a judge wrote; why there is no score."""
    dollars: float = 0.0
    """What it cost."""


class Scorer(Protocol):
    """Scores answers; called concurrently."""

    async def score(self, exchange: Exchange, seed: int) -> Verdict:
        """Return a verdict, also when there is no score; only programming errors are raised.

        Args:
            exchange: What is scored.
            seed: In [0, 2**31); verdicts with different seeds are independent draws.
        """
        ...


_TEXT = """\
<prompt>
{prompt}
</prompt>
<answer>
{answer}
</answer>

{task}"""
_QUESTION = """\
About the answer above to the prompt above: {question}
Think briefly, then reply on a last line with yes or no."""
_RUBRIC = """\
Grade the answer above to the prompt above. {rubric}
Think briefly, then reply on a last line with Grade: N, where N is a number from 0 to 10."""
_NUM_TRIES = 3
"""How often a judge is asked whose verdict cannot be read."""
_YES_OR_NO = re.compile(r"\b(yes|no)\b", re.IGNORECASE)
_NUMBER = re.compile(r"(?<![\w.-])(-?\d+(?:\.\d+)?)(?:\s*(?:/|out of)\s*10\b)?")
"""A number, without the 10 that it is out of."""


class Judge:
    """Asks a policy, and asks again while its verdict cannot be read.

    Args:
        policy: Who is asked; its own settings say how often a request is sent again.
        config: Question or rubric, and how verdicts are drawn.
        extra: Further fields of the request.
    """

    def __init__(
        self, policy: Policy, config: RewardConfig, extra: Mapping[str, Any] | None = None
    ) -> None:
        self._policy, self._config = policy, config
        self._sampling = Sampling(
            temperature=config.temperature,
            max_completion_tokens=config.max_completion_tokens,
            extra=extra or {},
        )

    async def score(self, exchange: Exchange, seed: int) -> Verdict:
        """See `Scorer.score`."""
        messages = [{"role": "user", "content": judge_prompt(self._config, exchange)}]
        dollars, text = 0.0, ""
        for number in range(_NUM_TRIES):
            prompt = Prompt(messages, "judge_0", (seed + number) % 2**31)
            try:
                (answer,) = await self._policy.sample([prompt], 1, self._sampling)
            except PolicyFailure as error:
                dollars += self._cost(error.usage)
                return Verdict(None, str(error), dollars)
            dollars, text = dollars + self._cost(answer.usage), answer.completions[0].text
            if (score := read_verdict(self._config, text)) is not None:
                return Verdict(score, text, dollars)
        return Verdict(None, f"no verdict can be read in {text!r}", dollars)

    def _cost(self, usage: Usage) -> float:
        asked, written = self._config.dollars_per_million
        return (asked * usage.prompt_tokens + written * usage.completion_tokens) / 1e6


def judge_prompt(config: RewardConfig, exchange: Exchange) -> str:
    """Return what a judge reads."""
    task = (
        _QUESTION.format(question=config.question)
        if config.question
        else _RUBRIC.format(rubric=config.rubric)
    )
    prompt = as_observation(exchange.messages)
    return _TEXT.format(prompt=prompt, answer=exchange.answer, task=task)


def read_verdict(config: RewardConfig, text: str) -> float | None:
    """Return the score in [0, 1] that a judge's text states last; None when it states none."""
    if config.question:
        words = _YES_OR_NO.findall(text)
        return float(words[-1].lower() == "yes") if words else None
    _, _, after = (lower := text.lower()).rpartition("grade:")
    # The first one after the word: what follows it is said of the grade, or of something else.
    stated = _NUMBER.findall(after)[:1] if after != lower else []
    numbers = stated or _NUMBER.findall(lower)
    grade = float(numbers[-1]) if numbers else -1.0
    return grade / 10 if 0 <= grade <= 10 else None


AnswerFunction = Callable[[Sequence[Mapping[str, str]], str], float]
"""``(messages, answer) -> score``; safe to call from several threads."""


class Function:
    """Calls a function in a thread; what it raises is a verdict without a score.

    Args:
        function: Scores an answer.
    """

    def __init__(self, function: AnswerFunction) -> None:
        self._function = function

    async def score(self, exchange: Exchange, seed: int) -> Verdict:
        """See `Scorer.score`."""
        messages = [dict(message) for message in exchange.messages]
        try:
            score = float(await asyncio.to_thread(self._function, messages, exchange.answer))
        except Exception as error:  # noqa: BLE001  the failure of foreign code is one answer's
            return Verdict(None, f"{type(error).__name__}: {error}")
        if not math.isfinite(score):
            return Verdict(None, f"the score is {score}; allowed: a finite number")
        return Verdict(score)
