"""Copying is not paid: no part of a question and no constant is its answer, beyond chance."""

import random
import re

import pytest

from pettingllms_envs.datasets import MathProblem, load_problems
from pettingllms_envs.math.families import FAMILIES
from pettingllms_envs.math.family import MAX_DIFFICULTY
from pettingllms_envs.math.verifier import default_verifier

CONSTANTS = ("0", "1", "-1", "2", "3", "5", "10", "x", "n", r"\frac{1}{2}", "1,2", "answer")
EXAMPLES_OF_THE_PROMPT = ("(x,y)", "[a,b)", "(0,0)", "[0,1]")
FORMULA = re.compile(r"\$+([^$]+)\$+")
SIDES = re.compile(r"=|\\[lg]e|<|>")
NUMBER = re.compile(r"-?\d+(?:\.\d+)?")
GUESS = re.compile(r"(?:\w+ ?= ?)?(?:-?\d+(?:\.\d+)?|[a-z])")
"""A number or a symbol: a question's own can be the answer by chance, also with its name."""

BY_NAME = {family.name: family for family in FAMILIES}
SAMPLES = ("olympiadbench_sample", "aime_2024", "gsm8k_sample")


@pytest.fixture(params=[*BY_NAME, *SAMPLES])
def problems(request, shared_data):
    if request.param in SAMPLES:
        return load_problems(MathProblem, shared_data(f"{request.param}.jsonl")).problems
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
