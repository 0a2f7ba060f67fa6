"""The seams between the trainer and whatever computes: `Generate`, `Update` and `Sync`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from pettingllms_trainers.types import (
    Demonstration,
    GenerateRequest,
    Imitation,
    ImitationStep,
    RequestLimits,
    TokenCompletion,
    TrainingGroup,
    UpdateStats,
    ValueExample,
    ValueFit,
)

Encode = Callable[[Sequence[Mapping[str, str]]], tuple[int, ...]]
"""Chat messages to prompt token ids, the generation prompt included."""


EncodeAnswer = Callable[[str], tuple[int, ...]]
"""The text of an answer to completion token ids, the end token included."""


TokenTexts = Callable[[Sequence[int]], list[str]]
"""Token ids to the text of each, for people; part of a character is a replacement character."""


ReadCalls = Callable[[GenerateRequest, TokenCompletion], str]
"""The text of a completion whose calls of tools are in words of the model's own."""


CheckGrammar = Callable[[str], None]
"""Raises `InvalidArgument` if a form cannot be enforced; see `Constraints.grammar`."""


class Generate(Protocol):
    """An engine that samples completions from a policy's present weights."""

    @property
    def is_concurrent(self) -> bool:
        """Whether calls of `generate` may overlap: the engine computes elsewhere.

        If not, it computes in the calling thread, one call after another.
        """
        ...

    @property
    def limits(self) -> RequestLimits:
        """What `check` compares a request with; a plain value."""
        ...

    def check(self, request: GenerateRequest) -> None:
        """Make sure, at little cost, that the engine can answer a request.

        Raises:
            InvalidArgument: It cannot, whatever the weights: the prompt is too long, for example.
        """
        ...

    async def generate(self, requests: Sequence[GenerateRequest]) -> list[list[TokenCompletion]]:
        """The completions of each request, in order.

        A request's result depends on the request and the weights only, up to float rounding. A
        completion that could not be made is left out; an engine that cannot continue raises.
        """
        ...


class Update(Protocol):
    """The owner of a policy's weights."""

    @property
    def base(self) -> object:
        """Equal where weights are on one base, so that they learn in the same passes."""
        ...

    def update_together(
        self, updates: Sequence[tuple[Any, Sequence[TrainingGroup]]]
    ) -> list[UpdateStats]:
        """Train on the groups of one step; sampling afterwards uses the new weights.

        Args:
            updates: Owners of weights, this one and others of its `base`, and their groups.
        """
        ...

    def values(self, prompts: Sequence[tuple[int, ...]]) -> list[float]:
        """V of prompts: the expected return from their decisions on, in their order.

        Computed by the trainer, whatever engine generates; only with an algorithm that learns V.
        """
        ...

    def fit_values(self, examples: Sequence[ValueExample]) -> ValueFit:
        """Fit V to the returns of one train step, after `update`."""
        ...

    def imitate(
        self, demonstrations: Sequence[Demonstration], imitation: Imitation
    ) -> Iterator[ImitationStep]:
        """Fit the policy to demonstrations, step by step as the result is iterated.

        A policy of another process does not wait for the iteration.
        """
        ...

    def save_state(self, directory: Path) -> None:
        """Write all that an exact resume needs as files into an existing directory."""
        ...

    def load_state(self, directory: Path) -> None:
        """Continue exactly where `save_state` was called.

        Raises:
            CheckpointError: The files are damaged or of another model; nothing was changed.
        """
        ...

    def save_pretrained(self, directory: Path, *, final: Path | None = None) -> None:
        """Write weights and tokenizer as an ordinary Hugging Face directory.

        Args:
            final: Where the directory will be moved to; None when it stays.
        """
        ...


class Sync(Protocol):
    """Moves an updater's weights to an engine that has a copy of them."""

    def release(self) -> None:
        """Free memory for an update; the engine cannot generate before the next `push`."""
        ...

    def push(self) -> None:
        """Give the engine the present weights: sampling afterwards uses them, and only them.

        Raises:
            GenerationError: The engine cannot take them.
        """
        ...
