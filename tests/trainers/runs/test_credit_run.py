"""Training runs with credits that look ahead, through the command line: they learn and resume."""

import pytest

import pettingllms
from pettingllms.files import read_lines
from pettingllms_trainers.cli import main

CREDITS = {
    "value": "value --algorithm.value.num_warmup_steps=1 --algorithm.value.replay_steps=1",
    "value, adapters": "value --algorithm.value.num_warmup_steps=0"
    " --algorithm.value.hidden_size=16 --policies.t.lora.rank=4 --policies.p.lora.rank=4",
    "continuation": "continuation",
    "whole episodes": "tree_grpo --algorithm.num_branchings=1",
    "vine": "vine",
    "auto": "auto --algorithm.num_pilot_levels=0",
}
CREDITS = {name: f"--algorithm.name={flags}".split() for name, flags in CREDITS.items()}
# V, and what branches: the others repeat it at night, and test_every_algorithm.py asks in every run
# whether what an algorithm remembers survives a checkpoint.
NIGHTLY = {"value, adapters", "whole episodes", "vine", "auto"}


@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=[pytest.mark.nightly] if n in NIGHTLY else []) for n in CREDITS]
)
def test_a_run_is_resumed_exactly(name, small_run_file, tmp_path, resumes):
    # Only where steps are paid can anybody lead, which is what auto keeps.
    flags = [*CREDITS[name], f"--env.kwargs.reward={'shaped' if name == 'auto' else 'outcome'}"]
    # While V warms up no policy is updated, and a run in which none ever is fails.
    arguments = [str(small_run_file(3)), *flags, "--stalled-after=4", "--checkpoint.keep=9"]
    out = tmp_path / "run"
    assert main([*arguments, "--output-dir", str(out)]) == 0
    lines = read_lines(out / "metrics.jsonl")
    (*_, tree) = (t for t in resumes(out, arguments, 2)["rollouts"] if t["set"] == "training")
    if name == "auto":
        assert "algorithm/z" in lines[-1]
    if "value" in name:
        assert all(line["value/p/num_examples"] > 0 for line in lines[1:])
        assert lines[-1]["time/value_s"] > 0
    elif "continuation" in CREDITS[name][0]:
        assert all(line["rollout/num_continuation_tokens"] > 0 for line in lines[1:])
        num_tokens = lines[-1]["rollout/num_completion_tokens"]
        assert num_tokens > lines[-1]["rollout/num_continuation_tokens"]
    assert all("value" in c for d in tree["decisions"] for c in d["candidates"])


def test_a_shared_policy_has_one_v_for_both_roles(small_run_file, tmp_path, capsys):
    text = (small_run_file(2)).read_text()
    start, end = text.index("[policies.t]"), text.index("[policies.p]")
    shared = tmp_path / "shared.toml"
    shared.write_text((text[:start] + text[end:]).replace('tool = "t"', 'tool = "p"'))
    out = tmp_path / "run"
    assert main([str(shared), "--output-dir", str(out), *CREDITS["value"]]) == 0
    last = read_lines(out / "metrics.jsonl")[-1]
    decisions = last["role/tool/num_decisions"] + last["role/planner/num_decisions"]
    assert last["value/p/num_examples"] == decisions


def test_episodes_are_recorded_from_their_beginning(small_run_file, tmp_path):
    """What shows or plays a recorded episode again needs the whole path."""
    flags = [*CREDITS["vine"], "--logging.num-rollouts=100", "--rollout.num-levels=6"]
    out = tmp_path / "run"
    assert main([str(small_run_file(2)), "--output-dir", str(out), *flags]) == 0
    lines = [t for t in read_lines(out / "rollouts.jsonl") if t["set"] == "training"]
    assert any(line["num_prefix_decisions"] for line in lines)
    for line in lines:
        env = pettingllms.make("plan_path_v0", **line["env"])
        env.reset(seed=line["env_seed"])
        returns = dict.fromkeys(env.possible_agents, 0.0)
        for decision in line["decisions"]:
            assert env.agent_selection == decision["agent"]
            env.step(decision["candidates"][decision["chosen"]]["text"])
            for agent in returns:
                returns[agent] += env.rewards[agent]
        assert returns == pytest.approx(line["outcome"]["returns"])
        # Decisions of the prefix are of other episodes, and trained on there.
        advantages = [d["candidates"][0]["advantage"] for d in line["decisions"]]
        assert set(advantages[: line["num_prefix_decisions"]]) <= {None}
