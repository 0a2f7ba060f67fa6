"""Roles without weights: who answers by text plays, and nothing of it is compared or trained."""

import json
from asyncio import CancelledError
from dataclasses import replace
from unittest.mock import AsyncMock

import pytest
from run_toys import number

from pettingllms import policies as core
from pettingllms.errors import InvalidArgument
from pettingllms.files import read_lines
from pettingllms_trainers.cli import main
from pettingllms_trainers.config.loading import load_config
from pettingllms_trainers.errors import RolloutError
from pettingllms_trainers.policies.fixed import FixedPolicy, open_fixed_policies
from pettingllms_trainers.policies.pool import PolicyPool
from pettingllms_trainers.types import SamplingSettings


def with_fixed(pool, policy, **settings):
    """The pool, with a fixed policy in the role of the echo."""
    loaded = core.load_policy(policy, core.PolicySettings(max_retries=0, **settings))
    friend = FixedPolicy(name="friend", policy=loaded)
    return replace(
        pool, roles={"caller": "shared", "echo": "friend"}, fixed_policies={"friend": friend}
    )


def test_an_endpoint_gets_the_prompt_and_the_sampling_of_its_role(
    echo_env, scripted_pool, play, chat_server
):
    chat_server.reply = lambda body: "99"
    pool = with_fixed(scripted_pool(number)[0], chat_server.policy)
    sampling = {"echo": SamplingSettings(temperature=0.25, max_completion_tokens=17, stop=("END",))}
    (tree,) = play(echo_env(), pool, sampling=sampling)
    assert tree.outcome.success
    (body,) = chat_server.requests
    assert (body["temperature"], body["max_tokens"], body["stop"]) == (0.25, 17, ["END"])
    assert "You are the echo." in body["messages"][0]["content"]
    assert 0 <= body["seed"] < 2**31
    assert tree.decisions[1].temperature == 0.25


def test_an_endpoint_that_fails_is_asked_again_and_fails_its_rollouts_only(
    echo_env, scripted_pool, play, chat_server, caplog
):
    refusals = [(400, {}, {"error": {"message": f"no, request {n}"}}) for n in range(2)]
    chat_server.script = refusals
    chat_server.reply = lambda body: "99"
    pool = with_fixed(scripted_pool(number)[0], chat_server.policy)
    trees = play(echo_env(), pool, seeds=range(6))
    assert not any(tree.has_failed for tree in trees), "two were played again"
    assert sum("a rollout failed" in record.message for record in caplog.records) == 1
    chat_server.then = (400, {}, {"error": {"message": "never"}})
    pool = with_fixed(scripted_pool(number)[0], chat_server.policy)
    with pytest.raises(RolloutError, match=r"6 of 6 rollouts failed.*never"):
        play(echo_env(), pool, seeds=range(6), allowed=0.5)


def test_a_cancelling_by_nobody_fails_rollouts(echo_env, scripted_pool, play, monkeypatch):
    monkeypatch.setattr(core.ScriptedPolicy, "sample", AsyncMock(side_effect=CancelledError))
    with pytest.raises(RolloutError, match="a policy raised CancelledError"):
        play(echo_env(), with_fixed(scripted_pool(number)[0], "two"))


def test_players_keep_their_roles_when_others_swap():
    policies = dict.fromkeys("ab")
    pool = PolicyPool(
        policies=policies,
        roles={"one": "a", "two": "oracle", "three": "b"},
        fixed_policies={"oracle": None},
    )
    assert pool.swapped().roles == {"one": "b", "two": "oracle", "three": "a"}
    alone = PolicyPool(
        policies={"a": None}, roles={"one": "a", "two": "o"}, fixed_policies={"o": None}
    )
    assert alone.swapped() is None


@pytest.fixture
def run_file(small_run_file, tmp_path):
    """A function that gives a small run whose planner is fixed."""

    def write(fixed, more=""):
        text = small_run_file(1).read_text()
        model = text[text.index("[policies.p]") : text.index("[roles]")]
        path = tmp_path / "run.toml"
        lines = f"[policies.p]\nfixed = {json.dumps(fixed)}\n{more}\n"
        path.write_text(text.replace(model, lines))
        return path

    return write


def test_a_run_with_an_oracle(run_file, tmp_path):
    out = tmp_path / "run"
    command = [str(run_file("oracle")), "--output-dir", str(out), "--warm-start.num-steps", "2"]
    assert main(command) == 0
    lines = read_lines(out / "metrics.jsonl")
    assert "warm_start/t/loss" in lines[0]
    assert not any("/p/" in name for line in lines for name in line)
    assert lines[-1]["rollout/num_fixed_actions"] >= 3
    assert lines[-1]["role/planner/parse_errors"] == 0
    variants = json.loads((out / "eval.json").read_text())["after"]["variants"]
    assert variants["greedy"]["success"] == 1.0, "the planner needs no tool"
    assert "swapped" not in variants
    assert [path.name for path in (out / "policies").iterdir()] == ["t"]
    assert main([*command, "--resume"]) == 0


NO_THINKING = "chat_template_kwargs = { enable_thinking = false }"


def test_an_endpoint_gets_the_template_arguments_of_the_run_file(run_file, tmp_path, chat_server):
    path = run_file(chat_server.policy, NO_THINKING)
    assert main([str(path), "--trust", "--output-dir", str(tmp_path / "run")]) == 0
    *_, last = read_lines(tmp_path / "run" / "metrics.jsonl")
    assert len(chat_server.requests) > last["rollout/num_fixed_actions"], "evaluations ask it too"
    given = [body["chat_template_kwargs"] for body in chat_server.requests]
    assert given == [{"enable_thinking": False}] * len(given)


def test_template_arguments_of_a_scripted_policy_are_refused(run_file, tmp_path, capsys):
    path = run_file("oracle", NO_THINKING)
    assert main([str(path), "--output-dir", str(tmp_path / "run")]) == 2
    assert "remove chat_template_kwargs" in capsys.readouterr().err.replace("\n", " ")


@pytest.mark.parametrize(
    ("fixed", "message"),
    [
        ("oracel", 'did you mean "oracle"?'),
        ("openai:m@http://127.0.0.1:9/v1", "http://127.0.0.1:9"),
        ("openia:m", 'did you mean "openai"?'),
    ],
)
def test_a_player_that_cannot_play_is_told_before_anything_is_loaded(
    run_file, tmp_path, capsys, fixed, message
):
    out = tmp_path / "run"
    assert main([str(run_file(fixed)), "--trust", "--output-dir", str(out)]) == 2
    assert message in capsys.readouterr().err
    assert not out.exists()


def test_players_are_closed(run_file, echo_env, monkeypatch):
    closed = []

    async def close(self):
        closed.append(self.name)

    monkeypatch.setattr(core.ScriptedPolicy, "aclose", close)
    with open_fixed_policies(load_config(run_file("two")), {"p": [echo_env()]}) as (_, policies):
        assert list(policies) == ["p"]
    with (
        pytest.raises(InvalidArgument, match="wizard"),
        open_fixed_policies(load_config(run_file("wizard")), {"p": [echo_env()]}),
    ):
        pass
    assert closed == ["two", "wizard"]
