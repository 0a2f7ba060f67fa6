"""The default engine: the model that is trained generates, in this process.

Engine and update share the weights, so nothing has to be moved after an update, and the
log-probabilities of the engine are those of the trainer up to rounding. From the bottom up: how a
token is drawn from logits, two ways to run a model token by token, a batch whose rows join and
leave, and the engine.

Tokens are drawn by numbers that depend on the request's seed alone, so what shares a batch, and
when a row joins it, changes nothing but rounding.

Legend: N live rows, B prompts, L longest prompt, K candidates of a request, V vocabulary; see also
`attention`.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import sys
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, NamedTuple, Protocol

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from pettingllms_trainers.backends.hf.adapters import AdapterBase
from pettingllms_trainers.backends.hf.attention import UnsupportedModel, flat_forward
from pettingllms_trainers.backends.hf.chat import answer_texts
from pettingllms_trainers.backends.hf.grammars import Grammars
from pettingllms_trainers.backends.hf.layouts import DecodeLayout, PrefillLayout
from pettingllms_trainers.backends.hf.learner import arithmetic
from pettingllms_trainers.backends.hf.model import LoadedModel
from pettingllms_trainers.config import EngineConfig
from pettingllms_trainers.errors import GenerationError
from pettingllms_trainers.learning.loss import masked
from pettingllms_trainers.policies.pool import check_request
from pettingllms_trainers.types import (
    FinishReason,
    GenerateRequest,
    RequestLimits,
    SamplingSettings,
    TokenCompletion,
)

_MIN_LOGIT = -1e4
"""In place of -inf; exp of it is 0."""
_BLOCK = 64
"""Tokens that are summed up before the running sum."""


class SampledTokens(NamedTuple):
    """One sampled token for each row."""

    token_ids: Tensor
    """``[N]`` token ids."""
    logprobs: Tensor
    """``[N]`` log-probabilities in the distribution that was sampled from."""
    entropies: Tensor
    """``[N]`` entropies of that distribution, in nats."""


def uniforms(request: GenerateRequest) -> Tensor:
    """The draws of a request: ``[K, max_completion_tokens]`` numbers in [0, 1).

    They depend on the seed alone: what a request is batched with does not matter.
    """
    # NumPy: its stream is the same on every device and in every version of torch.
    generator = np.random.default_rng(request.seed & (2**64 - 1))
    shape = (request.sampling.max_completion_tokens, request.num_candidates)
    return torch.from_numpy(generator.random(shape, dtype=np.float32)).T


class RowSampling:
    """Sampling settings of N rows, as tensors.

    Args:
        settings: ``[N]`` one for each row.
        device: Where the logits live.
    """

    def __init__(self, settings: Sequence[SamplingSettings], device: torch.device) -> None:
        def column(values: list[Any], neutral: float) -> Tensor | None:
            # Most batches need none of these, and each costs a pass over all logits.
            is_used = any(value != neutral for value in values)
            return torch.tensor(values, device=device)[:, None] if is_used else None

        self._temperature = column([setting.temperature or 1.0 for setting in settings], 1.0)
        self._is_greedy = column([setting.temperature == 0 for setting in settings], False)
        self._top_k = column([setting.top_k for setting in settings], 0)
        self._top_p = column([setting.top_p for setting in settings], 1.0)

    def keep(self, rows: Tensor) -> None:
        """Drop all rows but these."""
        for name in ("_temperature", "_is_greedy", "_top_k", "_top_p"):
            values: Tensor | None = getattr(self, name)
            if values is not None:
                setattr(self, name, values[rows])

    def sample(self, logits: Tensor, draws: Tensor) -> SampledTokens:
        """A token for each row.

        Greedy rows take the most probable token; log-probability and entropy are at temperature 1.

        Args:
            logits: ``[N, V]``, any floating dtype; -inf for tokens that are excluded.
            draws: ``[N]`` numbers in [0, 1).
        """
        # In bfloat16 neighbouring probabilities would collapse, and with them the draws.
        logits = self._processed(logits.float())
        probabilities = logits.softmax(-1)
        tokens = _inverted(probabilities, draws[:, None])
        is_excluded = logits.gather(1, tokens).isneginf()
        if is_excluded.any():
            # A parallel sum may rise by a rounding error where a token is excluded.
            best = logits.argmax(-1, keepdim=True)
            tokens = torch.where(is_excluded, best, tokens)
        if self._is_greedy is not None:
            best = logits.argmax(-1, keepdim=True)
            tokens = torch.where(self._is_greedy, best, tokens)
        logprobs = probabilities.gather(1, tokens).log_()
        # H = log Z - sum(p * x), and log Z = x - log p of any token. Excluded tokens have p = 0 and
        # x = -inf, and their product must be 0.
        log_total = logits.gather(1, tokens) - logprobs
        moment = probabilities.mul_(logits.clamp(min=_MIN_LOGIT)).sum(-1, keepdim=True)
        entropies = log_total - moment
        return SampledTokens(tokens.squeeze(1), logprobs.squeeze(1), entropies.squeeze(1))

    def _processed(self, logits: Tensor) -> Tensor:
        """Logits after temperature, then top-k, then top-p; excluded tokens have -inf."""
        if self._temperature is not None:
            logits = logits / self._temperature
        if self._top_k is None and self._top_p is None:
            return logits
        ordered, order = logits.sort(dim=-1, descending=True, stable=True)
        excluded = torch.zeros_like(ordered, dtype=torch.bool)
        # top-p counts what top-k has left, as in vLLM and transformers.
        if self._top_k is not None:
            ranks = torch.arange(logits.shape[1], device=logits.device)
            excluded |= (ranks >= self._top_k) & (self._top_k > 0)
            ordered = ordered.masked_fill(excluded, -torch.inf)
        if self._top_p is not None:
            probabilities = ordered.softmax(-1)
            before = probabilities.cumsum(-1) - probabilities
            excluded |= (before >= self._top_p) & (self._top_p < 1)
            # The most probable token stays, however small top-p is.
            excluded[:, 0] = False
        return logits.masked_fill(
            torch.zeros_like(excluded).scatter(1, order, excluded), -torch.inf
        )


def _inverted(probabilities: Tensor, draws: Tensor) -> Tensor:
    """The tokens ``[N, 1]`` at which the running sums of probabilities pass the draws.

    Blocks of tokens are summed first, and only the block that is hit is looked at token by token: a
    running sum over a whole vocabulary takes longer than all other passes over it.

    Args:
        probabilities: ``[N, V]``.
        draws: ``[N, 1]`` numbers in [0, 1).
    """
    size = probabilities.shape[1]
    if size % _BLOCK:
        probabilities = F.pad(probabilities, (0, -size % _BLOCK))
    blocks = probabilities.unflatten(1, (-1, _BLOCK))  # [N, V / 64, 64]
    sums = blocks.sum(-1).cumsum_(-1)
    target = draws * sums[:, -1:]
    block = _first_above(sums, target)
    before = F.pad(sums, (1, 0)).gather(1, block)
    inside = blocks.gather(1, block[:, :, None].expand(-1, -1, _BLOCK)).squeeze(1).cumsum_(-1)
    return (block * _BLOCK + _first_above(inside, target - before)).clamp_(max=size - 1)


def _first_above(sums: Tensor, target: Tensor) -> Tensor:
    """The index of the first of the running sums ``[N, S]`` that is above ``[N, 1]``."""
    # right=True: an entry of probability 0 adds nothing to the sum, so it is never the first. The
    # minimum is for a target rounded to the total.
    target = torch.minimum(target, sums[:, -1:] * (1 - 2**-23))
    found = torch.searchsorted(sums, target, right=True)
    return found.clamp_(max=sums.shape[1] - 1)  # NaN finds none; its log-probability tells


class Decoder(Protocol):
    """A model with the KV cache of N completions that are being written."""

    device: torch.device
    """Where it computes."""
    shares_prompts: bool
    """Whether the candidates of a request hold one copy of its prompt, and not one each. Rows may
    then be added while others are being written."""

    def prefill(self, prompts: Sequence[tuple[int, ...]], counts: Sequence[int]) -> Tensor:
        """Append `counts[b]` rows for prompt b and return their next-token logits ``[n, V]``."""
        ...

    def step(self, token_ids: Tensor) -> Tensor:
        """Append one token to each row, ``[N]``, and return the next-token logits ``[N, V]``."""
        ...

    def keep(self, rows: Tensor) -> None:
        """Drop all rows but these (ascending indices)."""
        ...


def _last_position(model: PreTrainedModel) -> int:
    """The last position that the model knows; a number never reached if it has no limit."""
    context = getattr(model.config.get_text_config(), "max_position_embeddings", None)
    return sys.maxsize if context is None else context - 1


def _repeats(counts: Sequence[int], device: torch.device) -> Tensor:
    """The prompt index of each row ``[sum(counts)]``."""
    return torch.repeat_interleave(torch.tensor(counts, device=device))


class SharedPrefixDecoder:
    """Computes each prompt once; all its candidates attend the same keys and values.

    Args:
        model: Prepared by `attention.use_layouts`.
    """

    shares_prompts = True

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self.device = model.device
        # Once: to look it up takes as long as the norms of three layers.
        self._last_position = _last_position(model)
        self._layout = DecodeLayout(self.device)
        self._positions = torch.zeros(0, dtype=torch.long, device=self.device)

    def prefill(self, prompts: Sequence[tuple[int, ...]], counts: Sequence[int]) -> Tensor:
        prefill = PrefillLayout([len(prompt) for prompt in prompts], self.device)
        tokens = torch.tensor([token for prompt in prompts for token in prompt])
        positions = torch.cat([torch.arange(len(prompt)) for prompt in prompts])
        lengths = prefill.rows.lengths
        tokens, positions = tokens.to(self.device), positions.to(self.device)
        logits = flat_forward(self._model, tokens, positions, prefill, lengths.cumsum(0) - 1)
        self._layout.add(prefill, counts)
        owners = _repeats(counts, self.device)
        self._positions = torch.cat([self._positions, lengths[owners]])
        return logits[owners]

    def step(self, token_ids: Tensor) -> Tensor:
        self._layout.advance()
        logits = flat_forward(self._model, token_ids, self._positions, self._layout, None)
        # Rows that are finished but still there stay in the context.
        self._positions = (self._positions + 1).clamp_(max=self._last_position)
        return logits

    def keep(self, rows: Tensor) -> None:
        self._layout.keep(rows)
        self._positions = self._positions[rows]


class ExpandedDecoder:
    """Plain decoding with the cache of `transformers`, the prompt's part copied for each candidate.

    Args:
        model: Any causal LM that keeps its past in ``past_key_values``.
    """

    shares_prompts = False

    def __init__(self, model: PreTrainedModel) -> None:
        self._model = model
        self.device = model.device
        # Once: to look it up takes as long as the norms of three layers.
        self._last_position = _last_position(model)
        self._cache: Any = None
        self._mask = torch.zeros(0)
        self._positions = torch.zeros(0)

    def prefill(self, prompts: Sequence[tuple[int, ...]], counts: Sequence[int]) -> Tensor:
        length = max(len(prompt) for prompt in prompts)
        # Padded on the left, so that the last column is the last token of every prompt.
        tokens = torch.tensor([(0,) * (length - len(prompt)) + prompt for prompt in prompts])
        lengths = torch.tensor([len(prompt) for prompt in prompts], device=self.device)
        mask = (torch.arange(length, device=self.device) >= length - lengths[:, None]).long()
        positions = (mask.cumsum(1) - 1).clamp(min=0)
        output = self._model(
            input_ids=tokens.to(self.device),
            attention_mask=mask,
            position_ids=positions,
            use_cache=True,
            logits_to_keep=1,
        )
        owners = _repeats(counts, self.device)
        self._cache = getattr(output, "past_key_values", None)
        if not hasattr(self._cache, "reorder_cache"):
            raise UnsupportedModel("it returns no past_key_values")
        # Not `batch_select_indices`: states of linear attention have the selection of beams only.
        self._cache.reorder_cache(owners)
        self._mask, self._positions = mask[owners], lengths[owners]
        return output.logits[:, -1][owners]

    def step(self, token_ids: Tensor) -> Tensor:
        self._mask = torch.cat([self._mask, self._mask.new_ones(len(token_ids), 1)], 1)
        output = self._model(
            input_ids=token_ids[:, None],
            attention_mask=self._mask,
            position_ids=self._positions[:, None],
            past_key_values=self._cache,
            use_cache=True,
        )
        # Rows that are finished but still there stay in the context.
        self._positions = (self._positions + 1).clamp_(max=self._last_position)
        return output.logits[:, -1]

    def keep(self, rows: Tensor) -> None:
        self._cache.reorder_cache(rows)
        self._mask, self._positions = self._mask[rows], self._positions[rows]


_COMPACT_FRACTION = 8
"""Finished rows are dropped when they are an eighth of all: a copy of the cache costs as much as
several steps, a finished row that is still computed only its share of one."""

_JOIN_FRACTION = 4
"""Requests join when a quarter of the budget is free: a prefill of few tokens holds up all rows."""


@dataclass(slots=True)
class _Row:
    """One completion that is being written."""

    request: int
    """Index of its request in the call."""
    candidate: int
    """Number among the completions of the request, from 0."""
    max_tokens: int
    """Limit of its length."""
    stop: tuple[str, ...]
    """Texts that end it."""
    matcher: Any | None
    """``xgrammar.GrammarMatcher`` of its form; None: it is free."""
    token_ids: list[int] = field(default_factory=list[int])
    logprobs: list[float] = field(default_factory=list[float])
    entropies: list[float] = field(default_factory=list[float])
    finish_reason: FinishReason | None = None


def generate(
    decoder: Decoder,
    requests: Sequence[GenerateRequest],
    *,
    tokenizer: PreTrainedTokenizerBase,
    stop_ids: Collection[int],
    limits: RequestLimits,
    grammars: Grammars | None = None,
    base: AdapterBase | None = None,
) -> list[list[TokenCompletion]]:
    """The completions of each request, in the order of the requests.

    Args:
        decoder: The model.
        requests: Any number, of any lengths and settings.
        tokenizer: Decodes the sampled tokens.
        stop_ids: Token ids that end a completion.
        limits: What the model and the machine can hold.
        grammars: Enforces forms; None: no request wants one.
        base: Has the adapters of the requests; None: the model has none.

    Raises:
        InvalidArgument: A request cannot be answered.
        GenerationError: The logits are not finite.
    """
    for request in requests:
        check_request(request, limits)
    batch = _Batch(decoder, requests, tokenizer, frozenset(stop_ids), limits, grammars, base)
    with torch.inference_mode():  # less bookkeeping than without gradients: a fifth of the time
        batch.run()
    return _completions(tokenizer, requests, batch.finished)


class _Batch:
    """The rows that are being written, and the requests that wait."""

    def __init__(
        self,
        decoder: Decoder,
        requests: Sequence[GenerateRequest],
        tokenizer: PreTrainedTokenizerBase,
        stop_ids: frozenset[int],
        limits: RequestLimits,
        grammars: Grammars | None,
        base: AdapterBase | None,
    ) -> None:
        self._base = base
        self._decoder, self._tokenizer, self._requests = decoder, tokenizer, requests
        self._stop_ids, self._limits, self._device = stop_ids, limits, decoder.device
        self._grammars = grammars
        # Equal prompts come together, so that they are computed once; similar lengths, too.
        places = [(len(r.prompt_ids), r.prompt_ids, r.adapter or "") for r in requests]
        self._waiting = deque(sorted(range(len(requests)), key=places.__getitem__))
        self._rows: list[_Row] = []
        self._tokens = torch.zeros(0, dtype=torch.long, device=self._device)
        # [N, longest]: a draw for each token that a row may still write; all read the same column,
        # and what a row draws that is finished but still there is thrown away.
        self._draws = torch.zeros(0, 0, device=self._device)
        self._num_drawn = 0
        self._sampling = RowSampling([], self._device)
        self.finished: list[_Row] = []

    def run(self) -> None:
        while self._waiting or self._rows:
            self._admit()
            self._compact()
            if self._rows:
                self._step()

    def _size(self, index: int) -> int:
        """The maximum number of tokens that a request can come to hold."""
        request = self._requests[index]
        num_prompts = 1 if self._decoder.shares_prompts else request.num_candidates
        longest = request.num_candidates * request.sampling.max_completion_tokens
        return num_prompts * len(request.prompt_ids) + longest

    def _admit(self) -> None:
        """Prefill waiting requests as far as the token budget allows."""
        if not self._waiting or (self._rows and not self._decoder.shares_prompts):
            return
        # A request holds its maximum until its last row is gone: an estimate could overflow.
        held = {row.request for row in self._rows}
        free = self._limits.max_batch_tokens - sum(self._size(index) for index in held)
        if self._rows and free < self._limits.max_batch_tokens // _JOIN_FRACTION:
            return
        admitted: list[int] = []
        # One request is admitted even if it is larger than the budget: else it would wait for ever.
        while self._waiting and (
            self._size(self._waiting[0]) <= free or not (self._rows or admitted)
        ):
            free -= self._size(self._waiting[0])
            admitted.append(self._waiting.popleft())
        if admitted:
            self._prefill(admitted)

    def _prefill(self, admitted: list[int]) -> None:
        # Rows of an adapter stand together; `sorted` keeps the order of the others.
        admitted = sorted(admitted, key=lambda index: self._requests[index].adapter or "")
        requests = [self._requests[index] for index in admitted]
        # Episodes of a level begin alike: their prompts are equal, and neighbours after sorting.
        merged = [
            (*same, sum(request.num_candidates for request in own))
            for same, own in itertools.groupby(requests, lambda r: (r.adapter, r.prompt_ids))
        ]
        is_flat = self._decoder.shares_prompts
        with self._routed((one, len(prompt) if is_flat else 1) for one, prompt, _ in merged):
            logits = self._decoder.prefill([one[1] for one in merged], [one[2] for one in merged])
        first = len(self._rows)
        for index, request in zip(admitted, requests, strict=True):
            sampling = request.sampling
            for candidate in range(request.num_candidates):
                matcher = None
                if request.grammar:
                    assert self._grammars is not None, "forms are enforced by guided decoding"
                    matcher = self._grammars.matcher(request.grammar)
                limit = sampling.max_completion_tokens
                self._rows.append(_Row(index, candidate, limit, sampling.stop, matcher))
        draws = _padded([uniforms(request) for request in requests]).to(self._device)
        settings = [self._requests[row.request].sampling for row in self._rows]
        # The first token comes from the prefill, for the new rows alone.
        self._sampling = RowSampling(settings[first:], self._device)
        self._take(logits, first, draws[:, 0])
        self._sampling = RowSampling(settings, self._device)
        self._draws = _padded([self._draws[:, self._num_drawn :], draws[:, 1:]])
        self._num_drawn = 0

    def _routed(
        self, rows: Iterable[tuple[str | None, int]]
    ) -> contextlib.AbstractContextManager[None]:
        """The context of a forward pass whose rows, counted, are of some adapters."""
        if self._base is None:
            return contextlib.nullcontext()
        return self._base.routed(
            [
                (adapter or None, sum(count for _, count in own))
                for adapter, own in itertools.groupby(rows, key=lambda row: row[0])
            ]
        )

    def _step(self) -> None:
        with self._routed((self._requests[row.request].adapter, 1) for row in self._rows):
            logits = self._decoder.step(self._tokens)
        self._take(logits, 0, self._draws[:, self._num_drawn])
        self._num_drawn += 1

    def _take(self, logits: Tensor, first: int, draws: Tensor) -> None:
        """Sample one token for the rows from index `first` on, from logits ``[N - first, V]``."""
        rows = self._rows[first:]
        sampled = self._sampling.sample(self._allowed(logits, rows), draws)
        self._tokens = torch.cat([self._tokens[:first], sampled.token_ids])
        # One transfer per column; reading token by token would wait for a GPU each time.
        values = (column.tolist() for column in sampled)
        for row, token, logprob, entropy in zip(rows, *values, strict=True):
            if row.finish_reason is None:
                row.token_ids.append(token)
                row.logprobs.append(logprob)
                row.entropies.append(entropy)
                row.finish_reason = self._finish_reason(row, token)
                if row.matcher is not None:
                    row.matcher.accept_token(token)

    def _allowed(self, logits: Tensor, rows: Sequence[_Row]) -> Tensor:
        """Logits without those of tokens that the forms of the rows exclude."""
        matchers = [row.matcher if row.finish_reason is None else None for row in rows]
        if self._grammars is None or not any(matchers):
            return logits
        return masked(logits.float(), self._grammars.next_masks(matchers).to(logits.device))

    def _finish_reason(self, row: _Row, token: int) -> FinishReason | None:
        # Checked on the drawn tokens: it is free here, and a look at all logits is not.
        if not math.isfinite(row.logprobs[-1]):
            raise GenerationError(
                "generation: the next-token logits are NaN or infinite; finite logits are needed. "
                "Go back to an earlier checkpoint and lower the learning rate."
            )
        if token in self._stop_ids or (row.stop and self._ends_with_stop(row)):
            return "stop"
        return "length" if len(row.token_ids) >= row.max_tokens else None

    def _ends_with_stop(self, row: _Row) -> bool:
        # Every token but a special one writes a byte or more, so the window holds the stop text.
        window = 2 * max(len(stop.encode()) for stop in row.stop) + 4
        (text,) = answer_texts(self._tokenizer, [row.token_ids[-window:]], [()])
        return any(stop in text for stop in row.stop)

    def _compact(self) -> None:
        """Drop finished rows, once they are enough to be worth the copy."""
        live = [index for index, row in enumerate(self._rows) if row.finish_reason is None]
        num_finished = len(self._rows) - len(live)
        if num_finished * _COMPACT_FRACTION < max(len(self._rows), 1):
            return
        self.finished += [row for row in self._rows if row.finish_reason is not None]
        self._rows = [self._rows[index] for index in live]
        kept = torch.tensor(live, dtype=torch.long, device=self._device)
        self._tokens, self._draws = self._tokens[kept], self._draws[kept]
        self._sampling.keep(kept)
        self._decoder.keep(kept)


def _padded(parts: Sequence[Tensor]) -> Tensor:
    """The rows of all parts ``[n, L]``, zeros after the shorter ones."""
    longest = max(part.shape[1] for part in parts)
    return torch.cat([F.pad(part, (0, longest - part.shape[1])) for part in parts])


def _completions(
    tokenizer: PreTrainedTokenizerBase, requests: Sequence[GenerateRequest], rows: list[_Row]
) -> list[list[TokenCompletion]]:
    rows = sorted(rows, key=lambda row: (row.request, row.candidate))
    texts = answer_texts(tokenizer, [row.token_ids for row in rows], [row.stop for row in rows])
    completions: list[list[TokenCompletion]] = [[] for _ in requests]
    for row, text in zip(rows, texts, strict=True):
        completions[row.request].append(
            TokenCompletion(
                token_ids=tuple(row.token_ids),
                logprobs=tuple(row.logprobs),
                text=text,
                finish_reason=row.finish_reason or "length",
                entropies=tuple(row.entropies),
            )
        )
    return completions


class TransformersEngine:
    """A causal LM of `transformers`, as engine; see `Generate`.

    Args:
        loaded: The model, prepared by `use_layouts` if candidates share prompts.
        config: Batch size, precision.
        shares_prompts: Whether candidates attend one copy of their prompt.
        grammars: Enforces forms of answers; None: no request wants one.
    """

    is_concurrent = False

    def __init__(
        self,
        loaded: LoadedModel,
        config: EngineConfig,
        *,
        shares_prompts: bool,
        grammars: Grammars | None = None,
    ) -> None:
        self._loaded, self._config, self._grammars = loaded, config, grammars
        self.limits = loaded.limits(config.tokens_per_batch)
        self._stop_ids = loaded.stop_ids
        # A class, not an object: each call of `generate` has a cache of its own.
        self._decoder = SharedPrefixDecoder if shares_prompts else ExpandedDecoder

    def check(self, request: GenerateRequest) -> None:
        check_request(request, self.limits)

    async def generate(self, requests: Sequence[GenerateRequest]) -> list[list[TokenCompletion]]:
        """Computes in the calling thread: the batch is all there is to do.

        Raises:
            InvalidArgument: A request cannot be answered by this model.
            GenerationError: The logits are not finite.
        """
        return self.generate_now(requests)

    def generate_now(self, requests: Sequence[GenerateRequest]) -> list[list[TokenCompletion]]:
        """The completions of each request, in order; for callers without an event loop.

        Those that name no adapter are of this model's own.
        """
        model, adapter = self._loaded.model, self._loaded.adapter
        if adapter is not None:
            requests = [
                replace(r, adapter=adapter.name or "") if r.adapter is None else r for r in requests
            ]
        with arithmetic(model, self._config.precision):
            return generate(
                self._decoder(model),
                requests,
                base=adapter and adapter.base,
                tokenizer=self._loaded.tokenizer,
                stop_ids=self._stop_ids,
                limits=self.limits,
                grammars=self._grammars,
            )
