"""Training runs on workflows, by command: the updates of the environment, and resumption."""

import json
import random
import re
import tomllib
from itertools import chain
from pathlib import Path

import pytest
import tomli_w
from safetensors.torch import load_file
from tokenizers import Regex
from tokenizers.pre_tokenizers import Split

from pettingllms import make
from pettingllms.cli.app import run as pettingllms
from pettingllms.evaluation.training_run import TrainingRun, replay_rollout
from pettingllms.files import read_lines
from pettingllms.types import role_of
from pettingllms.viewer import write_view
from pettingllms_trainers.backends.hf.tiny import build_tiny, build_tokenizer
from pettingllms_trainers.cli import main

RUN = str(Path(__file__).with_name("workflow_run.toml"))
PROGRAM_RUN = Path(__file__).with_name("program_run.toml")
FILES = Path(__file__).parents[2] / "pettingllms" / "workflows"
TEAMS = Path(__file__).parents[3] / "examples" / "frameworks"
PROGRAMS = tomllib.loads((FILES / "programs.toml").read_text(encoding="utf-8"))
ENVIRONMENT = 'id = "toy_echo_v0"\n[env.kwargs]\nmax_turns = 2'
WORKFLOW = 'id = "workflow:workflow_toys:echo"\n[env.kwargs]\nmax_turns = 2'


@pytest.fixture
def run_file(tmp_path):
    """A function from the section of the environment to the files of a run."""

    def write(env, num_steps=3):
        path = tmp_path / f"{abs(hash(env))}-{num_steps}.toml"
        path.write_text(f"num_steps = {num_steps}\n[env]\n{env}\n")
        return [RUN, str(path)]

    return write


def trees_of(directory):
    trees = read_lines(directory / "rollouts.jsonl")
    for tree in trees:
        del tree["env"], tree["initial_state_hash"]
    return trees


def test_a_run_on_the_workflow_is_the_run_on_the_environment(run_file, tmp_path, results, capsys):
    ours, theirs = tmp_path / "environment", tmp_path / "workflow"
    for directory, env in ((ours, ENVIRONMENT), (theirs, WORKFLOW)):
        assert main([*run_file(env, 2), "--trust", "--output-dir", str(directory)]) == 0, (
            capsys.readouterr().err
        )
    metrics, others = (results(directory)["metrics"] for directory in (ours, theirs))
    assert metrics == others
    assert trees_of(ours) == trees_of(theirs)
    for name in ("c", "e"):
        weights = [load_file(d / "policies" / name / "model.safetensors") for d in (ours, theirs)]
        assert weights[0].keys() == weights[1].keys()
        assert all(weights[0][key].equal(weights[1][key]) for key in weights[0])
    assert any(line["update/e/num_groups"] for line in metrics[1:])


def test_a_run_on_a_workflow_is_resumed_exactly(run_file, tmp_path, resumes):
    flags = [*run_file(WORKFLOW, 2), "--trust", "--rollout.max-refills=1", "--rollout.min-groups=4"]
    flags.append("--checkpoint.keep=9")
    assert main([*flags, "--output-dir", str(tmp_path / "run")]) == 0
    whole = resumes(tmp_path / "run", flags, 1)
    assert whole["metrics"][1]["rollout/num_refills"] > 0


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ([], "has a reward for its outcome only"),
        (["--algorithm.name=reinforce", "--algorithm.credit=step"], "outcome only"),
        (["--env.id=workflow:workflow_toys:nothing"], "cannot be loaded"),
        (["--env.kwargs.split=test"], "both use split"),
    ],
)
def test_what_makes_no_sense_is_refused(run_file, tmp_path, capsys, flags, told):
    env = WORKFLOW.replace(":echo", ":outcome_only")
    arguments = [*run_file(env), "--trust", "--output-dir", str(tmp_path / "run"), *flags]
    assert main(arguments) == 2
    assert told in capsys.readouterr().err


@pytest.mark.parametrize(
    "flags",
    [
        ["--algorithm.name=continuation"],
        pytest.param(["--algorithm.name=auto"], marks=pytest.mark.nightly),
        pytest.param(["--algorithm.name=value"], marks=pytest.mark.nightly),
        pytest.param(["--algorithm.name=grpo"], marks=pytest.mark.nightly),
        pytest.param(["--algorithm.name=vine"], marks=pytest.mark.nightly),
        pytest.param(["--algorithm.name=tree_grpo"], marks=pytest.mark.nightly),
    ],
)
def test_credits_of_an_outcome_train(run_file, tmp_path, capsys, flags):
    env = WORKFLOW.replace(":echo", ":outcome_only")
    arguments = [*run_file(env, 1), "--trust", "--output-dir", str(tmp_path / "run"), *flags]
    assert main(arguments) == 0, capsys.readouterr().err
    (*_, last) = read_lines(tmp_path / "run" / "metrics.jsonl")
    assert last["step"] == 1


