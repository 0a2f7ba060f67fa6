"""What coder and tester read, how their texts are read, and what the scripted policies write."""

from __future__ import annotations

import io
import json
import re
import tokenize
from collections.abc import Mapping

from pettingllms import parsing
from pettingllms.errors import UnreachableRequest
from pettingllms.files import packaged
from pettingllms.parsing import after_thinking, code_blocks, quoted
from pettingllms.prompts import PromptTemplate
from pettingllms.sandbox.outcome import without_middle
from pettingllms.types import ParseError
from pettingllms_envs.code.comparison import json_or_none
from pettingllms_envs.code.judge import Judge
from pettingllms_envs.code.rules import CodeState, Mismatch
from pettingllms_envs.datasets import CodeProblem, CodeTest

MAX_PROGRAM_CHARS = 50_000
MAX_TEST_CHARS = 20_000
"""Longest input and longest output of a tester's test."""
SHOWN_PROGRAM_CHARS = 6000
SHOWN_TEXT_CHARS = 800
"""Longest input or output that a prompt shows."""

FIELDS: Mapping[str, str] = {
    "problem": "the problem, with the starter code if there is one",
    "program_form": "what kind of program is asked for",
    "test_form": "what the input and output of a test must look like",
    "check": "alone: what the program is run on and what hands it in; empty in a team",
    "tests_per_turn": "maximum number of tests",
    "turn": "number of the turn, from 1",
    "max_turns": "turns of an episode",
    "history": "the standing program and the latest mismatches; empty in the first turn",
    "news": "the standing program and what happened in the turn before",
}


def read_program(text: str) -> str | ParseError:
    """Read the program of an answer; see `pettingllms.parsing`."""
    return parsing.read_program(text, MAX_PROGRAM_CHARS)


def without_comments(program: str) -> str:
    """A program without its comments and blank lines, so that two that run alike are equal.

    A program that has no tokens (it does not end its brackets or strings) is given back as it is.
    """
    # Tokens, not a syntax tree: Python's parser may take its process down on hostile nesting.
    skipped = (tokenize.COMMENT, tokenize.NL)
    try:
        tokens = list(tokenize.generate_tokens(io.StringIO(program).readline))
    except (tokenize.TokenError, SyntaxError):
        return program
    kept = (one.string or tokenize.tok_name[one.type] for one in tokens if one.type not in skipped)
    return "\0".join(kept)


def read_tests(text: str, limit: int, is_call: bool) -> tuple[CodeTest, ...] | ParseError:
    """Read the last tests of a text, at most `limit` pairs of an ```input and an ```output block.

    Both blocks of a test that calls a function must be JSON.
    """
    pairs = _test_pairs(text)
    if isinstance(pairs, ParseError):
        return pairs
    tests = tuple(dict.fromkeys(pairs))[-limit:]
    if not tests:
        return ParseError("no ```input block followed by an ```output block")
    for test in tests:
        if max(map(len, test)) > MAX_TEST_CHARS:
            return ParseError(f"a test of more than {MAX_TEST_CHARS} characters")
        if not test.output.strip():
            return ParseError("a test without an expected output")
        if is_call and not isinstance(json_or_none(test.input), list):
            return ParseError("an input that is not a JSON list of arguments")
        output = json_or_none(test.output, is_returned=True)
        if is_call and output is None and test.output.strip() != "null":
            return ParseError("an output that is not JSON")
    return tests


def _test_pairs(text: str) -> list[CodeTest] | ParseError:
    answer = after_thinking(text)
    if isinstance(answer, ParseError):
        return answer
    pairs: list[CodeTest] = []
    given: str | None = None
    for block in code_blocks(answer):
        if block.label not in ("input", "output"):
            continue
        if block.extra or not block.is_closed:
            problem = "text on the line of its fence" if block.extra else "no closing fence"
            return ParseError(f"an ```{block.label} block with {problem}")
        if block.label == "input":
            given = block.content
        elif given is not None:
            pairs.append(CodeTest(given, block.content))
            given = None
    return pairs


_OWN_LINE = re.compile(
    r"\s*(?:```|turn \d+ of \d|in the last turn, the |(?:problem|input \(turn \d+\)"
    r"|expected (?:output|by the tester)|got from the program|the (?:\w+ )?program [^:]*"
    r"|tests on which [^:]*|examples that a program [^:]*):\s*$)",
    re.IGNORECASE,
)


def shown(text: str, limit: int = SHOWN_TEXT_CHARS) -> str:
    """A text fit for a prompt: quoted where it could be the prompt's own, without a long middle."""
    return quoted(without_middle(text.rstrip(), limit), _OWN_LINE)


def fields(
    problem: CodeProblem, state: CodeState, max_turns: int, tests_per_turn: int, is_alone: bool
) -> dict[str, object]:
    """The values of the placeholders in `FIELDS`."""
    latest = tuple(m for m in state.mismatches if m.turn == state.turn - 1)
    return {
        "problem": _problem_text(problem),
        "program_form": _program_form(problem),
        "test_form": _WORDS["call_form" if problem.function_name else "stdin_form"],
        "check": _WORDS["check" if problem.public_tests else "no_check"] if is_alone else "",
        "tests_per_turn": tests_per_turn,
        "turn": state.turn + 1,
        "max_turns": max_turns,
        "history": _situation(state, state.mismatches, is_alone) if state.turn else "",
        "news": _situation(state, latest, is_alone).strip(),
    }


