"""Reward models of transformers: sequence classifiers with one label."""

from __future__ import annotations

import asyncio
import math
from collections.abc import Sequence
from typing import Any

import torch
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from pettingllms.ends import End
from pettingllms.errors import FOREIGN
from pettingllms_trainers.config.sections import base_of_adapter
from pettingllms_trainers.errors import ConfigError, reason_of
from pettingllms_trainers.rollout.judging import Assessment, Exchange

_BATCH = 16


class RewardModel:
    """Scores chats; answers that wait at the same time share forward passes."""

    def __init__(self, model: Any, tokenizer: Any) -> None:
        self._model, self._tokenizer = model.eval(), tokenizer
        self._waiting: list[tuple[str, asyncio.Future[float]]] = []
        self._turn = asyncio.Lock()

    @classmethod
    def from_pretrained(cls, source: str) -> RewardModel:
        """Load a model and its tokenizer.

        Raises:
            ConfigError: They cannot be loaded, or the model has several labels.
        """
        try:
            if base_of_adapter(source) is not None:
                raise ValueError("it is an adapter; name a whole model")
            model = AutoModelForSequenceClassification.from_pretrained(source)
            tokenizer = AutoTokenizer.from_pretrained(source)
        except FOREIGN as error:
            raise ConfigError(
                f"the reward model {source!r} cannot be loaded: {reason_of(error)}"
            ) from error
        if model.config.num_labels != 1:
            raise ConfigError(
                f"the reward model {source!r} has {model.config.num_labels} labels; allowed: a "
                "sequence classifier with one, whose logit is the score"
            )
        # Models made for chat often lack one, and batches are padded.
        if tokenizer.pad_token is None:
            tokenizer.pad_token = tokenizer.eos_token
        # The answer comes last: what is too long loses its beginning.
        tokenizer.truncation_side = "left"
        model.config.pad_token_id = tokenizer.pad_token_id
        return cls(model.to("cuda" if torch.cuda.is_available() else "cpu"), tokenizer)

    async def score(self, exchange: Exchange, seed: int) -> Assessment:
        """The seed has no effect."""
        try:
            score = await self._joined(self._text(exchange))
        except FOREIGN as error:  # such as a full GPU, or a template that refuses the prompt
            return Assessment(None, f"{type(error).__name__}: {error}", end=End.SERVER)
        return (
            Assessment(score) if math.isfinite(score) else Assessment(None, f"the score is {score}")
        )

    async def _joined(self, text: str) -> float:
        answer = asyncio.get_running_loop().create_future()
        self._waiting.append((text, answer))
        await asyncio.sleep(0)  # all that can ask at this moment have asked
        async with self._turn:
            batch, self._waiting = self._waiting, []
            if batch:
                await self._answer(batch)
        return await answer

    async def _answer(self, batch: Sequence[tuple[str, asyncio.Future[float]]]) -> None:
        try:
            scores = await asyncio.to_thread(self._scores, [text for text, _ in batch])
        except FOREIGN as error:  # whoever waits gets it
            for _, one in batch:
                one.set_exception(error)
        else:
            for (_, one), score in zip(batch, scores, strict=True):
                one.set_result(score)

    def _text(self, exchange: Exchange) -> str:
        chat = [*exchange.messages, {"role": "assistant", "content": exchange.answer}]
        if self._tokenizer.chat_template:
            return self._tokenizer.apply_chat_template(chat, tokenize=False)
        return "\n".join(message["content"] for message in chat)

    @torch.inference_mode()
    def _scores(self, texts: Sequence[str]) -> list[float]:
        found: list[float] = []
        for first in range(0, len(texts), _BATCH):
            batch = self._tokenizer(
                list(texts[first : first + _BATCH]),
                return_tensors="pt",
                padding=True,
                truncation=True,
                add_special_tokens=not self._tokenizer.chat_template,
            ).to(self._model.device)
            found += self._model(**batch).logits[:, 0].float().tolist()
        return found
