"""What files on this machine say of a model, and what a micro-batch of it keeps while it learns.

Nothing is loaded or downloaded. Legend: N input tokens, M targets, B prompts, P prompt length,
C completions, T completion length.
"""

from __future__ import annotations

import functools
import math
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import peft
import torch
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, Qwen3Config
from transformers.pytorch_utils import Conv1D

from pettingllms.errors import FOREIGN, InvalidArgument
from pettingllms_trainers.backends.hf.adapters import (
    check_targets,
    linear_layers,
    new_settings,
    read_settings,
)
from pettingllms_trainers.backends.hf.chat import Chat, read_chat, unread_argument
from pettingllms_trainers.backends.hf.model import MAX_LOGITS
from pettingllms_trainers.backends.hf.tiny import CHARACTERS, build_policy, build_tokenizer
from pettingllms_trainers.config import Config, PolicyConfig
from pettingllms_trainers.config.sections import (
    PACKAGED,
    TINY,
    LoraConfig,
    base_of_adapter,
    model_directory,
)
from pettingllms_trainers.errors import ConfigError, reason_of
from pettingllms_trainers.types import Lengths


def model_problem(policy: PolicyConfig) -> str | None:
    """Why a model cannot be used, as far as files on this machine show; None if it can."""
    source = base_of_adapter(policy.model) or policy.model
    if problem := source_problem(source):
        return problem
    if getattr(_config(source), "is_encoder_decoder", False):
        return "it is an encoder-decoder model: choose a causal one, which continues its prompt"
    tokenizer = tokenizer_of(policy)
    if tokenizer is not None and tokenizer.chat_template is None:
        return (
            "its tokenizer has no chat template, so it cannot read messages: choose an "
            "instruction-tuned model, or set `tokenizer.chat_template` and save it"
        )
    given = policy.chat_template_kwargs or {}
    if tokenizer is not None and (unread := unread_argument(tokenizer, given)):
        return (
            f"its chat template reads no {unread!r}: chat_template_kwargs.{unread} would change "
            "nothing. Remove it, or write it as the template does"
        )
    if policy.tool_parser and tokenizer is not None and unread_argument(tokenizer, {"tools": []}):
        return (
            "its chat template takes no tools, so that it calls none in a format of its own: "
            f"tool_parser = {policy.tool_parser!r} would change nothing. Remove it"
        )
    return None


def chat_of(policy: PolicyConfig) -> Chat | None:
    """How a policy reads and writes; None: its tokenizer is not on this machine, or cannot chat."""
    tokenizer = tokenizer_of(policy)
    if tokenizer is None or tokenizer.chat_template is None:
        return None
    stored = read_chat(policy.model)
    return Chat.of(tokenizer, stored, policy.chat_template_kwargs, policy.tool_parser)


def source_problem(source: str) -> str | None:
    """Why there is no model where a source says, as far as this machine shows; None if it may be.

    Args:
        source: Directory or hub name.
    """
    path = Path(source)
    if path.is_dir():
        if (path / "config.json").is_file():
            return None
        return (
            "the directory has no config.json, so it holds no model of transformers. Name the "
            "directory that save_pretrained has written"
        )
    for name in PACKAGED:
        if path == model_directory(name):
            return f"it is not here yet; run: pettingllms-train fetch-model {name}"
    # What else looks like a path is not a hub name, and need not be looked for there.
    if path.is_absolute() or source.startswith((".", "~")) or source.count("/") > 1:
        return "there is no such directory"
    return None


def context_length(policy: PolicyConfig) -> int | None:
    """The longest prompt and completion together, in tokens; None where nothing says it."""
    if policy.model == TINY:
        return policy.max_length
    config = _config(base_of_adapter(policy.model) or policy.model)
    text = config.get_text_config() if config is not None else None
    return getattr(text, "max_position_embeddings", None)


def _config(source: str) -> Any:
    """The configuration of a model that is on this machine, or None."""
    try:
        return AutoConfig.from_pretrained(source, local_files_only=True) if source != TINY else None
    except FOREIGN:  # whoever loads it is told
        return None


