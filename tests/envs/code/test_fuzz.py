"""Whatever coder and tester write is read or refused, and a step returns."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pettingllms.testing import play
from pettingllms.types import ParseError
from pettingllms_envs.code import CodeEnv
from pettingllms_envs.code.env import (
    MAX_PROGRAM_CHARS,
    MAX_TEST_CHARS,
    read_program,
    read_tests,
    shown,
    without_comments,
)
from pettingllms_envs.datasets import CodeTest

DEPTHS = st.sampled_from([1, 99, 100, 101, 400, 600, 6000]) | st.integers(800, 1000)
PIECES = st.one_of(
    st.text(max_size=20),
    st.text(st.characters(categories=["Cs", "Cc", "Nd", "Lu"]), max_size=20),
    DEPTHS.map(lambda n: "[" * n + "]" * n),
    DEPTHS.map(lambda n: '{"a":' * n + "1" + "}" * n),
    DEPTHS.map(lambda n: "[1, " + "[" * n),
    DEPTHS.map(lambda n: json.dumps([[0] * n, n])),
    st.integers(1, 9000).map(lambda n: "[" + "7" * n + ", 1]"),
    st.integers(1, 400).map(lambda n: f"[1e{n}, -1e-{n}]"),
    st.sampled_from(["NaN", "[Infinity, 1]", '["\\ud800", 1]', "null", "[null, null]", "1e99999"]),
    st.sampled_from(["```", "```input\n", "```output\n", "```python\n", "\n```\n", "\x00", "\r"]),
)
PROGRAMS = st.one_of(
    DEPTHS.map(lambda n: f"def add(a, b):\n    x = []\n    for _ in range({n}): x = [x]\n"
               "    return x"),
    DEPTHS.map(lambda n: f"def add(a, b):\n    x = 1\n    for _ in range({n}): x = {{'k': x}}\n"
               "    return x"),
    st.integers(1, 9000).map(lambda n: f"def add(a, b): return 10 ** {n}"),
    st.sampled_from(
        [
            "def add(a, b): return float('nan')",
            "def add(a, b): return '\\ud800'",
            "def add(a, b): return [0] * 10 ** 5",
            "def add(a, b): return {1: {2: 3}}",
            "def add(a, b):\n    x = []\n    x.append(x)\n    return x",
            "print('\\ud800' if 0 else '7' * 10 ** 5)",
        ]
    ),
    PIECES,
)  # fmt: skip


@pytest.fixture(scope="module")
def envs(add, double):
    quick = [problem._replace(time_limit_s=1.0) for problem in (add, double)]
    return [CodeEnv(source=[problem], split=None, max_turns=1) for problem in quick]


@settings(max_examples=20, suppress_health_check=list(HealthCheck))
@given(program=PROGRAMS, given_=PIECES, wanted=PIECES, noise=PIECES)
def test_a_step_returns_whatever_is_written(envs, program, given_, wanted, noise):
    texts = {
        "coder_0": f"{noise}\n```python\n{program}\n```",
        "tester_0": f"```input\n{given_}\n```\n```output\n{wanted}\n```\n{noise}",
    }
    for env in envs:
        env.reset(seed=0)
        steps = list(play(env, lambda env, agent: texts[agent]))
        assert len(steps) == 2
        assert all(env.terminations.values())
        for agent in env.possible_agents:
            assert isinstance(env.observe(agent), str)
        assert all(-0.25 <= step["info"]["reward_parts"]["local"] <= 1 for step in steps)


@pytest.mark.parametrize("kind", ["input", "output"])
def test_no_depth_raises(envs, kind):
    """Python's limit of recursion is met somewhere between reading and writing: try every depth."""
    env = envs[0]
    env.reset(seed=0)
    env.step("nothing")
    for depth in range(780, 1000, 10):
        deep = "[" * depth + "]" * depth
        texts = {"input": "[1, 2]", "output": "3", kind: deep}
        branch = env.fork()
        branch.step("".join(f"```{name}\n{text}\n```\n" for name, text in texts.items()))
        assert "parse_error" in branch.infos["tester_0"]


@pytest.mark.parametrize("depth", [600, 900])
def test_no_returned_value_raises(judge, add, depth):
    deep = f"x = []\n    for _ in range({depth}): x = [x]"
    program = f"def add(a, b):\n    {deep}\n    return x"
    expected = "[" * (depth + 1) + "]" * (depth + 1)
    assert judge.passes(add, program, (CodeTest("[1, 2]", expected),)) == (False,)
    assert "within 100 levels" in judge.run(add, program, ["[1, 2]"])[0].error


def test_sizes_are_limited(program, test_text):
    assert isinstance(read_program(program("x" * MAX_PROGRAM_CHARS)), ParseError)
    huge = "1" * (MAX_TEST_CHARS + 1)
    assert isinstance(read_tests(test_text((huge, "1")), 1, is_call=False), ParseError)


def test_tests_are_pairs_of_blocks(test_text):
    text = test_text(("1\n2", "3"), ("4", "5"))
    assert read_tests(text, 1, is_call=False) == (CodeTest("4\n", "5\n"),)
    assert read_tests(text, 5, is_call=False) == (CodeTest("1\n2\n", "3\n"), CodeTest("4\n", "5\n"))
    assert read_tests(f"{text}\n{text}", 5, is_call=False) == read_tests(text, 5, is_call=False)
    empty = "```input\n```\n```output\n0\n```"
    assert read_tests(empty, 1, is_call=False) == (CodeTest("", "0\n"),)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1 -> 2",
        "```output\n1\n```\n```input\n1\n```",
        "```input\n1\n```",
        "```input\n1\n```\n```output\n",
        "```input\n1\n```\n```output\n\n```",
    ],
)
def test_texts_without_a_test(text):
    assert isinstance(read_tests(text, 1, is_call=False), ParseError)


def test_tests_of_functions_are_json(test_text):
    good = read_tests(test_text(("[1, [2]]", "null")), 1, is_call=True)
    assert good == (CodeTest("[1, [2]]\n", "null\n"),)
    for pair in (("1", "2"), ("[1", "2"), ("[1]", "two"), ("{}", "1")):
        assert isinstance(read_tests(test_text(pair), 1, is_call=True), ParseError)


@given(st.text(max_size=60) | st.text(alphabet="a(\"'#\\\n :=", max_size=60))
def test_comments_of_any_program_are_dropped_once(text):
    bare = without_comments(f"{text}\n")
    assert without_comments(f"# why\n\n{text}\n") == bare or bare == f"{text}\n"


@pytest.mark.parametrize(
    "other", ["if a:\n    b = '#'\n    c = 1\n", "if a:\n    b = '#!'\nc = 1\n"]
)
def test_without_comments_what_runs_otherwise_differs(other):
    program = "if a:\n    b = '#'\nc = 1\n"
    assert without_comments(program.replace("\n", "  # ...\n")) == without_comments(program)
    assert without_comments(program) != without_comments(other)


@given(st.text(max_size=300), st.integers(10, 100))
def test_shown_texts_are_bounded(text, limit):
    assert len(shown(text, limit)) <= limit + 40
