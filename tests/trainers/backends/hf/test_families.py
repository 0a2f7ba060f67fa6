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
from backend_toys import TOKENIZER, make_policy, sample_groups
from transformers import AutoModelForCausalLM, PreTrainedModel
from transformers.models.auto.configuration_auto import CONFIG_MAPPING
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

from pettingllms.errors import InvalidArgument, PettingLLMsError
from pettingllms_trainers.backends.hf.model import LoadedModel
from pettingllms_trainers.backends.hf.self_check import check_model

RESULTS = Path(__file__).parents[4] / "docs" / "model_families.json"

_TABLES = json.loads(Path(__file__).with_name("families.json").read_text())
_SIZES: dict[str, Any] = _TABLES["sizes"]
"""Sizes by the names that configurations give them; those that a family does not have are left."""
_DECODER: dict[str, Any] = _TABLES["decoder"]
"""What makes a decoder alone of a family of encoders and decoders."""
_SPECIAL: dict[str, dict[str, Any]] = _TABLES["special"]
"""What some families need besides."""
_MAX_PARAMETERS = 3_000_000
_PARTS = ("text_config", "vision_config", "patcher_config")

FAMILIES = sorted(MODEL_FOR_CAUSAL_LM_MAPPING_NAMES)


class NotBuilt(Exception):
    """There is no tiny model of a family; says why."""


def tiny_model(family: str, seed: int = 0) -> PreTrainedModel:
    """A model of random weights whose distributions are far from uniform."""
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
    """Four layers with all kinds of the default model, at most four."""
    different = list(dict.fromkeys(kinds))[:4]
    return (different * 4)[:4]


def outcome(family: str) -> dict[str, str]:
    """How a family is trained: shared, plain, refused or not built; and why not shared."""
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
    """A reason without the numbers and details that another machine may have otherwise."""
    why = re.sub(r" (?:ones )?(?:log-probabilities )?are [\d.e+-]+ nats.*", " ones differ", why)
    return why if ":" not in why else f"its forward pass fails: {why.partition(':')[0]}"


def all_outcomes() -> dict[str, Any]:
    """The version of transformers and the outcome of every family."""
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
    policy = make_policy(tiny_model(family))
    stats = policy.updater.update(sample_groups(policy, 3))
    assert stats.first_ratio_error < 1e-3
    assert stats.grad_norm > 0


def test_a_leak_between_packed_sequences_is_found():
    """Nemotron mixes neighbouring tokens outside its attention."""
    loaded = LoadedModel(tiny_model("nemotron"), TOKENIZER)
    own_attention = loaded.model.config._attn_implementation
    assert "packed log-probabilities are" in check_model(loaded, "float32")
    assert loaded.model.config._attn_implementation == own_attention
    assert not make_policy(loaded.model).updater.learner.is_packed


def test_a_model_that_keeps_its_past_elsewhere_is_refused():
    loaded = LoadedModel(tiny_model("recurrent_gemma"), TOKENIZER)
    with pytest.raises(InvalidArgument, match=r"past_key_values.*another family"):
        check_model(loaded, "float32")


if __name__ == "__main__":
    RESULTS.write_text(json.dumps(all_outcomes(), indent=1) + "\n", encoding="utf-8")
