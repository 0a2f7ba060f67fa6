"""Every installed algorithm keeps what the training loop relies on; the kit finds what does not."""

from typing import ClassVar

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


class Doubled(TheirOwn):
    """As it was. Take it never. Source: none."""

    def groups(self, played, context):
        return [*super().groups(played, context)] * 2


class Biased(TheirOwn):
    """As it was. Take it never. Source: none."""

    def advantages(self, values):
        return [value + 1 for value in super().advantages(values)]


class InOrder(TheirOwn):
    """As it was. Take it never. Source: none."""

    def advantages(self, values):
        return [value * place for place, value in enumerate(super().advantages(values))]


class Partial(TheirOwn):
    """As it was. Take it never. Source: none."""

    def groups(self, played, context):
        return [one for one in super().groups(played, context) if one[1].candidates[0][1] != 1]


class Forgetful(TheirOwn):
    """As it was. Take it never. Source: none."""

    def remember(self, trees, context):
        return {"seen": (1, 2)}


class Undocumented(TheirOwn):
    """As it was. Take it never. Source: none."""

    hidden: int = 3


class Growing(Vine):
    """As it was. Take it never. Source: none."""

    calls: ClassVar = []

    def strategy(self, context):
        self.calls.append(context)
        kind = Vine if len(self.calls) % 2 else AtGrpo
        return kind(num_candidates=self.num_candidates).strategy(context)


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


@pytest.mark.parametrize(
    ("kind", "message"),
    [
        (Doubled, "a candidate is twice in one group"),
        (Biased, "which should be 0"),
        (InOrder, "the order of candidates changes an advantage"),
        (Partial, "some candidates are compared, and others are not"),
        (Forgetful, "read back from a checkpoint"),
        (Undocumented, "Undocumented.hidden has no docstring"),
        (Growing, "equal seeds give other trees|every episode has a tree"),
    ],
)
def test_what_breaks_a_promise_is_found(known, kind, message):
    known(kind)
    with pytest.raises(AssertionError, match=message):
        check_algorithm("their_own")


def test_a_class_may_be_named_by_its_path():
    check_algorithm("pettingllms_trainers.algorithms.vine:Vine", gamma=0.9)
