"""Who is compared with whom, and what reaches the update."""

import math
from dataclasses import replace

import pytest
import run_toys
from hypothesis import given
from hypothesis import strategies as st
from run_toys import tree

from pettingllms.ends import End
from pettingllms_trainers.algorithms.at_grpo import AtGrpo
from pettingllms_trainers.algorithms.continuation import Continuation
from pettingllms_trainers.algorithms.grpo import Grpo
from pettingllms_trainers.algorithms.reinforce import Reinforce
from pettingllms_trainers.algorithms.value import Value
from pettingllms_trainers.config.algorithm import StepContext, algorithm_class, algorithm_names
from pettingllms_trainers.errors import GroupError
from pettingllms_trainers.learning.groups import (
    batch_scale,
    collect_decisions,
    grpo,
    has_signal,
    leave_one_out,
    score_decisions,
    training_groups,
)
from pettingllms_trainers.types import SamplingSettings


def decision(rewards, **more):
    """Candidates of two tokens that differ, of which the best was played."""
    made = run_toys.decision(rewards, **{"chosen": rewards.index(max(rewards))} | more)
    two = replace(run_toys.ANSWER, logprobs=(-0.25, -0.5))
    texts = (replace(two, token_ids=(65 + k, 0), text=chr(65 + k)) for k in range(len(rewards)))
    pairs = zip(made.candidates, texts, strict=True)
    return replace(made, candidates=tuple(replace(one, completion=own) for one, own in pairs))


def advantages(scored):
    return [[round(c.advantage, 6) for c in group.candidates] for group in scored.decisions]


def test_64_problems_are_64_groups_of_8():
    """Trap 10: ids are those of the problem, not of a fraction of it."""
    trees = [tree(decision([0] * 7 + [1], episode=e), episode=e) for e in range(64)]
    scored = score_decisions(trees, AtGrpo())
    assert len(scored.decisions) == 64
    assert all(len(group.candidates) == 8 for group in scored.decisions)
    assert len({group.key for group in scored.decisions}) == 64


def test_groups_without_spread_are_dropped_and_counted():
    """Trap 10: [0,0,0,1] keeps the 1, [1,1,1,1] is dropped."""
    decisions = [
        decision([0, 0, 0, 1], index=0, agent="caller_0"),
        decision([1, 1, 1, 1], index=1),
        decision([0, 1], index=2, turn=1),
    ]
    scored = score_decisions([tree(*decisions)], AtGrpo(norm="none"))
    assert advantages(scored) == [[-0.25, -0.25, -0.25, 0.75], [-0.5, 0.5]]
    assert scored.num_decisions == {"caller": 1, "echo": 2}
    assert scored.num_used == {"caller": 1, "echo": 1}
    assert scored.num_tokens == {decisions[0].policy: 8, decisions[1].policy: 12}


def test_the_second_agent_is_scored_by_its_own_candidates(echo_env, scripted_pool, play):
    """Traps 2 and 9: its rewards differ, and it saw what the first agent said this turn."""
    pool, _ = scripted_pool(lambda prompt, k, seed: str(k))
    trees = play(echo_env(), pool)
    echoes = [group for group in score_decisions(trees, AtGrpo()).decisions if group.role == "echo"]
    assert len(echoes) == 3
    for group in echoes:
        assert "called=2" in group.observation
        assert len({c.advantage for c in group.candidates}) == 3


def test_members_with_other_prompts_raise():
    mixed = tree(decision([0, 1], prompt_ids=(1, 2)), decision([0, 1], prompt_ids=(1, 3, 4)))
    with pytest.raises(GroupError, match=r"echo_0.*different prompts \(2 and 3 tokens\)"):
        score_decisions([mixed], AtGrpo())


def test_copies_raise_and_never_enter_the_statistics():
    """Trap 11."""
    with pytest.raises(GroupError, match="counted twice"):
        collect_decisions([tree(decision([0, 1])), tree(decision([0, 1]))])


def test_failed_trees_are_never_trained_on():
    """Trap 12."""
    failed = tree(decision([0, 1]), end=End.SANDBOX)
    whole = tree(decision([0, 2], episode=1), episode=1)
    scored = score_decisions([failed, whole], AtGrpo())
    assert [found.key.episode for found in scored.decisions] == [1]


def test_an_algorithm_is_told_the_moment_of_the_rollouts():
    moments = []

    class Remembering(AtGrpo):
        def groups(self, played, context):
            moments.append(context)
            return super().groups(played, context)

    for context in (None, StepContext(step=7)):
        score_decisions([tree(decision([0, 1]))], Remembering(), context=context)
    assert moments == [StepContext(), StepContext(step=7)]


