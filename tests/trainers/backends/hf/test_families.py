"""Every causal family of transformers: right, right in the plain way, or refused; and recorded.

As a program this file records what it finds for the documentation.
"""

from __future__ import annotations

import contextlib
import io
import json
import logging
import re
import warnings
from pathlib import Path
from typing import Any

import pytest
import torch
import transformers
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from pettingllms.errors import InvalidArgument, PettingLLMsError
from pettingllms_trainers.backends.hf.model import LoadedModel
from pettingllms_trainers.backends.hf.policy import TransformersPolicy
from pettingllms_trainers.backends.hf.self_check import check_model
from pettingllms_trainers.backends.hf.tiny import CHARACTERS, build_tokenizer
from pettingllms_trainers.backends.hf.updater import TrainingSettings
from pettingllms_trainers.config import EngineConfig, LossConfig, OptimizerConfig
from pettingllms_trainers.types import (
    GenerateRequest,
    SamplingSettings,
    TrainingCompletion,
    TrainingGroup,
)

torch.set_num_threads(1)

RESULTS = Path(__file__).parents[4] / "docs" / "model_families.json"
VOCABULARY = 96
TOKENIZER = build_tokenizer(CHARACTERS)

_SIZES: dict[str, Any] = {
    "vocab_size": VOCABULARY,
    "vocab_size_per_layer_input": VOCABULARY,
    **dict.fromkeys(("hidden_size", "d_model", "n_embd", "dim", "embedding_size"), 32),
    **dict.fromkeys(
        ("intermediate_size", "ffn_dim", "d_ff", "n_inner", "ffn_hidden_size", "d_inner"), 48
    ),
    **dict.fromkeys(("moe_intermediate_size", "shared_expert_intermediate_size"), 16),
    **dict.fromkeys(("shared_intermediate_size", "expert_ffn_hidden_size"), 16),
    **dict.fromkeys(
        ("num_hidden_layers", "n_layer", "num_layers", "n_layers", "decoder_layers"), 4
    ),
    **dict.fromkeys(("num_attention_heads", "n_head", "num_heads", "n_heads"), 4),
    **dict.fromkeys(("decoder_attention_heads", "attention_heads"), 4),
    "num_key_value_heads": 2,
    **dict.fromkeys(("head_dim", "kv_channels", "attention_head_dim"), 8),
    **dict.fromkeys(("max_position_embeddings", "n_positions", "n_ctx", "max_seq_len"), 96),
    **dict.fromkeys(("max_sequence_length", "context_length"), 96),
    **dict.fromkeys(("sliding_window", "attention_window_size", "window_size"), 6),
    **dict.fromkeys(("num_experts", "num_local_experts", "n_routed_experts", "moe_num_experts"), 4),
    **dict.fromkeys(("num_experts_per_tok", "moe_k", "moe_topk"), 2),
    **dict.fromkeys(("n_group", "num_expert_group", "topk_group"), 1),
    "first_k_dense_replace": 1,
    **dict.fromkeys(("q_lora_rank", "kv_lora_rank"), 16),
    **dict.fromkeys(("qk_nope_head_dim", "v_head_dim", "qk_rope_head_dim"), 8),
    "lru_width": 32,
    **dict.fromkeys(("linear_num_key_heads", "linear_num_value_heads"), 2),
    **dict.fromkeys(("linear_key_head_dim", "linear_value_head_dim"), 16),
    **dict.fromkeys(("mamba_n_heads", "mamba_num_heads", "n_mamba_heads"), 4),
    **dict.fromkeys(("mamba_d_head", "mamba_head_dim"), 16),
    **dict.fromkeys(("mamba_d_state", "ssm_state_size", "state_size"), 8),
    **dict.fromkeys(("mamba_dt_rank", "time_step_rank"), 4),
    "hidden_size_per_layer_input": 8,
    "is_decoder": True,
    "initializer_range": 0.2,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
"""Sizes by the names that configurations give them; those that a family does not have are left."""

_MAX_PARAMETERS = 3_000_000

_LATENT = (
    "axk1", "axk2", "deepseek_v2", "deepseek_v3", "deepseek_v32", "glm4_moe_lite", "glm_moe_dsa",
    "longcat_flash", "minicpm3", "youtu",
)  # fmt: skip
"""Families whose key heads are as many as their query heads."""

_PARTS = ("text_config", "vision_config", "patcher_config")
_ROPE = {"rope_type": "default", "rope_theta": 1e4}
_DECODER = {
    "is_encoder_decoder": False,
    **dict.fromkeys(("decoder_ffn_dim", "encoder_ffn_dim"), 48),
    **dict.fromkeys(("encoder_layers", "num_encoder_layers", "num_decoder_layers"), 4),
    **dict.fromkeys(("encoder_attention_heads", "num_encoder_attention_heads"), 4),
    "num_decoder_attention_heads": 4,
}
"""What makes a decoder alone of a family of encoders and decoders."""

_SPECIAL: dict[str, dict[str, Any]] = {
    **{family: {"num_key_value_heads": 4} for family in _LATENT},
    "bamba": {"attn_layer_indices": [1, 3], "mamba_d_conv": 2},
    "codegen": {"rotary_dim": 4},
    "gptj": {"rotary_dim": 4},
    "gpt_oss": {"num_experts_per_tok": 1},
    "granitemoehybrid": {"layer_types": ["mamba", "attention"] * 2},
    "jamba": {"attn_layer_period": 2, "attn_layer_offset": 1},
    "lfm2": {"layer_types": ["conv", "full_attention"] * 2},
    "mamba2": {"num_heads": 8, "head_dim": 8, "n_groups": 1},
    "minimax": {"num_key_value_heads": 4},
    "nemotron_h": {"layers_block_type": ["mamba", "attention"] * 2, "n_groups": 1},
    "recurrent_gemma": {"num_key_value_heads": 1},
    "dots1": {"first_k_dense_replace": 1, "n_shared_experts": 1},
    "lfm2_moe": {"layer_types": ["conv", "full_attention"] * 2},
    "falcon_h1": {"mamba_d_ssm": 64, "mamba_n_groups": 1},
    "zamba2": {"layers_block_type": ["mamba", "hybrid"] * 2},
    "gpt_neo": {"attention_types": [[["global", "local"], 2]]},
    "cohere_compass_text": {
        "rope_parameters": {
            kind: {**_ROPE, "mrope_section": [1, 1, 2]}
            for kind in ("full_attention", "sliding_attention")
        },
    },
    "cpmant": {
        "dim_head": 8, "dim_ff": 48, "prompt_types": 4, "prompt_length": 4, "segment_types": 4,
        "position_bias_num_buckets": 32, "position_bias_max_distance": 64, "init_std": 0.2,
    },
    "dbrx": {
        "attn_config": {"kv_n_heads": 2, "rope_theta": 1e4, "clip_qkv": 8.0},
        "ffn_config": {"ffn_hidden_size": 16, "moe_num_experts": 4, "moe_top_k": 2},
    },
    "gemma3n_text": {
        "layer_types": ["sliding_attention", "full_attention"] * 2, "num_kv_shared_layers": 2,
        "intermediate_size": [48] * 4, "activation_sparsity_pattern": [0.5, 0.0] * 2,
        "laurel_rank": 8, "altup_num_inputs": 2,
    },
    "kimi_linear": {
        "linear_head_dim": 8, "linear_num_heads": 4, "q_lora_rank": None, "num_key_value_heads": 4,
        "num_experts_per_token": 2, "num_experts": 4, "qk_head_dim": 16,
    },
    "reformer": {
        "axial_pos_embds_dim": [16, 16], "axial_pos_shape": [8, 12], "attention_head_size": 8,
        "feed_forward_size": 48, "attn_layers": ["local", "lsh"] * 2,
        "local_attn_chunk_length": 8, "lsh_attn_chunk_length": 8,
    },
    "roc_bert": {
        "pronunciation_embed_dim": 8, "pronunciation_vocab_size": 96, "shape_embed_dim": 8,
        "shape_vocab_size": 96, "enable_pronunciation": False, "enable_shape": False,
        "concat_input": False,
    },
    "qwen4_exp_text": {
        "indexer_n_heads": 2, "indexer_kv_heads": 1, "indexer_head_dim": 8, "indexer_budget": 64,
        "indexer_compress_ratio": 4, "hc_lowrank": 8,
    },
    "zaya": {"num_experts_per_tok": 1, "router_hidden_size": 16},
    "zamba": {
        "layers_block_type": ["linear_attention", "hybrid"] * 2, "attention_hidden_size": 64,
        "attention_head_dim": 16, "num_key_value_heads": 4, "use_mamba_kernels": False,
    },
}  # fmt: skip
"""What some families need besides."""

FAMILIES = sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


class NotBuilt(Exception):
    """There is no tiny model of a family; says why."""


def tiny_model(family: str, seed: int = 0) -> PreTrainedModel:
    """Return a model of random weights whose distributions are far from uniform."""
    kind = CONFIG_MAPPING[family]
    try:
        with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
            default = kind()
            if any(hasattr(default, part) for part in _PARTS):
                raise NotBuilt("made of several models")
            known = default.to_dict()
            every = {**_SIZES, **(_DECODER if default.is_encoder_decoder else {})}
            sizes = {n: v for n, v in every.items() if n in known or n in kind.attribute_map}
            for alias, name in kind.attribute_map.items():
                if alias in sizes and name in sizes:
                    del sizes[alias]
            for name in ("layer_types", "mlp_layer_types"):
                if known.get(name):
                    sizes[name] = _pattern(known[name])
            config = kind(**{**sizes, **_SPECIAL.get(family, {})})
            with torch.device("meta"):
                planned = AutoModelForCausalLM.from_config(config)
            if sum(p.numel() for p in planned.parameters()) > _MAX_PARAMETERS:
                raise NotBuilt("its sizes have other names")
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(seed)
                model = AutoModelForCausalLM.from_config(config)
    except NotBuilt:
        raise
    except Exception as error:  # each family has its own way to refuse such sizes
        raise NotBuilt(f"{type(error).__name__}: {error}".splitlines()[0][:100]) from error
    return model.float().eval()


def _pattern(kinds: list[str]) -> list[str]:
    """Return four layers with all kinds of the default model, at most four."""
    different = list(dict.fromkeys(kinds))[:4]
    return (different * 4)[:4]


def outcome(family: str) -> dict[str, str]:
    """Return how a family is trained: shared, plain, refused or not built; and why not shared."""
    try:
        loaded = LoadedModel(tiny_model(family), TOKENIZER)
        reason = check_model(loaded, "float32")
    except NotBuilt as error:
        return {"outcome": "not built", "why": str(error)}
    except PettingLLMsError as error:
        (why,) = re.findall(r"and alone \((.*?); rounding", str(error)) or [str(error)]
        return {"outcome": "refused", "why": _lasting(why)}
    return {"outcome": "plain", "why": _lasting(reason)} if reason else {"outcome": "shared"}


def _lasting(why: str) -> str:
    """Return a reason without the numbers and details that another machine may have otherwise."""
    why = re.sub(r" (?:ones )?(?:log-probabilities )?are [\d.e+-]+ nats.*", " ones differ", why)
    return why if ":" not in why else f"its forward pass fails: {why.partition(':')[0]}"


def all_outcomes() -> dict[str, Any]:
    """Return the version of transformers and the outcome of every family."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of what transformers itself is about to change
        families = {family: outcome(family) for family in FAMILIES}
    return {"transformers": transformers.__version__, "families": families}


@pytest.mark.nightly
def test_the_table_of_families_is_what_the_check_says(caplog):
    recorded = json.loads(RESULTS.read_text())
    if recorded["transformers"] != transformers.__version__:
        pytest.skip(f"recorded with transformers {recorded['transformers']}")
    caplog.set_level(logging.CRITICAL)
    found = all_outcomes()["families"]
    changed = {name: (recorded["families"].get(name), now) for name, now in found.items()}
    changed = {name: both for name, both in changed.items() if both[0] != both[1]}
    assert not changed, "run this file to record it again"
    assert set(found) == set(recorded["families"])


@pytest.mark.parametrize("family", ["qwen3", "qwen3_next", "qwen3_5_text", "gpt_oss", "gemma2"])
def test_a_family_learns_from_what_it_sampled(family):
    """Sampled tokens have the log-probabilities that the update computes: the first ratio is 1."""
    policy = TransformersPolicy(
        LoadedModel(tiny_model(family), TOKENIZER),
        engine=EngineConfig(),
        training=TrainingSettings(
            loss=LossConfig(),
            optimizer=OptimizerConfig(learning_rate=1e-3),
            num_steps=2,
            max_completion_tokens=8,
            seed=0,
        ),
    )
    requests = [
        GenerateRequest(
            prompt_ids=tuple(range(5, 5 + length)),
            num_candidates=3,
            sampling=SamplingSettings(max_completion_tokens=8),
            seed=length,
        )
        for length in (3, 11, 6)
    ]
    groups = [
        TrainingGroup(
            role="r",
            prompt_ids=request.prompt_ids,
            completions=tuple(
                TrainingCompletion(c.token_ids, c.logprobs, advantage)
                for c, advantage in zip(written, (1.0, -1.0, 0.5), strict=True)
            ),
        )
        for request, written in zip(requests, policy.engine.generate_now(requests), strict=True)
    ]
    stats = policy.updater.update(groups)
    assert stats.first_ratio_error < 1e-3
    assert stats.grad_norm > 0


def test_a_leak_between_packed_sequences_is_found():
    """Nemotron mixes neighbouring tokens outside its attention."""
    loaded = LoadedModel(tiny_model("nemotron"), TOKENIZER)
    own_attention = loaded.model.config._attn_implementation
    assert "packed log-probabilities are" in check_model(loaded, "float32")
    assert loaded.model.config._attn_implementation == own_attention
    learner = TransformersPolicy(
        loaded,
        engine=EngineConfig(),
        training=TrainingSettings(
            loss=LossConfig(),
            optimizer=OptimizerConfig(),
            num_steps=1,
            max_completion_tokens=8,
            seed=0,
        ),
    ).updater._learner
    assert not learner.is_packed


def test_a_model_that_keeps_its_past_elsewhere_is_refused():
    loaded = LoadedModel(tiny_model("recurrent_gemma"), TOKENIZER)
    with pytest.raises(InvalidArgument, match=r"past_key_values.*another family"):
        check_model(loaded, "float32")


if __name__ == "__main__":
    RESULTS.write_text(json.dumps(all_outcomes(), indent=1) + "\n", encoding="utf-8")
