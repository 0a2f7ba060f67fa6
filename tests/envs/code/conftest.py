"""What the tests of the coder-tester environment share."""

import pytest

from pettingllms_envs.code.judge import default_judge
from pettingllms_envs.datasets import CodeProblem, CodeTest

DOUBLE = CodeProblem(
    id="double",
    statement="Print twice the number.",
    tests=tuple(CodeTest(f"{n}\n", f"{2 * n}\n") for n in (3, 0, -7, 100)),
    public_tests=(CodeTest("1\n", "2\n"),),
    solution="print(2 * int(input()))\n",
    wrong_programs=(
        "n = int(input())\nprint(2 * abs(n))\n",
        "n = int(input())\nprint(2 * n if 0 <= n < 4 else n + 3)\n",
        "n = int(input())\nprint(2 * n if n >= 0 else n)\n",
    ),
    time_limit_s=2.0,
)
ADD = CodeProblem(
    id="add",
    statement="Add two numbers.",
    tests=(CodeTest("[1, 2]", "3"), CodeTest("[-1, 1]", "0"), CodeTest("[0.1, 0.2]", "0.3")),
    solution="def add(a, b):\n    return a + b\n",
    wrong_programs=("def add(a, b):\n    return abs(a) + abs(b)\n",),
    function_name="add",
    time_limit_s=2.0,
)


@pytest.fixture(scope="session")
def double():
    return DOUBLE


@pytest.fixture(scope="session")
def add():
    return ADD


@pytest.fixture(scope="session")
def judge():
    return default_judge()


@pytest.fixture(scope="session")
def program():
    """Return how a coder writes a program."""
    return lambda source: f"Here it is.\n```python\n{source}\n```\n"


@pytest.fixture(scope="session")
def test_text():
    """Return how a tester writes tests."""

    def write(*pairs):
        blocks = (f"```input\n{a}\n```\n```output\n{b}\n```" for a, b in pairs)
        return "\n".join(["I think:", *blocks])

    return write
