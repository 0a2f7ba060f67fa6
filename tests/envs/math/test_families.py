"""Every family's answers, worked out a second time by another method."""

import functools
import itertools
import math
import random
import re
from fractions import Fraction

import numpy as np
import pytest
import sympy

from pettingllms.seeding import split_of
from pettingllms_envs.datasets import MathProblem, load_problems
from pettingllms_envs.math.families import FAMILIES, MAX_DIFFICULTY
from pettingllms_envs.math.verifier import default_verifier

BY_NAME = {family.name: family for family in FAMILIES}


def value(answer):
    """The rational number that a family wrote in LaTeX."""
    found = re.fullmatch(r"(-?)\\frac\{(\d+)\}\{(\d+)\}", answer)
    if found is None:
        return Fraction(answer)
    number = Fraction(int(found[2]), int(found[3]))
    assert str(number.denominator) == found[3], "not in lowest terms"
    return -number if found[1] else number


def formula(text):
    """The longest formula of a question, as a sympy expression."""
    return as_sympy(max(text.split("$")[1::2], key=len))


def as_sympy(tex):
    tex = tex.replace(r"\cdot", "*").replace("{", "(").replace("}", ")").replace("^", "**")
    tex = re.sub(r"(\d)\s*(?=[xyk(])", r"\1*", tex)
    return sympy.sympify(tex)


def convolved(dice, faces):
    ways = {0: 1}
    for _ in range(dice):
        after = {}
        for total, count in ways.items():
            for face in range(1, faces + 1):
                after[total + face] = after.get(total + face, 0) + count
        ways = after
    return ways


@functools.cache
def orders(counts):
    if not any(counts):
        return 1
    rest = ((*counts[:i], c - 1, *counts[i + 1 :]) for i, c in enumerate(counts) if c)
    return sum(orders(tuple(sorted(each))) for each in rest)


@functools.cache
def shares(parts, least, total):
    if parts == 0:
        return int(total == 0)
    return sum(shares(parts - 1, least, total - n) for n in range(least, total + 1))


def paths(east, north, x, y):
    ways = {(0, 0): 1}
    for i, j in itertools.product(range(east + 1), range(north + 1)):
        if (i, j) != (0, 0):
            ways[i, j] = ways.get((i - 1, j), 0) + ways.get((i, j - 1), 0)
        if (i, j) == (x, y):
            ways[i, j] = 0
    return ways[east, north]


def marbles(red, blue, drawn, wanted):
    if drawn == 0:
        return Fraction(wanted == 0)
    chance = Fraction(0)
    if red and wanted:
        chance += Fraction(red, red + blue) * marbles(red - 1, blue, drawn - 1, wanted - 1)
    if blue:
        chance += Fraction(blue, red + blue) * marbles(red, blue - 1, drawn - 1, wanted)
    return chance


def hats(people, fixed):
    assignments = itertools.permutations(range(people))
    return sum(sum(i == h for i, h in enumerate(a)) == fixed for a in assignments)


def strictly_inside(corners):
    xs, ys = corners[::2], corners[1::2]
    points = list(zip(xs, ys, strict=True))
    count = 0
    for x, y in itertools.product(range(min(xs), max(xs) + 1), range(min(ys), max(ys) + 1)):
        sides = [
            (bx - ax) * (y - ay) - (by - ay) * (x - ax)
            for (ax, ay), (bx, by) in zip(points, points[1:] + points[:1], strict=True)
        ]
        count += all(s > 0 for s in sides) or all(s < 0 for s in sides)
    return count


def interval(answer):
    return [int(end) for end in answer.strip("[]()").split(",")]


def quadratic_zeros(question):
    zeros = sympy.solve(formula(question.replace(r"\le 0", "").replace("= 0", "")))
    return sorted(int(z) for z in zeros)


def solves_system(params, answer):
    x, y = (value(part) for part in answer.strip("()").split(","))
    a, b, c, d, e, f = params
    return a * x + b * y == c and d * x + e * y == f


