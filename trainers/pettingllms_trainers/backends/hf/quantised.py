"""Fewer bits, by bitsandbytes: a frozen base in NF4, the moments of AdamW in eight bits.

Sources: QLoRA (arXiv 2305.14314), but without a second quantisation, of the blocks' maxima: weights
that are read back and quantised again stay as they are; 8-bit optimizers (arXiv 2110.02861).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel
from transformers.utils.versions import require_version

from pettingllms_trainers.config import OptimizerConfig
from pettingllms_trainers.errors import MissingPackage

_REQUIREMENT = "bitsandbytes>=0.49"


def check_bitsandbytes(key: str) -> Any:
    """The package.

    Raises:
        MissingPackage: It is not installed, too old, or cannot be loaded.
    """
    try:
        require_version(_REQUIREMENT)
        return import_module("bitsandbytes")
    except (ImportError, OSError, RuntimeError) as error:
        raise MissingPackage(key, "bitsandbytes", "quantised", error) from error


def quantise(model: PreTrainedModel, device: str | torch.device) -> None:
    """Replace the weights of all linear layers but the output head by NF4, each on its way there.

    The device never holds more than one of them in full. They are computed with in the precision
    that they had.

    Raises:
        MissingPackage: See `check_bitsandbytes`.
    """
    layers = check_bitsandbytes('lora.base_precision = "nf4"').nn
    head = model.get_output_embeddings()
    for path, layer in list(model.named_modules()):
        if type(layer) is not nn.Linear or layer is head:
            continue
        with torch.device("meta"):
            new = layers.Linear4bit(
                layer.in_features, layer.out_features, bias=False, compute_dtype=layer.weight.dtype
            )
        new.weight = layers.Params4bit(
            layer.weight.data, quant_type="nf4", compress_statistics=False, module=new
        )
        new.bias = layer.bias
        # Its way to infer on such CPUs computes in bfloat16, and leaves weights without a gradient.
        new.support_avx512bf16_for_cpu = False
        model.set_submodule(path, new.to(device))
    quantised: Any = model.to(device)  # pyright: ignore[reportArgumentType]
    quantised.is_loaded_in_4bit = True  # what peft asks


def full_weight(parameter: nn.Parameter) -> Tensor:
    """A weight as it is computed with: from four bits, in the precision that it had."""
    state = getattr(parameter, "quant_state", None)
    if state is None:
        return parameter.detach()
    functional = import_module("bitsandbytes.functional")
    return functional.dequantize_4bit(parameter.data, state)


def adamw_8bit(
    groups: Sequence[Mapping[str, Any]], config: OptimizerConfig
) -> torch.optim.Optimizer:
    """AdamW whose moments have eight bits; those of less than 4,096 weights have all.

    Raises:
        MissingPackage: See `check_bitsandbytes`.
    """
    return check_bitsandbytes("optimizer.state_bits = 8").optim.AdamW8bit(
        groups, lr=config.learning_rate, betas=config.betas, weight_decay=config.weight_decay
    )
