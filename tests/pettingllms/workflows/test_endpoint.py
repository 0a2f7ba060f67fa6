"""Chat completions as the client of OpenAI sees them."""

import importlib
import json
import sys
import threading
import tomllib
from pathlib import Path

import openai
import pytest
from hypothesis import given
from hypothesis import strategies as st

import pettingllms
from pettingllms.types import UNBOUND, Action, Constraints, TokenCounts
from pettingllms.workflows import WorkflowFailure, call_text
from pettingllms.workflows.tools import Reply, ToolCall, assistant_text, read_reply

SCRIPTS = tomllib.loads(Path(__file__).with_name("scripts.toml").read_text(encoding="utf-8"))
ADD = {"name": "add", "description": "Add two numbers.", "parameters": {"type": "object"}}
TOOLS = [{"type": "function", "function": ADD}]
CALL = 'I add.\n<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
WRITTEN = Action("hello END", "length", TokenCounts(7, 3, cached=2, reasoning=1))
GO = [{"role": "user", "content": "go"}]


def create(client, model="planner", messages=GO, **more):
    return client.openai().chat.completions.create(model=model, messages=messages, **more)


def test_a_stream(played):
    _, chunks = played(lambda client: list(create(client, stream=True)), "hello")
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "hello"
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None, None, "stop"]


def test_a_streamed_tool_call(played):
    def run(client):
        chat = client.openai().chat.completions
        with chat.stream(model="planner", messages=GO, tools=TOOLS) as stream:
            return stream.get_final_completion()

    _, found = played(run, CALL)
    assert found.choices[0].message.tool_calls[0].function.name == "add"
    assert found.choices[0].finish_reason == "tool_calls"


def test_tools_are_offered_called_and_answered_as_text(played):
    def run(client):
        messages = [{"role": "developer", "content": "You add."}, *GO]
        first = create(client, messages=messages, tools=TOOLS).choices[0]
        (call,) = first.message.tool_calls
        result = {"role": "tool", "tool_call_id": call.id, "content": "2"}
        messages += [first.message, result]
        return first, create(client, messages=messages, tools=TOOLS).choices[0]

    (one, two), (first, second) = played(run, CALL, "It is 2.")
    assert (first.finish_reason, second.finish_reason) == ("tool_calls", "stop")
    assert first.message.content == "I add."
    call = first.message.tool_calls[0]
    assert (call.function.name, json.loads(call.function.arguments)) == ("add", {"a": 1})
    assert one.messages[0].content.startswith("You add.\n\n# Tools")
    assert json.dumps(ADD) in one.messages[0].content, "its keys in their order"
    assert [message.role for message in two.messages] == ["system", "user", "assistant", "user"]
    assert two.messages[2].content == CALL
    assert two.messages[3].content == "<tool_response>\n2\n</tool_response>"


def test_results_come_in_the_order_of_their_calls(played):
    """A policy is not told which result is of which call."""
    calls = [
        {"id": name, "type": "function", "function": {"name": "add", "arguments": "{}"}}
        for name in "ab"
    ]
    results = [{"role": "tool", "tool_call_id": name, "content": name} for name in "ba"]
    messages = [*GO, {"role": "assistant", "tool_calls": calls}, *results, *GO]
    (request,), _ = played(lambda client: create(client, messages=messages), "x")
    told = [one.content for one in request.messages[2:]]
    assert told == [f"<tool_response>\n{name}\n</tool_response>" for name in "ab"] + ["go"]


