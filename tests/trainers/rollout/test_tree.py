"""Sampling of rollouts: seeds, branch_choice, failures."""

import asyncio
import logging
import random
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms_trainers.algorithms.at_grpo import choose
from pettingllms_trainers.errors import RolloutError
from pettingllms_trainers.policies.pool import Batcher
from pettingllms_trainers.rollout.candidates import FailureLog, episode_specs
from pettingllms_trainers.types import (
    GenerateRequest,
    RolloutStatus,
    SamplingSettings,
    TokenCompletion,
)


def number(prompt, candidate, seed):
    return str((seed + candidate) % 50)


def test_equal_seeds_give_equal_trees_and_other_seeds_others(echo_env, scripted_pool, play):
    trees = [
        play(echo_env(), scripted_pool(number)[0], seeds=seeds, branch_choice="random")
        for seeds in ((1, 2), (1, 2), (3, 4))
    ]
    assert trees[0] == trees[1]
    assert trees[0] != trees[2]


def test_the_environment_that_was_passed_is_not_changed(echo_env, scripted_pool, play):
    env = echo_env()
    env.reset(seed=5)
    before = env.state_hash()
    play(env, scripted_pool(number)[0])
    assert env.state_hash() == before


def test_all_episodes_share_each_engine_call(echo_env, scripted_pool, play):
    """Trap 13: sampled by temperature alone, what is sampled is the policy whose ratio is taken."""
    pool, engines = scripted_pool(caller=number, echo=number)
    play(echo_env(max_turns=3), pool, seeds=range(10))
    for engine in engines.values():
        assert [len(call) for call in engine.calls] == [10, 10, 10]
        seeds = [request.seed for call in engine.calls for request in call]
        assert len(set(seeds)) == len(seeds)
        ways = [request.sampling for call in engine.calls for request in call]
        assert {(way.top_p, way.top_k) for way in ways} == {(1.0, 0)}


def test_levels_and_chance_of_a_step():
    arguments = {"seed": 3, "num_levels": 4}
    first = episode_specs(step=0, first_level=0, **arguments)
    second = episode_specs(step=1, first_level=4, **arguments)
    assert [spec.episode for spec in first] == [0, 1, 2, 3]
    assert len({spec.env_seed for spec in first + second}) == 8
    assert len({spec.seed for spec in first + second}) == 8
    parallel = episode_specs(step=0, first_level=0, num_trajectories=3, **arguments)
    assert [spec.episode for spec in parallel] == list(range(12))
    assert [spec.env_seed for spec in parallel[::3]] == [spec.env_seed for spec in first]
    assert len({spec.seed for spec in parallel}) == 12


rewards = st.lists(st.sampled_from([-1.0, 0.0, 0.5, 2.0]), min_size=1, max_size=8)


@given(rewards)
def test_greedy_takes_the_first_of_the_best(values):
    chosen = choose(values, "greedy", 1.0, random.Random(0))
    assert values[chosen] == max(values)
    assert max(values) not in values[:chosen]


@given(rewards, st.sampled_from(["random", "softmax"]), st.integers(0, 10**6))
def test_random_and_softmax_depend_on_their_seed_only(values, branch_choice, seed):
    picks = {choose(values, branch_choice, 0.5, random.Random(seed)) for _ in range(2)}
    assert len(picks) == 1
    assert picks <= set(range(len(values)))


def test_softmax_follows_the_rewards():
    rng = random.Random(0)
    picks = [choose([0.0, 1.0], "softmax", 0.5, rng) for _ in range(4000)]
    assert sum(picks) / len(picks) == pytest.approx(1 / (1 + 2.718281828**-2), abs=0.02)
    assert {choose([0.0, 1.0], "softmax", 0.001, rng) for _ in range(100)} == {1}


def test_a_failed_generation_drops_the_candidate(echo_env, scripted_pool, play, caplog):
    """Trap 12: nothing stands in for what was not generated."""
    pool, _ = scripted_pool(lambda p, k, s: None if k == 1 and "echo" in p else str(k))
    with caplog.at_level(logging.WARNING):
        (tree,) = play(echo_env(), pool, allowed=0.5)
    assert [len(decision.candidates) for decision in tree.decisions] == [3, 2, 3, 2, 3, 2]
    assert [c.completion.text for c in tree.decisions[1].candidates] == ["0", "2"]
    assert [r.message for r in caplog.records] == [
        "a rollout failed and is left out: the engine gave 2 usable of 3 completions"
    ]


def test_too_many_failed_candidates_stop_the_run(echo_env, scripted_pool, play):
    pool, _ = scripted_pool(lambda p, k, s: None if k == 1 else str(k))
    with pytest.raises(RolloutError, match=r"6 of 18 candidates failed.*0\.2 .*2 usable of 3"):
        play(echo_env(), pool, allowed=0.2)