def tokenizer_of(policy: PolicyConfig) -> Any:
    """The tokenizer of a policy that is on this machine, or None."""
    return _tokenizer(policy.model, policy.vocabulary)


@functools.cache
def _tokenizer(model: str, vocabulary: str) -> Any:
    if model == TINY:
        return build_tokenizer(tuple(dict.fromkeys(vocabulary)) or CHARACTERS)
    try:
        return AutoTokenizer.from_pretrained(model, local_files_only=True)
    except FOREIGN:  # whoever loads it is told
        return None


_PUBLISHED: dict[str, tuple[int, int, int, int, int, bool]] = {
    # Hidden size, feed-forward size, layers, query heads, key-value heads, tied embeddings.
    # Source: the config.json of each model, and table 1 of the Qwen3 report (arXiv 2505.09388).
    "Qwen/Qwen3-0.6B": (1024, 3072, 28, 16, 8, True),
    "Qwen/Qwen3-1.7B": (2048, 6144, 28, 16, 8, True),
    "Qwen/Qwen3-4B": (2560, 9728, 36, 32, 8, True),
    "Qwen/Qwen3-8B": (4096, 12288, 36, 32, 8, False),
    "Qwen/Qwen3-14B": (5120, 17408, 40, 40, 8, False),
    "Qwen/Qwen3-32B": (5120, 25600, 64, 64, 8, False),
}


class ModelShape(NamedTuple):
    """The sizes of a model that its memory depends on."""

    num_parameters: int
    """All weights, tied ones once."""
    num_trained: int
    """Weights that are trained: those of the adapter, or all."""
    num_matrix_parameters: int
    """Weights of linear layers, the output head included."""
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    """Query heads."""
    query_size: int
    """Query heads times head size."""
    key_value_size: int
    """Key-value heads times head size."""
    has_head_norms: bool
    """Whether queries and keys are normalised."""
    vocab_size: int
    context_length: int | None
    """Longest prompt and completion together, in tokens; None where nothing says it."""
    source: str
    """Where the sizes come from, for people."""

    @property
    def cache_size(self) -> int:
        """Numbers that a token leaves in a KV cache."""
        return 2 * self.key_value_size * self.num_layers


def shape_of(name: str, policy: PolicyConfig) -> ModelShape:
    """The sizes of a policy's model, without loading or downloading weights.

    Raises:
        ConfigError: There is no configuration of this model, and it is not a published one; or it
            cannot have these sizes, or this adapter.
    """
    base = base_of_adapter(policy.model)
    try:
        if policy.model == TINY:
            return counted(_tiny_config(policy), "sizes in the run file", policy.lora)
        lora: Any = policy.lora  # frozen, so that it has a hash, which its type does not say
        return _shape(base or policy.model, lora, policy.model if base else "")
    except InvalidArgument as error:
        raise ConfigError(f"[policies.{name}]: {error}") from error
    except (OSError, ValueError) as error:
        raise ConfigError(
            f"[policies.{name}] model = {policy.model!r}: its config.json cannot be read "
            f"({reason_of(error)}). Name a directory with it, or download the model first; without "
            f"a network only these are known: {', '.join(_PUBLISHED)}"
        ) from error


def _tiny_config(policy: PolicyConfig) -> Any:
    with tempfile.TemporaryDirectory(prefix="pettingllms-") as folder:
        build_policy(folder, policy)
        return AutoConfig.from_pretrained(folder)


@functools.cache
def _shape(source: str, lora: LoraConfig, adapter: str) -> ModelShape:
    """Look on this machine, then among the published sizes, then on the hub: the first is fast."""
    where = "directory" if Path(source).is_dir() else "cache"
    config, origin = _config(source), f"config.json in the {where}"
    if config is None and source in _PUBLISHED:
        config, origin = published_config(source), "published sizes, no config.json here"
    elif config is None:
        config, origin = AutoConfig.from_pretrained(source), "config.json of the hub"
    return counted(config, origin, lora, adapter)


def published_config(source: str) -> Qwen3Config:
    """The configuration of a published model, without looking for its files."""
    hidden, intermediate, layers, heads, key_value_heads, is_tied = _PUBLISHED[source]
    return Qwen3Config(
        vocab_size=151936,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=key_value_heads,
        head_dim=128,
        max_position_embeddings=40960,
        tie_word_embeddings=is_tied,
    )


