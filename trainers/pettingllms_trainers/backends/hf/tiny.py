"""Tiny causal language models with a real tokenizer, as ordinary Hugging Face directories.

For training on a laptop, for tests, and for looking inside: everything that works with a model of
the hub works with these, and the other way round.
"""

from __future__ import annotations

import re
import string
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import tokenizers
import torch
from safetensors.torch import save_file
from tokenizers import decoders, pre_tokenizers
from tokenizers.models import WordLevel
from transformers import (
    GenerationConfig,
    PreTrainedTokenizerFast,
    Qwen3Config,
    Qwen3ForCausalLM,
)

from pettingllms.errors import InvalidArgument
from pettingllms_trainers.config import PolicyConfig

CHARACTERS = tuple(sorted(set(string.printable) - set("\t\r\x0b\x0c")))
"""Printable ASCII and newline: a vocabulary for any English text."""


_SPECIAL = {"pad_token": "<pad>", "bos_token": "<bos>", "eos_token": "<eos>", "unk_token": "<unk>"}

# The bos token stands where the answer begins: a tiny model needs a sign that the prompt is over.
_CHAT_TEMPLATE = (
    "{% for message in messages if message['content'] %}"
    "{% if not loop.first %}{{ '\\n\\n' }}{% endif %}{{ message['content'] }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ bos_token }}{% endif %}"
)


def build_tokenizer(vocabulary: Sequence[str], max_length: int = 1024) -> PreTrainedTokenizerFast:
    """A tokenizer of whole tokens: the longest known one first, unknown characters as unk.

    A text of known tokens is decoded to itself. The chat template joins the contents of the
    messages with an empty line and ends with the bos token, which says that the answer begins.

    Args:
        vocabulary: Tokens of one or more characters; not the special ones.
        max_length: Longest sequence of the model, for the tokenizer's warnings.

    Raises:
        InvalidArgument: The vocabulary is empty, repeats a token or names a special one.
    """
    tokens = list(_SPECIAL.values()) + list(vocabulary)
    if not vocabulary or "" in tokens or len(set(tokens)) < len(tokens):
        raise InvalidArgument(
            "vocabulary",
            f"{len(vocabulary)} tokens, {len(set(vocabulary))} different",
            f"different texts, none of them empty or among {', '.join(_SPECIAL.values())}",
            "remove what is there twice",
        )
    model = WordLevel({token: index for index, token in enumerate(tokens)}, unk_token="<unk>")
    inner = tokenizers.Tokenizer(model)
    # Any single character is a piece of its own, known or not: only longer tokens need naming.
    long = sorted({t for t in vocabulary if len(t) > 1}, key=lambda token: (-len(token), token))
    pattern = "|".join([*map(re.escape, long), r"[\s\S]"])
    inner.pre_tokenizer = pre_tokenizers.Split(tokenizers.Regex(pattern), "isolated")
    # Tokens are texts as they are: no spaces between them.
    inner.decoder = decoders.Fuse()
    return PreTrainedTokenizerFast(
        tokenizer_object=inner,
        model_max_length=max_length,
        padding_side="left",
        clean_up_tokenization_spaces=False,
        chat_template=_CHAT_TEMPLATE,
        **_SPECIAL,
    )


def build_tiny(
    directory: str | Path,
    *,
    vocabulary: Sequence[str] = CHARACTERS,
    hidden_size: int = 64,
    num_layers: int = 3,
    num_heads: int = 4,
    max_length: int = 1024,
    init_std: float = 0.02,
    seed: int = 0,
) -> Path:
    """Build a small Qwen3 with random weights and its tokenizer, and save both.

    Args:
        directory: Where to write; loaded with ``AutoModelForCausalLM`` and ``AutoTokenizer``.
        vocabulary: Tokens besides the special ones.
        hidden_size: Width; a multiple of twice the number of heads.
        num_layers: Layers.
        num_heads: Attention heads.
        max_length: Longest prompt and completion together, in tokens.
        init_std: Standard deviation of the random weights.
        seed: Decides the weights.

    Returns:
        The directory.

    Raises:
        InvalidArgument: Sizes that do not go together, or an unusable vocabulary.
    """
    if hidden_size % (2 * num_heads):
        raise InvalidArgument(
            "hidden_size", hidden_size, f"a multiple of {2 * num_heads} (twice num_heads)",
            f"take {max(1, hidden_size // (2 * num_heads)) * 2 * num_heads}",
        )  # fmt: skip
    tokenizer = build_tokenizer(vocabulary, max_length)
    sizes: dict[str, Any] = {
        "vocab_size": len(tokenizer),
        "hidden_size": hidden_size,
        "intermediate_size": 3 * hidden_size,
        "num_hidden_layers": num_layers,
        "num_attention_heads": num_heads,
        "num_key_value_heads": num_heads,
        "head_dim": hidden_size // num_heads,
        "max_position_embeddings": max_length,
        "tie_word_embeddings": True,
        "initializer_range": init_std,
        "pad_token_id": tokenizer.pad_token_id,
        "bos_token_id": tokenizer.bos_token_id,
        "eos_token_id": tokenizer.eos_token_id,
    }
    # The global generator is left alone.
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(Qwen3Config(**sizes))
    model.generation_config = GenerationConfig(
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=tokenizer.bos_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    # Not by `save_pretrained`: of several processes it lets one write, and each has a directory.
    model.config.architectures = [type(model).__name__]
    model.config.save_pretrained(directory)
    model.generation_config.save_pretrained(directory)
    weights = {name: weight.detach() for name, weight in model.named_parameters()}
    save_file(weights, Path(directory) / "model.safetensors", metadata={"format": "pt"})
    tokenizer.save_pretrained(directory)
    return Path(directory)


def build_policy(directory: str | Path, policy: PolicyConfig, seed: int = 0) -> Path:
    """Build the tiny model that a run file describes; see `build_tiny`."""
    return build_tiny(
        directory,
        vocabulary=tuple(dict.fromkeys(policy.vocabulary)) or CHARACTERS,
        hidden_size=policy.hidden_size,
        num_layers=policy.num_layers,
        num_heads=policy.num_heads,
        max_length=policy.max_length,
        init_std=policy.init_std,
        seed=seed,
    )
