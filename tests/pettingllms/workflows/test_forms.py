"""Structured answers and forced calls: told in the prompt, and an answer that lacks the form."""

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms.types import Action
from pettingllms.workflows.definition import WorkflowFailure
from pettingllms.workflows.tools import Form, check_schema

SUM = {
    "type": "object",
    "properties": {"sum": {"type": "integer"}},
    "required": ["sum"],
    "additionalProperties": False,
}
FORMAT = {"type": "json_schema", "json_schema": {"name": "sum", "schema": SUM, "strict": True}}
TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": SUM}} for name in ("add", "tell")
]
FITS = '{"sum": 3}'


def call(name="add", arguments=FITS):
    return f'<tool_call>\n{{"name": "{name}", "arguments": {arguments}}}\n</tool_call>'


def asking(**wanted):
    def run(task, client):
        messages = [{"role": "user", "content": "add"}]
        create = client.openai().chat.completions.create
        message = create(model="planner", messages=messages, **wanted).choices[0].message
        return message.model_dump()

    return run


def ended(env, text):
    """Return whether an answer ends the episode as one that lacks its form."""
    fork = env.fork()
    env.expect([text])
    fork.step(text)
    assert fork.terminations["planner_0"]
    info = fork.infos["planner_0"]
    if info["parse_error"] is None:
        assert info["success"], text
        return False
    assert fork.rewards == {"planner_0": -2.0, "worker_0": -2.0}
    assert not info["success"]
    return True


TELL = {"type": "function", "function": {"name": "tell"}}


def chosen(mode, *tools):
    return {"type": "allowed_tools", "allowed_tools": {"mode": mode, "tools": tools}}


CASES = json.loads(Path(__file__).with_name("forms.json").read_text(encoding="utf-8"))
"""What is asked for, what the prompt says of it, and answers that have its form and lack it."""


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["told"][:30])
def test_an_answer_that_does_not_fit_ends_the_episode(opened, case):
    seen = []
    env = opened(
        asking(**case["wanted"]),
        reward=lambda _, said: seen.append(said) or 1.0,
        misfit_reward=-2.0,
    )
    assert case["told"] in env.messages("planner_0")[0]["content"]
    assert [text for text in case["fits"] if ended(env, text)] == []
    num_seen = len(seen)
    assert [text for text in case["misfits"] if not ended(env, text)] == []
    assert len(seen) == num_seen, "the workflow sees answers of the form only"


@pytest.mark.parametrize(("several", "number"), [({}, 2), ({"parallel_tool_calls": False}, 1)])
def test_one_call_is_one_call(played, several, number):
    run = asking(tools=TOOLS, **several)
    _, said = played(lambda client: run(None, client), f"{call('add')}\n{call('tell')}")
    names = [one["function"]["name"] for one in said["tool_calls"]]
    assert names == ["add", "tell"][:number]


def test_only_allowed_tools_are_offered(opened):
    env = opened(asking(tools=TOOLS, tool_choice=chosen("auto", TELL)))
    assert env.state().request.tools == ("tell",)
    assert '"name": "add"' not in env.messages("planner_0")[0]["content"]


@pytest.mark.parametrize(
    ("wanted", "text"),
    [({"response_format": FORMAT}, FITS), ({"tools": TOOLS, "tool_choice": "required"}, call())],
)
def test_what_has_its_form_is_complete_though_it_ends_at_the_limit(opened, wanted, text):
    def run(task, client):
        messages = [{"role": "user", "content": "add"}]
        create = client.openai().chat.completions.create
        return create(model="planner", messages=messages, **wanted).choices[0].finish_reason

    env = opened(run, reward=lambda task, outcome: outcome != "length")
    env.step(Action(text, "length"))
    assert env.infos["planner_0"]["success"]


def choosy(task, client):
    """Answer what was said, and raise on three words."""
    text = asking()(task, client)["content"]
    if text in ("bad", "worse", "broken"):
        raise {"bad": KeyError, "worse": LookupError, "broken": OSError}[text](text)
    return text


def test_errors_that_a_workflow_declares_are_outcomes(opened):
    env = opened(choosy, reward=lambda *_: 1.0, misfit_reward=-2.0, misfit_errors=(LookupError,))
    assert not ended(env, "good")
    for text in ("bad", "worse"):
        fork = env.fork()
        fork.step(text)
        assert fork.terminations["planner_0"]
        assert fork.rewards["planner_0"] == -2.0
        assert text in fork.infos["planner_0"]["parse_error"]
        assert not fork.infos["planner_0"]["success"]
    with pytest.raises(WorkflowFailure, match="OSError: broken"):
        env.step("broken")


def test_a_declared_error_before_any_answer_is_a_failure(opened):
    def run(task, client):
        raise LookupError("no model")

    with pytest.raises(WorkflowFailure, match="no model"):
        opened(run, reward=lambda *_: 1.0, misfit_errors=(LookupError,))


@given(st.text())
def test_any_text_fits_or_not(text):
    reason = Form(json.dumps(SUM)).misfit(text, ())
    assert reason is None or isinstance(reason, str)
    Form(calls=(("add", json.dumps(SUM)),)).misfit(f"<tool_call>{text}</tool_call>", ("add",))


def test_answers_that_are_too_deep_or_too_large_do_not_fit():
    form = Form(check_schema({"properties": {"a": {"$ref": "#"}}}))
    assert form.misfit('{"a": ' * 900 + "{}" + "}" * 900, ()) == "the answer is nested too deeply"
    half = Form(check_schema({"multipleOf": 0.5}))
    assert half.misfit("1" + "0" * 400, ()) == "the answer has a number that is too large"


@pytest.mark.parametrize(
    "part",
    [
        {"$ref": "https://schemas.invalid/a.json"},
        {"$ref": "#/$defs/none"},
        {"$dynamicRef": "#none"},
        {"pattern": "["},
    ],
)
def test_schemas_that_cannot_be_used_are_refused_at_once_and_load_nothing(part):
    with pytest.raises(ValueError, match="ill-formed JSON schema"):
        check_schema({"properties": {"a": {"anyOf": [part]}}})
    with pytest.raises(ValueError, match="is not a JSON schema"):
        check_schema({"$schema": 7})


def test_parts_of_a_schema_may_refer_to_others():
    part = {"type": "object", "properties": {"next": {"$ref": "#/$defs/part"}}}
    form = Form(check_schema({"$ref": "#/$defs/part", "$defs": {"part": part}}))
    assert form.misfit('{"next": {"next": {}}}', ()) is None
    assert form.misfit('{"next": {"next": 1}}', ()) is not None
