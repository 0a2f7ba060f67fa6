"""Policies `hf:PATH` of `pettingllms eval` and `pettingllms play`: a model in this process."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import torch
from pydantic import ValidationError
from transformers.utils import logging as transformers_logging

from pettingllms import TextEnv
from pettingllms import policies as core
from pettingllms.ends import End
from pettingllms.errors import FOREIGN, InvalidArgument
from pettingllms.workflows.tools import offered
from pettingllms_trainers.backends.device import fast_precision
from pettingllms_trainers.backends.hf.chat import Chat, unread_argument
from pettingllms_trainers.backends.hf.policy import TransformersPolicy
from pettingllms_trainers.backends.hf.shapes import source_problem
from pettingllms_trainers.config import EngineConfig
from pettingllms_trainers.config.sections import base_of_adapter, resolved_model
from pettingllms_trainers.errors import reason_of
from pettingllms_trainers.policies.pool import Batcher
from pettingllms_trainers.types import GenerateRequest, SamplingSettings

_DEFAULT_COMPLETION_TOKENS = 512
_KWARGS = "chat_template_kwargs"
_OPTIONS = ("precision", "device", "attention", "tokens_per_batch", "guided_decoding", _KWARGS)
_STORED = ("temperature", "top_p", "top_k")
"""Keys of a model's generation_config that are used where a request does not say."""
_IGNORED = ("repetition_penalty", "min_p", "typical_p", "num_beams")
"""What would change the sampling and is not used."""


def load(path: str, settings: core.PolicySettings) -> LocalPolicy:
    """The policy of a model or of a directory with an adapter.

    What is computed and how is sampled is written to standard error, since results depend on it.

    Args:
        path: Directory, hub name or ``fetched:NAME``, and options:
            ``PATH?precision=bfloat16&device=cuda:1``. They are precision, attention,
            tokens_per_batch and guided_decoding, as in ``[engine]`` of a run file, device (else a
            GPU where there is one), and chat_template_kwargs, a table in JSON that goes over what
            is stored with the model: ``PATH?chat_template_kwargs={"enable_thinking": false}``.
        settings: Whether the model must be on this machine; there is no server.

    Raises:
        InvalidArgument: An option is unknown or has a value that is not allowed.
        PolicyUnavailable: The model cannot be loaded.
    """
    transformers_logging.disable_progress_bar()
    source, options = _split(path)
    device = options.pop("device", "cuda" if torch.cuda.is_available() else "cpu")
    kwargs = _table(options.pop(_KWARGS, "{}"))
    try:
        source = resolved_model(source)
        base = base_of_adapter(source)
        if problem := source_problem(base or source):
            raise OSError(problem)
        if settings.is_local and base and not Path(base).is_dir():
            raise InvalidArgument("base of the adapter", base, "a folder, where a file names it")
        engine = EngineConfig.model_validate(options)
        # Settled now, since results depend on it and are printed with it.
        if engine.precision == "auto":
            found, _ = fast_precision(torch.device(device))
            engine = engine.model_copy(update={"precision": found})
        model = TransformersPolicy.from_pretrained(
            source, engine=engine, device=device, chat_template_kwargs=kwargs
        )
    except ValidationError as error:
        detail = error.errors()[0]
        name = ".".join(map(str, detail["loc"]))
        raise InvalidArgument(f"hf option {name}", detail["input"], detail["msg"]) from error
    except FOREIGN as error:
        raise core.PolicyUnavailable(f"hf:{source} cannot be loaded: {reason_of(error)}") from error
    if unread := unread_argument(model.chat.tokenizer, kwargs):
        raise InvalidArgument(f"hf option {_KWARGS}", unread, "what the chat template reads")
    policy = LocalPolicy(model)
    template = model.chat.template_kwargs
    given = f"; {_KWARGS} {json.dumps(dict(template))}" if template else ""
    sys.stderr.write(f"hf:{source}: {engine.precision} on {device}; {policy.defaults()}{given}\n")
    return policy


def _table(given: Any) -> dict[str, Any]:
    try:
        table = json.loads(given) if isinstance(given, str) else given
    except ValueError:
        table = None
    if not isinstance(table, Mapping):
        raise InvalidArgument(_KWARGS, given, 'a table, such as {"enable_thinking": false}')
    return dict(table)


