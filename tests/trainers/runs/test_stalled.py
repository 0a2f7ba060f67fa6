"""A run that learns nothing is found out, with the cause; one that learns or has learnt is not."""

import re
import tomllib
from pathlib import Path

import pytest

from pettingllms_trainers.config import Config
from pettingllms_trainers.runs.metrics import StallWatch

TABLE = tomllib.loads(Path(__file__).with_name("stalled.toml").read_text(encoding="utf-8"))

LEDGER = ("equal_rewards", "truncated", "unused", "flat", "masked", "clipped", "learnt")
CONFIG = Config.model_validate(
    {
        "env": {"id": "plan_path_v0"},
        "policies": {"t": {"model": "tiny"}, "p": {"model": "tiny"}},
        "roles": {"tool": "t", "planner": "p"},
        "rollout": {"max_completion_tokens": 48},
    }
)


def metrics(*, skipped=(), success=0.2, entropy=1.0, lost="equal_rewards", learnt=0.4, **shares):
    """Metrics of a train step; shares such as tool_parse_errors are 0.1 unless given."""
    found = {"rollout/success": success}
    for role, name in CONFIG.roles.items():
        for share in ("parse_errors", "truncated", "same_answer", "one_answer"):
            found[f"role/{role}/{share}"] = shares.get(f"{role}_{share}", 0.1)
        found[f"update/{name}/skipped"] = float(name in skipped)
        left = 0.0 if name in skipped else learnt
        account = dict.fromkeys(LEDGER, 0.0) | {lost: 1 - left, "learnt": left}
        found |= {f"tokens/{name}/{part}": share for part, share in account.items()}
        if name not in skipped:
            found[f"loss/{name}/entropy"] = entropy
    return found


def after(*steps):
    watch = StallWatch(CONFIG)
    said = [watch.step(number, step) for number, step in enumerate(steps, 1)]
    return watch, said


@pytest.mark.parametrize("case", TABLE["causes"], ids=lambda case: case["cause"])
def test_a_warning_comes_once_with_its_cause(case):
    step, what, cause = case["step"], case["what"], case["cause"]
    watch, said = after(*[metrics(**step)] * 4)
    assert [len(lines) > 0 for lines in said] == [False, False, True, False]
    (text,) = [line for line in said[2] if what in line]
    assert text.startswith("train steps 1 to 3: ")
    assert cause in text.partition("Likely cause: ")[2]
    assert watch.is_stalled
    assert any("train steps 1 to 4" in line and what in line for line in watch.warnings())


def test_settings_that_the_run_file_refuses_are_not_advised():
    for name in ("at_grpo", "auto"):
        watch = StallWatch(
            Config.model_validate(CONFIG.model_dump() | {"algorithm": {"name": name}})
        )
        told = [watch.step(step, metrics(learnt=0.0, lost="flat")) for step in range(1, 4)][-1]
        assert ("algorithm.norm" in told[0]) == (name == "at_grpo"), "auto has no norm of its own"


SOUND = TABLE["sound"]


@pytest.mark.parametrize("step", SOUND)
def test_a_run_that_learns_or_has_nothing_left_to_learn_is_not_stuck(step):
    watch, said = after(*[metrics(**step)] * 5)
    assert said == [[]] * 5
    assert watch.warnings() == []
    assert not watch.is_stalled


def test_rollouts_that_are_cut_off_now_and_then_are_noise():
    cut, sound = metrics() | {"rollout/end/context": 0.2}, metrics()
    watch, said = after(*[cut, *[sound] * 5] * 3)
    assert (said, watch.warnings()) == ([[]] * 18, [])


def test_what_has_passed_is_reported_in_the_end_but_stops_nothing():
    stuck, sound = metrics(skipped="tp"), metrics()
    watch, said = after(*[stuck] * 3, sound, *[stuck] * 2, sound)
    assert [len(lines) for lines in said] == [0, 0, 2, 0, 0, 0, 0]
    assert not watch.is_stalled
    assert [text.partition(":")[0] for text in watch.warnings()] == ["train steps 1 to 3"] * 2


@pytest.mark.parametrize(
    ("figures", "message"),
    [
        (
            {"x/share": 0.97, "y/share": 0.03},
            "97 % of the gradient of p is that of x. .* x has cap",
        ),
        ({"x/y/cosine": -0.8}, r"gradients of x and y in p are opposed \(cosine -0.80\)"),
    ],
)
def test_a_role_that_captures_a_shared_policy_is_named_and_stops_nothing(figures, message):
    found = metrics() | {f"gradient/p/{name}": value for name, value in figures.items()}
    watch, said = after(found, found, found)
    assert [len(lines) for lines in said] == [0, 0, 1]
    assert re.search(message, said[2][0]), said
    assert "[[updates.phases]]" in said[2][0]
    assert not watch.is_stalled
    assert len(watch.warnings()) == 1
    fine = {f"gradient/p/{n}": v for n, v in {"x/share": 0.6, "x/y/cosine": -0.1}.items()}
    assert after(*[metrics() | fine] * 3)[1] == [[], [], []]


