"""Agents of one stage see the same moment: they are asked at once, and nothing else changes."""

from dataclasses import replace

import pytest

from pettingllms import ParseError, PromptTemplate, TextEnv, Transition
from pettingllms_trainers.algorithms.continuation import Continuation
from pettingllms_trainers.algorithms.tree_grpo import TreeGrpo
from pettingllms_trainers.errors import RolloutError
from pettingllms_trainers.rollout.episode import LocalEpisodes

AGENTS = ("caller_0", "caller_1", "echo_0")


class PanelEnv(TextEnv):
    """Two callers and an echo in one stage, then an echo of its own; all add up numbers."""

    scripted_policies = ("one",)
    prompt_fields = {"agent": "name", "total": "so far"}
    default_prompts = {
        role: PromptTemplate("", f"{role} {{agent}} {{total}}") for role in ("caller", "echo")
    }

    def __init__(self, ends_at=10**9, **kwargs):
        super().__init__(stages=(AGENTS, ("echo_1",)), **kwargs)
        self._ends_at = ends_at

    def _generate(self, rng, options):
        return rng.randrange(100)

    def _fields(self, state, agent, turn):
        return {"agent": agent, "total": state}

    def _parse(self, state, agent, text):
        return int(text) if text.isdecimal() else ParseError("not a number")

    def _act(self, state, agent, action):
        return Transition(state + action, local=action, terminated=state + action >= self._ends_at)

    def _ansi(self, state):
        return str(state)

    def _scripted(self, state, agent, policy, rng):
        return "1"


def number(prompt, candidate, seed):
    return str((seed + candidate) % 7)


class OneAtATime(LocalEpisodes):
    """Says nothing about the other agents of a stage, as if each had one of its own."""

    async def start(self, env_seed):
        episode, state = await super().start(env_seed)
        return episode, self._alone(state)

    async def follow(self, episode, index):
        return self._alone(await super().follow(episode, index))

    async def fork(self, episode, index=None):
        copy, state = await super().fork(episode, index)
        return copy, self._alone(state)

    def _alone(self, state):
        return replace(state, co_acting=())


def _without_stages(tree):
    decisions = (replace(decision, within_stage=False) for decision in tree.decisions)
    return replace(tree, decisions=tuple(decisions))


SETTINGS = [
    {},
    {"branch_choice": "softmax", "branching_roles": ("echo",)},
    {"algorithm": TreeGrpo, "num_branchings": 2},
    {"algorithm": Continuation},
]


@pytest.mark.parametrize("settings", SETTINGS)
@pytest.mark.parametrize("ends_at", [10**9, 104])
def test_trees_are_those_of_agents_that_are_asked_one_after_another(
    scripted_pool, play, monkeypatch, settings, ends_at
):
    env = PanelEnv(max_turns=3, ends_at=ends_at)
    together = play(env, scripted_pool(number)[0], seeds=range(8), **settings)
    monkeypatch.setitem(play.__globals__, "LocalEpisodes", OneAtATime)
    alone = play(env, scripted_pool(number)[0], seeds=range(8), **settings)
    assert {d.within_stage for tree in alone for d in tree.decisions} == {False}
    assert [d.within_stage for d in together[0].decisions][:4] == [True, True, False, False]
    assert [_without_stages(tree) for tree in together] == alone
    assert all(not tree.has_failed for tree in together)
    lengths = {len(tree.decisions) for tree in together}
    assert (lengths == {12}) == (ends_at > 10**8), "some episodes end within a stage"


def test_agents_of_a_stage_share_a_call_of_each_policy(scripted_pool, play):
    pool, engines = scripted_pool(caller=number, echo=number)
    play(PanelEnv(max_turns=2), pool, seeds=range(5))
    assert [len(call) for call in engines["caller"].calls] == [10, 10]
    assert [len(call) for call in engines["echo"].calls] == [5, 5, 5, 5]


def test_a_prompt_that_changes_within_a_stage_fails_the_episode(scripted_pool, play):
    class Leaky(PanelEnv):
        def _fields_now(self, agent):
            return {"agent": agent, "total": self._state}

    with pytest.raises(RolloutError, match="prompt of caller_1 has changed within its stage"):
        play(Leaky(max_turns=1), scripted_pool(lambda *_: "1")[0])
