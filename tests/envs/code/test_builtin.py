"""Every built-in problem is certified, and variants of programs are parsed and never run."""

import ast
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pettingllms
from pettingllms.seeding import split_of
from pettingllms_envs.code import builtin_problems
from pettingllms_envs.code.env import problem_table
from pettingllms_envs.code.known_bad import MAX_SOURCE_CHARS, mutants
from pettingllms_envs.datasets import CodeProblem, load_problems, near_duplicates

PROBLEMS = builtin_problems()
every_problem = pytest.mark.parametrize("problem", PROBLEMS.values(), ids=PROBLEMS)
few_by_day = pytest.mark.parametrize(
    "problem",
    [
        pytest.param(problem, id=name, marks=[pytest.mark.nightly] if number % 5 else [])
        for number, (name, problem) in enumerate(PROBLEMS.items())
    ],
)


def test_there_are_enough_of_every_difficulty_in_every_split():
    assert len(PROBLEMS) >= 60
    assert len(problem_table("builtin", None, None, None, None)) == len(PROBLEMS)
    for split in ("train", "validation", "test"):
        table = problem_table("builtin", split, None, None, None)
        assert {split_of(problem_id.encode()) for problem_id in table} == {split}
        assert {problem.difficulty for problem in table.values()} == {
            "introductory",
            "easy",
            "medium",
            "hard",
        }


@few_by_day
def test_reference_passes_and_wrong_programs_fail(judge, problem):
    tests = problem.public_tests + problem.tests
    assert all(judge.passes(problem, problem.solution, tests)), "the reference program is wrong"
    assert len(set(problem.wrong_programs)) >= 2
    for wrong in problem.wrong_programs:
        passed = judge.passes(problem, wrong, problem.tests)
        assert not all(passed), "no golden test catches this program"


@every_problem
def test_problems_are_complete(problem):
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", problem.id)
    (example,) = problem.public_tests
    shown = (
        f"\n\nExample input\n{example.input.strip()}\n\nExample output\n{example.output.strip()}"
    )
    assert problem.statement.strip().endswith(shown)
    for part in ("\n\nInput\n", "\n\nOutput\n"):
        assert part in problem.statement
    assert problem.statement.isascii()
    assert len(problem.tests) >= 10
    assert tuple(example.input.split()) not in {tuple(t.input.split()) for t in problem.tests}
    assert len({test.input for test in problem.tests}) == len(problem.tests)
    assert all(test.output and len(test.input) < 100_000 for test in problem.tests)


def test_no_statement_repeats_another_one():
    statements = [problem.statement.split("\n\nInput\n")[0] for problem in PROBLEMS.values()]
    pairs = near_duplicates(statements, statements, threshold=0.3)
    assert {(pair.first, pair.second) for pair in pairs if pair.first != pair.second} == set()


FULL_REWARD = 3.0


def first_return(env, problem_id, source):
    """Return of the coder for one program, and whether the episode was a success."""
    env.reset(seed=0, options={"problem": problem_id})
    env.step(f"```python\n{source}\n```")
    total = env.rewards["coder_0"]
    return total, env.infos["coder_0"]["golden_passed"] == env.infos["coder_0"]["golden_total"]


@pytest.mark.slow
@pytest.mark.parametrize("step", [8, pytest.param(1, marks=pytest.mark.nightly)])
def test_references_earn_everything_and_mutants_do_not(shared_data, step):
    path = str(shared_data("code_contests_sample.jsonl"))
    env = pettingllms.make("code_v0", source=path, split=None)
    problems = load_problems(CodeProblem, path).problems
    assert len(problems) == 69
    survivors = []
    for problem in problems[::step]:
        total, success = first_return(env, problem.id, problem.solution)
        assert (total, success) == (FULL_REWARD, True), problem.id
        quick = pettingllms.make(
            "code_v0", source=[problem._replace(time_limit_s=1.0)], split=None, max_tests=4
        )
        for variant in mutants(problem.solution, 4):
            total, success = first_return(quick, problem.id, variant)
            if not success:
                assert total < 2.0
                break
        else:
            survivors.append(problem.id)
    assert len(survivors) <= 8 // step, survivors


def test_each_variant_changes_one_thing():
    source = "a, b = map(int, input().split())\nprint(a + b if a < b and b > 1 else 0)\n"
    found = mutants(source, 50)
    assert len(set(found)) == len(found) >= 6
    plain = ast.unparse(ast.parse(source)) + "\n"
    assert plain not in found
    assert any("a - b" in variant for variant in found)
    assert any("a <= b" in variant for variant in found)
    assert any(" or " in variant for variant in found)


def test_loops_that_might_not_end_are_left_alone():
    source = "n = 5\nwhile n > 0:\n    n -= 1\nprint(n)\n"
    for variant in mutants(source, 50):
        assert "while n > 0:\n    n -= 1" in variant


def test_the_limit_spreads_over_the_program():
    lines = "".join(f"x{i} = {i} + y\n" for i in range(40))
    found = mutants(lines, 4)
    assert len(found) == 4
    old = lines.split("\n")
    changed = [
        [a != b for a, b in zip(variant.split("\n"), old, strict=True)].index(True)
        for variant in found
    ]
    assert changed == sorted(changed)
    assert changed[-1] - changed[0] >= 20


def test_built_in_solutions_have_variants():
    for problem in builtin_problems().values():
        found = mutants(problem.solution, 8)
        assert found == mutants(problem.solution, 8)
        for variant in found:
            ast.parse(variant)


@given(st.text(max_size=200))
def test_any_text_is_taken(text):
    mutants(text, 5)


def test_what_is_not_python_or_too_long_has_no_variants():
    assert mutants("this is not python", 5) == ()
    assert mutants("(" * 5000, 5) == ()
    assert mutants("x = 1\n" * MAX_SOURCE_CHARS, 5) == ()
    assert mutants("print('hello')", 5) == ()
    assert mutants("x = 1\x00", 5) == ()
