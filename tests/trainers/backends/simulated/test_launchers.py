"""Every documented way to start a run, on simulated machines: who sees and holds which card, when.

Processes and launchers are real; torch's view of the cards and vLLM are simulated (`shim`,
`engine`). The command lines are those of the guides to engines, GPUs and machines.
"""

import itertools
import tomllib

import pytest
import tomli_w

from pettingllms_trainers.config.loading import load_config
from pettingllms_trainers.plan import make_plan
from pettingllms_trainers.rollout.environments import make_environments

GIB = 1 << 30
VLLM = ("--engine.kind", "vllm")
SLEEP = ("--engine.vllm.sleep", "true", "--engine.vllm.gpu-memory-utilization", "0.2")
SCALE = 1 << 19
"""A policy of the small run then weighs 7.2 GiB: a third of what training it keeps on a card."""
SHORT = ("--num-steps", "1", "--warm-start.num-steps", "2", "--evaluation.num-episodes", "1")
TORCHRUN = ("-m", "torch.distributed.run", "--nproc-per-node")


def with_one_policy(line, **policy):
    """Let one policy play both roles of a line's run."""
    table = tomllib.loads(line[2].read_text())
    table["policies"] = {"p": policy or table["policies"]["p"]}
    table["roles"] = dict.fromkeys(table["roles"], "p")
    line[2].write_text(tomli_w.dumps(table))


@pytest.mark.nightly  # test_ranks.py asks in every run when a rank sees its card
@pytest.mark.slow
@pytest.mark.parametrize("number", [2, 8])
def test_each_rank_has_its_own_card_from_its_first_question_on(machine, line, number):
    """A device that is asked for before the mask is everybody's first: all engines land there."""
    simulated = machine(number)
    simulated.run(*TORCHRUN, number, "--standalone", *line, *VLLM, *SHORT)
    simulated.check()
    seen = {(e["rank"], e["visible"]) for e in simulated.entries if e["rank"]}  # not torchrun
    assert seen == {(str(rank), str(rank)) for rank in range(number)}
    assert simulated.cards_of("context", "weights") == [(str(rank),) for rank in range(number)]
    # Two engines of a rank have processes of their own, on its card.
    assert simulated.cards_of("engine") == sorted([(str(card),) for card in range(number)] * 2)
    asked = {e["what"] for e in simulated.entries if e["what"].startswith("connect")}
    assert asked == {"connect cpu:gloo,cuda:nccl"}


def test_engines_that_sleep_and_the_update_hold_one_card_by_turns(machine, line):
    """Two policies with all weights: what torch keeps for the next update has no room then."""
    simulated = machine(1, scale=SCALE)
    simulated.run(*line, *VLLM, *SLEEP, *SHORT)
    simulated.check()
    assert simulated.cards_of() == [("0",)] * 3, "the trainer and two engines"
    awake, most = set(), 0
    for entry in simulated.claims():
        if entry["what"] == "asleep":
            awake.discard(entry["pid"])
        if entry["what"] in ("engine", "awake: weights"):
            awake.add(entry["pid"])
        if entry["what"] in ("moments", "cached"):
            assert not awake, "an update beside an engine that holds its memory"
        most = max(most, entry["total"])
    # Contexts, weights and moments of two policies, and both engines: the update's blocks are gone.
    kept = 3 * sum(e["bytes"] for e in simulated.claims("weights"))
    assert most == GIB + kept + 2 * (16 * GIB)
    # Weights and moments are those of the plan, and so are the engines, beside CUDA of their own.
    config = load_config([line[2]], [*VLLM, *SLEEP])
    memory = make_plan(config, make_environments(config), num_gpus=1, gpu_gib=80).memory
    assert sum(own.weights + own.optimizer for own in memory.policies.values()) * SCALE == kept
    assert [*memory.generating.engines.values()] == [16 * GIB + GIB // 2] * 2


@pytest.mark.nightly
@pytest.mark.slow
def test_one_command_divides_the_cards_among_servers_and_ranks(machine, line, model_directory):
    simulated = machine(4)
    with_one_policy(line, model=str(model_directory()))
    module, name, *rest = line
    simulated.run(module, name, "launch", *rest, *VLLM, *SHORT, "--servers")
    simulated.check()
    assert simulated.cards_of("server") == [("2",), ("3",)]
    assert simulated.cards_of("weights") == [("0",), ("1",)]
    # From its folder alone, with other servers than the one that is named there.
    again = (line[-1], "--resume", "--trust", "--num-steps", 2)
    simulated.run(module, name, "launch", *again, "--servers")
    assert simulated.cards_of("server") == [("2",), ("2",), ("3",), ("3",)]


def tiny(source, tmp_path, *keys):
    """The line of a run file, with tiny models and a train step of one level."""
    sizes = {"model": "tiny", "max-length": 8192, "hidden-size": 16, "num-layers": 1}
    keys += (*itertools.chain(*((f"--every-policy.{key}", v) for key, v in sizes.items())),)
    keys += ("--num-steps", 1, "--evaluation.num-episodes", 1, "--rollout.num-levels", 1)
    keys += ("--rollout.max-completion-tokens", 8, "--engine.max-logprob-gap", 100)
    return (source, *keys, "--output-dir", tmp_path / "run")


def recipe(number, tmp_path, *keys):
    """The line of the recipe for so many GPUs."""
    return tiny(f"recipe:gpus/{number}", tmp_path, *keys)


@pytest.mark.nightly
@pytest.mark.slow
def test_the_recipe_for_one_gpu(machine, tmp_path):
    simulated = machine(1)
    simulated.run("-m", "pettingllms_trainers.cli", *recipe(1, tmp_path))
    simulated.check()
    assert simulated.cards_of("engine") == [("0",)] * 2
    assert len(simulated.claims("asleep")) >= 2


@pytest.mark.nightly
@pytest.mark.slow
def test_the_recipe_for_eight_gpus(machine, tmp_path):
    pytest.importorskip("deepspeed")
    simulated = machine(8)
    line = ("-m", "pettingllms_trainers.cli", "launch", *recipe(8, tmp_path))
    simulated.run(*line, "--rollout.num-levels", 8, DS_ACCELERATOR="cpu")
    simulated.check()
    assert simulated.cards_of("engine") == sorted([(str(card),) for card in range(8)] * 2)
