"""Loops of others: the same steps as in a run, taken one by one; bad input is refused."""

import asyncio
import tomllib

import pytest
import torch

import pettingllms
from pettingllms.errors import InvalidArgument
from pettingllms.loops import finish
from pettingllms.policies import Prompt, Sampling, load_policy
from pettingllms_trainers import open_policies
from pettingllms_trainers.backends.build import build_policies
from pettingllms_trainers.config.loading import config_of
from pettingllms_trainers.errors import ConfigError, UpdateError

ONE_STEP = {"completions_per_minibatch": 0, "num_epochs": 1, "learning_rate": 1e-2}
PROMPTS = [[{"role": "user", "content": text}] for text in ("P.*G", "PG*.", "GP##")]


@pytest.fixture(scope="module")
def table(small_run_file):
    """What a run file contains: one optimizer step per update, no reference."""
    found = tomllib.loads(small_run_file(2).read_text())
    return found | {"optimizer": ONE_STEP, "loss": {"entropy_coefficient": 0.01}}


@pytest.fixture
def policies(table):
    with open_policies(table) as opened:
        yield opened


def weights(policy):
    return [w.clone() for w in policy._updater.learner.weights.trained.values()]


def likelihood(found, targets):
    return -(found.logprobs * targets.advantages).sum()  # a sum over tokens, not a mean


def some_groups(policy, seed=0):
    """Groups of four answers whose advantages differ."""
    return [a.group([2.0, -1.0, 0.5, -1.5]) for a in policy.sample(PROMPTS, 4, seed=seed)]


def test_one_step_is_that_of_the_trainer(policies, table):
    mine, config = policies["planner"], config_of(table, {})
    theirs = build_policies(config)["p"].updater
    groups = some_groups(mine)[:1]  # of several the trainer changes the order, and the rounding
    stats = theirs.update(groups)
    found = mine.forward_backward(groups)
    assert mine.optim_step(ONE_STEP["learning_rate"]) == stats.grad_norm
    assert found == {name: getattr(stats, name) for name in found}
    trained = theirs.learner.weights.trained.values()
    assert all(map(torch.equal, weights(mine), trained))


def test_gradients_of_calls_add_up_and_are_forgotten_by_the_step(policies):
    policy = policies["tool"]
    first, *others = some_groups(policy)
    policy.forward_backward([first, *others], likelihood)
    whole = policy.optim_step(0.0)  # a rate of 0: the weights stay
    policy.forward_backward([first], likelihood)
    policy.forward_backward(others, likelihood)
    assert policy.optim_step(0.0) == pytest.approx(whole, rel=1e-5)
    before = weights(policy)
    assert policy.optim_step(1.0) == 0
    assert all(map(torch.equal, weights(policy), before))
    with pytest.raises(UpdateError, match="the loss is nan"):
        policy.forward_backward([first], lambda found, _: (found.logprobs.sum() * 0 - 1).sqrt())
    assert policy.optim_step(1.0) == 0, "half a gradient was left"


def test_scores_are_denominators_and_references(table):
    with open_policies(table, loss={"kl_coefficient": 0.1}) as opened:
        policy = opened["planner"]
        groups = some_groups(policy)
        with pytest.raises(InvalidArgument, match=r"reference_logprobs.*kl_coefficient is 0\.1"):
            policy.forward_backward(groups)
        start = policy.score(groups)
        policy.forward_backward(groups, reference_logprobs=start)
        policy.optim_step(3e-2)
        now = policy.score(groups)
        moved = policy.forward_backward(groups, reference_logprobs=start)
        assert moved["kl"] > 0
        assert moved["ratio_max"] > 1
        fresh = policy.forward_backward(groups, reference_logprobs=start, old_logprobs=now)
        assert fresh["ratio_max"] == pytest.approx(1, abs=1e-5)


