"""Scripted policies and noise."""

import asyncio
import random

import pytest

import pettingllms
from pettingllms.errors import InvalidArgument
from pettingllms.policies import (
    Completion,
    NoisePolicy,
    Prompt,
    Sampling,
    ScriptedPolicy,
    load_policy,
)


def sample(policy, prompts, n=1):
    async def run():
        answers = await policy.sample(prompts, n, Sampling())
        await policy.aclose()
        return answers

    return asyncio.run(run())


@pytest.fixture
def prompt(guess_id):
    env = pettingllms.make(guess_id, checks=False)
    env.reset(seed=3)
    return Prompt(env.messages("teller_0"), "teller_0", 11, env)


def test_a_scripted_policy_says_what_the_environment_says(prompt):
    (answer,) = sample(ScriptedPolicy("oracle"), [prompt])
    expected = prompt.env.scripted_action("teller_0", "oracle", random.Random(0))
    assert answer.completions == (Completion(expected, "stop"),)
    assert answer.usage.num_requests == 0


def test_chance_is_that_of_the_prompt(prompt):
    first, again = (sample(ScriptedPolicy("random"), [prompt], n=20)[0] for _ in range(2))
    other = sample(ScriptedPolicy("random"), [prompt._replace(seed=12)], n=20)[0]
    assert first == again != other
    assert len(set(first.completions)) > 1, "n draws, not n copies"


def test_the_state_is_left_alone(prompt):
    before = prompt.env.state_hash()
    sample(ScriptedPolicy("random"), [prompt], n=5)
    assert prompt.env.state_hash() == before


def test_an_unknown_scripted_policy_is_refused(prompt):
    with pytest.raises(InvalidArgument, match=r'oracle, random.*did you mean "oracle"'):
        asyncio.run(ScriptedPolicy("orakle").check(prompt.env))
    asyncio.run(ScriptedPolicy("oracle").check(prompt.env))


def test_a_scripted_policy_needs_the_environment(prompt):
    with pytest.raises(InvalidArgument, match=r"prompt\.env"):
        sample(ScriptedPolicy("oracle"), [prompt._replace(env=None)])


def test_noise_is_printable_and_follows_the_seed(prompt):
    prompts = [prompt._replace(seed=seed) for seed in range(50)]
    texts = [answer.completions[0].text for answer in sample(NoisePolicy(), prompts)]
    assert texts == [answer.completions[0].text for answer in sample(NoisePolicy(), prompts)]
    assert len(set(texts)) > 40
    assert all(len(text) <= 64 and text.replace("\n", "").isprintable() for text in texts)


def test_the_fixed_program_is_handed_in_on_every_level_and_its_proposal_taken_over():
    env = pettingllms.make("queens_v0", checks=False)
    texts = []
    for seed in range(2):
        env.reset(seed=seed)
        for agent in env.possible_agents:
            prompt = Prompt(env.messages(agent), agent, seed, env)
            (answer,) = sample(load_policy("program"), [prompt])
            texts.append(answer.completions[0].text)
            env.step(texts[-1])
        assert env.infos["planner_0"]["success"]
    assert texts[0] == texts[2]
    assert texts[1] != texts[3]


@pytest.mark.parametrize(
    ("env_id", "kwargs"),
    [
        ("queens_v0", {"team": "single"}),
        ("plan_path_v0", {"tool": "call"}),
        ("dining_v0", {}),
        ("math_v0", {}),
    ],
)
def test_the_fixed_program_needs_a_tool_agent_that_writes_one(env_id, kwargs):
    env = pettingllms.make(env_id, checks=False, **kwargs)
    with pytest.raises(InvalidArgument, match="a tool agent that writes programs"):
        asyncio.run(load_policy("program").check(env))
