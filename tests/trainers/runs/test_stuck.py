"""A run that learns nothing is found out, with the cause; one that learns or has learnt is not."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms_trainers.config import Config
from pettingllms_trainers.runs.stuck import StuckWatch

CONFIG = Config.model_validate(
    {
        "env": {"id": "plan_path_v0"},
        "policies": {"t": {"model": "tiny"}, "p": {"model": "tiny"}},
        "roles": {"tool": "t", "planner": "p"},
        "rollout": {"max_completion_tokens": 48},
    }
)


def metrics(*, skipped=(), success=0.2, entropy=1.0, **shares):
    """Return metrics of a train step; shares such as tool_parse_errors are 0.1 unless given."""
    found = {"rollout/success": success}
    for role, name in CONFIG.roles.items():
        for share in ("parse_errors", "truncated", "same_answer"):
            found[f"role/{role}/{share}"] = shares.get(f"{role}_{share}", 0.1)
        found[f"update/{name}/skipped"] = float(name in skipped)
        if name not in skipped:
            found[f"loss/{name}/entropy"] = entropy
    return found


def after(*steps):
    watch = StuckWatch(CONFIG)
    said = [watch.step(number, step) for number, step in enumerate(steps, 1)]
    return watch, said


CAUSES = [
    (
        {"skipped": "tp", "tool_parse_errors": 0.9},
        "the policy t was",
        "90 % of the answers of tool cannot be read. Show the form",
    ),
    (
        {"skipped": "tp", "tool_parse_errors": 1.0, "tool_truncated": 0.67},
        "the policy t was",
        "67 % are truncated at 48 tokens",
    ),
    (
        {"skipped": "tp", "planner_same_answer": 1.0},
        "the policy p was",
        "the answers of planner are all the same",
    ),
    ({"skipped": "tp"}, "the policy t was", "all answers of a group earn the same"),
    ({"skipped": "t", "tool_parse_errors": 0.8}, "the policy t was", "cannot be read"),
    (
        {"planner_same_answer": 0.97, "entropy": 0.16},
        "97 % of the answers of planner are the same one",
        "collapsed",
    ),
    (
        {"tool_same_answer": 1.0, "entropy": 0.16},
        "(entropy 0.16 nats)",
        "Lower optimizer.learning_rate (now",
    ),
]


@pytest.mark.parametrize(("step", "what", "cause"), CAUSES)
def test_a_warning_comes_once_with_its_cause(step, what, cause):
    watch, said = after(*[metrics(**step)] * 4)
    assert [len(lines) > 0 for lines in said] == [False, False, True, False]
    (text,) = [line for line in said[2] if what in line]
    assert text.startswith("train steps 1 to 3: ")
    assert cause in text.partition("Likely cause: ")[2]
    assert watch.is_stuck
    assert any("train steps 1 to 4" in line and what in line for line in watch.warnings())


SOUND = [
    {},
    {"skipped": "tp", "success": 1.0, "tool_same_answer": 1.0},
    {"skipped": "t"},
    {"tool_parse_errors": 0.9, "tool_truncated": 0.9},
    {"tool_same_answer": 0.9},
]


@pytest.mark.parametrize("step", SOUND)
def test_a_run_that_learns_or_has_nothing_left_to_learn_is_not_stuck(step):
    watch, said = after(*[metrics(**step)] * 5)
    assert said == [[]] * 5
    assert watch.warnings() == []
    assert not watch.is_stuck


def test_what_has_passed_is_reported_in_the_end_but_stops_nothing():
    stuck, sound = metrics(skipped="tp"), metrics()
    watch, said = after(*[stuck] * 3, sound, *[stuck] * 2, sound)
    assert [len(lines) for lines in said] == [0, 0, 2, 0, 0, 0, 0]
    assert not watch.is_stuck
    assert [text.partition(":")[0] for text in watch.warnings()] == ["train steps 1 to 3"] * 2


@given(st.lists(st.sampled_from([*(step for step, *_ in CAUSES), *SOUND]), max_size=12))
def test_every_warning_that_was_given_is_in_the_end(steps):
    """And stuck is a run only while something is wrong in the latest steps."""
    watch, said = after(*(metrics(**step) for step in steps))
    given_ones = {
        text.partition(": ")[2].partition(". Likely")[0] for lines in said for text in lines
    }
    last = {text.partition(": ")[2].partition(". Likely")[0] for text in watch.warnings()}
    assert len(last) >= len(given_ones) * bool(last)
    assert bool(watch.warnings()) == bool(given_ones)
    if steps[-3:] and steps[-1] in SOUND:
        assert not watch.is_stuck
