"""The default engine: the model that is trained generates, in this process.

Engine and update share the weights, so nothing has to be moved after an update, and the
log-probabilities of the engine are those of the trainer up to rounding.
"""

from __future__ import annotations

from collections.abc import Sequence

from pettingllms_trainers.backends.hf.decoders import ExpandedDecoder, SharedPrefixDecoder
from pettingllms_trainers.backends.hf.decoding import generate
from pettingllms_trainers.backends.hf.grammars import Grammars
from pettingllms_trainers.backends.hf.learner import arithmetic
from pettingllms_trainers.backends.hf.model import LoadedModel
from pettingllms_trainers.config import EngineConfig
from pettingllms_trainers.policies.requests import check_request
from pettingllms_trainers.types import GenerateRequest, TokenCompletion

__all__ = ["TransformersEngine"]


class TransformersEngine:
    """A causal LM of `transformers`, as engine; see `Generate`.

    Args:
        loaded: The model; its attention shares prompts if that is wanted, see `use_layouts`.
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
        self._decoder = SharedPrefixDecoder if shares_prompts else ExpandedDecoder

    def check(self, request: GenerateRequest) -> None:
        """See `Generate.check`."""
        check_request(request, self.limits)

    async def generate(self, requests: Sequence[GenerateRequest]) -> list[list[TokenCompletion]]:
        """See `Generate.generate`. Computes in the calling thread: the batch is all there is to do.

        Raises:
            InvalidArgument: A request cannot be answered by this model.
            GenerationError: The logits are not finite.
        """
        return self.generate_now(requests)

    def generate_now(self, requests: Sequence[GenerateRequest]) -> list[list[TokenCompletion]]:
        """Return the completions of each request, in order; for callers without an event loop."""
        model = self._loaded.model
        with self._loaded.active(), arithmetic(model, self._config.precision):
            return generate(
                self._decoder(model),
                requests,
                tokenizer=self._loaded.tokenizer,
                stop_ids=self._stop_ids,
                limits=self.limits,
                grammars=self._grammars,
            )
