"""Variants of programs: parsed, never run, always the same."""

import ast

from hypothesis import given
from hypothesis import strategies as st

from pettingllms_envs.code import builtin_problems
from pettingllms_envs.code.known_bad import MAX_SOURCE_CHARS, mutants


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
    changed = [
        next(
            i
            for i, (a, b) in enumerate(zip(v.split("\n"), lines.split("\n"), strict=True))
            if a != b
        )
        for v in found
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
