"""Forms of answers as masks of tokens: the same for whoever samples and for whoever learns.

vLLM enforces a form with the library xgrammar. Its matcher, over the tokens that were sampled,
gives the masks that the engine had.

Legend: M target tokens, V vocabulary, W = ceil(V / 32); masks are those of `learning.masks`.
"""

from __future__ import annotations

import functools
from collections.abc import Collection, Sequence
from importlib import import_module
from typing import Any

from torch import Tensor
from transformers import PreTrainedTokenizerBase

from pettingllms.errors import InvalidArgument
from pettingllms_trainers.errors import MissingPackage, UpdateError, reason_of
from pettingllms_trainers.learning.batch import Targets


class Grammars:
    """What a model may write where its answers have a form; see `Constraints.grammar`.

    Args:
        tokenizer: The tokenizer.
        vocab_size: V, of the logits.
        stop_ids: Token ids that end a completion: allowed where a form is complete, and needed
            where it cannot go on.

    Raises:
        MissingPackage: xgrammar is not installed.
    """

    def __init__(
        self, tokenizer: PreTrainedTokenizerBase, vocab_size: int, stop_ids: Collection[int]
    ) -> None:
        self._tokenizer, self._vocab_size = tokenizer, vocab_size
        self._stop_ids = sorted(stop_ids)
        try:
            self._library: Any = import_module("xgrammar")
        except ImportError as error:
            key = "engine.guided_decoding"
            raise MissingPackage(key, "xgrammar", "guided", error) from error

    # Ray sends it to other processes; compiled grammars cannot be pickled.
    def __reduce__(self) -> tuple[type[Grammars], tuple[Any, ...]]:
        return Grammars, (self._tokenizer, self._vocab_size, self._stop_ids)

    @functools.cached_property
    def _compiler(self) -> Any:
        library, size = self._library, self._vocab_size
        tokens = library.TokenizerInfo.from_huggingface(self._tokenizer, vocab_size=size)
        return library.GrammarCompiler(tokens, max_threads=1)  # it remembers what it has compiled

    def check(self, grammar: str) -> None:
        """Refuse what cannot be enforced.

        Raises:
            InvalidArgument: xgrammar does not know such a form.
        """
        try:
            self._compiler.compile_structural_tag(grammar)
        except (RuntimeError, ValueError) as error:
            raise InvalidArgument(
                "grammar", grammar[:200],
                f"a form that xgrammar can enforce ({reason_of(error)})",
                "change the schema, or set engine.guided_decoding = false: then answers are free, "
                "and one that does not fit ends the episode",
            ) from error  # fmt: skip

    def matcher(self, grammar: str) -> Any:
        """A ``xgrammar.GrammarMatcher`` at the first token of an answer."""
        compiled = self._compiler.compile_structural_tag(grammar)
        return self._library.GrammarMatcher(compiled, override_stop_tokens=self._stop_ids)

    def next_masks(self, matchers: Sequence[Any | None]) -> Tensor:
        """What the next token of each answer may be, ``[len(matchers), W]``, on the CPU.

        Args:
            matchers: One for each answer; None: it is free.
        """
        masks = self._all_allowed(len(matchers))
        for row, matcher in enumerate(matchers):
            if matcher is not None:
                matcher.fill_next_token_bitmask(masks, row)
        return masks

    def masks(self, grammars: Sequence[str], targets: Targets) -> Tensor:
        """What each sampled token was chosen from, ``[M, W]``, on the device of the tokens.

        Args:
            grammars: Form that was enforced on each completion; empty: none.
            targets: The sampled tokens.

        Raises:
            UpdateError: A token is not allowed where it was sampled.
        """
        masks = self._all_allowed(len(targets.token_ids))
        matchers = [self.matcher(one) if one else None for one in grammars]
        numbers, token_ids = targets.completions.tolist(), targets.token_ids.tolist()
        for row, (number, token) in enumerate(zip(numbers, token_ids, strict=True)):
            matcher = matchers[number]
            if matcher is None:
                continue
            matcher.fill_next_token_bitmask(masks, row)
            if not matcher.accept_token(token):
                raise UpdateError(
                    f"update: token {token} of a sampled answer is not allowed by the form that "
                    f"its engine was to enforce ({grammars[number][:200]}). Run engine and "
                    "trainer with the same tokenizer and the same version of xgrammar; nothing was "
                    "trained"
                )
        return masks.to(targets.token_ids.device)

    def _all_allowed(self, count: int) -> Tensor:
        return self._library.allocate_token_bitmask(count, self._vocab_size)
