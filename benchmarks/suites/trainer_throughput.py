"""Generation and update of the trainer, against `transformers.generate` and a plain loop.

    python benchmarks/suites/trainer_throughput.py

Two workloads on random weights: `shared_prompts` (0.43 M parameters, 32 prompts of 128 tokens, 8
completions of 64 tokens each) and `short_turns` (0.17 M parameters, 48 prompts of 40 to 80 tokens,
8 completions of 12 tokens each: a train step of the embedded default is six of these and their
update). No end token is sampled, so every variant writes the same number of tokens.

The plain update computes what ours computes: clipped loss on the completion tokens, entropy bonus,
gradient clipping, AdamW, 16 rows at a time, logits of completion tokens only. Every round runs
every variant once, in CPU seconds of one thread; ratios are formed within a round. Written is the
median over the rounds with the minimum and maximum value.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import measuring
import torch
from transformers import GenerationConfig, PreTrainedModel, Qwen3Config, Qwen3ForCausalLM

from pettingllms_trainers.backends.hf.attention import use_layouts
from pettingllms_trainers.backends.hf.engine import ExpandedDecoder, SharedPrefixDecoder, generate
from pettingllms_trainers.backends.hf.model import LoadedModel
from pettingllms_trainers.backends.hf.policy import TransformersPolicy
from pettingllms_trainers.backends.hf.tiny import CHARACTERS, build_tokenizer
from pettingllms_trainers.backends.hf.updater import TrainingSettings
from pettingllms_trainers.config import EngineConfig, LossConfig, OptimizerConfig
from pettingllms_trainers.types import (
    GenerateRequest,
    RequestLimits,
    SamplingSettings,
    TrainingCompletion,
    TrainingGroup,
)

TOKENIZER = build_tokenizer(CHARACTERS)
LOSS = LossConfig(clip_low=0.2, clip_high=0.28, entropy_coefficient=0.02)
LEARNING_RATE = 1e-5


class Workload(NamedTuple):
    """Sizes of a model and of the data it is run on."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int
    num_heads: int
    num_key_value_heads: int
    num_prompts: int
    num_candidates: int
    prompt_lengths: tuple[int, int]
    completion_length: int
    completions_per_minibatch: int


WORKLOADS = {
    "shared_prompts": Workload(1024, 128, 256, 2, 4, 2, 32, 8, (128, 128), 64, 0),
    "short_turns": Workload(32, 64, 192, 3, 4, 4, 48, 8, (40, 80), 12, 0),
}


