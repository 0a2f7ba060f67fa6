"""What the teams of this folder solve: sums and products of two digits, with what they may say."""

import operator
import random

TASKS = {"train": ["1+1", "1+2", "2+2", "2*2", "3*1", "1*2"], "test": ["2+1", "1*3"]}
OPERATORS = {"+": operator.add, "*": operator.mul}
NUMBERS = ("2", "3", "4")


def numbers(task):
    """Return the two numbers of a task."""
    return int(task[0]), int(task[2])


def solution(task):
    """Return the right answer: of ``1+2`` it is ``3``."""
    return str(OPERATORS[task[1]](*numbers(task)))


def is_right(task, outcome):
    """Return whether an outcome of a workflow is the right answer."""
    return str(outcome).strip() == solution(task)


def one_of(answers):
    """Return a scripted policy that says anything a role could say.

    Args:
        answers: Agent to its possible answers.
    """

    def policy(task, agent, messages, rng: random.Random):
        return rng.choice(answers[agent])

    return policy
