"""Every installed algorithm keeps what the training loop relies on; the kit finds what does not."""

import itertools

import pytest

from pettingllms_trainers.algorithms.at_grpo import AtGrpo
from pettingllms_trainers.algorithms.vine import Vine
from pettingllms_trainers.config import algorithm
from pettingllms_trainers.config.algorithm import algorithm_class, algorithm_names
from pettingllms_trainers.testing import check_algorithm

NAMES = algorithm_names()
GROUPINGS = [
    (name, grouping)
    for name in NAMES
    for grouping in ("agent", "turn", "none")
    if name != "auto" and (name != "grpo" or grouping != "turn")
]


@pytest.mark.parametrize("name", NAMES)
def test_it_passes_the_kit(name):
    assert type(algorithm_class(name)()).__name__ == algorithm_class(name).__name__
    check_algorithm(name)


@pytest.mark.parametrize(("name", "grouping"), GROUPINGS)
def test_its_ablations_do(name, grouping):
    check_algorithm(name, grouping=grouping, norm="none", baseline="leave_one_out")


@pytest.mark.parametrize(
    ("name", "parameters"),
    [
        ("at_grpo", {"branch_choice": "softmax", "norm": "batch"}),
        ("at_grpo", {"branching_roles": ("echo",)}),
        ("value", {"gamma": 0.5, "value": {"num_warmup_steps": 1}}),
        ("continuation", {"num_continuations": 2, "gamma": 0.5}),
        ("tree_grpo", {"num_branchings": 1, "gamma": 0.5}),
        ("reinforce", {"credit": "step"}),
        ("reinforce", {"gamma": 0.5}),
        ("vine", {"credit": "step", "num_candidates": 2}),
        ("reinforce", {"credit": "success"}),
    ],
)
def test_its_parameters_do(name, parameters):
    check_algorithm(name, **parameters)


class TheirOwn(AtGrpo):
    """A third party's algorithm.

    Take it in tests.

    Source:
        None.
    """

    name: str = "their_own"
    """Which."""


BROKEN = {
    "a candidate is twice in one group": {
        "groups": lambda self, *given: [*AtGrpo.groups(self, *given)] * 2,
    },
    "which should be 0": {
        "advantages": lambda self, values: [v + 1 for v in AtGrpo.advantages(self, values)],
    },
    "the order of candidates changes an advantage": {
        "advantages": lambda self, values: [
            v * place for place, v in enumerate(AtGrpo.advantages(self, values))
        ],
    },
    "some candidates are compared, and others are not": {
        "groups": lambda self, *given: [
            one for one in AtGrpo.groups(self, *given) if one[1].candidates[0][1] != 1
        ],
    },
    "read back from a checkpoint": {"remember": lambda self, trees, context: {"seen": (1, 2)}},
    "hidden has no docstring": {"__annotations__": {"hidden": int}, "hidden": 3},
}
"""What is found, and the parts of an algorithm that break a promise."""


@pytest.fixture
def known(monkeypatch):
    load = algorithm.algorithm_class

    def know(kind):
        monkeypatch.setattr(
            algorithm, "algorithm_class", lambda name: kind if name == "their_own" else load(name)
        )

    return know


def test_one_of_a_third_party_passes(known):
    known(TheirOwn)
    check_algorithm("their_own", num_candidates=3)


@pytest.mark.parametrize("message", BROKEN)
def test_what_breaks_a_promise_is_found(known, message):
    known(type("Broken", (TheirOwn,), {"__doc__": TheirOwn.__doc__, **BROKEN[message]}))
    with pytest.raises(AssertionError, match=message):
        check_algorithm("their_own")


def test_chance_that_no_seed_decides_is_found(known):
    kinds = itertools.cycle((Vine, AtGrpo))

    def strategy(self, context):
        return next(kinds)(num_candidates=self.num_candidates).strategy(context)

    known(type("Growing", (Vine,), {"__doc__": TheirOwn.__doc__, "strategy": strategy}))
    with pytest.raises(AssertionError, match=r"equal seeds give|every episode has a tree"):
        check_algorithm("their_own")


def test_a_class_may_be_named_by_its_path():
    check_algorithm("pettingllms_trainers.algorithms.vine:Vine", gamma=0.9)