def test_sampled_tokens_are_what_is_trained(echo_env, scripted_pool, play):
    """Trap 8: token ids and log-probabilities go through untouched."""
    pool, _ = scripted_pool(lambda prompt, k, seed: f"0{k}")
    trees = play(echo_env(), pool, sampling={"caller": SamplingSettings(temperature=0.7)})
    scored = score_decisions(trees, AtGrpo())
    data = training_groups(scored.decisions)["shared"]
    decisions = [n for t in trees for n in t.decisions]
    assert len(data) == len(decisions)
    for group, sampled in zip(data, decisions, strict=True):
        assert group.prompt_ids is sampled.prompt_ids
        assert group.temperature == (0.7 if group.role == "caller" else 1.0)
        for trained, one in zip(group.completions, sampled.candidates, strict=True):
            assert trained.token_ids is one.completion.token_ids
            assert trained.logprobs is one.completion.logprobs


def test_each_policy_gets_the_data_of_its_roles():
    trees = [
        tree(
            decision([0, 1], agent="caller_0"), decision([0, 2], index=1), decision([3, 0], index=2)
        )
    ]
    data = training_groups(score_decisions(trees, AtGrpo()).decisions)
    assert {name: [g.role for g in groups] for name, groups in data.items()} == {
        "caller": ["caller"],
        "echo": ["echo", "echo"],
    }


@pytest.mark.parametrize("advantage", [None, float("nan"), float("inf")])
def test_only_finite_advantages_are_trained_on(advantage):
    group = decision([0, 1])
    bad = replace(group.candidates[0], advantage=advantage)
    with pytest.raises(GroupError, match="advantage"):
        training_groups([replace(group, candidates=(bad,))])


# Ablations ------------------------------------------------------------------------------------


def trajectory(episode, rewards, *, env_seed=7, local=0.0):
    """An episode of one candidate per decision: caller and echo by turns."""
    decisions = [
        decision(
            [reward],
            episode=episode,
            index=index,
            agent=("caller_0", "echo_0")[index % 2],
            turn=index // 2,
            prompt_ids=(episode, index),
            local=local,
        )
        for index, reward in enumerate(rewards)
    ]
    return tree(*decisions, episode=episode, env_seed=env_seed)


def by_key(scored):
    return {(g.key.episode, g.key.position): g.candidates[0].advantage for g in scored.decisions}


def test_agent_turn_compares_trajectories_at_the_same_agent_and_turn():
    trees = [trajectory(0, [1, 5]), trajectory(1, [3, 5]), trajectory(2, [9, 9], env_seed=8)]
    scored = score_decisions(trees, Reinforce(credit="step", norm="none"))
    assert by_key(scored) == {(0, 0): -1, (1, 0): 1}


def test_agent_and_turn_groupings():
    trees = [trajectory(0, [1, 5, 3, 6]), trajectory(1, [1, 7, 3, 6])]
    agent = by_key(score_decisions(trees, AtGrpo(grouping="agent", norm="none")))
    assert agent == {
        (0, 0): -1, (0, 2): 1, (1, 0): -1, (1, 2): 1,
        (0, 1): -1, (0, 3): 0, (1, 1): 1, (1, 3): 0,
    }  # fmt: skip
    turn = by_key(score_decisions(trees, AtGrpo(grouping="turn", norm="none")))
    assert [turn[0, n] for n in range(4)] == [-2.5, 1.5, -1.5, 1.5]


@pytest.mark.parametrize(("grouping", "number"), [("agent", 1), ("turn", 2), ("none", 1)])
def test_what_is_compared_counts_once_for_every_policy_in_it(grouping, number):
    trees = [trajectory(0, [1, 5, 3, 6]), trajectory(1, [1, 7, 3, 6])]
    scored = score_decisions(trees, AtGrpo(grouping=grouping))
    assert scored.num_groups == {"caller": number, "echo": number}
    assert len(scored.decisions) == 8
    assert score_decisions(trees[:0], AtGrpo(grouping=grouping)).num_groups == {}


def test_no_grouping_compares_the_whole_batch():
    trees = [tree(decision([0, 4])), tree(decision([2, 2], episode=1), episode=1)]
    scored = score_decisions(trees, AtGrpo(grouping="none", norm="none"))
    assert advantages(scored) == [[-2, 2], [0, 0]]