def test_a_finished_run_is_viewed_replayed_and_evaluated_again(run_file, tmp_path, capsys):
    directory, again = tmp_path / "run", tmp_path / "again"
    flags = ["--trust", "--output-dir", str(directory), "--evaluation.num-episodes=2"]
    assert main([*run_file(WORKFLOW, 1), *flags]) == 0
    recorded = len(trees_of(directory))
    summary = write_view(directory, tmp_path / "view.html")
    assert (summary.num_episodes, summary.notices) == (recorded, ())
    assert pettingllms(["replay", str(directory), "--quiet", "--trust"]) == 0
    assert "replayed exactly" in capsys.readouterr().out
    words = ["eval", str(directory), "--trust", "-s", "temperature=0", "--out", str(again)]
    assert pettingllms(words) == 0
    report = json.loads((again / "report.json").read_text())
    own = json.loads((directory / "eval.json").read_text())
    assert report["variants"]["main"]["manifest"] == own["manifest"]
    found, greedy = report["variants"]["main"], own["after"]["variants"]["greedy"]
    assert found["num_success"] == greedy["num_success"]
    assert found["num_turns"]["value"] == greedy["num_turns"]
    assert write_view(again, tmp_path / "again.html").num_episodes == 2


def spoken(name):
    """Id, arguments and roles of a program or team, and the words that its scripts say."""
    told = PROGRAMS[name]
    if "function" in told:
        tasks = {"train": [told["task"]], "test": [told["task"]]}
        worth = f"{FILES}/programs/worth.py:longest"
        table = {"roles": told["roles"], "tasks": tasks, "reward": worth, "misfit_reward": -1.0}
        if told["library"] == "OpenAI Agents SDK":  # it raises where an answer was cut
            table["misfit_errors"] = ["agents.exceptions:ModelBehaviorError"]
        source, texts = f"{FILES}/programs/{name}.py:{told['function']}", told["texts"].values()
        return f"workflow:{source}", {"program": table}, {*told["roles"]}, {*chain(*texts)}
    env_id, words, rng = f"workflow:{TEAMS}/{name}.py:workflow", {*"0123456789+*"}, random.Random(0)
    for seed in range(20):
        env = make(env_id, split=("train", "test")[seed % 2])
        env.reset(seed=seed)
        while not any(env.terminations.values()):
            agent = env.agent_selection
            words.update(env.scripted_action(agent, "any", rng) for _ in range(20))
            env.step(env.scripted_action(agent, "right", rng))
            words.add(env.state().calls[-1].text)
    return env_id, {}, {*map(role_of, env.possible_agents)}, words


def build_words(folder, words):
    """A tiny model whose tokens are whole answers; all else between them is one unknown token."""
    build_tiny(folder, vocabulary=words, hidden_size=32, num_layers=1, num_heads=2, max_length=512)
    tokenizer = build_tokenizer(words, max_length=512)
    known = "|".join(re.escape(word) for word in sorted(words, key=len, reverse=True))
    pattern = Regex(f"{known}|(?:(?!{known})[\\s\\S])+")
    tokenizer.backend_tokenizer.pre_tokenizer = Split(pattern, "isolated")
    tokenizer.save_pretrained(folder)


@pytest.mark.nightly
@pytest.mark.usefixtures("others_program")
@pytest.mark.parametrize("name", PROGRAMS)
def test_a_program_trains(name, tmp_path, results, capsys):
    """Each role of a team, and some role of a pattern, learns from whole trees that replay."""
    env_id, kwargs, roles, words = spoken(name)
    build_words(tmp_path / "model", sorted(words))
    run = tomllib.loads(PROGRAM_RUN.read_text())
    run["env"] = {"id": env_id, "kwargs": kwargs}
    run["every_policy"] = {"model": str(tmp_path / "model")}
    run["roles"] = {role: role for role in roles}
    run["warm_start"]["demonstrators"] = {role: {"right": 0.7, "any": 0.3} for role in roles}
    if kwargs:
        del run["warm_start"]
        if "misfit_errors" in kwargs["program"]:  # by chance alone few answers end at once
            run["rollout"]["max_completion_tokens"] = 8
    (tmp_path / "run.toml").write_text(tomli_w.dumps(run))
    first, second = tmp_path / "first", tmp_path / "second"
    for folder in (first, second):
        arguments = [str(tmp_path / "run.toml"), "--trust", "--output-dir", str(folder)]
        assert main(arguments) == 0, capsys.readouterr().err
    assert results(first) == results(second)
    lines = [x for x in results(first)["metrics"] if "rollout/num_failed_trees" in x]
    assert [line["rollout/num_failed_trees"] for line in lines] == [0, 0, 0]
    learn = {
        role
        for role in roles
        for line in lines
        if line.get(f"update/{role}/num_groups") and line[f"loss/{role}/grad_norm"] > 0
    }
    assert learn == roles if not kwargs else learn
    opened = TrainingRun.open(first, trust=True)
    for tree in results(first)["rollouts"]:
        if tree["set"] == "training":
            assert {len(one["candidates"]) for one in tree["decisions"]} == {4}
            replay_rollout(opened, tree["step"], tree["episode"]).replay()
