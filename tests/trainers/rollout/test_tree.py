"""Sampling of rollouts: seeds, branch_choice, failures."""

import asyncio
import itertools
import random
from dataclasses import replace
from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st
from run_toys import number, request

from pettingllms.ends import End
from pettingllms_trainers.algorithms.at_grpo import AtGrpo, choose
from pettingllms_trainers.algorithms.continuation import Continuation
from pettingllms_trainers.algorithms.reinforce import Reinforce
from pettingllms_trainers.algorithms.tree_grpo import TreeGrpo
from pettingllms_trainers.algorithms.vine import Vine
from pettingllms_trainers.config.algorithm import StepContext
from pettingllms_trainers.errors import RolloutError
from pettingllms_trainers.learning.groups import score_decisions
from pettingllms_trainers.policies.pool import Batcher
from pettingllms_trainers.rollout.candidates import FailureLog, RolloutSettings, episode_specs
from pettingllms_trainers.rollout.episode import LocalEpisodes
from pettingllms_trainers.rollout.judging import Rewards, ShapedEpisodes
from pettingllms_trainers.rollout.player import play_episodes
from pettingllms_trainers.rollout.sampler import fits
from pettingllms_trainers.types import SamplingSettings, TokenCompletion


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


def spoiled_completion(token_ids, logprobs):
    return TokenCompletion(token_ids=token_ids, logprobs=logprobs, text="9", finish_reason="stop")


@pytest.mark.parametrize("spoiled", [None, ((), ()), ((1, 2), (-1.0,)), ((1,), (float("nan"),))])
def test_what_an_engine_loses_is_asked_for_again(echo_env, scripted_pool, play, caplog, spoiled):
    """Trap 12: nothing stands in for what was not generated, and nothing is left out."""
    pool, engines = scripted_pool(number)
    good, numbers = engines["shared"]._answer, itertools.count()

    def answer(request):
        found = good(request)
        if next(numbers) == 3:
            broken = () if spoiled is None else (spoiled_completion(*spoiled),)
            found[1:2] = broken
        return found

    expected = play(echo_env(), pool)
    engines["shared"]._answer = answer
    assert play(echo_env(), pool) == expected
    assert [r.message for r in caplog.records] == [
        "a rollout failed, and is played again: the engine gave 2 usable of 3 completions"
    ]


@pytest.mark.parametrize("env_threads", [0, 3])
def test_a_lost_connection_fails_the_tree(echo_env, scripted_pool, play, caplog, env_threads):
    pool, _ = scripted_pool(lambda p, k, s: "13" if s % 3 == 0 and k == 0 else "1")
    env, seeds = echo_env(crash_on="13", crash=ConnectionError), range(12)
    trees = play(env, pool, seeds=seeds, allowed=0.99, env_threads=env_threads)
    failed = [tree for tree in trees if tree.has_failed]
    assert 0 < len(failed) < 12
    for tree in failed:
        assert (tree.outcome, tree.end) == (None, End.CONNECTION)
        assert tree.cause == "ConnectionError: the toy crashed"
    assert len(caplog.records) == 1, "each cause is told once"
    assert caplog.records[0].exc_info, "with the traceback"
    with pytest.raises(RolloutError, match=r"of 12 rollouts failed.*ConnectionError"):
        play(env, pool, seeds=seeds)


def test_answers_that_make_code_fail_are_truncated_episodes(echo_env, scripted_pool, play, caplog):
    """Trap 14: all of them end so, and none is left out: a policy can choose it."""
    pool, _ = scripted_pool(lambda p, k, s: "13" if k == 0 else "1")
    env = echo_env(crash_on="13")
    trees = play(env, pool, seeds=range(12), branch_choice="random")
    ends = {tree.end for tree in trees}
    assert ends == {End.CODE, End.TURNS}
    for tree in trees:
        assert tree.outcome.truncated
        assert not tree.outcome.success
        crashed, *others = tree.decisions[-1].candidates
        assert (crashed.end, crashed.cause) == (End.CODE, "ZeroDivisionError: the toy crashed")
        assert {(one.end is End.CODE, one.cause) for one in others} == {(False, None)}
        chosen = [decision.chosen == 0 for decision in tree.decisions]
        assert chosen == [False] * (len(chosen) - 1) + [tree.end is End.CODE]
    (record,) = caplog.records
    assert "ended its episode: ZeroDivisionError" in record.getMessage()
    assert "Traceback" in record.getMessage()


