"""Policies `hf:PATH` of `pettingllms eval` and `pettingllms play`: a model in this process."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import torch
from transformers.utils import logging as transformers_logging

from pettingllms import TextEnv
from pettingllms import policies as core
from pettingllms.errors import InvalidArgument
from pettingllms_trainers.backends.hf.policy import TransformersPolicy
from pettingllms_trainers.config import EngineConfig
from pettingllms_trainers.policies.batcher import Batcher
from pettingllms_trainers.types import GenerateRequest, SamplingSettings

__all__ = ["LocalPolicy", "load"]

_DEFAULT_COMPLETION_TOKENS = 512


def load(path: str, settings: core.PolicySettings) -> LocalPolicy:
    """Return the policy of a model or of a directory with an adapter, on a GPU where there is one.

    Args:
        path: Directory or hub name.
        settings: Not used: there is no server.

    Raises:
        PolicyUnavailable: The model cannot be loaded.
    """
    transformers_logging.disable_progress_bar()
    try:
        model = TransformersPolicy.from_pretrained(
            path, engine=EngineConfig(), device="cuda" if torch.cuda.is_available() else "cpu"
        )
    except (OSError, InvalidArgument) as error:
        reason = str(error).strip().splitlines()[0]
        raise core.PolicyUnavailable(f"hf:{path} cannot be loaded: {reason}") from error
    return LocalPolicy(model)


class LocalPolicy:
    """A model in this process, as a policy of the core; concurrent prompts share its batches.

    Args:
        model: The engine and its tokenizer.
    """

    def __init__(self, model: TransformersPolicy) -> None:
        self._model = model
        self._batcher = Batcher(model)

    async def check(self, env: TextEnv[Any]) -> None:
        """A loaded model plays everywhere."""

    async def sample(
        self, prompts: Sequence[core.Prompt], n: int, sampling: core.Sampling
    ) -> list[core.Answer]:
        """Return one answer of n completions per prompt, in order.

        Raises:
            InvalidArgument: `sampling` has extra fields that the engine does not know.
            PolicyFailure: A prompt is too long for the model.
        """
        wanted = _sampling(sampling)
        return list(await asyncio.gather(*(self._answer(p, n, wanted) for p in prompts)))

    async def _answer(self, prompt: core.Prompt, n: int, sampling: SamplingSettings) -> core.Answer:
        ids = self._model.encode(prompt.messages)
        request = GenerateRequest(
            prompt_ids=ids, num_candidates=n, sampling=sampling, seed=prompt.seed
        )
        try:
            completions = await self._batcher.sample(request)
        except InvalidArgument as error:
            raise core.PolicyFailure(str(error)) from error
        written = sum(len(completion.token_ids) for completion in completions)
        return core.Answer(
            tuple(core.Completion(c.text, c.finish_reason) for c in completions),
            core.Usage(1, 0, len(ids), written),
        )

    async def aclose(self) -> None:
        """Nothing to let go of."""


def _sampling(given: core.Sampling) -> SamplingSettings:
    extra = dict(given.extra)
    top_k = extra.pop("top_k", 0)
    if extra:
        raise InvalidArgument("sampling.extra", sorted(extra), "top_k")
    limit = given.max_completion_tokens or _DEFAULT_COMPLETION_TOKENS
    wanted = SamplingSettings(max_completion_tokens=limit, stop=given.stop, top_k=top_k)
    if given.temperature is not None:
        wanted = replace(wanted, temperature=given.temperature)
    return wanted if given.top_p is None else replace(wanted, top_p=given.top_p)
