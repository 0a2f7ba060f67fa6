"""The exact layer computes what the trainer does, and what can be computed without sampling."""

import asyncio
import random
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("torch")
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks"))
sys.path.insert(0, str(Path(__file__).resolve().parents[2] / "benchmarks" / "rivals"))

from credit_study import exact
from credit_study.levels import (
    backwards,
    enumerate_levels,
    lemma_1,
    side_by_side,
    softmax,
    success_of,
    true_gradient,
)
from credit_study.rows import read_table
from credit_study.tabular import Players, advantages, value_targets

import pettingllms
from pettingllms_trainers import types
from pettingllms_trainers.algorithms.auto import EpisodeRewards, Evidence
from pettingllms_trainers.config.algorithm import StepContext, algorithm_of
from pettingllms_trainers.learning.groups import score_decisions
from pettingllms_trainers.policies.pool import Batcher, ModelPolicy, PolicyPool
from pettingllms_trainers.rollout.candidates import FailureLog, RolloutSettings, RolloutSpec
from pettingllms_trainers.rollout.episode import LocalEpisodes
from pettingllms_trainers.rollout.player import play_episodes

KWARGS = {
    "team": "proposer-planner", "size": 4, "max_turns": 3, "moves_per_turn": 1, "min_moves": 2,
    "max_moves": 3, "obstacle_ratio": 0.25, "alpha": 0.7,
}  # fmt: skip
TEXTS = ('#### ["U"]', '#### ["D"]', '#### ["L"]', '#### ["R"]', "bad")
ROLES = ("proposer", "planner")
WAYS = {name: way["algorithm"] for name, way in read_table()["ways"].items() if name != "auto"}


def players_of(reward="shaped", num_trials=2, seeds=(1, 2), spread=0.5):
    """Trials on the same levels with the same random policy."""
    one = enumerate_levels("plan_path_v0", seeds, TEXTS, reward=reward, **KWARGS)
    players = Players(side_by_side([one] * num_trials), np.random.default_rng(0))
    rng = np.random.default_rng(1)
    logits = spread * rng.normal(size=(len(one.trial_of_row), len(TEXTS)))
    players.move(np.tile(logits, (num_trials, 1)))
    players.v = np.tile(rng.normal(size=len(logits)), num_trials)
    return one, players


def trees_of(sample, levels):
    """What was sampled, as the trainer keeps it; every group is a level of its own."""
    trees = []
    for group, episode in np.ndindex(sample.nodes.shape[:2]):
        number, decisions = len(trees), []
        for t in np.flatnonzero(sample.nodes[group, episode] >= 0):
            node, place = sample.nodes[group, episode, t], (group, episode, t)
            answers = sample.answers[place][sample.is_sampled[place]]
            follows = sample.follows[place][sample.is_sampled[place]]
            candidates = tuple(
                types.Candidate(
                    completion=types.TokenCompletion(
                        token_ids=(1 + int(answer),), logprobs=(0.0,), text="", finish_reason="stop"
                    ),
                    reward=levels.rewards[node, answer],
                    team=levels.rewards[node, answer] - levels.local[node, answer],
                    local=levels.local[node, answer],
                    value=value,
                )
                for answer, value in zip(answers, follows, strict=True)
            )
            role = ROLES[levels.agent[node]]
            key = types.DecisionKey(number, len(decisions), f"{role}_0", int(levels.turn[node]))
            decisions.append(
                types.Decision(
                    key=key, role=role, policy="p", prompt_ids=(1 + int(levels.row[node]),),
                    observation="", candidates=candidates, chosen=int(sample.chosen[place]),
                    state_key=str(levels.state[node]),
                )
            )  # fmt: skip
        is_solved = bool(sample.taken(levels.success)[group, episode].sum())
        outcome = types.TreeOutcome(
            success=is_solved, terminated=is_solved, truncated=not is_solved
        )
        tree = types.RolloutTree(
            episode=number, env_seed=group, initial_state_hash="", decisions=tuple(decisions),
            outcome=outcome,
        )  # fmt: skip
        trees.append(tree)
    return trees


def update_of(trees, algorithm, policy):
    """``[R, A]`` sum of A grad log pi by the trainer's own advantages."""
    gradient = np.zeros_like(policy)
    for decision in score_decisions(trees, algorithm).decisions:
        row = decision.prompt_ids[0] - 1
        for candidate in decision.candidates:
            gradient[row] -= candidate.advantage * policy[row]
            gradient[row, candidate.completion.token_ids[0] - 1] += candidate.advantage
    return gradient


@pytest.mark.parametrize("reward", ["shaped", "outcome"])
@pytest.mark.parametrize("name", WAYS)
def test_updates_are_those_of_the_trainers_advantages(name, reward):
    _, players = players_of(reward)
    algorithm, levels = algorithm_of(WAYS[name]), players.levels
    whole = players.sample(algorithm, np.arange(2), 20)
    found = players.gradient(whole, advantages(whole, algorithm, levels))
    assert np.abs(found).max() > 0
    of_group = levels.trial[whole.nodes.max((1, 2))]
    for trial in range(2):
        # A train step of the trainer is that of one trial.
        sample = type(whole)(*(part[of_group == trial] for part in whole))
        trees = trees_of(sample, levels)
        rows = levels.trial_of_row == trial
        expected = update_of(trees, algorithm, players.policy)
        assert found[rows] == pytest.approx(expected[rows], abs=1e-9)
        if name == "value":
            targets = value_targets(sample, algorithm, levels)[sample.nodes >= 0]
            examples = algorithm.value_examples(trees, StepContext())["p"]
            assert targets == pytest.approx([one.target for one in examples], abs=1e-9)


