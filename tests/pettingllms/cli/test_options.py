"""How the texts of options are read."""

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms.cli.options import read_pairs, read_policies, read_prices, read_sampling
from pettingllms.errors import InvalidArgument
from pettingllms.policies import Sampling
from pettingllms.tables import visible

ROLES = ("tool", "planner")
JSON_VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda parts: st.lists(parts) | st.dictionaries(st.text(), parts),
    max_leaves=5,
)


@given(st.dictionaries(st.text("abz_", min_size=1), JSON_VALUES, max_size=3))
def test_json_values_are_read_back(values):
    texts = [f"{key}={json.dumps(value)}" for key, value in values.items()]
    assert read_pairs(texts, "--env") == values


def test_what_is_not_json_is_a_text():
    assert read_pairs(["team=single", "level=#.P\n..G", "size=6", "a=b=c", "empty="], "x") == {
        "team": "single",
        "level": "#.P\n..G",
        "size": 6,
        "a": "b=c",
        "empty": "",
    }


@pytest.mark.parametrize("text", ["NaN", "-Infinity", "1e999", "[" * 100_000])
def test_what_other_programs_do_not_read_as_json_is_a_text(text):
    assert read_pairs([f"extra.x={text}"], "x") == {"extra.x": text}


@pytest.mark.parametrize("texts", [["size"], ["=6"], ["size=6", "size=7"]])
def test_ill_formed_pairs_are_refused(texts):
    with pytest.raises(InvalidArgument, match="KEY=VALUE"):
        read_pairs(texts, "--env")


@pytest.mark.parametrize(
    ("texts", "assignment"),
    [
        (["oracle"], {"tool": "oracle", "planner": "oracle"}),
        (["tool=random", "oracle"], {"tool": "random", "planner": "oracle"}),
        (["planner=hf:runs/a=b"], {"planner": "hf:runs/a=b"}),
        (["openai:m@http://h/v1?x=y"], dict.fromkeys(ROLES, "openai:m@http://h/v1?x=y")),
        ([], {}),
    ],
)
def test_policies_of_roles(texts, assignment):
    assert read_policies(texts, ROLES) == assignment


@pytest.mark.parametrize("texts", [["plannr=oracle"], ["tool=a", "tool=b"], ["a", "b"]])
def test_ill_formed_policies_are_refused(texts):
    with pytest.raises(InvalidArgument, match="--policy"):
        read_policies(texts, ROLES)


def test_sampling_of_all_and_of_one_role():
    texts = ["temperature=0.5", "planner.temperature=1", "stop=END", 'planner.stop=["a", "\\n"]']
    texts += ["extra.top_k=20", 'planner.extra.chat={"on": false}', "tool.max_completion_tokens=9"]
    assert read_sampling(texts, ROLES) == {
        "tool": Sampling(
            temperature=0.5, stop=("END",), extra={"top_k": 20}, max_completion_tokens=9
        ),
        "planner": Sampling(
            temperature=1, stop=("a", "\n"), extra={"top_k": 20, "chat": {"on": False}}
        ),
    }
    assert read_sampling([], ROLES) == {}


@pytest.mark.parametrize(
    "text",
    ["temprature=1", "temperature", "plannr.temperature=1", "extra=1", "top_p.x=1", "top_p=2"],
)
def test_ill_formed_sampling_is_refused(text):
    with pytest.raises(InvalidArgument, match="sampling"):
        read_sampling([text], ROLES)


def test_prices_are_kept_by_policy():
    assignment = {"tool": "a", "planner": "b"}
    assert read_prices(["0.25,2"], assignment) == {"a": (0.25, 2), "b": (0.25, 2)}
    assert read_prices(["planner=1,2"], assignment) == {"b": (1, 2)}
    assert read_prices(["planner=1,2,0.1"], assignment) == {"b": (1, 2, 0.1)}
    for text in ("1", "1,2,3,4", "x,y", "nobody=1,2", "nan,1", "1,-2", "1,2,inf"):
        with pytest.raises(InvalidArgument, match="--price"):
            read_prices([text], assignment)


@given(st.text())
def test_no_text_of_a_model_commands_the_terminal(text):
    shown = visible(text).plain
    assert all(character.isprintable() or character in "\n\t" for character in shown)
