"""`eval RUN`, `compare` and `replay` of training runs, without the trainer: only its files."""

import json
import math
from pathlib import Path

import pytest

import pettingllms
from pettingllms.evaluation import wilson_interval
from pettingllms.evaluation.plan import names_of
from pettingllms.evaluation.training_run import TrainingRun

CONFIG = Path(__file__).with_name("training_run.toml").read_text(encoding="utf-8")

TINY = 'model = "tiny"'


@pytest.fixture
def training_run(tmp_path):
    """Return a function that writes the directory of a training run."""

    def write(name="run", planner='fixed = "oracle"', seed=3):
        path = tmp_path / name
        path.mkdir()
        text = CONFIG.replace("\nPLANNER", f"\n{planner}").replace("seed = 3", f"seed = {seed}")
        (path / "config.toml").write_text(text)
        return path

    return write


def plan_of(run):
    return json.loads((run / "run.json").read_text())["plan"]


def figures(num_success):
    low, high = wilson_interval(num_success / 6, 6)
    shares = {"success": num_success / 6, "success_low": low, "success_high": high}
    return {**shares, "num_episodes": 6, "num_success": num_success}


def write_evaluations(run, variants_of):
    env = {"size": 5, "tool": "call", "split": "test", "max_turns": 3}
    lines = [
        {
            "step": step,
            "env": env,
            "variants": {variant: figures(n) for variant, n in variants.items()},
        }
        for step, variants in variants_of.items()
    ]
    (run / "evaluations.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))


def test_everything_comes_from_the_run(call, chat_server, training_run, tmp_path):
    run = training_run(planner=f'fixed = "{chat_server.policy}"')
    done = call("eval", run, "--out", "own", "--trust")
    assert done.returncode == 0, done.stderr
    plan = plan_of(tmp_path / "own")
    assert plan["env_id"] == "plan_path_v0"
    assert plan["env_kwargs"] == {
        "size": 5,
        "tool": "call",
        "max_turns": 3,
        "prompts": {"planner": {"system": "You plan.", "user": "{board}"}},
        "split": "test",
    }
    assert plan["variants"] == {"main": {"tool": "oracle", "planner": chat_server.policy}}
    assert (plan["seed"], plan["num_levels"]) == (11, 6)
    sent = chat_server.requests[0]
    assert sent["messages"][0] == {"role": "system", "content": "You plan."}
    assert (sent["temperature"], sent["max_tokens"], sent["stop"]) == (0.5, 17, ["END"])
    assert "top_k" not in sent


def test_flags_override_the_run(call, chat_server, training_run, tmp_path):
    run = training_run()
    done = call(
        *("eval", run, "--out", "own", "-n", 2, "--seed", 5, "-e", "max_turns=2"),
        *("-p", f"planner={chat_server.policy}", "-s", "temperature=0", "-s", "extra.top_k=4"),
    )
    assert done.returncode == 0, done.stderr
    plan = plan_of(tmp_path / "own")
    assert (plan["seed"], plan["num_levels"], plan["env_kwargs"]["max_turns"]) == (5, 2, 2)
    sent = chat_server.requests[0]
    assert (sent["temperature"], sent["max_tokens"], sent["stop"]) == (0, 17, ["END"])
    assert sent["top_k"] == 4


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("./nothing",), "is not a training run"),
        (("./rum",), 'did you mean "run"'),
        (("run", "--step", "2"), "a train step with a checkpoint: 1, 3"),
        (("trained",), "neither trained policies nor a checkpoint"),
    ],
)
def test_what_is_not_there_is_refused(call, training_run, tmp_path, arguments, message):
    run = training_run()
    for step in (1, 3):
        (run / "checkpoints" / f"step-{step:08d}").mkdir(parents=True)
    training_run("trained", planner=TINY)
    done = call("eval", *arguments, "--out", "own")
    assert done.returncode in (1, 2)
    assert message in " ".join(done.stderr.split())
    assert not (tmp_path / "own").exists()


def test_a_trained_policy_is_that_of_the_newest_checkpoint_or_of_the_end(training_run):
    run = training_run(planner=TINY)
    for step in (1, 3):
        (run / "checkpoints" / f"step-{step:08d}").mkdir(parents=True)
    opened = TrainingRun.open(run)
    newest = f"run:{run}?policy=planner&step=3&precision=float32"
    assert names_of(opened.assignment()) == {"tool": "oracle", "planner": newest}
    assert "step=1" in opened.assignment(1)["planner"]
    (run / "policies" / "planner").mkdir(parents=True)
    assert opened.assignment()["planner"] == newest, "an unfinished run that was prolonged"
    (run / "metrics.jsonl").write_text('{"step": 4}\n')
    assert opened.assignment()["planner"] == f"hf:{run}/policies/planner?precision=float32"
    own = opened.sampling(opened.assignment())
    assert (own["planner"].top_p, own["planner"].extra) == (1.0, {"top_k": 0})