def test_evidence_is_that_of_auto():
    _, players = players_of("shaped")
    sample = players.sample(algorithm_of(WAYS["reinforce_success"]), np.arange(2), 20)
    found = exact.evidence_of(sample, players.levels, 2)
    trees, expected = trees_of(sample, players.levels), [Evidence(), Evidence()]
    for group in range(len(sample.nodes)):
        level = [tree for tree in trees if tree.env_seed == group]
        trial = players.levels.trial[sample.nodes[group, 0, 0]]
        expected[trial] = expected[trial].with_level(
            EpisodeRewards([d.candidates[0].reward for d in tree.decisions], tree.outcome.success)
            for tree in level
        )
    assert found == pytest.approx(np.array(expected), abs=1e-9)
    assert found[0, 1] > 0


class Table:
    """A tabular policy as the trainer's policy of all roles, on real environments."""

    is_concurrent = False
    limits = types.RequestLimits(max_batch_tokens=1 << 30, context_length=None, vocab_size=1 << 30)

    def __init__(self, rows, policy, v):
        self.policy, self.v = policy, v
        model = ModelPolicy(
            name="p",
            encode=lambda messages: (1 + rows["\0".join(m["content"] for m in messages)],),
            encode_answer=lambda text: (TEXTS.index(text),), batcher=Batcher(self), updater=self,
        )  # fmt: skip
        self.pool = PolicyPool(policies={"p": model}, roles=dict.fromkeys(ROLES, "p"))

    def check(self, request):
        pass

    async def generate(self, requests):
        return [self._drawn(one.prompt_ids[0] - 1, one) for one in requests]

    def _drawn(self, row, request):
        rng, own = random.Random(request.seed), self.policy[row]
        entropy = float(-(own * np.log(own)).sum())
        return [
            types.TokenCompletion(
                token_ids=(1 + answer,), logprobs=(0.0,), text=TEXTS[answer],
                finish_reason="stop", entropies=(entropy,),
            )
            for answer in rng.choices(range(len(TEXTS)), own, k=request.num_candidates)
        ]  # fmt: skip

    def values(self, prompts):
        return [float(self.v[prompt[0] - 1]) for prompt in prompts]

    def play(self, algorithm, num):
        class OfSeed(LocalEpisodes):
            async def start(self, env_seed):
                return await super().start(1)

        env = pettingllms.make("plan_path_v0", checks=False, reward="shaped", **KWARGS)
        size = algorithm.episodes_per_level
        specs = [RolloutSpec(n, n // size, 7 + n) for n in range(num * size)]
        settings = RolloutSettings(
            sampling=dict.fromkeys(ROLES, types.SamplingSettings()), branching_roles=ROLES
        )
        strategy = algorithm.strategy(StepContext())
        return asyncio.run(
            play_episodes(OfSeed(env), self.pool, specs, settings, strategy, FailureLog(0.0))
        )


def rows_of_prompts(one):
    """Prompt -> row, by walking the environment along the enumerated nodes."""
    env = pettingllms.make("plan_path_v0", checks=False, reward="shaped", **KWARGS)
    env.reset(seed=1)
    rows, waiting = {}, [(env, int(one.roots[0, 0]))]
    for current, node in waiting:
        prompt = "\0".join(m["content"] for m in current.messages(current.agent_selection))
        rows[prompt] = int(one.row[node])
        for answer, child in enumerate(one.children[node]):
            if child >= 0 and one.row[child] not in rows.values():
                fork = current.fork()
                fork.step(TEXTS[answer])
                waiting.append((fork, int(child)))
    return rows


PLAYED = ("at_grpo", "value", "continuation", "tree_grpo", "entropy_branching", "vine", "reinforce")


@pytest.mark.parametrize("num", [100, pytest.param(250, marks=pytest.mark.nightly)])
@pytest.mark.parametrize("name", PLAYED)
def test_updates_are_as_large_on_average_as_those_of_the_trainers_rollouts(name, num):
    """Of single levels, along random directions, at 4.5 standard errors."""
    one, players = players_of(num_trials=num, seeds=(1,))
    keys = WAYS[name] | ({"norm": "std"} if name in ("vine", "reinforce") else {})
    algorithm, size = algorithm_of(keys), len(one.trial_of_row)
    sample = players.sample(algorithm, np.arange(num), 1)
    ours = players.gradient(sample, advantages(sample, algorithm, players.levels))
    table = Table(rows_of_prompts(one), players.policy[:size], players.v[:size])
    trees, per = table.play(algorithm, num), algorithm.episodes_per_level
    theirs = [
        update_of(trees[n : n + per], algorithm, table.policy) for n in range(0, len(trees), per)
    ]
    ours, theirs = (np.reshape(of, (num, -1)) for of in (ours, theirs))
    half = num // 2  # shows where the update points; the others are compared
    directions = [theirs[:half].mean(0), *np.random.default_rng(2).normal(size=(4, ours.shape[1]))]
    for direction in directions:
        first, second = ours[half:] @ direction, theirs[half:] @ direction
        error = np.sqrt((first.var() + second.var()) / half)
        assert abs(first.mean() - second.mean()) < 4.5 * error + 1e-12
    tokens = sum(t.num_continuation_tokens for t in trees) / num
    beside = sample.num_beside
    assert abs(beside.mean() - tokens) <= 6 * beside.std() / np.sqrt(num)


def test_continuations_expect_the_true_gradient_and_steps_do_not():
    num = 4000
    one, players = players_of("shaped", num_trials=num, seeds=(1,))
    gradient = true_gradient(one, players.policy[: len(one.trial_of_row)]).ravel()
    players.v[players.levels.row] = backwards(
        players.levels, players.policy, players.levels.rewards
    )[1]
    cosines = {}
    for name in ("continuation", "value", "at_grpo"):
        algorithm = algorithm_of({"name": name, "branch_choice": "random", "norm": "none"})
        sample = players.sample(algorithm, np.arange(num), 1)
        found = players.gradient(sample, advantages(sample, algorithm, players.levels))
        mean = found.reshape(num, -1).mean(0) / algorithm.num_candidates
        cosines[name] = mean @ gradient / np.linalg.norm(mean) / np.linalg.norm(gradient)
        if name != "at_grpo":  # up to the factor (K - 1) / K, which leave_one_out removes
            assert mean @ gradient == pytest.approx(0.75 * gradient @ gradient, rel=0.1)
    assert min(cosines["continuation"], cosines["value"]) > 0.97 > cosines["at_grpo"]


def test_the_gradient_is_that_of_the_return_by_finite_differences():
    one, players = players_of()
    logits = players.logits[: len(one.trial_of_row)]
    direction = np.random.default_rng(1).normal(size=logits.shape)

    def value(scale):
        return backwards(one, softmax(logits + scale * direction), one.rewards)[1][one.roots].mean()

    slope = (value(1e-5) - value(-1e-5)) / 2e-5
    found = (true_gradient(one, softmax(logits)) * direction).sum()
    assert found == pytest.approx(slope, rel=1e-5)


def test_success_is_that_of_play():
    _, players = players_of("outcome")
    sample = players.sample(algorithm_of(WAYS["reinforce"]), np.arange(2), 1000)
    share = sample.taken(players.levels.success).sum(-1).mean()
    expected = success_of(players.levels, players.policy)
    assert expected.shape == (2, 2)
    assert abs(share - expected.mean()) < 4.5 * np.sqrt(share * (1 - share) / 16000)


def test_lemma_and_proposition_are_counted():
    shaped, outcome = (
        enumerate_levels("plan_path_v0", (1, 2), TEXTS, reward=reward, **KWARGS)
        for reward in ("shaped", "outcome")
    )
    counts = lemma_1(shaped)
    assert counts["decisions"] == len(shaped.row) >= counts["success"] > 0
    assert counts["greedy"] == counts["solvable"] == 2
    assert lemma_1(outcome)["success"] < counts["success"]
    # Whoever is paid for a wall is led into it.
    misled = lemma_1(replace(shaped, rewards=shaped.rewards + 9.0 * (np.arange(5) == 4)))
    assert (misled["greedy"], misled["solvable"]) == (0, 2)


def test_a_trial_learns_by_a_rate_that_freezes_little_and_is_the_same_again():
    study = read_table()["exact"]["study"] | {"seeds": [100, 101], "selection_seeds": [0, 1]}
    game = {"id": "plan_path_v0", "answers": TEXTS, "budgets": [600, 2400],
            "kwargs": {**KWARGS, "reward": "outcome"}}  # fmt: skip
    study |= {"num_levels": 2, "rates": {"adam": [0.01, 3.0]}}
    given = {"game": game, "bonus": None, "optimizer": "adam", "study": study}
    found = exact.trial_cell(algorithm=WAYS["reinforce_success"], **given)
    assert found["rate"] == 3.0
    first, last = (np.mean(of) for of in found["success"].values())
    assert found["first"] < first < last
    assert exact.trial_cell(algorithm=WAYS["reinforce_success"], **given) == found
    misled = exact.trial_cell(algorithm=WAYS["at_grpo"], **{**given, "bonus": ["length", 0.1]})
    assert [share for _, share in misled["rates"].values()][1] > 0.9
    assert misled["rate"] == 0.01
    shaped = {**given, "game": {**game, "kwargs": {**KWARGS, "reward": "shaped"}}}
    assert set(exact.trial_cell(algorithm={"name": "auto"}, **shaped)["shown"]) == {0}
    assert set(exact.trial_cell(algorithm={"name": "auto"}, **given)["shown"]) == {-1}