def test_a_completion_without_tokens_or_logprobs_is_no_candidate(echo_env, scripted_pool, play):
    pool, engines = scripted_pool(number)
    good = engines["shared"]._answer

    def answer(request):
        empty = TokenCompletion(token_ids=(), logprobs=(), text="", finish_reason="stop")
        short = TokenCompletion(token_ids=(1, 2), logprobs=(-1.0,), text="9", finish_reason="stop")
        nan = TokenCompletion(
            token_ids=(1,), logprobs=(float("nan"),), text="9", finish_reason="stop"
        )
        return [empty, short, nan, *good(request)[:1]]

    engines["shared"]._answer = answer
    (tree,) = play(echo_env(), pool, num_candidates=4, allowed=0.9)
    assert all(len(decision.candidates) == 1 for decision in tree.decisions)


@pytest.mark.parametrize("env_threads", [0, 3])
def test_a_crashed_environment_drops_the_tree(echo_env, scripted_pool, play, caplog, env_threads):
    pool, _ = scripted_pool(lambda p, k, s: "13" if s % 3 == 0 and k == 0 else "1")
    env, seeds = echo_env(crash_on="13"), range(12)
    trees = play(env, pool, seeds=seeds, allowed=0.99, env_threads=env_threads)
    failed = [tree for tree in trees if tree.status is RolloutStatus.ENV_FAILED]
    assert 0 < len(failed) < 12
    for tree in failed:
        assert tree.outcome is None
        assert tree.cause == "ZeroDivisionError: the toy crashed"
    assert len(caplog.records) == 1, "each cause is told once"
    assert caplog.records[0].exc_info, "with the traceback"


def test_a_crash_stops_the_run_by_default(echo_env, scripted_pool, play):
    """Trap 14: our own errors are never a quiet failed task."""
    pool, _ = scripted_pool(lambda p, k, s: "13")
    with pytest.raises(RolloutError, match=r"1 of 1 rollouts failed.*ZeroDivisionError"):
        play(echo_env(crash_on="13"), pool)


def test_an_engine_that_raises_fails_the_rollouts(echo_env, scripted_pool, play):
    def out_of_memory(prompt, candidate, seed):
        raise MemoryError("no room")

    pool, _ = scripted_pool(out_of_memory)
    trees = play(echo_env(), pool, seeds=(1, 2), allowed=1.0)
    assert [tree.status for tree in trees] == [RolloutStatus.GENERATION_FAILED] * 2
    with pytest.raises(RolloutError, match=r"2 of 2 rollouts failed.*MemoryError: no room"):
        play(echo_env(), pool, seeds=(1, 2))


def test_a_prompt_that_is_too_long_fails_its_own_rollout(echo_env, scripted_pool, play, caplog):
    pool, engines = scripted_pool(lambda p, k, seed: "1" * (1 + seed % 18))
    engine = engines["shared"]
    engine.max_prompt_tokens = 45  # a long number that was called makes the echo's prompt long
    trees = play(echo_env(max_turns=1), pool, seeds=range(12), allowed=0.99)
    failed = [tree for tree in trees if tree.status is RolloutStatus.GENERATION_FAILED]
    assert 2 < len(failed) < 12
    assert all(
        "invalid prompt_ids" in tree.cause and "allowed: 45" in tree.cause for tree in failed
    )
    assert len({tree.cause for tree in failed}) > 1, "lengths differ"
    assert all(tree.status is RolloutStatus.OK for tree in trees if tree not in failed)
    assert len(caplog.records) == 1, "told once, whatever the lengths"
    with pytest.raises(RolloutError, match=r"of 12 rollouts failed.*allowed: 45"):
        play(echo_env(max_turns=1), pool, seeds=range(12), allowed=0.1)


def test_errors_of_the_trainer_propagate(echo_env, scripted_pool, play, monkeypatch):
    """Trap 14: only what environments and engines raise is a failed rollout."""
    pool, _ = scripted_pool(number)
    pool = replace(pool, roles={"caller": "shared"})
    with pytest.raises(KeyError, match="echo"):
        play(echo_env(), pool, allowed=0.99)

    def broken(messages):
        raise AttributeError("a mistake of ours")

    policy = replace(pool.policies["shared"], encode=broken)
    pool = replace(pool, policies={"shared": policy}, roles={"caller": "shared", "echo": "shared"})
    with pytest.raises(AttributeError, match="a mistake of ours"):
        play(echo_env(), pool, seeds=range(5), allowed=0.99)


def test_a_reward_that_is_not_finite_fails_the_rollout(echo_env, scripted_pool, play):
    """A team reward of 1e18 is the largest allowed; times alpha it overflows."""

    class Generous(type(echo_env())):
        def _act(self, state, agent, action):
            return super()._act(state, agent, action)._replace(team=1e18)

    with pytest.raises(RolloutError, match="the reward inf"):
        play(Generous(alpha=1e308), scripted_pool(number)[0], num_candidates=2)


def request(seed, num_candidates=1):
    return GenerateRequest(
        prompt_ids=(65,), num_candidates=num_candidates, sampling=SamplingSettings(), seed=seed
    )


