"""`pettingllms-train export`: what a checkpoint holds is what transformers loads."""

import shutil

import peft
import pytest
import torch
from huggingface_hub import ModelCard
from transformers import AutoModelForCausalLM, AutoTokenizer

from pettingllms_trainers.cli import main


@pytest.fixture(scope="module")
def run(small_run_file, tmp_path_factory):
    """A finished run of three train steps that keeps two checkpoints: 2 and 3."""
    directory = tmp_path_factory.mktemp("export") / "run"
    flags = ["--output-dir", str(directory), "--evaluation.num-episodes", "1"]
    assert main([str(small_run_file(3)), *flags]) == 0
    return directory


@pytest.fixture
def export(capsys):
    def call(*arguments):
        code = main(["export", *map(str, arguments)])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


def logits(directory):
    model = AutoModelForCausalLM.from_pretrained(directory)
    tokenizer = AutoTokenizer.from_pretrained(directory)
    ids = tokenizer.apply_chat_template(
        [{"role": "user", "content": "P.#G"}], add_generation_prompt=True, return_tensors="pt"
    )
    with torch.no_grad():
        return model(**ids).logits


def test_the_newest_checkpoint_is_the_trained_policy(run, export, tmp_path):
    for name in ("t", "p"):
        code, out, err = export(run, tmp_path / name, "--policy", name)
        assert (code, err) == (0, "")
        assert out == f"policy {name} after train step 3: {tmp_path / name}\n"
        assert torch.equal(logits(tmp_path / name), logits(run / "policies" / name))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["p", "t"]
    code, out, _ = export(run, tmp_path / "all")
    assert code == 0
    assert out.splitlines() == [
        f"policy {name} after train step 3: {tmp_path / 'all' / name}" for name in ("t", "p")
    ]
    assert torch.equal(logits(tmp_path / "all" / "t"), logits(run / "policies" / "t"))


def test_an_earlier_step(run, export, tmp_path):
    target = tmp_path / "new" / "folder"
    code, out, _ = export(run, target, "--policy", "p", "--step", 2)
    assert code == 0
    assert "after train step 2" in out
    assert not torch.equal(logits(target), logits(run / "policies" / "p"))
    again = tmp_path / "empty"
    again.mkdir()
    assert export(run, again, "--policy", "p", "--step", 2)[0] == 0
    assert torch.equal(logits(target), logits(again))


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (["--policy", "p", "--merge"], "the policy 'p' has no LoRA adapter to merge"),
        (["--policy", "x"], "trains no policy 'x'. It trains: t, p"),
        (["--policy", "p", "--step", "1"], "no checkpoint of train step 1; it has those of 2, 3"),
    ],
)
def test_what_is_not_there(run, export, tmp_path, flags, message):
    code, out, err = export(run, tmp_path / "out", *flags)
    assert (code, out) == (2, "")
    assert message in err
    assert list(tmp_path.iterdir()) == []


def test_no_run_and_no_checkpoint(run, export, tmp_path):
    assert f"{tmp_path} holds no run" in export(tmp_path, tmp_path / "out")[2]
    early = tmp_path / "early"
    early.mkdir()
    shutil.copy(run / "config.toml", early)
    assert "has no checkpoint yet" in export(early, tmp_path / "out")[2]


def test_what_is_there_is_never_overwritten(run, export, tmp_path):
    code, _, err = export(run, run / "policies" / "p", "--policy", "p")
    assert code == 2
    assert "is not empty" in err
    code, _, err = export(run, run / "config.toml", "--policy", "p")
    assert code == 2
    assert "is a file" in err


def test_an_adapter_alone_and_merged(small_run_file, export, tmp_path):
    """Both play alike, and neither like the base model."""
    run = tmp_path / "run"
    flags = ["--every-policy.lora.rank", "4", "--output-dir", str(run), "--optimizer.learning-rate"]
    flags += ["1e-1", "--evaluation.num-episodes", "1", "--warm-start.learning-rate", "1e-1"]
    assert main([str(small_run_file(1)), *flags]) == 0
    alone, merged = tmp_path / "alone", tmp_path / "merged"
    assert export(run, alone, "--policy", "p")[0] == 0
    assert export(run, merged, "--policy", "p", "--merge")[0] == 0
    assert (alone / "adapter_model.safetensors").is_file()
    cards = [ModelCard.load(place / "README.md") for place in (alone, merged)]
    assert [card.data.library_name for card in cards] == ["peft", "transformers"]
    assert all("- roles: planner\n" in card.text for card in cards)
    assert not any(str(tmp_path) in card.content for card in cards), "no path of this machine"
    assert not (merged / "adapter_config.json").exists()
    base = AutoModelForCausalLM.from_pretrained(alone / "base")
    adapted = peft.PeftModel.from_pretrained(base, alone)
    ids = torch.tensor([[4, 5, 6, 7]])
    with torch.no_grad():
        expected = adapted(ids).logits
        got = AutoModelForCausalLM.from_pretrained(merged)(ids).logits
        with adapted.disable_adapter():
            without = adapted(ids).logits
    assert torch.allclose(got, expected, atol=1e-5)
    assert not torch.allclose(got, without, atol=1e-2)
