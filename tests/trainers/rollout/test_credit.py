"""Credits in trees: what candidates are worth beyond their rewards, and which decisions branch."""

import dataclasses
import itertools

import pytest

from pettingllms_trainers.algorithms.at_grpo import AtGrpo
from pettingllms_trainers.algorithms.continuation import Continuation
from pettingllms_trainers.algorithms.tree_grpo import TreeGrpo
from pettingllms_trainers.algorithms.value import Value, value_examples
from pettingllms_trainers.learning.groups import score_decisions
from pettingllms_trainers.policies.pool import PolicyPool

ECHOES = ("1", "4", "2")


def script(prompt, candidate, seed):
    """The caller calls 0; the echo writes a number of its own."""
    return "0" if "caller" in prompt else ECHOES[candidate % 3]


class KnownV:
    """V is the number of results that a prompt shows; remembers what was asked."""

    def __init__(self):
        self.calls = []

    def values(self, prompts):
        self.calls.append(list(prompts))
        return [float(bytes(prompt).decode().count("results=[]")) for prompt in prompts]


def with_v(pool, critic):
    policies = {
        name: dataclasses.replace(policy, updater=critic) for name, policy in pool.policies.items()
    }
    return PolicyPool(policies=policies, roles=pool.roles)


def candidates(tree):
    return [[(c.reward, c.value) for c in decision.candidates] for decision in tree.decisions]


def test_value_is_asked_of_every_branch_and_not_of_ends(echo_env, scripted_pool, play):
    critic = KnownV()
    pool = with_v(scripted_pool(script)[0], critic)
    (tree,) = play(echo_env(max_turns=1), pool, algorithm=Value, gamma=0.5)
    # After the caller the echo reads "results=[]": V is 1 there. After the echo all is over.
    assert candidates(tree) == [[(0.0, 0.5)] * 3, [(1.0, 0.0), (4.0, 0.0), (2.0, 0.0)]]
    assert [len(call) for call in critic.calls] == [1], "equal prompts are evaluated once"


def test_prompts_of_all_episodes_are_evaluated_together(echo_env, scripted_pool, play):
    critic = KnownV()
    pool = with_v(scripted_pool(lambda p, k, s: str((s + k) % 97))[0], critic)
    play(echo_env(max_turns=2), pool, seeds=range(6), algorithm=Value)
    assert len(critic.calls) == 3, "one evaluation per decision, however many episodes"
    assert len(critic.calls[0]) > 6


def test_the_branch_is_chosen_by_reward_and_value(echo_env, scripted_pool, play):
    class Contrary(KnownV):
        def values(self, prompts):
            return [-100.0 if "called=5" in bytes(p).decode() else 0.0 for p in prompts]

    calls = lambda prompt, k, seed: ("3", "5", "4")[k]  # noqa: E731
    for algorithm, best in ((AtGrpo, 1), (Value, 2)):
        pool = with_v(scripted_pool(calls)[0], Contrary())
        (tree,) = play(echo_env(max_turns=1), pool, algorithm=algorithm)
        assert tree.decisions[0].chosen == best


@pytest.mark.parametrize("num", [1, 3])
def test_continuations_are_the_mean_return_of_the_rest(echo_env, scripted_pool, play, num):
    pool, _ = scripted_pool(script)
    (tree,) = play(
        echo_env(max_turns=2), pool, algorithm=Continuation, num_continuations=num, gamma=0.5
    )
    # In a continuation each agent has one candidate, the first: the echo earns 1, 0 to the caller.
    after_caller = 0.5 * 1 + 0.125 * 1
    assert candidates(tree)[0] == [(0.0, after_caller)] * 3
    assert candidates(tree)[1] == [(1.0, 0.25), (4.0, 0.25), (2.0, 0.25)]
    assert candidates(tree)[3] == [(1.0, 0.0), (4.0, 0.0), (2.0, 0.0)]
    # 3 candidates; 3, 2 and 1 further decisions; 2 tokens each.
    assert tree.num_continuation_tokens == num * 3 * (3 + 2 + 1) * 2