def test_the_batcher_joins_what_can_run_and_keeps_order(scripted_pool):
    _, engines = scripted_pool(lambda p, k, seed: str(seed))
    batcher = Batcher(engines["shared"])

    async def ask(seed, rounds):
        return [(await batcher.sample(request(seed + r)))[0].text for r in range(rounds)]

    async def main():
        return await asyncio.gather(ask(0, 1), ask(10, 3), ask(20, 2))

    assert asyncio.run(main()) == [["0"], ["10", "11", "12"], ["20", "21"]]
    assert [[r.seed for r in call] for call in engines["shared"].calls] == [
        [0, 10, 20],
        [11, 21],
        [12],
    ]


def test_an_engine_that_loses_requests_is_told(scripted_pool):
    _, engines = scripted_pool(number)

    class Forgetful:
        is_concurrent = False

        def check(self, request):
            pass

        async def generate(self, requests):
            return (await engines["shared"].generate(requests))[1:]

    with pytest.raises(RuntimeError, match="answered 1 requests with 0 results"):
        asyncio.run(Batcher(Forgetful()).sample(request(1)))


def test_failure_log_limits():
    log = FailureLog(0.25)
    log.check(1, 4, "rollouts", "x")
    log.check(0, 0, "rollouts", "")
    with pytest.raises(RolloutError, match="2 of 4 rollouts failed"):
        log.check(2, 4, "rollouts", "x")


CALLS, ECHOES = ("3", "5", "4"), ("1", "8", "5")


def script(prompt, candidate, seed):
    return (CALLS if "caller" in prompt else ECHOES)[candidate]


def texts_played(tree):
    return [decision.candidates[decision.chosen].completion.text for decision in tree.decisions]


def test_greedy_tree_node_by_node(echo_env, scripted_pool, play):
    pool, _ = scripted_pool(script)
    (tree,) = play(echo_env(max_turns=2), pool)
    assert [tuple(decision.key) for decision in tree.decisions] == [
        (0, 0, "caller_0", 0),
        (0, 1, "echo_0", 0),
        (0, 2, "caller_0", 1),
        (0, 3, "echo_0", 1),
    ]
    env = echo_env()
    env.reset(seed=7)
    base = env.state().base
    first, second = base + 5 + 8, base + 5 + 8
    assert [decision.observation.partition("\n\n")[2] for decision in tree.decisions] == [
        "called=None results=[]",
        "called=5 results=[]",
        f"called=None results=[{first}]",
        f"called=5 results=[{first}]",
    ]
    callers, echoes = tree.decisions[0::2], tree.decisions[1::2]
    for decision in callers:
        assert [c.reward for c in decision.candidates] == [0.3, 0.5, 0.4]
        assert [c.team for c in decision.candidates] == [0, 0, 0]
    for decision in echoes:
        assert [c.reward for c in decision.candidates] == [1, 8, 5 + 1], "own action, own fork"
        assert [c.team for c in decision.candidates] == [0, 0, 1]
        assert [c.local for c in decision.candidates] == [1, 8, 5]
    assert [decision.chosen for decision in tree.decisions] == [1, 1, 1, 1]
    assert tree.outcome.truncated
    assert not tree.outcome.success
    assert tree.outcome.num_turns == 2
    assert tree.outcome.returns == {"caller_0": 1.0, "echo_0": 16.0}
    assert second == first


def test_the_prompt_is_what_the_tokens_say(echo_env, scripted_pool, play):
    pool, engines = scripted_pool(script)
    (tree,) = play(echo_env(), pool)
    asked = [request.prompt_ids for call in engines["shared"].calls for request in call]
    assert [decision.prompt_ids for decision in tree.decisions] == asked
    for decision in tree.decisions:
        assert bytes(decision.prompt_ids).decode() == decision.observation.replace("\n\n", "\n")


@pytest.mark.parametrize("branch_choice", ["greedy", "random", "softmax"])
@given(
    table=st.lists(
        st.lists(st.sampled_from(["0", "1", "7", "12", "-3", "no", ""]), min_size=1, max_size=4),
        min_size=1,
        max_size=6,
    ),
    seed=st.integers(0, 2**40),
)
def test_every_candidate_was_scored_in_the_state_of_its_prompt(
    echo_env, scripted_pool, play, branch_choice, table, seed
):
    """Trap 1: an independent replay from reset must meet the same prompts and rewards."""

    def scripted(prompt, candidate, request_seed):
        row = table[len(prompt) % len(table)]
        return row[(candidate + request_seed) % len(row)]

    pool, _ = scripted_pool(scripted)
    (tree,) = play(echo_env(), pool, seeds=(seed,), branch_choice=branch_choice)
    path = []
    for decision in tree.decisions:
        for candidate in decision.candidates:
            env = echo_env()
            env.reset(seed=seed)
            for text in path:
                env.step(text)
            assert env.agent_selection == decision.key.agent
            assert env.turn == decision.key.turn
            assert env.observe(decision.key.agent) == decision.observation
            env.step(candidate.completion.text)
            assert env.rewards[decision.key.agent] == candidate.reward
            assert env.infos[decision.key.agent]["parse_error"] == candidate.parse_error
        path.append(decision.candidates[decision.chosen].completion.text)
    assert path == texts_played(tree)