_NO_ADAPTER = LoraConfig()


def counted(
    config: Any, source: str, lora: LoraConfig = _NO_ADAPTER, adapter: str = ""
) -> ModelShape:
    """The sizes of a model that is built without memory.

    Args:
        config: Configuration of transformers.
        source: Where the configuration is from, for people.
        lora: The adapter that it gets, if that has a rank.
        adapter: Directory of the adapter that it has; empty: none.

    Raises:
        InvalidArgument: The model cannot have this adapter.
    """
    text = config.get_text_config()
    # Counted on the real modules, as formulas differ between families.
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    num_heads = text.num_attention_heads
    head_size = getattr(text, "head_dim", None) or text.hidden_size // num_heads
    # Inputs and outputs: GPT-2 has its matrices the other way round.
    sizes = [
        (m.in_features, m.out_features) if isinstance(m, torch.nn.Linear) else (m.nx, m.nf)
        for m in model.modules()
        if isinstance(m, torch.nn.Linear | Conv1D)
    ]
    return ModelShape(  # before the model gets an adapter, whose layers are linear too
        num_parameters=sum(p.numel() for p in model.parameters()),
        has_head_norms=any(name.endswith("q_norm") for name, _ in model.named_modules()),
        num_trained=_num_trained(model, lora, adapter),
        num_matrix_parameters=sum(read * written for read, written in sizes),
        hidden_size=text.hidden_size,
        # Families without the name, or that leave the size open: the widest input is that of down.
        intermediate_size=getattr(text, "intermediate_size", None) or max(sizes)[0],
        num_layers=text.num_hidden_layers,
        num_heads=num_heads,
        query_size=num_heads * head_size,
        key_value_size=(getattr(text, "num_key_value_heads", None) or num_heads) * head_size,
        vocab_size=text.vocab_size,
        context_length=getattr(text, "max_position_embeddings", None),
        source=source,
    )


def _num_trained(model: Any, lora: LoraConfig, adapter: str) -> int:
    if adapter or lora.rank:
        layers = linear_layers(model)
        settings = read_settings(Path(adapter)) if adapter else new_settings(layers, lora)
        check_targets(settings.target_modules or (), layers)
        with torch.device("meta"):
            model = peft.get_peft_model(model, settings)
    return sum(p.numel() for p in model.parameters() if p.requires_grad)


_FLOAT, _HALF = 4, 2
_LOGIT_BYTES = 16
"""Per logit at its peak: in float32, its log-softmax, and two to compute the entropy."""


class _SavedBytes(NamedTuple):
    """Bytes per token and layer that are kept for the backward pass, by what they grow with.

    Counted with `torch.autograd.graph.saved_tensors_hooks`.
    """

    hidden: float
    """Inputs of both norms in float32, normalised, and as inputs of q, k, v, gate and up."""
    intermediate: float
    """Gate before and after its activation, up, and the input of down."""
    query: float
    """Queries, output of the attention, and the input of o."""
    head_norm: float
    """Inputs of the norms of queries and keys, where the model has these."""
    number: int
    """Bytes of a key or value."""
    residual: int
    """Bytes of a hidden number that one layer passes to the next."""


_KEPT: dict[str, _SavedBytes] = {
    "float32": _SavedBytes(24, 16, 12, 8, _FLOAT, _FLOAT),
    # Frozen norms keep no normalised copy.
    "float32 adapter": _SavedBytes(16, 16, 12, 4, _FLOAT, _FLOAT),
    # Each product has a cast copy of its input.
    "bfloat16": _SavedBytes(26, 8, 6, 6, _HALF, _FLOAT),
    "bfloat16 weights": _SavedBytes(16, 8, 6, 6, _HALF, _HALF),
    # An adapter keeps the input of its layer, which is that of its neighbours, and little else.
    "bfloat16 adapter": _SavedBytes(12, 8, 6, 4, _HALF, _HALF),
}


