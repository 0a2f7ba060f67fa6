"""The whole path, from a run file to a trained team, through the command line."""

import gc
import json
from pathlib import Path
from typing import ClassVar, NamedTuple

import pytest

import pettingllms
from pettingllms import ParseError, PromptTemplate, TextEnv, Transition
from pettingllms.files import read_lines
from pettingllms_trainers import train
from pettingllms_trainers.backends.hf.engine import TransformersEngine
from pettingllms_trainers.cli import main
from pettingllms_trainers.policies.pool import PolicyPool
from pettingllms_trainers.runs.metrics import METRICS, is_timing, template_of
from pettingllms_trainers.types import Decision, RolloutTree, TokenCompletion

COPY_RUN = Path(__file__).with_name("copy_run.toml")


class CopyState(NamedTuple):
    digit: int
    called: int | None = None


class CopyEnv(TextEnv):
    """The caller reads a digit and passes it on; solved when the echo writes that digit."""

    scripted_policies = ("oracle", "random")
    prompt_fields: ClassVar = {"digit": "what to pass on", "called": "what was passed on"}
    default_prompts: ClassVar = {
        "caller": PromptTemplate("", "{digit}"),
        "echo": PromptTemplate("", "{called}"),
    }

    def __init__(self, split="train", **kwargs):
        super().__init__(stages=(("caller_0",), ("echo_0",)), max_turns=1, **kwargs)

    def _generate(self, rng, options):
        return CopyState(rng.randrange(5))

    def _fields(self, state, agent, turn):
        return {"digit": state.digit, "called": "" if state.called is None else state.called}

    def _parse(self, state, agent, text):
        return int(text) if text.isdecimal() and len(text) == 1 else ParseError("not a digit")

    def _act(self, state, agent, action):
        if isinstance(action, ParseError):
            return Transition(state, local=-0.5)
        if agent == "caller_0":
            return Transition(state._replace(called=action), local=float(action == state.digit))
        is_solved = action == state.digit
        return Transition(state, float(is_solved), float(action == state.called), True, is_solved)

    def _ansi(self, state):
        return repr(state)

    def _scripted(self, state, agent, policy, rng):
        if policy == "random":
            return str(rng.randrange(5))
        return str(state.digit if agent == "caller_0" else state.called)


@pytest.fixture(scope="module")
def copy_run(tmp_path_factory):
    """Train both policies once; return the directory of the run."""
    pettingllms.register("toy_copy_v0", CopyEnv)
    folder = tmp_path_factory.mktemp("copy")
    assert main([str(COPY_RUN), "--output-dir", str(folder / "run")]) == 0
    return folder / "run"


def test_the_team_learns_to_pass_digits_on(copy_run):
    report = json.loads((copy_run / "eval.json").read_text())
    before = report["before"]["variants"]["greedy"]["success"]
    after = report["after"]["variants"]["greedy"]["success"]
    assert report["scripted"]["scripted:oracle"]["success"] == 1.0
    assert report["scripted"]["scripted:random"]["success"] < 0.5
    assert after - before > 0.4, (before, after)
    metrics = read_lines(copy_run / "metrics.jsonl")
    for role in ("caller", "echo"):
        first, last = metrics[1], metrics[-1]
        assert last[f"role/{role}/reward"] > first[f"role/{role}/reward"] + 0.4


NOT_EVERY_RUN = (
    "value/", "time/value_s", "time/fit_value_s",  # test_credit_run
    "env/", "eval/<variant>/<env>/",  # test_many_environments
    "update/phase",  # test_updates_in_turns
    "gradient/",  # test_shards
    "curriculum/",  # test_many_environments
    "algorithm/",  # test_auto
    "judged/", "cost/",  # test_judged_run
)  # fmt: skip


def test_every_documented_metric_is_logged_and_no_other(copy_run):
    logged = {name for line in read_lines(copy_run / "metrics.jsonl") for name in line}
    templates = {template_of(name) for name in logged - {"step"}}
    assert templates == {name for name in METRICS if not name.startswith(NOT_EVERY_RUN)}
    assert any(map(is_timing, logged))


def test_rollouts_show_what_was_compared(copy_run):
    lines = read_lines(copy_run / "rollouts.jsonl")
    trees = [line for line in lines if line["set"] == "training"]
    held_out = [line for line in lines if line["set"] == "held_out"]
    assert [tree["step"] for tree in trees] == [1] * 4 + [10] * 4 + [20] * 4 + [30] * 4
    assert [tree["step"] for tree in held_out] == [0] * 4 + [30] * 4
    assert {tree["env_seed"] for tree in held_out[:4]} == {t["env_seed"] for t in held_out[4:]}
    for candidate in (c for line in lines for d in line["decisions"] for c in d["candidates"]):
        assert {len(column) for column in candidate["tokens"].values()} == {candidate["num_tokens"]}
        assert set(candidate["tokens"]) == {"text", "logprob", "entropy"}
    for tree in trees:
        caller, echo = tree["decisions"]
        assert echo["observation"] in (caller["candidates"][caller["chosen"]]["text"], "")
        for decision in tree["decisions"]:
            advantages = [candidate["advantage"] for candidate in decision["candidates"]]
            assert advantages[0] is None or abs(sum(advantages)) < 1e-9


@pytest.mark.nightly
def test_the_default_run_learns_plan_path(tmp_path):
    """The first steps of the default recipe, with its learning rate held: a clear gain."""
    flags = ["--num-steps", "8", "--optimizer.final-fraction", "1", "--seed", "0"]
    flags += ["--evaluation.num-episodes", "128", "--evaluation.every", "0"]
    flags += ["--evaluation.scripted", "greedy", "--logging.no-tensorboard"]
    assert main(["recipe:plan_path", "--output-dir", str(tmp_path / "run"), *flags]) == 0
    report = json.loads((tmp_path / "run" / "eval.json").read_text())
    before = report["before"]["variants"]["greedy"]["success"]
    after = report["after"]["variants"]["greedy"]
    assert after["success"] - before >= 0.3, (before, after)
    assert after["success_low"] > before
    assert report["after"]["variants"]["swapped"]["success"] < 0.1, "the roles are different skills"


def test_nothing_of_a_step_is_kept(small_run_file, tmp_path):
    left = []

    def count(step, metrics):
        gc.collect()
        kinds = [type(thing) for thing in gc.get_objects()]
        left.append(sum(map(kinds.count, (RolloutTree, Decision, TokenCompletion))))

    gc.freeze()  # what other tests have left is not counted
    try:
        where = str(tmp_path / "run")
        train(small_run_file(4), output_dir=where, on_step=count, evaluation={"every": 0})
    finally:
        gc.unfreeze()
    assert left[:3] == left[:1] * 3, "the examples of the first evaluation"


def test_engines_have_the_weights_before_the_first_evaluation(
    small_run_file, tmp_path, monkeypatch
):
    """Also without a warm start; servers would play with weights of their own."""
    done = []
    for kind, name in ((PolicyPool, "push_weights"), (TransformersEngine, "generate_now")):
        original = getattr(kind, name)

        def noted(*arguments, original=original, name=name):
            done.append(name)
            return original(*arguments)

        monkeypatch.setattr(kind, name, noted)
    train(small_run_file(1), output_dir=str(tmp_path / "run"), warm_start={"num_steps": 0})
    assert done[0] == "push_weights"
    assert done.count("push_weights") == 2
