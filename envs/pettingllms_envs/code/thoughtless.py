"""Tests that take no thought: an example with its input edited, and its output left as it is."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping

from pettingllms_envs.datasets import CodeProblem, CodeTest

MAX_EXAMPLES = 2
"""Examples of a problem that are edited."""

_WHOLE = re.compile(r"(?<![\w.])-?\d{1,18}(?![\w.])")


def _reversed(line: str) -> str:
    words = line.split()
    return " ".join(reversed(words)) if len(words) > 1 else line[::-1]


def _last_line(change: Callable[[str], str]) -> Callable[[str], str]:
    def edit(text: str) -> str:
        head, newline, line = text.rpartition("\n")
        return head + newline + change(line)

    return edit


def _plus(place: int, added: int) -> Callable[[str], str]:
    def edit(text: str) -> str:
        numbers = list(_WHOLE.finditer(text))
        if not numbers:
            return text
        start, end = numbers[place].span()
        return f"{text[:start]}{int(text[start:end]) + added}{text[end:]}"

    return edit


EDITS: Mapping[str, Callable[[str], str]] = {
    "last line reversed": _last_line(_reversed),
    "last line sorted": _last_line(lambda line: " ".join(sorted(line.split()))),
    "last line twice": _last_line(lambda line: f"{line}\n{line}"),
    "without the last line": lambda text: text.rpartition("\n")[0],
    "last number plus one": _plus(-1, 1),
    "last number minus one": _plus(-1, -1),
    "first number plus one": _plus(0, 1),
    "first number minus one": _plus(0, -1),
}
"""Name -> an edit of the input of an example, without spaces or line ends around it."""


def thoughtless_tests(problem: CodeProblem) -> Iterator[CodeTest]:
    """Yield what a tester without skill writes; whether a test is right is not asked.

    Every edited input comes with the output of the example as it is, and with its last number one
    larger and one smaller.
    """
    for example in problem.public_tests[:MAX_EXAMPLES]:
        output = example.output.strip()
        outputs = dict.fromkeys((output, _plus(-1, 1)(output), _plus(-1, -1)(output)))
        for edit in EDITS.values():
            edited = edit(example.input.strip())
            yield from (CodeTest(edited, output) for output in outputs)