class MicroBatchSize(NamedTuple):
    """The size of the largest micro-batch."""

    num_tokens: int
    """N: input tokens."""
    num_targets: int
    """M: target tokens, whose logits alone are computed."""
    num_prompts: int
    """B: prompts; with padding one for each completion."""
    num_completions: int
    """C: completions."""

    @classmethod
    def of(
        cls, lengths: Lengths, num_candidates: int, max_tokens: int, *, is_packed: bool
    ) -> MicroBatchSize:
        """As many groups as fit into some tokens; one completion at least."""
        prompt, completion = lengths
        # The last token of a completion predicts nothing that was sampled: it is not an input.
        own = max(completion - 1, 1)
        of_group = num_candidates * own + prompt * (1 if is_packed else num_candidates)
        num_tokens = max(max_tokens, prompt + own)
        num_completions = max(1, num_tokens * num_candidates // of_group)
        num_prompts = max(1, num_tokens // of_group) if is_packed else num_completions
        return cls(num_tokens, num_completions * completion, num_prompts, num_completions)


def micro_batch_sizes(
    config: Config, lengths: Lengths, num_groups: int | None
) -> list[MicroBatchSize]:
    """The largest micro-batches of train steps and of the warm start."""
    algorithm, optimizer = config.algorithm, config.optimizer
    of_decision, is_packed = algorithm.candidates_per_decision, optimizer.packing
    group_sizes = {of_decision} | ({1} if optimizer.shuffle else set())
    if is_packed:  # decisions of one prompt may be joined
        group_sizes.add(of_decision * algorithm.episodes_per_level)
    found: list[tuple[int, int]] = []  # completions of a group, tokens of all groups
    for number in sorted(group_sizes):
        of_prompt = min(algorithm.usual_candidates * algorithm.episodes_per_level, number)
        of_step = math.ceil((num_groups or 0) * of_decision / number)
        most = math.ceil(optimizer.completions_per_minibatch / of_prompt) or of_step
        copies = 1 if is_packed else number
        of_group = number * (lengths.completion - 1) + copies * lengths.prompt
        found.append((number, min(most, of_step) * of_group))
    if config.warm_start.num_steps:
        found.append((1, config.warm_start.batch_size * (sum(lengths) - 1)))
    most_tokens = optimizer.tokens_per_microbatch
    return [
        MicroBatchSize.of(
            lengths,
            number,
            most_tokens if num_groups is None else min(most_tokens, needed),
            is_packed=is_packed,
        )
        for number, needed in found
    ]


def token_bytes(shape: ModelShape, kind: str) -> float:
    """What a layer keeps of a token for the backward pass, in bytes."""
    kept = _KEPT[kind]
    norms = kept.head_norm * shape.has_head_norms
    return (
        kept.hidden * shape.hidden_size
        + kept.intermediate * shape.intermediate_size
        + (kept.query + norms) * shape.query_size
        + (2 * kept.number + norms) * shape.key_value_size
    )


def activation_bytes(
    config: Config, shape: ModelShape, lengths: Lengths, size: MicroBatchSize, kind: str
) -> int:
    """What a micro-batch takes at its peak: the end of the forward pass."""
    kept, optimizer = _KEPT[kind], config.optimizer
    layer = size.num_tokens * token_bytes(shape, kind)
    if optimizer.packing and optimizer.packed_attention != "flex":
        # Packed rows are padded to one length, and have a copy of their prompt's keys and values.
        keys = size.num_prompts * lengths.prompt + size.num_completions * sum(lengths)
        layer += 2 * kept.number * shape.key_value_size * (keys - size.num_tokens)
    logits = size.num_targets * shape.vocab_size
    # More logits than these are computed in chunks, unless the output layer's weights are sharded.
    chunk = logits if config.shards_weights else max(MAX_LOGITS, shape.vocab_size)
    head = _LOGIT_BYTES * min(logits, chunk)
    if kind in ("bfloat16 weights", "bfloat16 adapter"):
        head += _FLOAT * shape.vocab_size * shape.hidden_size  # the output layer in float32
    if optimizer.gradient_checkpointing:
        entries = kept.residual * size.num_tokens * shape.hidden_size * shape.num_layers
        return round(entries + max(head, layer))
    return round(layer * shape.num_layers + head)