def test_trajectory_grouping_counts_an_episode_once_whatever_its_length():
    trees = [trajectory(0, [1, 1]), trajectory(1, [1, 1, 1, 1, 1, 1])]
    scored = score_decisions(trees, Grpo(norm="none"))
    assert set(by_key(scored).values()) == {-2, 2}
    assert len(scored.decisions) == 8


def test_return_to_go_credits_team_parts_of_all_and_own_local_parts():
    """Each reward of 1 is a team part of 0.75 and a local part of 0.25."""
    trees = [trajectory(0, [1, 1, 1, 1], local=0.25), trajectory(1, [0, 0, 0, 0])]
    scored = score_decisions(trees, Reinforce(norm="none"))
    found = by_key(scored)
    assert [2 * found[0, n] for n in range(4)] == [3.5, 2.75, 1.75, 1]
    assert [2 * found[1, n] for n in range(4)] == [-3.5, -2.75, -1.75, -1]


@pytest.mark.parametrize(
    ("algorithm", "halves"), [(Reinforce, [-2.5, 3, 6, 4]), (Grpo, [-2.5] * 4)]
)
def test_a_discounted_return_counts_what_comes_later_less(algorithm, halves):
    trees = [trajectory(0, [0, 0, 8, 8]), trajectory(1, [8, 0, 0, 0])]
    found = by_key(score_decisions(trees, algorithm(gamma=0.5, norm="none")))
    assert [found[0, n] for n in range(4)] == halves


def test_batch_norm_keeps_the_sizes_of_groups_and_scales_every_role_by_its_own():
    decisions = [
        decision([0, 6], index=0, agent="caller_0"),
        decision([0, 0.2], index=1),
        decision([0, 0.02], index=2, turn=1),
        decision([5, 5], index=3, agent="caller_0", turn=1),
    ]
    scored = score_decisions([tree(*decisions)], AtGrpo(norm="batch"))
    caller, large, small = advantages(scored)
    assert caller == [-1, 1]
    assert large[1] / small[1] == pytest.approx(10, rel=1e-4)  # `advantages` rounds
    assert (large[1] ** 2 + small[1] ** 2) / 2 == pytest.approx(1, rel=1e-4)


def test_batch_norm_of_one_group_is_that_of_the_group():
    found = [
        advantages(score_decisions([tree(decision([0, 1, 5]))], AtGrpo(norm=norm)))
        for norm in ("batch", "std")
    ]
    assert found[0][0] == pytest.approx(found[1][0])
    assert score_decisions([], AtGrpo(norm="batch")).decisions == ()


@pytest.mark.parametrize("grouping", ["agent", "none"])
@pytest.mark.parametrize("algorithm", [Continuation, Value])
def test_what_nobody_has_valued_is_not_compared(grouping, algorithm):
    """Whole episodes with few branchings: of the other decisions nobody knows what follows."""
    branched = decision([0, 0])
    valued = tuple(replace(c, value=v) for c, v in zip(branched.candidates, (1, 0), strict=True))
    found = tree(replace(branched, candidates=valued), decision([0], index=1, turn=1))
    scored = score_decisions([found], algorithm(grouping=grouping))
    assert [[c.advantage for c in d.candidates] for d in scored.decisions] == [[1, -1]]


def test_decisions_of_fixed_policies_are_not_compared():
    fixed = replace(decision([0.5], index=1, agent="echo_0"), prompt_ids=())
    found = tree(
        decision([0, 1], agent="caller_0"), fixed, decision([1, 0], index=2, agent="caller_0")
    )
    for estimator in (AtGrpo(), Reinforce(grouping="none", norm="std")):
        scored = score_decisions([found], estimator)
        assert set(scored.num_decisions) == {"caller"}
        assert set(training_groups(scored.decisions)) == {"caller"}


def test_truncated_completions_are_compared_but_left_out_of_the_loss():
    """The option of TRL: advantages are those of all, the loss is that of whole answers."""

    def cut(found, *positions):
        return replace(
            found,
            candidates=tuple(
                replace(c, completion=replace(c.completion, finish_reason="length"))
                if position in positions
                else c
                for position, c in enumerate(found.candidates)
            ),
        )

    decisions = [
        cut(decision([1.0, 0.0, 0.0]), 1),
        cut(decision([0.0, 1.0], index=1), 0, 1),
        decision([0.0, 3.0], index=2),
    ]
    scored = score_decisions([tree(*decisions)], AtGrpo()).decisions
    (every,) = training_groups(scored).values()
    (kept,) = training_groups(scored, mask_truncated=True).values()
    assert [len(group.completions) for group in every] == [3, 2, 2]
    group, last = kept
    assert last == every[2]
    assert group.completions == (every[0].completions[0], every[0].completions[2])