def _split(path: str) -> tuple[str, dict[str, str]]:
    source, mark, query = path.rpartition("?")
    if not mark or Path(path).is_dir():
        return path, {}
    options = dict(parse_qsl(query, keep_blank_values=True))
    if unknown := sorted(options.keys() - set(_OPTIONS)):
        raise InvalidArgument(
            "hf options", unknown, ", ".join(_OPTIONS), "such as hf:PATH?precision=bfloat16"
        )
    return source, options


class LocalPolicy:
    """A model in this process, as a policy of the core; concurrent prompts share its batches."""

    def __init__(self, model: TransformersPolicy) -> None:
        self._model = model
        self._batcher = Batcher(model.engine)
        self._chats = {"{}": model.chat}
        # As vLLM reads it: what the file says, whether or not it also says `do_sample`.
        stored: Any = getattr(model.loaded.model, "generation_config", None)
        self._stored: Mapping[str, Any] = stored.to_diff_dict() if stored is not None else {}
        self._default = SamplingSettings(
            max_completion_tokens=_DEFAULT_COMPLETION_TOKENS,
            **{name: self._stored[name] for name in _STORED if self._stored.get(name) is not None},
        )

    def defaults(self) -> str:
        """In words how requests are sampled unless they say otherwise."""
        default = self._default
        respected = [name for name in _STORED if name in self._stored]
        ignored = [name for name in _IGNORED if name in self._stored]
        return (
            f"unless given: temperature {default.temperature:g}, top_p {default.top_p:g}, top_k "
            f"{default.top_k}, at most {default.max_completion_tokens} tokens"
            + (f" ({', '.join(respected)} from its generation_config)" if respected else "")
            + (f"; its generation_config's {', '.join(ignored)} is not used" if ignored else "")
        )

    async def check(self, env: TextEnv[Any]) -> None:
        """A loaded model plays everywhere."""

    async def sample(
        self, prompts: Sequence[core.Prompt], n: int, sampling: core.Sampling
    ) -> list[core.Answer]:
        """One answer of n completions per prompt, in order.

        Raises:
            InvalidArgument: `sampling` has extra fields other than top_k and chat_template_kwargs.
            PolicyFailure: A prompt is too long for the model.
        """
        extra = dict(sampling.extra)
        chat = self._chat(_table(extra.pop(_KWARGS, {})))
        answers = (
            self._answer(p, n, self._sampling(sampling.bounded(p.constraints), extra), chat)
            for p in prompts
        )
        return list(await asyncio.gather(*answers))

    def _chat(self, given: Mapping[str, Any]) -> Chat:
        """How prompts are written with some arguments of the template over the usual."""
        usual = self._model.chat
        key = json.dumps(given, sort_keys=True)
        if key not in self._chats:
            self._chats[key] = replace(usual, template_kwargs={**usual.template_kwargs, **given})
        return self._chats[key]

    async def _answer(
        self, prompt: core.Prompt, n: int, sampling: SamplingSettings, chat: Chat
    ) -> core.Answer:
        ids = chat.encode(prompt.messages)
        grammars = self._model.grammars
        grammar = prompt.constraints.grammar if grammars else ""
        request = GenerateRequest(
            prompt_ids=ids,
            num_candidates=n,
            sampling=sampling,
            seed=prompt.seed,
            grammar=grammar,
            tools=offered(prompt.messages),
        )
        try:
            # Here, not in the batch, where one bad form would fail all prompts.
            if grammars and grammar:
                grammars.check(grammar)
            completions = await self._batcher.sample(request)
        except InvalidArgument as error:
            raise core.PolicyFailure(str(error), getattr(error, "end", End.SERVER)) from error
        written = sum(len(completion.token_ids) for completion in completions)
        return core.Answer(
            tuple(core.Completion(chat.text(request, c), c.finish_reason) for c in completions),
            core.Usage(1, 0, len(ids), written),
        )

    async def aclose(self) -> None:
        """Nothing to release."""

    def _sampling(self, given: core.Sampling, extra: Mapping[str, Any]) -> SamplingSettings:
        chosen: dict[str, Any] = {"stop": given.stop, **extra}
        if unknown := sorted(extra.keys() - {"top_k"}):
            raise InvalidArgument("sampling.extra", unknown, f"top_k, {_KWARGS}")
        for name in ("temperature", "top_p", "max_completion_tokens"):
            chosen[name] = getattr(given, name)
        return replace(self._default, **{n: v for n, v in chosen.items() if v is not None})
