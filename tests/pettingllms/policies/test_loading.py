"""Names and kinds of policies, the ranges of settings, scripted policies and noise."""

import asyncio

import pytest

import pettingllms
from pettingllms import plugins
from pettingllms.errors import EnvironmentNotLoadable, InvalidArgument, MissingDependency
from pettingllms.policies import (
    NoisePolicy,
    PolicySettings,
    PolicyUnavailable,
    Prompt,
    Sampling,
    ScriptedPolicy,
    Usage,
    load_policy,
)


@pytest.fixture
def installed(distribution, monkeypatch):
    """Return a function that installs a package which announces a kind of policies."""

    def install(kind, code):
        points = {kind: "weights_package:load"}
        site = distribution("weights", "pettingllms.policies", points, weights_package=code)
        monkeypatch.syspath_prepend(site)
        plugins.installed.cache_clear()

    yield install
    plugins.installed.cache_clear()


def test_names_without_a_model():
    assert type(load_policy("noise")) is NoisePolicy
    for name, scripted in (("oracle", "oracle"), ("scripted:noise", "noise")):
        policy = load_policy(name)
        assert type(policy) is ScriptedPolicy
        assert policy.name == scripted


def test_a_kind_of_an_installed_package(installed):
    made = "type('Mine', (), dict(given=given, check=0, sample=0, aclose=0))"
    installed("mine", f"def load(*given):\n    return {made}")
    settings = PolicySettings(max_concurrency=3)
    given = load_policy("mine:some/path:with:colons", settings).given
    assert given == ("some/path:with:colons", settings)


@pytest.mark.parametrize(
    ("code", "what"),
    [("return 1", "1 is no Policy: it has no check, sample, aclose"), ("{}[0]", r"KeyError: 0 \(")],
)
def test_a_kind_that_makes_no_policy_says_why(installed, code, what):
    installed("mine", f"def load(*given):\n    {code}")
    with pytest.raises(PolicyUnavailable, match=f"mine:x cannot be made: .*{what}"):
        load_policy("mine:x")


def test_a_kind_that_cannot_be_loaded_names_its_cause(installed):
    installed("broken", "import no_such_module_at_all")
    with pytest.raises(EnvironmentNotLoadable, match="no_such_module_at_all"):
        load_policy("broken:x")


def test_unknown_kinds_are_refused_with_the_known_ones(installed):
    installed("mine", "")
    with pytest.raises(InvalidArgument, match=r'openai, .*mine.*did you mean "openai"'):
        load_policy("opnai:x@http://localhost/v1")


def test_hf_without_the_trainer_says_what_to_install(monkeypatch):
    nothing = plugins.Plugins({}, {})
    monkeypatch.setattr("pettingllms.plugins.installed", lambda group: nothing)
    with pytest.raises(MissingDependency, match=r"pettingllms-trainers.*pip install ./trainers"):
        load_policy("hf:some/path")


@pytest.mark.parametrize("name", ["", ":", "openai:", ":x"])
def test_empty_names_are_refused(name):
    with pytest.raises(InvalidArgument):
        load_policy(name)


@pytest.mark.parametrize(
    ("kind", "name", "values"),
    [
        (Sampling, "temperature", [-0.1, True, "hot"]),
        (Sampling, "top_p", [0, 1.5]),
        (Sampling, "max_completion_tokens", [0, 1.5]),
        (Sampling, "stop", ["END", (1,)]),
        (PolicySettings, "max_concurrency", [0]),
        (PolicySettings, "max_retries", [-1]),
        (PolicySettings, "timeout_s", [0]),
        (PolicySettings, "requests_per_minute", [-1]),
    ],
)
def test_settings_out_of_range_are_refused(kind, name, values):
    for value in values:
        with pytest.raises(InvalidArgument, match=name):
            kind(**{name: value})


def test_usages_add_up():
    assert Usage(*range(1, 8)) + Usage(*range(10, 80, 10)) == Usage(*range(11, 88, 11))


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


def test_chance_is_that_of_the_prompt(prompt):
    first, again = (sample(ScriptedPolicy("random"), [prompt], n=20)[0] for _ in range(2))
    other = sample(ScriptedPolicy("random"), [prompt._replace(seed=12)], n=20)[0]
    assert first == again != other
    assert len(set(first.completions)) > 1, "n draws, not n copies"


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