groups = st.lists(st.floats(-100, 100), min_size=1, max_size=16)
algorithms = st.builds(
    AtGrpo,
    baseline=st.sampled_from(["mean", "leave_one_out"]),
    norm=st.sampled_from(["std", "batch", "none"]),
)


@given(algorithms, groups)
def test_advantages_sum_to_zero(algorithm, rewards):
    advantages = algorithm.advantages(rewards)
    assert math.fsum(advantages) == pytest.approx(0.0, abs=1e-6)


def test_the_only_success_keeps_its_signal():
    """Trap 10."""
    assert has_signal([0, 0, 0, 1])
    assert grpo([0, 0, 0, 1]) == pytest.approx([-(3**-0.5)] * 3 + [3**0.5])
    assert grpo([0, 0, 0, 1], norm="none") == [-0.25, -0.25, -0.25, 0.75]


@pytest.mark.parametrize("rewards", [[1, 1, 1, 1], [0.3, 0.1 + 0.2], [5.0], [-2.0, -2.0], []])
def test_equal_rewards_give_exact_zeros(rewards):
    assert not has_signal(rewards)
    assert grpo(rewards) == [0.0] * len(rewards)
    assert leave_one_out(rewards, norm="std") == [0.0] * len(rewards)


@pytest.mark.parametrize(
    ("size", "rounding"), [(0.0, 1e-9), (0.5, 0.9e-9), (1e6, 0.9e-3), (-1e6, 0.9e-3)]
)
def test_rounding_is_relative_to_the_rewards(size, rounding):
    assert not has_signal([size, size + rounding])
    assert has_signal([size, size + 1.5 * rounding])


@given(st.lists(st.integers(-9, 9), min_size=2, max_size=8))
def test_leave_one_out_is_the_distance_to_the_mean_of_the_others(rewards):
    expected = [reward - (sum(rewards) - reward) / (len(rewards) - 1) for reward in rewards]
    assert leave_one_out(rewards) == pytest.approx(expected, abs=1e-9)


def test_softmax_sees_the_size_of_rewards():
    found = AtGrpo()
    assert (found.branch_temperature, found.is_by_step, found.sees_size) == (1.0, True, False)
    assert AtGrpo(branch_choice="softmax", branch_temperature=0.5).sees_size
    assert AtGrpo(norm="none").sees_size
    with pytest.raises(ValueError, match="branch_temperature"):
        AtGrpo(branch_choice="softmax", branch_temperature=0)


def test_the_baseline_is_that_of_the_algorithm():
    for baseline, expected in (("mean", [-1.0, 1.0]), ("leave_one_out", [-2.0, 2.0])):
        algorithm = AtGrpo(baseline=baseline, norm="none")
        assert algorithm.advantages([1.0, 3.0]) == expected


def test_the_scale_of_a_batch_is_its_root_mean_square():
    assert batch_scale([3.0, -4.0, 0.0, 0.0]) == 2.5
    assert batch_scale([]) == batch_scale([0.0, 0.0]) == 1.0


class Visited(tuple):
    """Decisions that count how often one of them is read."""

    num_reads = 0

    def __iter__(self):
        for one in super().__iter__():
            Visited.num_reads += 1
            yield one

    def __getitem__(self, place):
        Visited.num_reads += 1
        return super().__getitem__(place)


@pytest.mark.parametrize("name", algorithm_names())
def test_scoring_and_remembering_take_time_in_proportion_to_length(name):
    """A replacement of decisions may drop the count: what it reads again is counted before."""

    def reads(num_decisions):
        trees = []
        for episode in range(4):
            made = [
                replace(
                    decision([(episode + at) % 3], episode=episode, index=at, turn=at),
                    state_key=f"{at}",
                )
                for at in range(num_decisions)
            ]
            trees.append(tree(*made, episode=episode, env_seed=0))
        trees = [replace(one, decisions=Visited(one.decisions)) for one in trees]
        algorithm, Visited.num_reads = algorithm_class(name)(), 0
        score_decisions(trees, algorithm)
        algorithm.remember(trees, StepContext())
        return Visited.num_reads

    assert reads(80) <= 2.1 * reads(40)