@pytest.mark.parametrize("algorithm", [AtGrpo, Reinforce, TreeGrpo, Continuation, Vine])
def test_chats_that_outgrow_the_context_are_truncated_and_cost_what_the_run_says(
    echo_env, scripted_pool, algorithm
):
    """What a branch leads to decides, whichever is followed; so the groups can learn from it."""
    pool, engines = scripted_pool(lambda p, k, seed: "1" * (1 + seed % 9 + 3 * k))
    engines["shared"].limits = replace(engines["shared"].limits, context_length=105)
    sampling = dict.fromkeys(pool.roles, SamplingSettings(max_completion_tokens=40))

    def shaped(cut_reward, scale):
        known, below = partial(fits, pool, sampling), LocalEpisodes(echo_env(max_turns=4))
        return ShapedEpisodes(below, Rewards(), scale, cut_reward=cut_reward, fits=known)

    def trees(cut_reward, scale=1.0):
        found = algorithm(num_candidates=3)
        specs = episode_specs(
            seed=1, step=0, first_level=0, num_levels=8, num_trajectories=found.episodes_per_level
        )
        settings = RolloutSettings(sampling=sampling)
        strategy = found.strategy(StepContext())
        return asyncio.run(
            play_episodes(shaped(cut_reward, scale), pool, specs, settings, strategy, FailureLog())
        )

    paid = trees(-1e17)
    assert {tree.end for tree in paid} >= {End.CONTEXT}
    assert all(tree.outcome is not None for tree in paid), "none is left out"
    decisions = [decision for tree in paid for decision in tree.decisions]
    for candidate in (one for decision in decisions for one in decision.candidates):
        assert (candidate.end is End.CONTEXT) == (candidate.reward < -1e16)
        assert (candidate.team < -1e16) == (candidate.end is End.CONTEXT)
        assert candidate.env_reward is None or candidate.env_reward > -1e16
    cut = [tree for tree in paid if tree.end is End.CONTEXT]
    assert all(tree.outcome.truncated and not tree.outcome.success for tree in cut)
    assert all(min(tree.outcome.returns.values()) < -1e16 for tree in cut)
    scored = score_decisions(paid, found := algorithm(num_candidates=3))
    assert found.num_candidates == 3
    advantages = [
        (one.end is End.CONTEXT, one.advantage)
        for decision in scored.decisions
        for one in decision.candidates
    ]
    assert any(is_cut and advantage < 0 for is_cut, advantage in advantages), "it is learnt from"
    unpaid = [one for t in trees(-3.0, 0.0) for d in t.decisions for one in d.candidates]
    assert {(one.end is End.CONTEXT, one.reward) for one in unpaid} == {(True, -3), (False, 0)}


def test_a_first_prompt_that_is_too_long_is_an_episode_without_answers(
    echo_env, scripted_pool, play, caplog
):
    pool, engines = scripted_pool(number)
    engines["shared"].limits = replace(engines["shared"].limits, context_length=70)
    trees = play(echo_env(), pool, seeds=range(3))
    assert [(tree.end, tree.decisions, tree.outcome.num_turns) for tree in trees] == [
        (End.CONTEXT, (), 0)
    ] * 3
    assert len(caplog.records) == 1, "told once, whatever the lengths"


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


def test_a_reward_that_is_not_finite_ends_the_episode_and_is_not_learnt(
    echo_env, scripted_pool, play
):
    """A team reward of 1e18 is the largest allowed; times alpha it overflows."""

    class Generous(type(echo_env())):
        def _act(self, state, agent, action):
            return super()._act(state, agent, action)._replace(team=1e18)

    (tree,) = play(Generous(alpha=1e308), scripted_pool(number)[0], num_candidates=2)
    (decision,) = tree.decisions
    assert [(one.end, one.reward) for one in decision.candidates] == [(End.CODE, 0.0)] * 2
    assert "the reward inf" in decision.candidates[0].cause


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
