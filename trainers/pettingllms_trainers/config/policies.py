"""The part of a configuration that says who plays."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from pettingllms_trainers.config.engine import Endpoints
from pettingllms_trainers.config.section import Section

__all__ = ["PolicyConfig"]


class PolicyConfig(Section):
    """One set of weights."""

    model: str
    """Hugging Face directory or hub name of a causal language model, or "tiny": a small one is
    built from the sizes below."""
    frozen: bool = False
    """Whether the policy plays without being trained."""
    hidden_size: int = Field(default=64, ge=8)
    """Width of a tiny model."""
    num_layers: int = Field(default=3, ge=1)
    """Layers of a tiny model."""
    num_heads: int = Field(default=4, ge=1)
    """Attention heads of a tiny model; twice their number divides the width."""
    max_length: int = Field(default=1024, ge=8)
    """Longest prompt and completion of a tiny model, in tokens."""
    init_std: float = Field(default=0.02, gt=0)
    """Standard deviation of a tiny model's random weights."""
    vocabulary: str = ""
    """Characters that a tiny model can read and write; empty: printable ASCII and newline."""
    chat_template_kwargs: dict[str, Any] = Field(default={})
    """Arguments of the tokenizer's chat template, such as enable_thinking = false."""
    endpoints: Endpoints = ()
    """Addresses of the vLLM servers that generate for this policy when engine.kind is
    vllm_server, such as http://127.0.0.1:8000; all have the same model."""
