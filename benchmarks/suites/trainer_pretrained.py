"""Train steps, generation and update on a pretrained model, beside TRL and transformers.

    pettingllms-train fetch-model smollm2
    python benchmarks/suites/trainer_pretrained.py --trl-python PYTHON

One run compares, on the weights of SmolLM2-135M-Instruct in float32, train steps with those of
TRL's `GRPOTrainer` (as in trainer_trl.py), generation with `transformers.generate` and the update
with a plain loop of forward and backward passes (as in trainer_throughput.py). Prompts are random
tokens, a tokenizer with one token per word replaces that of the model, and no end token can be
sampled: so every side reads, writes and trains exactly the same number of tokens, which is checked.
Times are CPU seconds of one thread; ratios are formed within a round.
"""

from __future__ import annotations

import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import measuring
import torch
import trainer_throughput
import trainer_trl
from trainer_words import Shape, Size, save_tokenizer
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.utils import logging as transformers_logging

from pettingllms_trainers.backends.hf.attention import use_layouts
from pettingllms_trainers.config.packaged import model_directory

SHAPES = {
    # Lengths as in the recipe of `make train-llm`.
    "short_answers": Shape(2, 32, 8, 8),
    "long_completions": Shape(2, 16, 8, 32),
}


def endless(source: Path) -> PreTrainedModel:
    """Return the model, in float32, with nothing that ends a completion."""
    model: Any = AutoModelForCausalLM.from_pretrained(source, dtype=torch.float32)
    model.config.eos_token_id = None
    model.generation_config.eos_token_id = None
    return model.eval()


def save_endless(source: Path, size: Size, directory: Path) -> None:
    """Write that model with a tokenizer of one token per word."""
    endless(source).save_pretrained(directory)
    save_tokenizer(size.vocab_size, directory)


def measure(
    source: Path,
    shape: Shape,
    python: str,
    micro_batch: trainer_trl.MicroBatchSizes,
    num_rounds: int,
) -> dict[str, Any]:
    """Return the figures of a shape: against TRL, and against transformers alone."""
    model = endless(source)
    config: Any = model.config
    size = Size(
        config.vocab_size, config.hidden_size, config.intermediate_size, config.num_hidden_layers
    )
    beside_trl = trainer_trl.measure(
        size, shape, python, micro_batch, num_rounds, save=partial(save_endless, source)
    )
    use_layouts(model)
    load = trainer_throughput.Workload(
        *size,
        config.num_attention_heads,
        config.num_key_value_heads,
        shape.num_prompts,
        shape.num_candidates,
        (shape.prompt_length, shape.prompt_length),
        shape.completion_length,
        0,
    )
    alone = trainer_throughput.measure(load, model, num_rounds)
    ratios = beside_trl["ratios"] | alone["ratios"]
    return {"shape": shape._asdict(), "ratios": ratios, "trl": beside_trl, "transformers": alone}


def main() -> None:
    """Measure all shapes and write the result."""
    parser = measuring.parser_of("trainer_pretrained", __doc__)
    parser.add_argument("--trl-python", required=True, help="interpreter with TRL 1.16 installed")
    parser.add_argument("--model", type=Path, default=model_directory("smollm2"))
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument(
        "--our-tokens", type=int, default=0, help="of a micro-batch; 0: as many as TRL's rows hold"
    )
    parser.add_argument("--trl-rows", type=int, default=16, help="of a micro-batch")
    parser.add_argument("--shapes", nargs="+", choices=SHAPES, default=list(SHAPES))
    options = parser.parse_args()
    micro_batch = trainer_trl.MicroBatchSizes(options.our_tokens, options.trl_rows)
    torch.set_num_threads(1)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    transformers_logging.disable_progress_bar()
    result = measuring.frame("trainer_pretrained", range(options.rounds))
    result["model"] = "SmolLM2-135M-Instruct, float32"
    result["shapes"] = {}
    for name in options.shapes:
        result["shapes"][name] = measure(
            options.model, SHAPES[name], options.trl_python, micro_batch, options.rounds
        )
        print(name, json.dumps(result["shapes"][name]["ratios"], indent=2), file=sys.stderr)
        measuring.write(result, options.output)


if __name__ == "__main__":
    main()
