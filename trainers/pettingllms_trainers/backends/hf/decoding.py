"""From requests to completions: admission under a token budget, sampling, stopping, compaction.

Tokens are drawn by numbers that depend on the request's seed alone, so what shares a batch, and
when a row joins it, changes nothing but rounding.

Legend: N live rows, V vocabulary, K candidates of a request; see also `attention`.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch
import torch.nn.functional as F
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from pettingllms_trainers.backends.hf.decoders import Decoder
from pettingllms_trainers.backends.hf.grammars import Grammars
from pettingllms_trainers.backends.hf.sampling import RowSampling, uniforms
from pettingllms_trainers.errors import GenerationError
from pettingllms_trainers.learning.masks import masked
from pettingllms_trainers.policies.requests import check_request
from pettingllms_trainers.types import FinishReason, GenerateRequest, RequestLimits, TokenCompletion

__all__ = ["generate"]

_COMPACT_FRACTION = 8
"""Finished rows are dropped when they are an eighth of all: a copy of the cache costs as much as
several steps, a finished row that is still computed only its share of one."""

_JOIN_FRACTION = 4
"""Requests join when a quarter of the budget is free: a prefill of few tokens holds up all rows."""


@dataclass(slots=True)
class _Row:
    """One completion that is being written."""

    request: int
    candidate: int
    max_tokens: int
    stop: tuple[str, ...]
    matcher: Any | None
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
) -> list[list[TokenCompletion]]:
    """Return the completions of each request, in the order of the requests.

    Args:
        decoder: The model.
        requests: Any number, of any lengths and settings.
        tokenizer: Decodes the sampled tokens.
        stop_ids: Token ids that end a completion.
        limits: What the model and the machine can hold.
        grammars: Enforces forms; None: no request wants one.

    Raises:
        InvalidArgument: A request cannot be answered.
        GenerationError: The logits are not finite.
    """
    for request in requests:
        check_request(request, limits)
    batch = _Batch(
        decoder,
        requests,
        tokenizer=tokenizer,
        stop_ids=frozenset(stop_ids),
        limits=limits,
        grammars=grammars,
    )
    with torch.inference_mode():  # less bookkeeping than without gradients: a fifth of the time
        batch.run()
    return _completions(tokenizer, requests, batch.finished)


class _Batch:
    """The rows that are being written, and the requests that wait."""

    def __init__(
        self,
        decoder: Decoder,
        requests: Sequence[GenerateRequest],
        *,
        tokenizer: PreTrainedTokenizerBase,
        stop_ids: frozenset[int],
        limits: RequestLimits,
        grammars: Grammars | None,
    ) -> None:
        self._decoder, self._tokenizer, self._requests = decoder, tokenizer, requests
        self._stop_ids, self._limits, self._device = stop_ids, limits, decoder.device
        self._grammars = grammars
        # Equal prompts come together, so that they are computed once; similar lengths, too.
        order = sorted(range(len(requests)), key=lambda i: _by_prompt(requests[i]))
        self._waiting = deque(order)
        self._rows: list[_Row] = []
        self._tokens = torch.zeros(0, dtype=torch.long, device=self._device)
        # [N, longest]: a draw for each token that a row may still write; all read the same column,
        # and what a row draws that is finished but still there is thrown away.
        self._draws = torch.zeros(0, 0, device=self._device)
        self._num_drawn = 0
        self._sampling = RowSampling([], self._device)
        self.finished: list[_Row] = []

    def run(self) -> None:
        """Write all completions of all requests."""
        while self._waiting or self._rows:
            self._admit()
            self._compact()
            if self._rows:
                self._step()

    def _size(self, index: int) -> int:
        """Return the maximum number of tokens that a request can come to hold."""
        request = self._requests[index]
        num_prompts = 1 if self._decoder.shares_prompts else request.num_candidates
        longest = request.num_candidates * request.sampling.max_completion_tokens
        return num_prompts * len(request.prompt_ids) + longest

    def _admit(self) -> None:
        """Prefill waiting requests as far as the token budget allows."""
        if not self._waiting or (self._rows and not self._decoder.can_join):
            return
        held = {row.request for row in self._rows}
        free = self._limits.max_batch_tokens - sum(self._size(index) for index in held)
        if self._rows and free < self._limits.max_batch_tokens // _JOIN_FRACTION:
            return
        admitted: list[int] = []
        while self._waiting and (
            self._size(self._waiting[0]) <= free or not (self._rows or admitted)
        ):
            free -= self._size(self._waiting[0])
            admitted.append(self._waiting.popleft())
        if admitted:
            self._prefill(admitted)

    def _prefill(self, admitted: list[int]) -> None:
        requests = [self._requests[index] for index in admitted]
        logits = self._decoder.prefill(
            [request.prompt_ids for request in requests],
            [request.num_candidates for request in requests],
        )
        first = len(self._rows)
        for index, request in zip(admitted, requests, strict=True):
            sampling = request.sampling
            for candidate in range(request.num_candidates):
                limit = sampling.max_completion_tokens
                matcher = self._matcher(request.grammar)
                self._rows.append(_Row(index, candidate, limit, sampling.stop, matcher))
        draws = _padded([uniforms(request) for request in requests]).to(self._device)
        settings = [self._requests[row.request].sampling for row in self._rows]
        self._sampling = RowSampling(settings[first:], self._device)
        self._take(logits, first, draws[:, 0])
        self._sampling = RowSampling(settings, self._device)
        self._draws = _padded([self._draws[:, self._num_drawn :], draws[:, 1:]])
        self._num_drawn = 0

    def _step(self) -> None:
        """Write one token of every row."""
        logits = self._decoder.step(self._tokens)
        draws = self._draws[:, self._num_drawn]
        self._num_drawn += 1
        self._take(logits, 0, draws)

    def _take(self, logits: Tensor, first: int, draws: Tensor) -> None:
        """Sample one token for the rows from index `first` on, from logits ``[N - first, V]``."""
        rows = self._rows[first:]
        sampled = self._sampling.sample(self._allowed(logits, rows), draws)
        self._tokens = torch.cat([self._tokens[:first], sampled.token_ids])
        values = (column.tolist() for column in sampled)
        for row, token, logprob, entropy in zip(rows, *values, strict=True):
            if row.finish_reason is None:
                row.token_ids.append(token)
                row.logprobs.append(logprob)
                row.entropies.append(entropy)
                row.finish_reason = self._finish_reason(row, token)
                if row.matcher is not None:
                    row.matcher.accept_token(token)

    def _matcher(self, grammar: str) -> Any | None:
        if not grammar:
            return None
        assert self._grammars is not None, "forms are enforced where decoding is guided"
        return self._grammars.matcher(grammar)

    def _allowed(self, logits: Tensor, rows: Sequence[_Row]) -> Tensor:
        """Return logits without those of tokens that the forms of the rows exclude."""
        matchers = [row.matcher if row.finish_reason is None else None for row in rows]
        if self._grammars is None or not any(matchers):
            return logits
        return masked(logits.float(), self._grammars.next_masks(matchers).to(logits.device))

    def _finish_reason(self, row: _Row, token: int) -> FinishReason | None:
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
        text = _decode(self._tokenizer, [row.token_ids[-window:]])[0]
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
    """Return the rows of all parts ``[n, L]``, zeros after the shorter ones."""
    longest = max(part.shape[1] for part in parts)
    return torch.cat([F.pad(part, (0, longest - part.shape[1])) for part in parts])


def _by_prompt(request: GenerateRequest) -> tuple[int, tuple[int, ...]]:
    return len(request.prompt_ids), request.prompt_ids


def _decode(tokenizer: PreTrainedTokenizerBase, sequences: list[list[int]]) -> list[str]:
    return tokenizer.batch_decode(
        sequences, skip_special_tokens=True, clean_up_tokenization_spaces=False
    )


def _completions(
    tokenizer: PreTrainedTokenizerBase, requests: Sequence[GenerateRequest], rows: list[_Row]
) -> list[list[TokenCompletion]]:
    """Return finished rows as completions, ordered by request and candidate."""
    if not rows:
        return []
    rows = sorted(rows, key=lambda row: (row.request, row.candidate))
    texts = _decode(tokenizer, [row.token_ids for row in rows])
    completions: list[list[TokenCompletion]] = [[] for _ in requests]
    for row, text in zip(rows, texts, strict=True):
        cuts = [text.find(stop) for stop in row.stop if stop in text]
        completions[row.request].append(
            TokenCompletion(
                token_ids=tuple(row.token_ids),
                logprobs=tuple(row.logprobs),
                text=text[: min(cuts)] if cuts else text,
                finish_reason=row.finish_reason or "length",
                entropies=tuple(row.entropies),
            )
        )
    return completions