def build_model(load: Workload) -> PreTrainedModel:
    """Return a peaked random model without an end token."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=load.vocab_size,
        hidden_size=load.hidden_size,
        intermediate_size=load.intermediate_size,
        num_hidden_layers=load.num_layers,
        num_attention_heads=load.num_heads,
        num_key_value_heads=load.num_key_value_heads,
        head_dim=load.hidden_size // load.num_heads,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        initializer_range=0.2,
        eos_token_id=None,
    )
    model = Qwen3ForCausalLM(config).eval()
    use_layouts(model)
    return model


def build_requests(load: Workload, seed: int) -> list[GenerateRequest]:
    """Return the requests of one round."""
    rng = random.Random(seed)
    sampling = SamplingSettings(max_completion_tokens=load.completion_length)
    return [
        GenerateRequest(
            prompt_ids=tuple(rng.choices(range(4, load.vocab_size), k=length)),
            num_candidates=load.num_candidates,
            sampling=sampling,
            seed=rng.randrange(2**40),
        )
        for length in (rng.randint(*load.prompt_lengths) for _ in range(load.num_prompts))
    ]


def our_generation(decoder: type, model: PreTrainedModel) -> Callable[..., Any]:
    """Return our engine with one of its decoders."""
    limits = RequestLimits(
        max_batch_tokens=10**6, context_length=512, vocab_size=model.config.vocab_size
    )

    def run(requests: list[GenerateRequest]) -> Any:
        # Ids beyond the tokenizer's vocabulary decode to nothing: only ids are compared here.
        return generate(decoder(model), requests, tokenizer=TOKENIZER, stop_ids=(), limits=limits)

    return run


def their_generation(model: PreTrainedModel) -> Callable[..., Any]:
    """Return `generate` of transformers: left-padded prompts, one row per candidate."""

    def run(requests: list[GenerateRequest]) -> Any:
        rows = [r.prompt_ids for r in requests for _ in range(r.num_candidates)]
        length = max(len(row) for row in rows)
        ids = torch.tensor([(0,) * (length - len(row)) + row for row in rows])
        mask = torch.tensor([(0,) * (length - len(row)) + (1,) * len(row) for row in rows])
        settings = GenerationConfig(
            do_sample=True, top_k=0, max_new_tokens=requests[0].sampling.max_completion_tokens,
            pad_token_id=0, eos_token_id=None,
        )  # fmt: skip
        model.set_attn_implementation("sdpa")
        output = model.generate(ids, attention_mask=mask, generation_config=settings)
        use_layouts(model)
        return output

    return run


def our_update(model: PreTrainedModel, load: Workload, packing: bool) -> Callable[..., Any]:
    """Return our update, packed or on padded rows."""
    optimizer = OptimizerConfig(
        learning_rate=LEARNING_RATE,
        tokens_per_microbatch=2048,
        completions_per_minibatch=load.completions_per_minibatch,
        packing=packing,
    )
    settings = TrainingSettings(
        loss=LOSS, optimizer=optimizer, num_steps=10**6, max_completion_tokens=64, seed=0
    )
    policy = TransformersPolicy(
        LoadedModel(model, TOKENIZER), engine=EngineConfig(), training=settings
    )
    assert policy.updater is not None
    return policy.updater.update


def plain_update(model: PreTrainedModel) -> Callable[..., Any]:
    """Return a plain training loop: rows of prompt and completion, padded."""
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=LEARNING_RATE, betas=(0.9, 0.95), weight_decay=0.0, fused=True
    )

    def run(groups: list[TrainingGroup]) -> None:
        pairs = [(g.prompt_ids, c) for g in groups for c in g.completions]
        total = sum(len(c.token_ids) for _, c in pairs)
        model.set_attn_implementation("sdpa")
        for start in range(0, len(pairs), 16):
            plain_loss(model, pairs[start : start + 16], total).backward()
        use_layouts(model)
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()

    return run


def plain_loss(model: PreTrainedModel, pairs: list[Any], total: int) -> torch.Tensor:
    """Return the clipped loss of some rows; prompts are padded on the left."""
    longest = max(len(prompt) for prompt, _ in pairs)
    pads = [longest - len(prompt) for prompt, _ in pairs]
    ids = torch.tensor(
        [(0,) * pad + prompt + c.token_ids for pad, (prompt, c) in zip(pads, pairs, strict=True)]
    )
    mask = (torch.arange(ids.shape[1]) >= torch.tensor(pads)[:, None]).long()
    length = len(pairs[0][1].token_ids)
    logits = model(
        input_ids=ids, attention_mask=mask, position_ids=(mask.cumsum(1) - 1).clamp(min=0),
        use_cache=False, logits_to_keep=length + 1,
    ).logits[:, :-1]  # fmt: skip
    all_logprobs = logits.log_softmax(-1)
    logprobs = all_logprobs.gather(2, ids[:, -length:, None]).squeeze(2)
    entropy = -(all_logprobs.exp() * all_logprobs).sum(-1)
    old = torch.tensor([c.logprobs for _, c in pairs])
    advantages = torch.tensor([[c.advantage] for _, c in pairs])
    ratio = (logprobs - old).exp()
    clipped = ratio.clamp(1 - LOSS.clip_low, 1 + LOSS.clip_high)
    surrogate = torch.minimum(ratio * advantages, clipped * advantages)
    return -(surrogate + LOSS.entropy_coefficient * entropy).sum() / total


def as_groups(requests: list[GenerateRequest], completions: Any, seed: int) -> list[TrainingGroup]:
    """Return what was sampled as training data with random advantages."""
    rng = random.Random(seed)
    return [
        TrainingGroup(
            role="role",
            prompt_ids=request.prompt_ids,
            completions=tuple(
                TrainingCompletion(c.token_ids, c.logprobs, rng.gauss(0, 1)) for c in group
            ),
        )
        for request, group in zip(requests, completions, strict=True)
    ]


def measure(load: Workload, model: PreTrainedModel, num_rounds: int) -> dict[str, Any]:
    """Time all variants of a workload in interleaved rounds; the first round is thrown away."""
    # Our policy changes how the layers of its model compute: transformers alone has its own.
    plain = copy.deepcopy(model)
    generations = {
        "generate_shared_prefix": our_generation(SharedPrefixDecoder, model),
        "generate_expanded": our_generation(ExpandedDecoder, model),
        "generate_transformers": their_generation(plain),
    }
    updates = {
        "update_packed": our_update(model, load, True),
        "update_padded": our_update(model, load, False),
        "update_plain": plain_update(plain),
    }
    seconds: dict[str, list[float]] = {name: [] for name in (*generations, *updates)}
    for seed in range(num_rounds + 1):
        requests = build_requests(load, seed)
        sampled = None
        for name, work in generations.items():
            spent, result = measuring.timed(partial(work, requests))
            sampled = result if sampled is None else sampled
            seconds[name].append(spent.cpu_s)
        groups = as_groups(requests, sampled, seed)
        for name, work in updates.items():
            seconds[name].append(measuring.timed(partial(work, groups))[0].cpu_s)
    seconds = {name: values[1:] for name, values in seconds.items()}
    return summary(load, model, seconds)


def summary(
    load: Workload, model: PreTrainedModel, seconds: dict[str, list[float]]
) -> dict[str, Any]:
    """Return rates and ratios of a workload."""
    num_completions = load.num_prompts * load.num_candidates
    num_sampled = num_completions * load.completion_length
    num_prompt = sum(load.prompt_lengths) / 2 * load.num_prompts
    ratios = {
        "generate_speedup_over_transformers": ("generate_transformers", "generate_shared_prefix"),
        "generate_expanded_speedup_over_transformers": (
            "generate_transformers",
            "generate_expanded",
        ),
        "update_speedup_over_plain": ("update_plain", "update_packed"),
        "update_padded_speedup_over_plain": ("update_plain", "update_padded"),
    }
    return {
        "workload": load._asdict() | {"num_parameters": model.num_parameters()},
        "sampled_tokens": num_sampled,
        "tokens_seen_by_a_padded_update": num_sampled + int(num_prompt) * load.num_candidates,
        "seconds": {name: measuring.spread(values) for name, values in seconds.items()},
        "sampled_tokens_per_s": {
            name: measuring.spread([num_sampled / value for value in values])
            for name, values in seconds.items()
        },
        "ratios": {
            name: measuring.ratios(seconds[slow], seconds[fast])
            for name, (slow, fast) in ratios.items()
        },
    }


def main() -> None:
    """Run the suite and write its result file."""
    parser = measuring.parser_of("trainer_throughput", __doc__)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    result = measuring.frame("trainer_throughput", range(1, arguments.rounds + 1))
    result["workloads"] = {
        name: measure(load, build_model(load), arguments.rounds) for name, load in WORKLOADS.items()
    }
    measuring.write(result, arguments.output)
    for name, found in result["workloads"].items():
        for variant, values in (found["ratios"] | found["seconds"]).items():
            spread = f"{values['min']} .. {values['max']}"
            print(f"{name:15} {variant:45} {values['median']:6.3f}  {spread}")


if __name__ == "__main__":
    main()