def test_steps_that_leave_a_policy_frozen_neither_end_nor_prolong_a_finding():
    phases = [{"policies": ["t"], "num_steps": 1}, {"policies": ["p"], "num_steps": 1}]
    config = Config.model_validate(
        CONFIG.model_dump() | {"updates": {"phases": phases, "repeat": True}}
    )
    watch, said = StallWatch(config), []
    for step in range(1, 7):
        other = "p" if step % 2 else "t"
        found = metrics(skipped="tp", tool_parse_errors=0.9)
        del found[f"update/{other}/skipped"]
        said.append([line for line in watch.step(step, found) if "policy t" in line])
    assert [len(lines) for lines in said] == [0, 0, 0, 0, 1, 0]
    assert said[4][0].startswith("train steps 1 to 5: the policy t was not updated")


def test_a_v_that_predicts_nothing_is_found_once_it_had_time_to_learn():
    blind = metrics() | {"value/t/r2": -0.2, "value/p/r2": 0.3}
    watch, said = after(*[blind] * 12)
    assert not any(said[:11])
    (warning,) = said[11]
    assert warning.startswith("train steps 10 to 12: V of t predicts returns worse than their mean")
    assert "shrink" not in warning, "V is not learnt by this algorithm"
    assert not watch.is_stalled, "the policies learn all the same"
    watch, _ = after(*[metrics() | {"value/t/r2": 0.1, "value/p/r2": 0.3}] * 12)
    assert not watch.warnings()
    watch, _ = after(*[metrics(success=0.99) | {"value/t/r2": -0.2, "value/p/r2": 0.3}] * 12)
    assert not watch.warnings(), "where all is solved there is nothing to explain"


def test_a_role_that_is_taught_nothing_while_others_learn_is_named():
    found = metrics(skipped="t") | {"role/tool/decisions_used": 0.0}
    watch, said = after(*[found | {"role/planner/decisions_used": 0.6}] * 3)
    assert [len(lines) for lines in said] == [0, 0, 1]
    assert "no decision of tool has candidates whose rewards differ" in said[2][0]
    assert 'algorithm.name = "reinforce"' in said[2][0]
    assert not watch.is_stalled
    for more in (
        {"role/tool/decisions_used": 0.01, "role/planner/decisions_used": 0.6},
        {"role/tool/decisions_used": 0.0, "role/planner/decisions_used": 0.0},
        {"role/planner/decisions_used": 0.6, "rollout/success": 0.96},
        {"role/planner/decisions_used": 0.6, "role/tool/one_answer": 1.0},
    ):
        assert not after(*[found | more] * 4)[0].warnings()
    steps = [found | {"role/planner/decisions_used": 0.6}] * 4
    for credit in ("step", "return_to_go"):
        parallel = CONFIG.model_dump() | {"algorithm": {"name": "reinforce", "credit": credit}}
        watch = StallWatch(Config.model_validate(parallel))
        warned = any([watch.step(number, step) for number, step in enumerate(steps, 1)])
        assert warned == (credit == "step"), "whole episodes by the step are no better off"
        assert 'name = "reinforce"' not in "".join(watch.warnings()), "it is what it is"


def test_an_update_that_throws_a_policy_away_is_told_at_once():
    watch, said = after(
        metrics() | {"loss/t/update_kl": 0.9}, metrics() | {"loss/t/update_kl": 3.0}
    )
    assert [len(lines) for lines in said] == [0, 1]
    assert "one update has moved the policy t by 3 nats per token" in said[1][0]
    assert "the learning rate is too high" in said[1][0]
    assert "--resume refuses other settings" in said[1][0]
    assert not watch.is_stalled
    assert watch.warnings() == said[1]
    assert "target_kl" not in said[1][0], "an update of one optimizer step cannot end early"
    steps = CONFIG.optimizer.model_copy(update={"num_epochs": 2})
    watch = StallWatch(CONFIG.model_copy(update={"optimizer": steps}))
    (text,) = watch.step(1, metrics() | {"loss/t/update_kl": 3.0})
    assert "a lower optimizer.learning_rate, loss.target_kl = 0.1, in a new run" in text