@pytest.mark.parametrize(("branching", "num_tokens"), [("nobody", 0), ("echo", 8)])
def test_what_is_compared_with_nothing_is_not_continued(
    echo_env, scripted_pool, play, branching, num_tokens
):
    (tree,) = play(
        echo_env(max_turns=2), scripted_pool(script)[0],
        num_candidates=2, algorithm=Continuation, branching_roles=(branching,),
    )  # fmt: skip
    assert tree.num_continuation_tokens == num_tokens
    assert any(value for group in candidates(tree) for _, value in group) == bool(num_tokens)


def test_a_rollout_whose_continuation_loses_a_connection_is_played_again(
    echo_env, scripted_pool, play
):
    calls = itertools.count()
    pool, _ = scripted_pool(lambda prompt, k, seed: str(next(calls)))
    env = echo_env(crash_on="50", crash=ConnectionError)
    trees = play(env, pool, algorithm=Continuation, seeds=range(4))
    assert not any(tree.has_failed for tree in trees), "50 is written once: they were played again"


def test_whole_episodes_branch_at_drawn_decisions(echo_env, scripted_pool, play):
    def draw(prompt, k, seed):
        return str((seed // 7 + k) % 50)

    settings = {"algorithm": TreeGrpo, "num_branchings": 2}
    trees = play(
        echo_env(max_turns=4), scripted_pool(draw)[0], seeds=range(8), allowed=0.5, **settings
    )
    branched = [[len(decision.candidates) == 3 for decision in tree.decisions] for tree in trees]
    assert all(sum(found) == 2 for found in branched)
    assert len({tuple(found) for found in branched}) > 1, "not always the same ones"
    for tree in trees:
        assert all(decision.chosen == 0 for decision in tree.decisions)
        assert tree.outcome.returns["echo_0"] == pytest.approx(
            sum(
                d.candidates[0].reward if d.role == "echo" else d.candidates[0].team
                for d in tree.decisions
            )
        )


def test_what_was_played_is_valued_by_what_followed(echo_env, scripted_pool, play):
    pool, _ = scripted_pool(script)
    (tree,) = play(echo_env(max_turns=2), pool, num_branchings=4, algorithm=TreeGrpo, gamma=0.5)
    # One agent answers with its first candidate while the episode is played: the echo earns 1.
    assert [decision.candidates[0].value for decision in tree.decisions] == [
        0.5 + 0.125, 0.25, 0.5, 0.0
    ]  # fmt: skip
    assert [d.candidates[1].value for d in tree.decisions] == [0.625, 0.25, 0.5, 0.0]


def test_candidates_are_compared_by_reward_and_value(echo_env, scripted_pool, play):
    critic = KnownV()
    pool = with_v(scripted_pool(lambda p, k, s: str(k))[0], critic)
    (tree,) = play(echo_env(max_turns=1), pool, algorithm=Value)
    scored = score_decisions([tree], Value(norm="none"))
    (first, second) = scored.decisions
    assert [c.advantage for c in first.candidates] == pytest.approx([-0.1, 0.0, 0.1])
    assert [c.advantage for c in second.candidates] == pytest.approx(
        [c.reward - sum(o.reward for o in second.candidates) / 3 for c in second.candidates]
    )


@pytest.mark.parametrize("weight", [0.0, 0.5, 1.0])
def test_targets_mix_tree_backup_and_path_return(echo_env, scripted_pool, play, weight):
    critic = KnownV()
    pool = with_v(scripted_pool(script)[0], critic)
    (tree,) = play(echo_env(max_turns=1), pool, algorithm=Value, gamma=0.5)
    examples = value_examples([tree], gamma=0.5, path_weight=weight)["shared"]
    assert [e.prompt_ids for e in examples] == [d.prompt_ids for d in tree.decisions]
    assert [e.target for e in examples] == pytest.approx(
        [
            (1 - weight) * 0.5 + weight * (0.0 + 0.5 * 4.0),  # greedy followed the 4
            (1 - weight) * 7 / 3 + weight * 4.0,
        ]
    )
