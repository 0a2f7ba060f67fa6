"""Tiny models are ordinary Hugging Face directories with a tokenizer that loses nothing."""

import json

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from transformers import AutoModelForCausalLM, AutoTokenizer

from pettingllms.errors import InvalidArgument
from pettingllms_trainers.backends.hf.tiny import CHARACTERS, build_tiny, build_tokenizer

CHARACTER_TOKENIZER = build_tokenizer(CHARACTERS)
WORDS = ["Goal", "You", "moves", "next", "up", *" \n#'(),.:;_1234"]
WORD_TOKENIZER = build_tokenizer(WORDS)


def ids(tokenizer, text):
    return tokenizer(text, add_special_tokens=False)["input_ids"]


@given(st.lists(st.sampled_from(WORDS), max_size=40))
def test_any_series_of_known_tokens_survives_a_round_trip(tokens):
    text = "".join(tokens)
    assert WORD_TOKENIZER.decode(ids(WORD_TOKENIZER, text)) == text


def test_words_are_one_token_digits_and_signs_one_each():
    assert WORD_TOKENIZER.tokenize("Goal: (14)") == ["Goal", ":", " ", "(", "1", "4", ")"]


def test_unknown_characters_become_unk_one_by_one():
    token_ids = ids(WORD_TOKENIZER, "up \u00e9\u4e2d")
    assert token_ids[2:] == [WORD_TOKENIZER.unk_token_id] * 2
    assert WORD_TOKENIZER.decode(token_ids, skip_special_tokens=True) == "up "


def test_chat_template_joins_contents_and_marks_the_answer():
    messages = [{"role": "system", "content": "moves"}, {"role": "user", "content": "Goal"}]
    text = WORD_TOKENIZER.apply_chat_template(messages, tokenize=False, add_generation_prompt=True)
    assert text == "moves\n\nGoal<bos>"
    without_system = [{"role": "system", "content": ""}, messages[1]]
    assert WORD_TOKENIZER.apply_chat_template(without_system, tokenize=False) == "Goal"


def test_a_built_model_is_loaded_by_the_auto_classes(tmp_path):
    path = build_tiny(tmp_path / "model", vocabulary=CHARACTERS)
    model = AutoModelForCausalLM.from_pretrained(path)
    tokenizer = AutoTokenizer.from_pretrained(path)
    assert 0.1e6 < model.num_parameters() < 0.25e6
    assert model.dtype == torch.float32
    assert model.get_input_embeddings().weight is model.get_output_embeddings().weight
    assert len(tokenizer) == model.config.vocab_size == len(CHARACTERS) + 4
    assert tokenizer.decode(ids(tokenizer, "Hi, you!\n")) == "Hi, you!\n"
    assert tokenizer.chat_template == CHARACTER_TOKENIZER.chat_template
    assert model.generation_config.eos_token_id == tokenizer.eos_token_id
    config = json.loads((path / "config.json").read_text())
    assert config["model_type"] == "qwen3"


def test_the_seed_decides_the_weights_and_no_global_generator_is_touched(tmp_path):
    before = torch.random.get_rng_state()
    paths = [build_tiny(tmp_path / str(i), seed=seed) for i, seed in enumerate((0, 0, 1))]
    assert torch.equal(before, torch.random.get_rng_state())
    weights = [(path / "model.safetensors").read_bytes() for path in paths]
    assert weights[0] == weights[1]
    assert weights[0] != weights[2]


@pytest.mark.parametrize("vocabulary", [(), ("a", "a"), ("a", ""), ("<pad>",)])
def test_unusable_vocabularies_are_refused(vocabulary):
    with pytest.raises(InvalidArgument, match="vocabulary"):
        build_tokenizer(vocabulary)


def test_sizes_that_do_not_go_together_are_refused(tmp_path):
    with pytest.raises(InvalidArgument, match=r"hidden_size.*multiple of 8"):
        build_tiny(tmp_path / "model", hidden_size=30)
    assert not (tmp_path / "model").exists()
