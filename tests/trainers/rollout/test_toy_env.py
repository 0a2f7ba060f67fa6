"""Rollout trees over the toy environment are exactly right."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

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


def test_success_ends_the_episode(echo_env, scripted_pool, play):
    pool, _ = scripted_pool(lambda prompt, k, seed: "99" if k == 1 else "1")
    (tree,) = play(echo_env(), pool)
    assert len(tree.decisions) == 2
    assert tree.outcome.success
    assert tree.outcome.terminated
    assert not tree.outcome.truncated


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