def root_power_sum(params):
    total, product, power = params
    return round(sum(r**power for r in np.roots([1, -total, product])).real)


def matrix_term(p, q, first, second, index):
    step = np.array([[p, q], [1, 0]], dtype=object)
    return np.linalg.matrix_power(step, index - 2).dot(np.array([second, first]))[0]


def repeated(params):
    length, digits, whole = params
    text = f"{whole}." + f"{digits:0{length}d}" * 40
    return Fraction(text)


HOLDS = {
    "expression": lambda p, q, a: formula(q) == int(a),
    "fraction_sum": lambda p, q, a: (
        sum(Fraction(*map(int, pair)) for pair in re.findall(r"\{(\d+)\}\{(\d+)\}", q)) == value(a)
    ),
    "percent_chain": lambda p, q, a: math.isclose(
        math.prod(
            (1 + int(n) / 100) if way == "rises" else (1 - int(n) / 100)
            for way, n in re.findall(r"(rises|falls) by (\d+)%", q)
        )
        * p[0],
        value(a),
    ),
    "base_value": lambda p, q, a: (
        int(re.search(r"written (\d+)", q)[1], int(re.search(r"in base (\d+)", q)[1])) == int(a)
    ),
    "missing_mark": lambda p, q, a: Fraction(p[0] * p[1] + int(a), p[0] + 1) == p[2],
    "joint_work": lambda p, q, a: sum(value(a) / hours for hours in p) == 1,
    "linear_equation": lambda p, q, a: (
        as_sympy(q.split("$")[1].split("=")[0]).subs("x", sympy.Rational(value(a)))
        == as_sympy(q.split("$")[1].split("=")[1]).subs("x", sympy.Rational(value(a)))
    ),
    "least_common_multiple": lambda p, q, a: (
        next(m for m in itertools.count(max(p), max(p)) if all(m % n == 0 for n in p)) == int(a)
    ),
    "power_remainder": lambda p, q, a: (p[0] ** p[1]) % p[2] == int(a),
    "linear_congruence": lambda p, q, a: (
        next(x for x in range(p[2]) if p[0] * x % p[2] == p[1]) == int(a)
    ),
    "two_remainders": lambda p, q, a: (
        next(x for x in itertools.count() if x % p[1] == p[0] and x % p[3] == p[2]) == int(a)
    ),
    "divisor_number": lambda p, q, a: sympy.divisor_count(p[0]) == int(a),
    "divisor_sum": lambda p, q, a: sympy.divisor_sigma(p[0]) == int(a),
    "factorial_zeros": lambda p, q, a: (
        math.factorial(p[0]) % 10 ** int(a) == 0 != math.factorial(p[0]) % 10 ** (int(a) + 1)
    ),
    "coprime_numbers": lambda p, q, a: sympy.totient(p[0]) == int(a),
    "power_digit_sum": lambda p, q, a: (
        sum((p[0] ** p[1] // 10**k) % 10 for k in range(80)) == int(a)
    ),
    "committee": lambda p, q, a: (
        sum(1 for _ in itertools.combinations(range(p[0]), p[2]))
        * sum(1 for _ in itertools.combinations(range(p[1]), p[3]))
        == int(a)
    ),
    "letter_orders": lambda p, q, a: (
        orders(tuple(sorted(re.search(r"of ([A-H]+) be", q)[1].count(c) for c in "ABCDEFGH")))
        == int(a)
    ),
    "equal_coins_shares": lambda p, q, a: shares(*p) == int(a),
    "paths_around": lambda p, q, a: paths(*p) == int(a),
    "drawn_marbles": lambda p, q, a: marbles(*p) == value(a),
    "multiples_of_any": lambda p, q, a: (
        sum(any(n % d == 0 for d in p[1:]) for n in range(1, p[0] + 1)) == int(a)
    ),
    "hats_returned": lambda p, q, a: p[0] > 8 or hats(p[0], p[1]) + p[2] == int(a),
    "dice_total": lambda p, q, a: Fraction(convolved(*p[:2])[p[2]], p[1] ** p[0]) == value(a),
    "two_equations": lambda p, q, a: solves_system(p, a),
    "both_roots": lambda p, q, a: quadratic_zeros(q) == interval(a),
    "negative_values": lambda p, q, a: (
        quadratic_zeros(q) == interval(a)
        and formula(q.replace(r"\le 0", "")).subs("x", sympy.Rational(sum(interval(a)), 2)) < 0
    ),
    "polynomial_remainder": lambda p, q, a: (
        sympy.rem(formula(q), as_sympy(q.split("$")[3]), sympy.Symbol("x")) == int(a)
    ),
    "power_sum": lambda p, q, a: math.isclose(root_power_sum(p), int(a), rel_tol=1e-9),
    "root_reciprocals": lambda p, q, a: math.isclose(
        sum(1 / r for r in np.roots(p)).real, value(a), rel_tol=1e-9, abs_tol=1e-9
    ),
    "composed_functions": lambda p, q, a: (
        as_sympy(q.split("= ")[1].split("$")[0]).subs(
            "x", as_sympy(q.split("= ")[2].split("$")[0]).subs("x", p[5])
        )
        == int(a)
    ),
    "arithmetic_series": lambda p, q, a: sum(p[0] + i * p[1] for i in range(p[2])) == int(a),
    "geometric_series": lambda p, q, a: (
        sum(p[0] * Fraction(p[1], p[2]) ** i for i in range(p[3])) == value(a)
    ),
    "recurrence_term": lambda p, q, a: matrix_term(*p) == int(a),
    "telescoping_sum": lambda p, q, a: (
        sum(Fraction(1, k * (k + p[0])) for k in range(1, p[1] + 1)) == value(a)
    ),
    "power_total": lambda p, q, a: (
        sum(as_sympy(re.search(r"\} \((.+)\)\$", q)[1]).subs("k", k) for k in range(1, p[3] + 1))
        == int(a)
    ),
    "repeating_decimal": lambda p, q, a: abs(repeated(p) - value(a)) < Fraction(1, 10**39),
    "triangle_area": lambda p, q, a: math.isclose(
        abs(np.linalg.det([[*p[:2], 1], [*p[2:4], 1], [*p[4:], 1]])) / 2, value(a), rel_tol=1e-9
    ),
    "points_inside": lambda p, q, a: strictly_inside(p) == int(a),
    "box_diagonal": lambda p, q, a: math.isclose(
        float(
            sympy.sympify(
                re.sub(r"^(\d+)\\", r"\1*\\", a)
                .replace(r"\sqrt", "sqrt")
                .replace("{", "(")
                .replace("}", ")")
            )
        ),
        math.dist((0, 0, 0), p),
    ),
    "ring_area": lambda p, q, a: (
        a.endswith(r"\pi")
        and math.isclose(int(a[:-3]) * math.pi, math.pi * p[1] ** 2 - math.pi * p[0] ** 2)
    ),
    "polygon_angle": lambda p, q, a: 180 - Fraction(360, p[0]) == value(a),
    "tree_shadow": lambda p, q, a: value(a) / p[2] == Fraction(p[0], p[1]),
    "inscribed_circle": lambda p, q, a: math.isclose(
        (p[0] * p[2] + p[1] * p[2] - math.hypot(p[0] * p[2], p[1] * p[2])) / 2, int(a)
    ),
}


def samples(family, count):
    rng = random.Random(family.name)
    for number in range(count):
        difficulty = 1 + number % 3
        params = family.sample(rng, difficulty)
        yield params, family.question(params), family.answer(params)


def test_there_are_many_families():
    assert len(FAMILIES) >= 40
    assert len(BY_NAME) == len(FAMILIES)
    assert set(HOLDS) == set(BY_NAME), "every family needs an independent check"


@pytest.mark.parametrize("name", BY_NAME)
def test_answers_hold_by_another_method(name):
    for params, question, answer in samples(BY_NAME[name], 21):
        assert HOLDS[name](params, question, answer), (params, question, answer)


@pytest.mark.parametrize("family", FAMILIES, ids=BY_NAME)
def test_questions_vary_and_reach_every_split(family):
    for difficulty in (1, MAX_DIFFICULTY):
        rng = random.Random(0)
        contents = {family.content(family.sample(rng, difficulty)) for _ in range(400)}
        assert len(contents) >= 30
        assert {split_of(content) for content in contents} == {"train", "validation", "test"}


def test_renamed_questions_are_the_same_content():
    swapped = {
        "fraction_sum": ((1, 2, 3, 4), (3, 4, 1, 2)),
        "two_equations": ((1, 2, 3, 4, 5, 6), (4, 5, 6, 1, 2, 3)),
        "triangle_area": ((0, 0, 1, 0, 0, 1), (0, 1, 0, 0, 1, 0)),
        "multiples_of_any": ((50, 3, 7), (50, 7, 3)),
        "geometric_series": ((3, 2, 4, 5), (3, 1, 2, 5)),
        "paths_around": ((3, 5, 1, 2), (5, 3, 2, 1)),
    }
    for name, (first, second) in swapped.items():
        assert BY_NAME[name].content(first) == BY_NAME[name].content(second)
        assert (
            BY_NAME[name].answer(first) == BY_NAME[name].answer(second) or name == "two_equations"
        )


CONSTANTS = ("0", "1", "-1", "2", "3", "5", "10", "x", "n", r"\frac{1}{2}", "1,2", "answer")
EXAMPLES_OF_THE_PROMPT = ("(x,y)", "[a,b)", "(0,0)", "[0,1]")
FORMULA = re.compile(r"\$+([^$]+)\$+")
SIDES = re.compile(r"=|\\[lg]e|<|>")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
GUESS = re.compile(r"(?:\w+ ?= ?)?(?:-?\d+(?:\.\d+)?|[a-z])")
"""A number or a symbol: a question's own can be the answer by chance, also with its name."""

SAMPLES = ("olympiadbench_sample", "aime_2024", "gsm8k_sample")


WHOLE = [pytest.param(f"{name}.jsonl", marks=pytest.mark.nightly) for name in SAMPLES]


@pytest.fixture(params=[*BY_NAME, *SAMPLES, *WHOLE])
def problems(request, shared_data):
    if request.param not in BY_NAME:
        name = request.param.removesuffix(".jsonl")
        found = load_problems(MathProblem, shared_data(f"{name}.jsonl")).problems
        return found[:: len(found) // 30 if name == request.param else 1]
    family = BY_NAME[request.param]
    numbers = [
        family.sample(random.Random(seed), difficulty)
        for difficulty in range(1, MAX_DIFFICULTY + 1)
        for seed in range(4)
    ]
    return [
        MathProblem(str(each), family.question(each), family.answer(each), form=family.form)
        for each in numbers
    ]


def is_right(problem, answer):
    rules = {"unit": problem.unit, "tolerance": problem.tolerance, "form": problem.form}
    return default_verifier().judge(problem.answer, answer, **rules).is_correct


def parts_of(question):
    formulas = FORMULA.findall(question)
    sides = (side.strip() for formula in formulas for side in (formula, *SIDES.split(formula)))
    return sorted({*sides, *NUMBER.findall(question)} - {""})


def test_no_part_of_a_question_is_its_answer(problems):
    guessed = 0.0
    for problem in problems:
        parts = parts_of(problem.question)
        right = [part for part in parts if is_right(problem, part)]
        assert all(GUESS.fullmatch(part) for part in right), (problem.answer, right)
        guessed += len(right) / max(1, len(parts))
    assert guessed / len(problems) <= 0.15


def test_no_constant_is_the_answer(problems):
    for constant in CONSTANTS + EXAMPLES_OF_THE_PROMPT:
        share = sum(is_right(problem, constant) for problem in problems) / len(problems)
        assert share <= 0.25, constant
