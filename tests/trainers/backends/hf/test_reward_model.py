"""Reward models: what waits together is scored together, and padding changes no score."""

import asyncio

import pytest
import torch
import transformers

from pettingllms.ends import End
from pettingllms_trainers.backends.hf.reward_model import RewardModel
from pettingllms_trainers.backends.hf.tiny import build_tiny
from pettingllms_trainers.errors import ConfigError
from pettingllms_trainers.rollout.judging import Assessment, Exchange

PROMPT = ({"role": "user", "content": "hello"},)


def classifier(directory, num_labels=1):
    build_tiny(directory, hidden_size=16, num_layers=1, num_heads=2)
    config = transformers.AutoConfig.from_pretrained(directory, num_labels=num_labels)
    tokenizer = transformers.AutoTokenizer.from_pretrained(directory)
    torch.manual_seed(0)
    model = transformers.Qwen3ForSequenceClassification(config)
    model.save_pretrained(directory)
    return tokenizer


def test_answers_that_wait_share_a_pass_and_have_the_scores_of_one_alone(tmp_path, monkeypatch):
    tokenizer = classifier(tmp_path)
    found = RewardModel.from_pretrained(str(tmp_path))
    texts, batches = ["a", "bb and more", "c"], []
    whole = RewardModel._scores

    def watched(self, asked):
        batches.append(len(asked))
        return whole(self, asked)

    monkeypatch.setattr(RewardModel, "_scores", watched)

    async def ask():
        return await asyncio.gather(*(found.score(Exchange(PROMPT, text), 0) for text in texts))

    scores = [verdict.score for verdict in asyncio.run(ask())]
    assert batches == [3]
    model = transformers.Qwen3ForSequenceClassification.from_pretrained(tmp_path).eval()
    for text, score in zip(texts, scores, strict=True):
        chat = [*PROMPT, {"role": "assistant", "content": text}]
        ids = tokenizer.apply_chat_template(chat, return_tensors="pt", return_dict=True)[
            "input_ids"
        ]
        assert score == pytest.approx(model(ids).logits.item(), abs=1e-5)
    assert len({round(score, 4) for score in scores}) == 3


def test_a_failed_pass_says_nothing_of_the_answers_that_waited_for_it(tmp_path, monkeypatch):
    classifier(tmp_path)
    found = RewardModel.from_pretrained(str(tmp_path))

    def fails(self, texts):
        raise torch.OutOfMemoryError("the GPU is full")

    async def ask():
        return await asyncio.gather(*(found.score(Exchange(PROMPT, text), 0) for text in "ab"))

    monkeypatch.setattr(RewardModel, "_scores", fails)
    verdict = Assessment(None, "OutOfMemoryError: the GPU is full", end=End.SERVER)
    assert asyncio.run(ask()) == [verdict] * 2


def test_a_chat_that_is_too_long_loses_its_beginning_and_not_the_answer(tmp_path):
    classifier(tmp_path)
    found = RewardModel.from_pretrained(str(tmp_path))
    found._tokenizer.model_max_length = 8
    prompt = ({"role": "user", "content": "hello" * 9},)
    one, other = (asyncio.run(found.score(Exchange(prompt, text), 0)) for text in "ab")
    assert one.score != other.score


def test_a_classifier_of_several_classes_is_refused(tmp_path):
    classifier(tmp_path, num_labels=2)
    with pytest.raises(ConfigError, match="has 2 labels; allowed: a sequence classifier with one"):
        RewardModel.from_pretrained(str(tmp_path))
    with pytest.raises(ConfigError, match="nowhere' cannot be loaded"):
        RewardModel.from_pretrained(str(tmp_path / "nowhere"))


def test_an_error_without_a_message_is_named_by_its_type(tmp_path, monkeypatch):
    def fails(*args):
        raise OSError

    monkeypatch.setattr(transformers.AutoModelForSequenceClassification, "from_pretrained", fails)
    with pytest.raises(ConfigError, match=r"cannot be loaded: OSError$"):
        RewardModel.from_pretrained(str(tmp_path))
