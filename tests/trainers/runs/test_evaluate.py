"""Held-out evaluation: fixed levels, single samples, honest intervals."""

import asyncio

import pytest

from pettingllms.errors import InvalidArgument
from pettingllms.evaluation.levels import manifest_of
from pettingllms_trainers.errors import RolloutError
from pettingllms_trainers.rollout.episode import LocalEpisodes
from pettingllms_trainers.rollout.failures import FailureLog
from pettingllms_trainers.runs.evaluate import (
    evaluate_policies,
    evaluate_scripted,
    held_out_specs,
)
from pettingllms_trainers.types import SamplingSettings


def evaluate(env, pool, *, specs=None, allowed=0.0, temperature=0.0):
    specs = held_out_specs(20, 0) if specs is None else specs
    sampling = dict.fromkeys(pool.roles, SamplingSettings(temperature=temperature))
    arm = evaluate_policies(
        "greedy", LocalEpisodes(env), pool, specs, sampling, FailureLog(allowed)
    )
    return asyncio.run(arm)


def test_figures_of_an_arm(echo_env, scripted_pool):
    pool, engines = scripted_pool(
        caller=lambda p, k, seed: "5", echo=lambda p, k, seed: "99" if seed % 2 else "bad"
    )
    arm = evaluate(echo_env(max_turns=1), pool)
    requests = [r for engine in engines.values() for call in engine.calls for r in call]
    assert all(request.num_candidates == 1 for request in requests), "no tree at evaluation"
    assert all(request.sampling.temperature == 0 for request in requests)
    odd = sum(call.seed % 2 for call in engines["echo"].calls[0])
    assert (arm.num_success, arm.num_episodes, arm.num_failed) == (odd, 20, 0)
    assert arm.success == odd / 20
    assert arm.success_low < arm.success < arm.success_high
    assert arm.roles["caller"].reward == pytest.approx(0.5)
    assert arm.roles["caller"].num_actions == 20
    assert arm.roles["echo"].parse_errors == 1 - odd / 20
    assert arm.roles["echo"].reward == pytest.approx((99 * odd - (20 - odd)) / 20)
    assert arm.metrics()["eval/greedy/echo/parse_errors"] == 1 - odd / 20
    assert arm.to_json()["roles"]["caller"]["num_actions"] == 20


def test_the_held_out_set_is_fixed_and_named(echo_env, scripted_pool):
    pool, _ = scripted_pool(lambda p, k, seed: "1")
    arms = [evaluate(echo_env(split="test"), pool) for _ in range(2)]
    assert arms[0] == arms[1]
    assert evaluate(echo_env(split="train"), pool).manifest != arms[0].manifest
    other = evaluate(echo_env(split="test"), pool, specs=held_out_specs(20, 1))
    assert other.manifest != arms[0].manifest
    assert manifest_of(["a", "b"]) != manifest_of(["b", "a"])


def test_time_out_is_not_success(echo_env, scripted_pool):
    pool, _ = scripted_pool(lambda p, k, seed: "1")
    arm = evaluate(echo_env(max_turns=2), pool)
    assert arm.num_success == 0
    assert arm.num_turns == 2


def test_failed_rollouts_are_not_solved_and_are_counted(echo_env, scripted_pool):
    pool, _ = scripted_pool(lambda p, k, seed: "13" if seed % 4 == 0 else "99")
    arm = evaluate(echo_env(crash_on="13"), pool, allowed=0.9)
    assert arm.num_failed > 0
    assert arm.num_success + arm.num_failed == 20
    assert arm.metrics()["eval/greedy/num_failed"] == arm.num_failed
    with pytest.raises(RolloutError, match="ZeroDivisionError"):
        evaluate(echo_env(crash_on="13"), pool)


def test_scripted_policies_play_the_same_levels(echo_env, scripted_pool):
    specs = held_out_specs(20, 0)
    two, parrot = evaluate_scripted(echo_env(), specs, ["two", "parrot"], ["caller", "echo"])
    assert two.name == "scripted:two"
    pool, _ = scripted_pool(lambda p, k, seed: "1")
    assert two.manifest == parrot.manifest == evaluate(echo_env(), pool).manifest
    assert two.roles["echo"].reward == pytest.approx(3.0), "its number and the team's point"
    with pytest.raises(InvalidArgument, match="policy"):
        evaluate_scripted(echo_env(), specs, ["wizard"], ["caller", "echo"])


def test_swapped_roles(scripted_pool):
    pool, _ = scripted_pool(caller=lambda p, k, s: "1", echo=lambda p, k, s: "2")
    swapped = pool.swapped()
    assert swapped.for_role("caller").name == "echo"
    assert swapped.for_role("echo").name == "caller"
    shared, _ = scripted_pool(lambda p, k, s: "1")
    assert shared.swapped() is None