def test_environments_are_prompts_of_their_roles(table):
    env = pettingllms.make("plan_path_v0", **table["env"]["kwargs"])
    env.reset(seed=3)
    agent = env.agent_selection
    own = {"max_completion_tokens": 4, "per_role": {"tool": {"max_completion_tokens": 1}}}
    with open_policies(table, rollout=own) as opened:
        policy = opened["tool"]
        (of_env,) = policy.sample([env], 3, seed=5)
        (of_text,) = policy.sample([env.messages(agent)], 3, seed=5)
        (again,) = policy.sample([env], 3, seed=5)
        (other,) = policy.sample([env], 3, seed=6)
        shown = policy.demonstration(env, "1")
    assert of_env == again != other
    assert of_env.prompt_ids == of_text.prompt_ids == shown.prompt_ids
    assert {len(one.token_ids) for one in of_env.completions} == {1}
    assert any(len(one.token_ids) > 1 for one in of_text.completions)
    assert (of_env.role, of_text.role) == ("tool", "")
    for action in of_env.actions:
        assert action.tokens[:2] == (len(of_env.prompt_ids), 1)
        env.fork().step(action)


def test_weights_and_states_come_back(policies, table, tmp_path):
    policy = policies["planner"]
    policy.forward_backward(some_groups(policy))
    policy.optim_step(1e-2)
    policy.save(tmp_path / "new" / "weights")
    policy.save_state(tmp_path / "state")
    (greedy,) = policy.sample(PROMPTS[:1], seed=0, temperature=0)
    loaded = load_policy(f"hf:{tmp_path / 'new' / 'weights'}")
    settings = Sampling(temperature=0, max_completion_tokens=4)
    (answer,) = finish(loaded.sample([Prompt(PROMPTS[0], "planner_0", 0)], 1, settings))
    assert answer.completions[0].text == greedy.completions[0].text
    with open_policies(table, seed=7) as opened:  # other weights
        resumed = opened["planner"]
        resumed.load_state(tmp_path / "state")
        groups = some_groups(policy, seed=1)
        for one in (policy, resumed):
            one.forward_backward(groups)
            one.optim_step(1e-2)
        assert all(map(torch.equal, weights(policy), weights(resumed)))


def test_a_state_that_cannot_be_written_leaves_the_one_before_it(policies, tmp_path, monkeypatch):
    policy, torch_save = policies["planner"], torch.save
    policy.save_state(tmp_path)

    def full(state, file):
        torch_save(state, file)
        file.truncate(100)
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(torch, "save", full)
    with pytest.raises(OSError, match="No space"):
        policy.save_state(tmp_path)
    policy.load_state(tmp_path)
    assert [path.name for path in tmp_path.iterdir()] == ["state.pt"]


def test_roles_of_a_policy_share_it_and_cells_can_sample(table):
    both = {"roles": {"tool": "p", "planner": "p"}, "policies": {"p": table["policies"]["p"]}}
    frozen = {"p": table["policies"]["p"] | {"frozen": True}}

    async def cell():
        with open_policies(table | both | {"policies": frozen}, num_steps=0) as opened:
            assert opened["tool"] is opened["planner"]
            (answers,) = opened["tool"].sample(PROMPTS[:1], seed=0)
            with pytest.raises(ConfigError, match=r"'p' is frozen.*\[policies\.p\]"):
                opened["tool"].forward_backward([answers.group([1.0])])

    asyncio.run(cell())


def test_bad_input_says_what_to_do(policies, table, monkeypatch):
    (answers,) = policies["tool"].sample(PROMPTS[:1], 2, seed=0)
    with pytest.raises(InvalidArgument, match=r"1 numbers.*2, one for each answer"):
        answers.group([1.0])
    with pytest.raises(InvalidArgument, match=r"groups.*at least one"):
        policies["tool"].forward_backward([])
    with (
        pytest.raises(ConfigError, match=r"one process.*ray\.enabled"),
        open_policies(table, ray={"enabled": True}),
    ):
        pass
    monkeypatch.setenv("WORLD_SIZE", "2")
    with pytest.raises(ConfigError, match=r"one process.*a launcher"), open_policies(table):
        pass
