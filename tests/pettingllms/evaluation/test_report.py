"""Reports and comparisons, on results made by hand."""

import json
import math
import re
from dataclasses import replace

import pytest

import pettingllms.evaluation
from pettingllms.errors import InvalidArgument
from pettingllms.evaluation import (
    EvaluationPlan,
    compare,
    summarise,
    summarise_variant,
    wilson_interval,
)
from pettingllms.evaluation.plan import manifest_of
from pettingllms.evaluation.report import figures_json, tokens, variant_rows
from pettingllms.evaluation.statistics import mean_interval, pass_at_k
from pettingllms.policies import Usage
from pettingllms.tables import as_markdown


def test_the_example_of_the_package_runs(monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    _, code, _ = re.split(r"```(?:python)?", pettingllms.evaluation.__doc__)
    exec(
        code,
        {name: getattr(pettingllms.evaluation, name) for name in pettingllms.evaluation.__all__},
    )
    assert capsys.readouterr().out.startswith("Interval(value=1.0, low=0.96")


def test_success_is_a_wilson_interval(result):
    variant = summarise_variant([result(level, level < 7) for level in range(10)])
    assert variant.success == pytest.approx((0.7, *wilson_interval(0.7, 10)))
    assert (variant.num_success, variant.ends, variant.num_levels) == (
        7,
        {"answered": 7, "turns": 3},
        10,
    )
    assert variant.pass_at_k == {1: variant.success}
    assert variant.manifest == manifest_of(f"state {level}" for level in range(10))


def test_levels_that_repeat_are_reported(result):
    different = summarise_variant([result(level, True) for level in range(3)])
    assert "warning" not in dict(variant_rows(different))
    same = [replace(result(level, True), initial_state_hash="one") for level in range(3)]
    rows = dict(variant_rows(summarise_variant(same)))
    assert "3 levels, 1 different" in rows["episodes"]
    assert "levels repeat" in rows["warning"]


def test_pass_at_k_over_levels(result):
    solved = [0, 1, 3, 4]
    results = [
        result(level, sample < solved[level], sample=sample)
        for level in range(4)
        for sample in range(4)
    ]
    variant = summarise_variant(results)
    assert list(variant.pass_at_k) == [1, 2, 4]
    for k, found in variant.pass_at_k.items():
        assert found.value == pytest.approx(sum(pass_at_k(4, c, k) for c in solved) / 4)
        assert found.low < found.value < found.high
    assert variant.pass_at_k[1] == pytest.approx(variant.success)


def test_intervals_count_levels_that_differ(result):
    """Ten draws of one level say no more about other levels than one play each of it does."""
    same = [replace(result(level, level < 5), level_hash="equal") for level in range(10)]
    other = [result(10, True), result(11, False)]
    variant = summarise_variant(same + other)
    assert (variant.num_levels, variant.num_distinct_levels) == (12, 3)
    assert variant.returns["planner_0"] == mean_interval([0.5, 1.0, 0.0])
    all_differ = summarise_variant([result(level, level % 2 == 0) for level in range(12)])
    assert variant.success.value == all_differ.success.value == 0.5
    solved = [replace(result(level, True), level_hash="equal") for level in range(10)]
    assert (
        summarise_variant(solved).success.low
        < 0.3
        < summarise_variant([result(level, True) for level in range(10)]).success.low
    )


def test_roles_with_tokens_and_cost(result):
    usage = Usage(prompt_tokens=1000, completion_tokens=200)
    role = {"parse_errors": 1, "cut": 1, "usage": usage}
    variant = summarise_variant(
        [result(level, True, **role) for level in range(5)],
        policies={"planner": "openai:x"},
        prices={"openai:x": (2.0, 10.0)},
    )
    planner = variant.roles["planner"]
    assert (planner.policy, planner.num_actions) == ("openai:x", 10)
    assert planner.parse_errors.value == planner.cut == 0.5
    assert planner.cost_usd == pytest.approx((5000 * 2 + 1000 * 10) / 1e6)
    assert summarise_variant([result(0, True)]).roles["planner"].cost_usd is None


@pytest.mark.parametrize(("price", "dollars"), [((2.0, 10.0), 4e-3), ((2.0, 10.0, 0.5), 3.4e-3)])
def test_cached_tokens_have_a_price_of_their_own_if_one_is_named(result, price, dollars):
    usage = Usage(1, 0, 1000, 200, cached_tokens=400, reasoning_tokens=150)
    role = summarise_variant(
        [result(0, True, usage=usage)], policies={"planner": "p"}, prices={"p": price}
    ).roles["planner"]
    assert role.cost_usd == pytest.approx(dollars)
    assert tokens(role.usage) == "1,000 in (400 cached), 200 out (150 reasoning)"
    assert tokens(Usage()) == "0 in, 0 out"


def test_reports_are_json_without_infinities(result):
    plan = EvaluationPlan(env_id="x_v0", variants={"main": {"planner": "p"}}, num_levels=2)
    report = summarise(plan, [result(0, True)])
    assert math.isinf(report.variants["main"].num_turns.low)
    data = json.loads(json.dumps(report.to_json(), allow_nan=False))
    assert data["is_complete"] is False
    assert data["variants"]["main"]["num_turns"] == {"value": 1.0, "low": None, "high": None}
    text = as_markdown(report.parts())
    assert "Incomplete:" in text
    assert "1 of 2" in text


def test_variants_without_an_episode_are_left_out(result):
    plan = EvaluationPlan(env_id="x_v0", variants={"main": {}, "swapped": {}}, num_levels=1)
    assert list(summarise(plan, [result(0, True, variant="swapped")]).variants) == ["swapped"]
    apart = [result(0, True), result(1, True, variant="swapped")]
    assert summarise(plan, apart).comparison is None, "they have no level in common yet"
    assert summarise(plan, [*apart, result(0, False, variant="swapped")]).comparison.num_worse == 1
    with pytest.raises(InvalidArgument, match="finished"):
        summarise_variant([])


def markdown_of(plan, results):
    return as_markdown(summarise(plan, results).parts())


def test_markdown_tables_are_whole(result):
    plan = EvaluationPlan(env_id="x_v0", variants={"main": {"planner": "a|b"}}, num_levels=3)
    lines = markdown_of(plan, [result(i, True) for i in range(3)]).splitlines()
    tables = [line for line in lines if line.startswith("|")]
    assert len({line.replace("\\|", "").count("|") for line in tables}) == 2, "two kinds of tables"
    assert any("a\\|b" in line for line in tables)


def test_a_pool_that_is_smaller_than_asked_for_is_reported(result):
    given = EvaluationPlan(
        env_id="x_v0", variants={"main": {"planner": "p"}}, num_levels=2, num_wanted=9
    )
    text = markdown_of(given, [result(0, True), result(1, False)])
    assert "No more than these 2 of the 9 levels asked for differ up to symmetry" in text


def test_comparison_is_paired_by_level(result):
    first = [result(level, level < 4) for level in range(20)]
    second = [result(level, level < 12) for level in reversed(range(20))]
    found = compare(first, second)
    assert found.num_levels == 20
    assert (found.num_better, found.num_worse) == (8, 0)
    assert found.p_value == pytest.approx(2 / 2**8)
    assert found.success.difference.value == pytest.approx(0.4)
    assert found.success.difference.low > 0
    assert found.figures["planner reward"].difference.value == pytest.approx(0.4)
    assert found.figures["turns"].difference == (0, 0, 0)
    json.dumps(figures_json(found), allow_nan=False)
    assert "+40.0" in as_markdown(found.parts("a", "b"))


def test_only_common_levels_count_and_the_others_are_told(result):
    first = [result(level, True) for level in range(5)]
    second = [result(level, level != 2) for level in range(2, 9)]
    found = compare(first, second)
    assert (found.num_levels, found.num_only_first, found.num_only_second) == (3, 2, 4)
    assert "2 levels that only the first played" in as_markdown(found.parts("a", "b"))


def test_runs_without_a_common_level_are_refused(result):
    with pytest.raises(InvalidArgument, match="same environment"):
        compare([result(0, True)], [result(1, True)])
