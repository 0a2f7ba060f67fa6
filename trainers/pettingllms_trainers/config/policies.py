"""The part of a configuration that says who plays."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, Field

from pettingllms_trainers.config.engine import Endpoints
from pettingllms_trainers.config.packaged import resolved_model
from pettingllms_trainers.config.section import Section

TINY = "tiny"
"""The model name that asks for a small model of random weights."""

_ADAPTER_FILE = "adapter_config.json"
_NAME = re.compile(r"\w[\w.-]*")


def base_of_adapter(model: str | Path) -> str | None:
    """Return the base model of a directory that holds a LoRA adapter; None for any other model."""
    directory = Path(model)
    if not (directory / _ADAPTER_FILE).is_file():
        return None
    if (directory / "base").is_dir():
        return str(directory / "base")
    try:
        settings = json.loads((directory / _ADAPTER_FILE).read_text(encoding="utf-8"))
        return str(settings["base_model_name_or_path"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{directory / _ADAPTER_FILE} names no base model ({type(error).__name__}: {error}). "
            "Write base_model_name_or_path there"
        ) from error


class LoraConfig(Section):
    """A LoRA adapter that is trained in place of the model's own weights."""

    rank: int = Field(default=0, ge=0, le=512)
    """Rank of the adapter; 0: there is none, all weights are trained. Policies of one model that
    have adapters share that model in memory, and on the vLLM servers. An adapter needs a higher
    learning rate than full weights do, often ten times: see optimizer.learning_rate."""
    alpha: int = Field(default=32, ge=1)
    """The adapter's part is scaled by alpha / rank."""
    targets: Literal["all-linear"] | tuple[str, ...] = "all-linear"
    """Names of the linear layers that get an adapter, such as q_proj and v_proj; all-linear: all of
    them but the output head."""
    base_precision: Literal["engine", "nf4"] = "engine"
    """In which the frozen base is stored beside the update. engine: engine.precision; nf4: the
    linear layers but the output head in four bits (QLoRA), computed with in engine.precision;
    engines get the same weights in full. All adapters of one base have the same. nf4 needs the
    extra pettingllms-trainers[quantised]; experimental on GPUs."""


class RequestsConfig(Section):
    """How a fixed policy asks the server of its model."""

    max_concurrency: int = Field(default=16, ge=1)
    """Requests under way at a time."""
    max_retries: int = Field(default=6, ge=0)
    """Further tries of a request that failed for a reason that may pass."""
    timeout_s: float = Field(default=300.0, gt=0)
    """Longest wait for one answer."""
    api_key_env: str = ""
    """Environment variable that holds the server's key. Empty: OpenAI's server and that of
    OPENAI_BASE_URL get the key in OPENAI_API_KEY, others none."""


class PolicyConfig(Section):
    """One set of weights, or a fixed policy, which has none."""

    model: Annotated[str, AfterValidator(resolved_model)] = ""
    """Hugging Face directory or hub name of a causal language model; a directory with a LoRA
    adapter, which is then trained further; "fetched:NAME", which `pettingllms-train fetch-model
    NAME` has put into the user's cache; or "tiny": a small one is built from the sizes below."""
    fixed: str = ""
    """Instead of a model: a policy that is not trained and gives one answer per decision. As in
    pettingllms eval: oracle or another scripted policy of the environment, noise,
    openai:MODEL@URL, hf:PATH, or another installed kind."""
    requests: RequestsConfig = RequestsConfig()
    lora: LoraConfig = LoraConfig()
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
    chat_template_kwargs: dict[str, Any] | None = None
    """Arguments of the tokenizer's chat template, also of a fixed policy behind hf: or openai:.
    Unless given: enable_thinking = false for a pretrained model whose completions are shorter than
    1024 tokens, in which it could not finish thinking; else none."""
    endpoints: Endpoints = ()
    """Addresses of the vLLM servers that generate for this policy when engine.kind is
    vllm_server, such as http://127.0.0.1:8000; all have the same model."""

    @property
    def has_adapter(self) -> bool:
        """Whether what is trained, or was, is a LoRA adapter."""
        return self.lora.rank > 0 or base_of_adapter(self.model) is not None

    @property
    def base(self) -> tuple[str, ...]:
        """Identity of the model's own weights: equal ones can be one model in memory."""
        if self.model == TINY:
            sizes = ("hidden_size", "num_layers", "num_heads", "max_length", "init_std")
            return (TINY, self.vocabulary, *(str(getattr(self, name)) for name in sizes))
        base = base_of_adapter(self.model) or self.model
        return (str(Path(base).resolve()) if Path(base).is_dir() else base,)


def check_name(name: str) -> None:
    """Raise `ValueError` unless a policy's name can be part of a path and of a metric's name."""
    if not _NAME.fullmatch(name):
        raise ValueError(
            f"a policy has the name {name!r}; allowed are letters, digits, _, - and ., and that it "
            "begins with none of the last two: its files and metrics are called after it"
        )


def check_kind(name: str, policy: PolicyConfig) -> None:
    """Raise `ValueError` unless a policy has a model or is fixed, and only keys that it uses."""
    if bool(policy.model) == bool(policy.fixed):
        raise ValueError(
            f"policies.{name} has model = {policy.model!r} and fixed = {policy.fixed!r}; name "
            "one of them: a model has weights, a fixed policy (oracle, openai:MODEL@URL) has none"
        )
    if policy.fixed:
        fields = PolicyConfig.model_fields
        given = {key for key in fields if getattr(policy, key) != fields[key].default}
        used = {"fixed", "requests"} | ({"chat_template_kwargs"} if ":" in policy.fixed else set())
        if unused := sorted(given - used):
            raise ValueError(
                f"policies.{name} has fixed = {policy.fixed!r}, which has no weights; remove "
                f"{', '.join(unused)}"
            )


def reads_prompts(policy: PolicyConfig) -> bool:
    """Return whether a policy is fixed and reads prompts, not the environment's state."""
    return policy.fixed == "noise" or (
        ":" in policy.fixed and not policy.fixed.startswith("scripted:")
    )


def base_groups(policies: Mapping[str, PolicyConfig]) -> list[tuple[str, ...]]:
    """Return the names of all policies, those that share one base model together.

    Policies with LoRA adapters share it, and frozen ones that play like the bare model; a policy
    whose own weights are trained is alone.
    """
    bases = {policy.base for policy in policies.values() if policy.has_adapter}
    groups: dict[tuple[str, ...], tuple[str, ...]] = {}
    for name, policy in policies.items():
        is_shared = policy.has_adapter or (policy.frozen and policy.base in bases)
        key = ("shared", *policy.base) if is_shared else ("own", name)
        groups[key] = (*groups.get(key, ()), name)
    return list(groups.values())
