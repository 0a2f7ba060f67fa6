"""Whatever coder and tester write, a step returns: depth, width, surrogates, huge numbers."""

import json

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pettingllms.testing import play
from pettingllms_envs.code import CodeEnv
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


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
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
    for depth in range(780, 1000, 3):
        deep = "[" * depth + "]" * depth
        texts = {"input": "[1, 2]", "output": "3", kind: deep}
        branch = env.fork()
        branch.step("".join(f"```{name}\n{text}\n```\n" for name, text in texts.items()))
        assert "parse_error" in branch.infos["tester_0"]


@pytest.mark.parametrize("depth", [600, 750, 850, 900, 950])
def test_no_returned_value_raises(judge, add, depth):
    deep = f"x = []\n    for _ in range({depth}): x = [x]"
    program = f"def add(a, b):\n    {deep}\n    return x"
    expected = "[" * (depth + 1) + "]" * (depth + 1)
    assert judge.passes(add, program, (CodeTest("[1, 2]", expected),)) == (False,)
    assert "within 100 levels" in judge.run(add, program, ["[1, 2]"])[0].error