def _problem_text(problem: CodeProblem) -> str:
    if not problem.starter:
        return problem.statement
    return f"{problem.statement}\n\nStarter code:\n```python\n{problem.starter.rstrip()}\n```"


def _program_form(problem: CodeProblem) -> str:
    name = problem.function_name
    if name is None:
        return "The program reads standard input and prints the answer to standard output."
    return f"The program defines the function {name} (or the class of the starter code)."


def _situation(
    state: CodeState,
    mismatches: tuple[Mismatch, ...],
    is_alone: bool,
    label: str | None = None,
) -> str:
    parts: list[str] = []
    if state.program is not None:
        parts.append(f"{label or _label(state)}:\n```python\n{_program(state.program)}\n```")
    parts += [f"In the last turn, {remark}." for remark in state.remarks]
    if mismatches:
        parts.append(
            "Examples that a program of yours did not pass:"
            if is_alone
            else "Tests on which program and test did not agree; either may be wrong:"
        )
        parts += (_mismatch_text(mismatch, is_alone) for mismatch in mismatches)
    return "\n\n" + "\n\n".join(parts) if parts else ""


def _label(state: CodeState) -> str:
    if any(remark.startswith("the coder ") for remark in state.remarks):
        return "The latest program that could be read"
    return "The program of the last turn"


def _program(source: str) -> str:
    return shown(source, SHOWN_PROGRAM_CHARS)


def _mismatch_text(mismatch: Mismatch, is_alone: bool) -> str:
    expected = "Expected output" if is_alone else "Expected by the tester"
    return (
        f"Input (turn {mismatch.turn + 1}):\n{shown(mismatch.input)}\n"
        f"{expected}:\n{shown(mismatch.expected)}\n"
        f"Got from the program:\n{shown(mismatch.actual)}"
    )


_WORDS: Mapping[str, str] = packaged("pettingllms_envs.code")


def team_prompts(is_alone: bool) -> dict[str, PromptTemplate]:
    """The prompts of the coder, alone or with a tester, and of the tester."""
    task, news, asked = _WORDS["task"], _WORDS["news"], _WORDS["ask_test"]
    coder = _WORDS["coder"] + _WORDS["single_coder" if is_alone else "team_coder"]
    return {
        "coder": PromptTemplate(coder, task + _WORDS["ask_program"], news + _WORDS["ask_again"]),
        "tester": PromptTemplate(_WORDS["tester"], task + asked, news + asked),
    }


def board(problem: CodeProblem, state: CodeState, is_alone: bool) -> str:
    """The state as readable text."""
    verdict = f"{state.num_passed} of {len(problem.tests)} golden tests passed"
    tests = "".join(f"\n\ntest input:\n{t.input}\nexpected:\n{t.output}" for t in state.tests)
    situation = _situation(state, state.mismatches, is_alone, "The present program")
    return f"{problem.id}\n{problem.statement}\n\n{verdict}{situation}{tests}"


_MAX_ORACLE_TEST_CHARS = 2000
_CONSTANT = CodeTest("1\n", "1\n")
_CONSTANT_CALL = CodeTest("[1]", "1")


def scripted_text(problem: CodeProblem, role: str, policy: str, judge: Judge) -> str:
    """What a scripted policy writes in a role.

    Raises:
        UnreachableRequest: The problem has no solution for the policy `oracle`.
    """
    if policy == "oracle" and problem.solution is None:
        raise UnreachableRequest(
            f"the problem {problem.id} has no solution for the policy 'oracle'. "
            "Use a source with solutions, or another policy."
        )
    return program_of(problem, policy) if role == "coder" else tests_of(problem, policy, judge)


def program_of(problem: CodeProblem, policy: str) -> str:
    """A coder's text: the solution, a program that prints 0, or the example's output."""
    if policy == "oracle":
        source = problem.solution or ""
    else:
        output = "0"
        if policy == "example" and problem.public_tests:
            output = problem.public_tests[0].output.strip()
        if problem.function_name is None:
            source = f"print({output!r})\n"
        else:
            source = f"def {problem.function_name}(*args):\n    return {_literal(output)}\n"
    return f"```python\n{source.rstrip()}\n```"


def _literal(text: str) -> str:
    try:
        return repr(json.loads(text))
    except ValueError:
        return repr(text)


def tests_of(problem: CodeProblem, policy: str, judge: Judge) -> str:
    """A tester's text: a right and telling test, a constant one, or the example."""
    if policy == "oracle":
        test = _telling_test(problem, judge)
    elif policy == "example" and problem.public_tests:
        test = problem.public_tests[0]
    else:
        test = _CONSTANT if problem.function_name is None else _CONSTANT_CALL
    given, wanted = (text.removesuffix("\n") for text in test)
    return f"```input\n{given}\n```\n```output\n{wanted}\n```"


def _telling_test(problem: CodeProblem, judge: Judge) -> CodeTest:
    """The golden test that exposes the most known-bad programs, short ones preferred."""
    bad = judge.bad_programs(problem)

    def merit(number: int) -> tuple[bool, bool, int, int]:
        test = problem.tests[number]
        exposed = sum(number in program.failed for program in bad)
        is_short = len(test.input) <= _MAX_ORACLE_TEST_CHARS
        return is_short, judge.adds_to_examples(problem, test), exposed, -len(test.input)

    return problem.tests[max(range(len(problem.tests)), key=merit)]
