"""Held-out evaluation: fixed levels, single samples, honest intervals."""

import asyncio

import pytest

from pettingllms.errors import InvalidArgument
from pettingllms.evaluation.plan import level_seed, manifest_of
from pettingllms_trainers.config import Config
from pettingllms_trainers.errors import RolloutError
from pettingllms_trainers.rollout.candidates import FailureLog
from pettingllms_trainers.rollout.environments import RunEnvironment
from pettingllms_trainers.rollout.episode import LocalEpisodes
from pettingllms_trainers.runs.evaluate import HeldOut, HeldOutSet, evaluation_metrics

ROLES = {"caller": "shared", "echo": "shared"}


@pytest.fixture
def held_out():
    with asyncio.Runner() as runner:

        def make(env, *, allowed=0.0, **evaluation):
            config = Config(
                env={"id": "toy_echo_v0"},
                policies={"shared": {"model": "tiny"}},
                roles=ROLES,
                evaluation={"num_episodes": 20, **evaluation},
            )
            run_env = RunEnvironment("", config.env[0], (env,), env, ROLES)
            levels = HeldOutSet(run_env, LocalEpisodes(env), config, FailureLog(allowed), runner)
            return HeldOut([levels], config)

        yield make


def test_figures_of_greedy_play(held_out, echo_env, scripted_pool):
    pool, engines = scripted_pool(
        caller=lambda p, k, seed: "5", echo=lambda p, k, seed: "99" if seed % 2 else "bad"
    )
    variants = held_out(echo_env(max_turns=1), temperature=0.5).play(pool)
    requests = [r for engine in engines.values() for call in engine.calls for r in call]
    assert all(request.num_candidates == 1 for request in requests), "no tree at evaluation"
    assert sorted({request.sampling.temperature for request in requests}) == [0, 0.5]
    odd = sum(call.seed % 2 for call in engines["echo"].calls[0])
    greedy = variants["greedy"]
    assert (greedy["num_success"], greedy["num_episodes"], greedy["num_failed"]) == (odd, 20, 0)
    assert greedy["success"] == odd / 20
    assert greedy["success_low"] < greedy["success"] < greedy["success_high"]
    assert greedy["roles"]["caller"] == {"num_actions": 20, "reward": 0.5, "parse_errors": 0}
    assert greedy["roles"]["echo"]["parse_errors"] == pytest.approx(1 - odd / 20)
    assert greedy["roles"]["echo"]["reward"] == pytest.approx((99 * odd - (20 - odd)) / 20)
    metrics = evaluation_metrics(variants)
    assert metrics["eval/greedy/echo/parse_errors"] == pytest.approx(1 - odd / 20)
    assert metrics["eval/sampled/num_turns"] == 1


def test_the_held_out_set_is_fixed_and_named(held_out, echo_env, scripted_pool):
    pool, _ = scripted_pool(lambda p, k, seed: "1")
    first, again = (held_out(echo_env(split="test")).play(pool)["greedy"] for _ in range(2))
    assert first == again
    assert held_out(echo_env(split="train")).play(pool)["greedy"]["manifest"] != first["manifest"]
    other = held_out(echo_env(split="test"), seed=1)
    assert other.play(pool)["greedy"]["manifest"] != first["manifest"]
    hashes = []
    for level in range(20):
        env = echo_env(split="test")
        env.reset(seed=level_seed(0, level))
        hashes.append(env.state_hash())
    assert first["manifest"] == manifest_of(hashes), "the levels of pettingllms eval"


def test_failed_rollouts_are_not_solved_and_are_counted(held_out, echo_env, scripted_pool):
    pool, _ = scripted_pool(lambda p, k, seed: "13" if seed % 4 == 0 else "99")
    lossy = echo_env(crash_on="13", crash=ConnectionError)
    greedy = held_out(lossy, allowed=0.9).play(pool)["greedy"]
    ((cause, count),) = greedy["failures"].items()
    assert "ConnectionError" in cause
    assert count == greedy["num_failed"] == greedy["ends"]["connection"] > 0
    assert greedy["num_success"] + greedy["num_failed"] == 20
    with pytest.raises(RolloutError, match="ConnectionError"):
        held_out(lossy).play(pool)
    greedy = held_out(echo_env(crash_on="13")).play(pool)["greedy"]
    assert (greedy["num_failed"], greedy["ends"]["code"]) == (0, count), "the answers' own doing"


def test_scripted_policies_play_the_same_levels(held_out, echo_env, scripted_pool):
    variants = held_out(echo_env(), scripted=("two", "parrot")).play_scripted()
    assert list(variants) == ["scripted:two", "scripted:parrot"]
    pool, _ = scripted_pool(lambda p, k, seed: "1")
    greedy = held_out(echo_env()).play(pool)["greedy"]
    assert {figures["manifest"] for figures in variants.values()} == {greedy["manifest"]}
    reward = variants["scripted:two"]["roles"]["echo"]["reward"]
    assert reward == pytest.approx(3.0), "its number and the team's point"
    with pytest.raises(InvalidArgument, match="policy"):
        held_out(echo_env(), scripted=("wizard",)).play_scripted()
