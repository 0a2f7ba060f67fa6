"""What the scripted policies write: the oracle, a constant, and a copy of the example."""

from __future__ import annotations

import json

from pettingllms.errors import UnreachableRequest
from pettingllms_envs.code.judge import Judge
from pettingllms_envs.datasets import CodeProblem, CodeTest

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