def test_compare_says_who_played_and_what_differs(call, training_run):
    assert call("eval", training_run(), "--out", "a").returncode == 0
    other = ("run", "-p", "planner=random", "-s", "temperature=1", "-n", 5)
    assert call("eval", *other, "--out", "b").returncode == 0
    found = json.loads(call("compare", "a", "b", "--json").stdout)
    assert found["policies"] == [
        {"tool": "oracle", "planner": "oracle"},
        {"tool": "oracle", "planner": "random"},
    ]
    assert found["settings"] == {
        "sampling.tool.temperature": [0.5, 1],
        "sampling.planner.temperature": [0.5, 1],
        "levels": [6, 5],
    }
    assert found["is_paired"]
    shown = call("compare", "a", "b").stdout
    assert "who played" in shown
    assert "sampling.planner.temperature" in shown
    assert "| planner | oracle | random |" in call("compare", "a", "b", "--markdown").stdout


def test_unlike_tasks_are_compared_with_anyway_only(call, training_run):
    run = training_run()
    call("eval", run, "--out", "a")
    call("eval", run, "-e", "max_turns=2", "--out", "b")
    call("eval", run, "-e", "size=6", "--out", "c")
    for other in ("b", "c"):
        refused = call("compare", "a", other)
        assert refused.returncode == 2
        key = {"b": "env.max_turns is 3 and 2", "c": "env.size is 5 and 6"}[other]
        assert f"unlike tasks: {key}" in refused.stderr
        assert "--anyway" in refused.stderr
    same_levels = json.loads(call("compare", "a", "b", "--anyway", "--json").stdout)
    assert same_levels["is_paired"]
    assert same_levels["settings"] == {"env.max_turns": [3, 2]}
    others = json.loads(call("compare", "a", "c", "--anyway", "--json").stdout)
    assert not others["is_paired"]
    assert others["settings"] == {"env.size": [5, 6]}
    prompt = ("-e", 'prompts={"planner": {"system": "", "user": "{board}"}}')
    call("eval", run, *prompt, "--out", "d")
    assert call("compare", "a", "d").returncode == 0, "two prompts for one task"


def test_training_runs_are_compared_by_their_evaluations(call, training_run):
    run = training_run()
    write_evaluations(run, {0: {"greedy": 1, "scripted:oracle": 6}, 4: {"greedy": 5, "sampled": 2}})
    other = training_run("other", seed=4)
    write_evaluations(other, {4: {"greedy": 3}})

    def compared(*names):
        return json.loads(call("compare", *names, "--json").stdout)

    before_after = compared("run@0", "run")
    assert not before_after["is_paired"]
    difference = before_after["success"]["difference"]
    assert math.isclose(difference["value"], 4 / 6)
    assert difference["low"] < 4 / 6 < difference["high"]
    assert before_after["policies"][0]["planner"] == "oracle"
    assert compared("run", "other")["settings"] == {"config.seed": [3, 4]}
    assert compared("run:scripted:oracle", "run:sampled@4")["success"]["first"] == 1
    assert call("compare", "run:sampled@0", "run").returncode == 2
    assert "after: 0, 4" in call("compare", "run@3", "run").stderr
    assert "Not paired: 6 levels" in call("compare", "run", "other").stdout


@pytest.mark.parametrize("stage", [None, {"size": 7}], ids=["no curriculum", "a stage"])
def test_a_recorded_rollout_is_played_again(call, training_run, stage):
    run = training_run()
    kwargs = {"size": 5, "tool": "call", "split": "train"}
    kwargs["prompts"] = {"planner": {"system": "You plan.", "user": "{board}"}}
    env = pettingllms.make("plan_path_v0", **kwargs | (stage or {}))
    env.reset(seed=9)
    raw, decisions = env.unwrapped, []
    line = {"set": "training", "step": 2, "episode": 1, "env": kwargs | (stage or {})}
    line |= {"env_seed": 9, "initial_state_hash": raw.state_hash()}
    while not (raw.terminations[raw.agent_selection] or raw.truncations[raw.agent_selection]):
        agent, other = raw.agent_selection, {"text": "not followed"}
        observation, text = str(raw.observe(agent)), raw.scripted_action(agent, "oracle", None)
        env.step(text)
        known = {key: raw.infos[agent][key] for key in ("parse_error", "success")}
        followed = {"text": text, "reward": raw.rewards[agent], **known}
        followed |= {"num_tokens": 3, "finish_reason": "stop"}
        decision = {"agent": agent, "observation": observation, "chosen": 1}
        decision["num_prompt_tokens"] = 5
        decisions.append({**decision, "candidates": [other, followed]})
    path = run / "rollouts.jsonl"
    path.write_text(json.dumps({**line, "decisions": decisions}) + "\n")
    shown = call("replay", run, "--level", 1)
    assert shown.returncode == 0, shown.stderr
    assert "replayed exactly" in shown.stdout
    assert "solved" in shown.stdout
    assert "solved" in call("replay", run).stdout
    assert "recorded STEP:LEVEL: 2:1" in call("replay", run, "--step", 3).stderr
    refused = call("replay", run, "--sample", 1)
    assert refused.returncode == 2
    assert "a training run takes no --sample" in refused.stderr
    decisions[-1]["candidates"][1]["reward"] += 1
    path.write_text(json.dumps({**line, "decisions": decisions}) + "\n")
    diverged = call("replay", run, "--level", 1)
    assert diverged.returncode == 1
    assert "reward" in diverged.stderr


def test_a_recipe_is_evaluated_before_it_is_trained(call):
    done = call("eval", "recipe:two_games", "--environment", "blocksworld", "-p", "oracle", "-n", 3)
    assert "3 of 3 (3 levels" in done.stdout
    assert "no policy for tool, planner" in call("eval", "recipe:plan_path").stderr
