"""Runs of two processes, plain, with FSDP2 and with DeepSpeed, are those of one, up to rounding."""

import importlib.metadata
import json
import shutil
import tomllib

import pytest
import tomli_w
from backend_toys import OLD_NAMES, TORCHRUN, assert_same_run, figures, run_python
from run_toys import program
from transformers import AutoTokenizer, NemotronConfig, NemotronForCausalLM

from pettingllms_trainers.cli import main
from pettingllms_trainers.errors import ConfigError

pytestmark = OLD_NAMES
NUM_STEPS = 3
RUN = ["--checkpoint.keep=9", "--loss.kl-coefficient=0.1"]
"""Also the distance from the reference, which is another one after every step."""
VINE = ("--algorithm.name=vine",)
BOUND = (
    "--optimizer.num_epochs=4", "--optimizer.completions_per_minibatch=2", "--loss.target_kl=1e-6"
)  # fmt: skip
SHARED = ("--roles.tool=p", "--optimizer.role_gradients")
"""One policy plays both roles; gradients are summed over processes before they are compared."""
LEAKING = {
    "vocab_size": 100,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 8,
    "max_position_embeddings": 64,
    "initializer_range": 0.5,
}
nightly, smoke, slow = pytest.mark.nightly, pytest.mark.smoke, pytest.mark.slow


def deepspeed(stage, offload="none"):
    return f"--deepspeed.stage={stage}", f"--deepspeed.offload={offload}"


FSDP = ("--fsdp.enabled",)


def needed(flags):
    if any("deepspeed" in flag for flag in flags):
        pytest.importorskip("deepspeed", reason="the package deepspeed is not installed")


@pytest.fixture(scope="module")
def train(small_run_file, tmp_path_factory):
    """A function that trains, once for each way, and gives the directory."""
    found, config = {}, small_run_file(NUM_STEPS)
    table = tomllib.loads(config.read_text())
    del table["policies"]["t"]
    of_one_policy = config.with_name("one-policy.toml")
    of_one_policy.write_text(tomli_w.dumps(table))

    def call(num_processes, *flags, directory=None):
        needed(flags)
        key = (num_processes, *flags, directory)
        if key not in found:
            found[key] = directory or tmp_path_factory.mktemp("shards") / "run"
            file = of_one_policy if set(SHARED) <= set(flags) else config
            line = (file, "--output-dir", found[key], *RUN, *flags)
            if num_processes == 1 and "deepspeed" not in str(flags):
                assert main([*map(str, line)]) == 0  # torch need not be imported anew
            elif num_processes > 1 and "deepspeed" not in str(flags):
                module = "pettingllms_trainers.backends.build"
                forked = ("-c", program("forked"), num_processes, module, program("command"))
                run_python(*forked, *line)
            else:
                launcher = [*TORCHRUN, num_processes] if num_processes > 1 else []
                run_python(*launcher, "-m", "pettingllms_trainers.cli", *line)
        return found[key]

    return call


@pytest.mark.parametrize(
    "flags",
    [
        pytest.param(FSDP, marks=nightly),
        deepspeed(1),
        pytest.param(deepspeed(2), marks=smoke),
        pytest.param(deepspeed(3), marks=smoke),
        deepspeed(2, "optimizer"),
        deepspeed(3, "all"),
        *((*deepspeed(2), *flags) for flags in (("--algorithm.name=value",), VINE)),
        pytest.param(SHARED, marks=slow),
        *(pytest.param(flags, marks=nightly) for flags in (VINE, BOUND)),
    ],
    ids=str,
)
def test_two_processes_train_as_one_without(train, flags):
    needed(flags)
    plain = [flag for flag in flags if "deepspeed" not in flag and "fsdp" not in flag]
    assert_same_run(train(1, *plain), train(2, *flags), 1e-4)
    measured = {name for _, name in figures(train(2, *flags))}
    assert (flags == SHARED) == (
        {"gradient/p/planner/tool/cosine", "gradient/p/tool/norm"} <= measured
    )


@pytest.mark.parametrize(
    ("flags", "num_processes", "tolerance"),
    [
        pytest.param(FSDP, 2, 0, marks=nightly),
        pytest.param(FSDP, 1, 1e-4, marks=nightly),
        (deepspeed(2), 2, 0),
        (deepspeed(3), 2, 0),
        (deepspeed(3), 1, 1e-4),
    ],
    ids=str,
)
def test_a_resumed_run_ends_alike_with_any_number_of_processes(
    train, tmp_path, flags, num_processes, tolerance
):
    whole, again = train(2, *flags), tmp_path / "run"
    shutil.copytree(whole, again)
    for step in range(2, NUM_STEPS + 1):
        shutil.rmtree(again / "checkpoints" / f"step-{step:08d}")
    train(num_processes, *flags, "--resume", directory=again)
    assert_same_run(whole, again, tolerance)


def test_a_version_that_takes_wrong_steps_is_refused(monkeypatch):
    needed(deepspeed(2))
    from pettingllms_trainers.backends.deepspeed import check_deepspeed

    check_deepspeed()
    monkeypatch.setattr(importlib.metadata, "version", lambda _: "0.19.7")
    with pytest.raises(ConfigError, match=r"deepspeed>=0\.19\.8 is required.*found.*Install it"):
        check_deepspeed()


@pytest.mark.parametrize(
    ("library", "precision"),
    [
        pytest.param("fsdp", "float32", marks=nightly),
        pytest.param("fsdp", "bfloat16", marks=nightly),
        pytest.param("deepspeed", "float32", marks=smoke),
    ],
)
def test_no_rank_holds_all_weights_and_the_model_is_checked_in_shards(
    model_directory, tmp_path, library, precision
):
    """The file's weights; a gradient that is not finite leaves them, a step does not."""
    if library == "deepspeed":
        needed(deepspeed(3))
    leaking = tmp_path / "nemotron"  # mixes neighbouring tokens outside its attention
    NemotronForCausalLM(NemotronConfig(**LEAKING)).save_pretrained(leaking)
    AutoTokenizer.from_pretrained(model_directory()).save_pretrained(leaking)
    script = tmp_path / "shards.py"
    script.write_text(program("shards"))
    done = run_python(*TORCHRUN, 2, script, library, precision, model_directory(), leaking)
    found = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert len(found) == 4, "two models on two ranks"
    whole = {"fsdp": 1, "deepspeed": 0}[library]  # the main rank reads, or every one its shards
    assert sum(line["read"] for line in found) == whole * sum(line["all"] for line in found) / 2
    for line in found:
        assert line["held"] == pytest.approx(line["all"] / 2, rel=0.01)
        assert line["same"] == [True, True, False, True, False]
    assert [line["is_packed"] for line in found] == [True, True, False, False]
    assert "packed log-probabilities are" in done.stderr