def test_what_an_answer_took(played):
    def run(client):
        chunks = create(client, stream=True, stream_options={"include_usage": True})
        return create(client), list(chunks)

    _, (whole, chunks) = played(run, WRITTEN, WRITTEN)
    assert whole.choices[0].finish_reason == chunks[-2].choices[0].finish_reason == "length"
    assert chunks[-1].choices == []
    assert [chunk.usage for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    for usage in (whole.usage, chunks[-1].usage):
        assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (7, 3, 10)
        assert usage.prompt_tokens_details.cached_tokens == 2
        assert usage.completion_tokens_details.reasoning_tokens == 1


def test_equal_texts_that_took_different_numbers_of_tokens_are_told_apart(opened):
    env = opened(lambda task, client: create(client).usage.completion_tokens, reward=lambda _, n: n)
    texts = [Action("x", tokens=TokenCounts(1, number)) for number in (1, 2)]
    env.expect(texts)
    forks = [env.fork() for _ in texts]
    for fork, text in zip(reversed(forks), reversed(texts), strict=True):
        fork.step(text)
    assert [fork.rewards["planner_0"] for fork in forks] == [1.0, 2.0]


def test_replays_repeat_what_an_answer_took(tmp_path, monkeypatch):
    from pettingllms.transcript import RecordTranscripts, Transcript

    (tmp_path / "counting_team.py").write_text(SCRIPTS["counting"])
    monkeypatch.syspath_prepend(tmp_path)
    recorder = RecordTranscripts(pettingllms.make("workflow:counting_team:workflow"))
    recorder.reset(seed=1)
    recorder.step(WRITTEN)
    assert recorder.transcript.returns() == {"solo_0": 11.0}
    recorder.transcript.save(tmp_path / "one.jsonl")
    assert Transcript.load(tmp_path / "one.jsonl", trust=True).replay().rewards == {"solo_0": 11.0}


def test_stop_texts_and_limits_bind_the_answer(opened, played):
    def run(client):
        one = create(client, stop="END", max_tokens=9)
        return one, create(client, stop=["x", "el"], max_completion_tokens=5)

    env = opened(lambda task, client: run(client))
    assert env.constraints("planner_0") == Constraints(("END",), 9)
    assert env.constraints("worker_0") == UNBOUND
    requests, found = played(run, WRITTEN, WRITTEN)
    said = [(one.choices[0].message.content, one.choices[0].finish_reason) for one in found]
    assert said == [("hello ", "stop"), ("h", "stop")]
    assert requests[1].constraints == Constraints(("x", "el"), 5)


PARTS = [{"type": "text", "text": "No. "}, {"type": "refusal", "refusal": "I must not."}]


@pytest.mark.parametrize(
    ("message", "text"),
    [
        ({"role": "user", "name": "Alice", "content": "hi"}, "Alice: hi"),
        ({"role": "assistant", "name": "planner", "content": "mine"}, "mine"),
        ({"role": "assistant", "name": "worker", "content": "yours"}, "worker: yours"),
        ({"role": "assistant", "content": PARTS}, "No. I must not."),
        ({"role": "assistant", "content": None, "refusal": "Never."}, "Never."),
    ],
)
def test_texts_of_messages(played, message, text):
    (request,), _ = played(lambda client: create(client, messages=[message, *GO]), "x")
    assert [one.content for one in request.messages] == [text, "go"]


@pytest.mark.parametrize(
    ("roles", "models", "agents"),
    [
        # As frameworks name them.
        (("code_writer", "user-proxy", "agent1"),) * 2
        + (("code_writer_0", "user-proxy_0", "agent1_0"),),
        (
            ("reasoner_0", "reasoner_1", "judge"),
            ("reasoner", "judge", "reasoner_0", "reasoner_1", "judge_0"),
            ("reasoner_0", "judge_0", "reasoner_0", "reasoner_1", "judge_0"),
        ),
    ],
)
def test_models_are_roles_and_agents(played, roles, models, agents):
    def run(client):
        found = client.openai().models
        for model in models:
            create(client, found.retrieve(model).id)
        with pytest.raises(openai.NotFoundError, match=f"names the role: {models[0]}, "):
            found.retrieve("boss")
        return [model.id for model in found.list()]

    requests, listed = played(run, *models, roles=roles)
    assert tuple(request.agent for request in requests) == agents
    assert set(models) <= set(listed) == {*map(pettingllms.role_of, agents), *agents}


def in_messages(client, **wanted):
    anthropic = importlib.import_module("anthropic")
    base_url = client.base_url.removesuffix("/v1")
    with anthropic.Anthropic(base_url=base_url, api_key=client.api_key, max_retries=0) as asked:
        asked.messages.create(**{"model": "planner", "max_tokens": 9, "messages": GO, **wanted})


def in_responses(client, **wanted):
    client.openai().responses.create(**{"model": "planner", "input": "go", **wanted})


APIS = {"chat": create, "messages": in_messages, "responses": in_responses}
REFUSALS = json.loads(Path(__file__).with_name("refusals.json").read_text("utf-8"))
"""By API: what a client asks for, and what it is told."""


@pytest.mark.parametrize(
    ("api", "wanted", "told"), [(api, *case) for api, cases in REFUSALS.items() for case in cases]
)
def test_what_cannot_be_answered_is_refused(opened, api, wanted, told):
    if api == "messages":
        pytest.importorskip("anthropic")
    with pytest.raises(WorkflowFailure, match=told) as caught:
        opened(lambda task, client: APIS[api](client, **wanted))
    is_unknown = wanted.keys() & {"model", "previous_response_id"}
    kind = "NotFoundError" if is_unknown else "BadRequestError"
    assert type(caught.value.__cause__).__name__ == kind


def test_proxies_of_the_environment_are_not_asked(opened, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")

    async def run(task, client):
        async with client.async_openai() as chat:
            await chat.chat.completions.create(model="planner", messages=GO)
        return create(client, "worker")

    env = opened(run)
    env.step("x")
    assert env.agent_selection == "worker_0"


def test_an_error_of_the_endpoint_is_one_for_both_sides(opened, monkeypatch):
    seen, is_seen = [], threading.Event()

    def broken(*_):
        raise ZeroDivisionError("broken")

    monkeypatch.setattr("pettingllms.workflows.endpoint.completion", broken)

    def run(task, client):
        try:
            create(client)
        except openai.InternalServerError as error:
            seen.append(str(error))
            is_seen.set()
            raise

    env = opened(run)
    with pytest.raises(WorkflowFailure, match="ZeroDivisionError: broken"):
        env.step("x")
    assert is_seen.wait(60)
    assert "the endpoint failed: ZeroDivisionError: broken" in seen[0]


@given(st.text())
def test_any_text_is_a_reply(text):
    assert read_reply(text, ()) == Reply(text)
    read_reply(f"<tool_call>{text}</tool_call>", ("add",))


@given(st.dictionaries(st.text(), st.integers() | st.text() | st.just("</tool_call>")))
def test_calls_that_are_written_are_read(arguments):
    data = json.dumps(arguments, ensure_ascii=False)
    text = assistant_text("so", [("add", arguments)])
    assert text == f"so\n{call_text('add', **arguments)}"
    assert read_reply(text, ("add",)) == Reply("so", (ToolCall("add", data),))


@pytest.mark.parametrize(
    "call",
    [
        *("{", "[]", '"add"', '{"name": "sub", "arguments": {}}'),
        *('{"name": "add", "arguments": 3}', '{"name": "add", "arguments": {"a": 1e999}}'),
    ],
)
def test_calls_that_cannot_be_made_are_content(call):
    text = f"<tool_call>{call}</tool_call>"
    assert read_reply(text, ("add",)) == Reply(text)


ADDED = call_text("add", a="</think>")


@pytest.mark.parametrize(
    ("text", "content"),
    [
        (f"<think>I could {ADDED} but no.</think>Nothing.", None),
        (f"I could {ADDED} but no.</think>Nothing.", None),
        (f"<think>I never {ADDED}", None),
        (f"<think>{ADDED}</think>\n{ADDED}", f"<think>{ADDED}</think>"),
        (f"<think>no <tool_call></think>{ADDED.replace('<', '')}", None),
        (ADDED, ""),
        (ADDED.removesuffix("</tool_call>"), ""),
    ],
)
def test_a_call_in_a_thought_calls_nothing(text, content):
    calls = (ToolCall("add", '{"a": "</think>"}'),)
    expected = Reply(text) if content is None else Reply(content or None, calls)
    assert read_reply(text, ("add",)) == expected


def test_messages_need_a_package(monkeypatch, opened):
    importlib.import_module("pettingllms.workflows.endpoint")
    monkeypatch.setitem(sys.modules, "openai", None)
    with pytest.raises(WorkflowFailure, match=r"pip install .*openai>="):
        opened(lambda task, client: client.async_openai())
