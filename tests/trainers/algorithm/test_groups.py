"""Who is compared with whom, and what reaches the update."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms_trainers.algorithm.advantage import Estimator
from pettingllms_trainers.algorithm.groups import collect_groups, score_groups, training_groups
from pettingllms_trainers.errors import GroupError
from pettingllms_trainers.types import (
    Candidate,
    Completion,
    Group,
    GroupKey,
    RolloutStatus,
    RolloutTree,
    Sampling,
)


def candidate(reward, token=65, local=0.0):
    completion = Completion(
        token_ids=(token, 0), logprobs=(-0.25, -0.5), text=chr(token), finish_reason="stop"
    )
    return Candidate(completion=completion, reward=reward, team=reward - local, local=local)


def node(rewards, *, episode=0, index=0, agent="echo_0", turn=0, prompt=(1, 2), local=0.0):
    return Group(
        key=GroupKey(episode, index, agent, turn),
        role=agent[:-2],
        policy=agent[:-2],
        prompt_ids=prompt,
        observation="",
        candidates=tuple(candidate(r, 65 + k, local) for k, r in enumerate(rewards)),
        chosen=rewards.index(max(rewards)),
    )


def tree(*nodes, episode=0, env_seed=None, status=RolloutStatus.OK):
    return RolloutTree(
        episode=episode,
        env_seed=episode if env_seed is None else env_seed,
        initial_state_hash="",
        nodes=nodes,
        outcome=None,
        status=status,
    )


def advantages(scored):
    return [[round(c.advantage, 6) for c in group.candidates] for group in scored.groups]


def test_64_problems_are_64_groups_of_8():
    """Trap 10: ids are those of the problem, not of a fraction of it."""
    trees = [tree(node([0] * 7 + [1], episode=e), episode=e) for e in range(64)]
    scored = score_groups(trees, Estimator())
    assert len(scored.groups) == 64
    assert all(len(group.candidates) == 8 for group in scored.groups)
    assert len({group.key for group in scored.groups}) == 64


def test_groups_without_spread_are_dropped_and_counted():
    """Trap 10: [0,0,0,1] keeps the 1, [1,1,1,1] is dropped."""
    nodes = [
        node([0, 0, 0, 1], index=0, agent="caller_0"),
        node([1, 1, 1, 1], index=1),
        node([0, 1], index=2, turn=1),
    ]
    scored = score_groups([tree(*nodes)], Estimator(norm="none"))
    assert advantages(scored) == [[-0.25, -0.25, -0.25, 0.75], [-0.5, 0.5]]
    assert scored.num_groups == {"caller": 1, "echo": 2}
    assert scored.num_used == {"caller": 1, "echo": 1}


def test_the_second_agent_is_scored_by_its_own_candidates(echo_env, scripted_pool, play):
    """Traps 2 and 9: its rewards differ, and it saw what the first agent said this turn."""
    pool, _ = scripted_pool(lambda prompt, k, seed: str(k))
    trees = play(echo_env(), pool)
    echoes = [group for group in score_groups(trees, Estimator()).groups if group.role == "echo"]
    assert len(echoes) == 3
    for group in echoes:
        assert "called=2" in group.observation
        assert len({c.advantage for c in group.candidates}) == 3


def test_every_decision_of_every_turn_is_a_group_of_its_own(echo_env, scripted_pool, play):
    pool, _ = scripted_pool(lambda prompt, k, seed: str(k))
    trees = play(echo_env(max_turns=4), pool, seeds=range(5))
    scored = score_groups(trees, Estimator())
    assert len(scored.groups) == 5 * 4 * 2
    for group in scored.groups:
        assert sum(c.advantage for c in group.candidates) == pytest.approx(0.0)


def test_members_with_other_prompts_raise():
    mixed = tree(node([0, 1], prompt=(1, 2)), node([0, 1], prompt=(1, 3, 4)))
    with pytest.raises(GroupError, match=r"echo_0.*different prompts \(2 and 3 tokens\)"):
        score_groups([mixed], Estimator())


def test_copies_raise_and_never_enter_the_statistics():
    """Trap 11."""
    with pytest.raises(GroupError, match="counted twice"):
        collect_groups([tree(node([0, 1])), tree(node([0, 1]))])


def test_failed_trees_are_never_trained_on():
    """Trap 12."""
    failed = tree(node([0, 1]), status=RolloutStatus.ENV_FAILED)
    assert score_groups([failed], Estimator()).groups == ()


def test_sampled_tokens_are_what_is_trained(echo_env, scripted_pool, play):
    """Trap 8: token ids and log-probabilities go through untouched."""
    pool, _ = scripted_pool(lambda prompt, k, seed: f"0{k}")
    trees = play(echo_env(), pool, sampling={"caller": Sampling(temperature=0.7)})
    scored = score_groups(trees, Estimator())
    data = training_groups(scored.groups)["shared"]
    nodes = [n for t in trees for n in t.nodes]
    assert len(data) == len(nodes)
    for group, sampled in zip(data, nodes, strict=True):
        assert group.prompt_ids is sampled.prompt_ids
        assert group.temperature == (0.7 if group.role == "caller" else 1.0)
        for trained, one in zip(group.completions, sampled.candidates, strict=True):
            assert trained.token_ids is one.completion.token_ids
            assert trained.logprobs is one.completion.logprobs


def test_each_policy_gets_the_data_of_its_roles():
    trees = [tree(node([0, 1], agent="caller_0"), node([0, 2], index=1), node([3, 0], index=2))]
    data = training_groups(score_groups(trees, Estimator()).groups)
    assert {name: [g.role for g in groups] for name, groups in data.items()} == {
        "caller": ["caller"],
        "echo": ["echo", "echo"],
    }


@pytest.mark.parametrize("advantage", [None, float("nan"), float("inf")])
def test_only_finite_advantages_are_trained_on(advantage):
    group = node([0, 1])
    bad = replace(group.candidates[0], advantage=advantage)
    with pytest.raises(GroupError, match="advantage"):
        training_groups([replace(group, candidates=(bad,))])


# Ablations ------------------------------------------------------------------------------------


def trajectory(episode, rewards, *, env_seed=7, local=0.0):
    """An episode of one candidate per decision: caller and echo by turns."""
    nodes = [
        node(
            [reward],
            episode=episode,
            index=index,
            agent=("caller_0", "echo_0")[index % 2],
            turn=index // 2,
            prompt=(episode, index),
            local=local,
        )
        for index, reward in enumerate(rewards)
    ]
    return tree(*nodes, episode=episode, env_seed=env_seed)


def by_key(scored):
    return {(g.key.episode, g.key.node): g.candidates[0].advantage for g in scored.groups}


def test_agent_turn_compares_trajectories_at_the_same_agent_and_turn():
    trees = [trajectory(0, [1, 5]), trajectory(1, [3, 5]), trajectory(2, [9, 9], env_seed=8)]
    scored = score_groups(trees, Estimator(grouping="agent_turn", norm="none"))
    assert by_key(scored) == {(0, 0): -1, (1, 0): 1}


def test_agent_and_turn_groupings():
    trees = [trajectory(0, [1, 5, 3, 6]), trajectory(1, [1, 7, 3, 6])]
    agent = by_key(score_groups(trees, Estimator(grouping="agent", norm="none")))
    assert agent == {
        (0, 0): -1, (0, 2): 1, (1, 0): -1, (1, 2): 1,
        (0, 1): -1, (0, 3): 0, (1, 1): 1, (1, 3): 0,
    }  # fmt: skip
    turn = by_key(score_groups(trees, Estimator(grouping="turn", norm="none")))
    assert [turn[0, n] for n in range(4)] == [-2.5, 1.5, -1.5, 1.5]


@pytest.mark.parametrize(("grouping", "number"), [("agent", 1), ("turn", 2), ("none", 1)])
def test_what_is_compared_counts_once_for_every_policy_in_it(grouping, number):
    trees = [trajectory(0, [1, 5, 3, 6]), trajectory(1, [1, 7, 3, 6])]
    scored = score_groups(trees, Estimator(grouping=grouping))
    assert scored.num_comparisons == {"caller": number, "echo": number}
    assert len(scored.groups) == 8
    assert score_groups(trees[:0], Estimator(grouping=grouping)).num_comparisons == {}


def test_no_grouping_compares_the_whole_batch():
    trees = [tree(node([0, 4])), tree(node([2, 2], episode=1), episode=1)]
    scored = score_groups(trees, Estimator(grouping="none", norm="none"))
    assert advantages(scored) == [[-2, 2], [0, 0]]


def test_trajectory_grouping_counts_an_episode_once_whatever_its_length():
    trees = [trajectory(0, [1, 1]), trajectory(1, [1, 1, 1, 1, 1, 1])]
    scored = score_groups(trees, Estimator(grouping="trajectory", credit="episode", norm="none"))
    assert set(by_key(scored).values()) == {-2, 2}
    assert len(scored.groups) == 8


def test_return_to_go_credits_team_parts_of_all_and_own_local_parts():
    """Each reward of 1 is a team part of 0.75 and a local part of 0.25."""
    trees = [trajectory(0, [1, 1, 1, 1], local=0.25), trajectory(1, [0, 0, 0, 0])]
    scored = score_groups(
        trees, Estimator(grouping="agent_turn", credit="return_to_go", norm="none")
    )
    found = by_key(scored)
    assert [2 * found[0, n] for n in range(4)] == [3.5, 2.75, 1.75, 1]
    assert [2 * found[1, n] for n in range(4)] == [-3.5, -2.75, -1.75, -1]


def test_leave_one_out_over_a_tree():
    scored = score_groups([tree(node([0, 0, 3]))], Estimator(baseline="leave_one_out", norm="none"))
    assert advantages(scored) == [[-1.5, -1.5, 3.0]]


def mixed_tree(episode):
    """One of twelve trees on six levels: two roles, two turns, differing rewards and prompts."""
    nodes = [
        node(
            [(episode * 7 + index * index + k) % 5 / 2 for k in range(3)],
            episode=episode,
            index=index,
            agent=agent,
            turn=index // 2,
            prompt=(episode // 2 + 1, index + 1),
        )
        for index, agent in enumerate(["caller_0", "echo_0"] * 2)
    ]
    return tree(*nodes, episode=episode, env_seed=episode // 2)


@pytest.mark.parametrize(
    ("grouping", "credit"),
    [
        ("at_grpo", "step"),
        ("agent_turn", "return_to_go"),
        ("trajectory", "episode"),
        ("none", "step"),
    ],
)
@given(st.permutations(range(12)))
def test_the_order_of_trees_does_not_matter(grouping, credit, order):
    estimator = Estimator(grouping=grouping, credit=credit)

    def data(episodes):
        scored = score_groups([mixed_tree(episode) for episode in episodes], estimator)
        groups = training_groups(scored.groups)
        assert set(groups) == {"caller", "echo"}
        return {name: sorted(map(repr, found)) for name, found in groups.items()}, scored.num_used

    assert data(order) == data(range(12))


def test_decisions_of_players_are_not_compared():
    player = replace(node([0.5], index=1, agent="echo_0"), prompt_ids=())
    found = tree(node([0, 1], agent="caller_0"), player, node([1, 0], index=2, agent="caller_0"))
    for estimator in (Estimator(), Estimator(grouping="none", credit="return_to_go")):
        scored = score_groups([found], estimator)
        assert set(scored.num_groups) == {"caller"}
        assert set(training_groups(scored.groups)) == {"caller"}
