"""The endpoint as the client of OpenAI sees it."""

import json
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms.errors import InvalidArgument
from pettingllms.workflows import WorkflowFailure
from pettingllms.workflows import client as client_module
from pettingllms.workflows.tools import Reply, ToolCall, assistant_text, read_reply

TOOLS = [
    {
        "type": "function",
        "function": {
            "name": "add",
            "description": "Add two numbers.",
            "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}},
        },
    }
]
CALL = 'I add.\n<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'


def played(opened, run, *texts, **fields):
    """Play a workflow to its end; return the environment and what it returned."""
    outcomes = []

    def noted(task, client):
        outcomes.append(run(client))
        return outcomes[-1]

    env = opened(noted, reward=lambda task, outcome: 1.0, **fields)
    for text in texts:
        env.step(text)
    assert env.terminations[env.agent_selection]
    return env, outcomes[-1]


def user(text="go"):
    return [{"role": "user", "content": text}]


def test_a_completion(opened):
    def run(client):
        return client.openai().chat.completions.create(model="planner", messages=user())

    _, found = played(opened, run, "hello")
    assert found.model == "planner"
    assert found.choices[0].finish_reason == "stop"
    assert found.choices[0].message.content == "hello"
    assert found.choices[0].message.tool_calls is None


def test_a_stream(opened):
    def run(client):
        return list(
            client.openai().chat.completions.create(model="planner", messages=user(), stream=True)
        )

    _, chunks = played(opened, run, "hello")
    assert "".join(chunk.choices[0].delta.content or "" for chunk in chunks) == "hello"
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [chunk.choices[0].finish_reason for chunk in chunks] == [None, None, "stop"]


def test_tools_are_offered_called_and_answered_as_text(opened):
    def run(client):
        chat = client.openai().chat.completions
        messages = [{"role": "developer", "content": "You add."}, *user()]
        first = chat.create(model="planner", messages=messages, tools=TOOLS).choices[0]
        (call,) = first.message.tool_calls
        result = {"role": "tool", "tool_call_id": call.id, "content": "2"}
        second = chat.create(
            model="planner", messages=[*messages, first.message, result], tools=TOOLS
        )
        return first, second.choices[0]

    env, (first, second) = played(opened, run, CALL, "It is 2.")
    assert first.finish_reason == "tool_calls"
    assert first.message.content == "I add."
    call = first.message.tool_calls[0]
    assert (call.function.name, json.loads(call.function.arguments)) == ("add", {"a": 1})
    assert second.finish_reason == "stop"
    one, two = (call.request for call in env.state().calls)
    assert one.messages[0].content.startswith("You add.\n\n# Tools")
    assert '"name": "add"' in one.messages[0].content
    assert [message.role for message in two.messages] == ["system", "user", "assistant", "user"]
    assert two.messages[2].content == CALL
    assert two.messages[3].content == "<tool_response>\n2\n</tool_response>"


def test_a_streamed_tool_call(opened):
    def run(client):
        chat = client.openai().chat.completions
        with chat.stream(model="planner", messages=user(), tools=TOOLS) as stream:
            return stream.get_final_completion()

    _, found = played(opened, run, CALL)
    assert found.choices[0].message.tool_calls[0].function.name == "add"
    assert found.choices[0].finish_reason == "tool_calls"


def test_content_may_come_in_parts(opened):
    def run(client):
        parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
        client.openai().chat.completions.create(model="planner", messages=user(parts))

    env, _ = played(opened, run, "x")
    assert env.state().calls[0].request.messages[0].content == "ab"


def test_roles_with_several_agents(opened):
    def run(client):
        for model in ("reasoner", "reasoner_1", "judge"):
            client.openai().chat.completions.create(model=model, messages=user())
        return [model.id for model in client.openai().models.list()]

    env, names = played(opened, run, "x", "y", "z", roles=("reasoner_0", "reasoner_1", "judge"))
    assert [call.request.agent for call in env.state().calls] == [
        "reasoner_0",
        "reasoner_1",
        "judge_0",
    ]
    assert names == ["reasoner", "judge", "reasoner_0", "reasoner_1", "judge_0"]


@pytest.mark.parametrize(
    ("wanted", "error", "told"),
    [
        ({"model": "boss"}, "NotFoundError", "names the role: planner, worker"),
        ({"n": 2}, "BadRequestError", "n = 2 cannot be used"),
        ({"response_format": {"type": "json_object"}}, "BadRequestError", "response_format"),
        ({"logprobs": True}, "BadRequestError", "logprobs"),
        ({"tool_choice": "required"}, "BadRequestError", "tool_choice"),
        ({"messages": []}, "BadRequestError", "messages must be"),
        ({"messages": [{"role": "bard", "content": "x"}]}, "BadRequestError", "'bard'"),
        ({"messages": user([{"type": "image_url"}])}, "BadRequestError", "image_url"),
        ({"tools": [{"type": "web"}]}, "BadRequestError", "type function"),
        ({"tools": [{"type": "function"}]}, "BadRequestError", "ill-formed"),
    ],
)
def test_what_cannot_be_answered_is_refused(opened, wanted, error, told):
    def run(task, client):
        request = {"model": "planner", "messages": user(), **wanted}
        client.openai().chat.completions.create(**request)

    with pytest.raises(WorkflowFailure, match=told) as caught:
        opened(run)
    assert type(caught.value.__cause__).__name__ == error


def test_a_wrong_key_is_refused(opened):
    import openai

    def run(task, client):
        wrong = openai.OpenAI(base_url=client.base_url, api_key="guess", max_retries=0)
        with wrong:
            wrong.chat.completions.create(model="planner", messages=user())

    with pytest.raises(WorkflowFailure, match="wrong API key") as caught:
        opened(run)
    assert isinstance(caught.value.__cause__, openai.AuthenticationError)


def test_proxies_of_the_environment_are_not_asked(opened, monkeypatch):
    monkeypatch.setenv("HTTP_PROXY", "http://127.0.0.1:1")
    monkeypatch.setenv("ALL_PROXY", "http://127.0.0.1:1")
    client_module._shared.cache_clear()

    async def run(task, client):
        async with client.async_openai() as chat:
            await chat.chat.completions.create(model="planner", messages=user())
        return client.openai().chat.completions.create(model="worker", messages=user())

    env = opened(run)
    env.step("x")
    assert env.agent_selection == "worker_0"


def test_only_chat_completions_are_there(opened):
    def run(task, client):
        client.openai().responses.create(model="planner", input="x")

    with pytest.raises(WorkflowFailure, match="use chat completions"):
        opened(run)


def test_the_endpoint_listens_on_the_loopback_interface_only(opened):
    seen = []

    def run(task, client):
        seen.append(client)
        client.openai().chat.completions.create(model="planner", messages=user())

    opened(run)
    opened(run)
    assert all(client.base_url.startswith("http://127.0.0.1:") for client in seen)
    assert seen[0].base_url != seen[1].base_url


def test_an_error_of_the_endpoint_is_one_for_both_sides(opened, monkeypatch):
    import openai

    seen, is_seen = [], threading.Event()

    def broken(*_):
        raise ZeroDivisionError("broken")

    monkeypatch.setattr("pettingllms.workflows.endpoint.read_reply", broken)

    def run(task, client):
        try:
            client.openai().chat.completions.create(model="planner", messages=user())
        except openai.InternalServerError as error:
            seen.append(str(error))
            is_seen.set()
            raise

    env = opened(run)
    with pytest.raises(WorkflowFailure, match="ZeroDivisionError: broken"):
        env.step("x")
    assert is_seen.wait(10)
    assert "the endpoint failed: ZeroDivisionError: broken" in seen[0]


def test_ignored_keys_are_reported_once(opened, caplog):
    from pettingllms.workflows.endpoint import shared_endpoint

    shared_endpoint()._warned.clear()

    def run(client):
        for _ in range(2):
            client.openai().chat.completions.create(
                model="planner", messages=user(), temperature=0.3, max_tokens=5
            )

    played(opened, run, "x", "y")
    (record,) = caplog.records
    assert "max_tokens, temperature" in record.getMessage()


@given(st.text())
def test_any_text_is_a_reply(text):
    assert read_reply(text, ()) == Reply(text)
    read_reply(f"<tool_call>{text}</tool_call>", ("add",))


@given(st.dictionaries(st.text(), st.integers() | st.text()))
def test_calls_that_are_written_are_read(arguments):
    data = json.dumps(arguments)
    text = assistant_text("so", [{"function": {"name": "add", "arguments": data}}])
    if "</tool_call>" not in data:
        assert read_reply(text, ("add",)) == Reply("so", (ToolCall("add", data),))


@pytest.mark.parametrize(
    "call",
    ["{", "[]", '{"name": "sub", "arguments": {}}', '{"name": "add", "arguments": 3}', '"add"'],
)
def test_calls_that_cannot_be_made_are_content(call):
    text = f"<tool_call>{call}</tool_call>"
    assert read_reply(text, ("add",)) == Reply(text)


def test_messages_need_a_package(monkeypatch, opened):
    monkeypatch.setitem(__import__("sys").modules, "openai", None)
    client_module._shared.cache_clear()
    with pytest.raises(WorkflowFailure, match=r"pettingllms\[cli\]"):
        opened()
    client_module._shared.cache_clear()


def test_a_workflow_needs_known_splits(opened):
    with pytest.raises(InvalidArgument, match="split"):
        opened(tasks={"test": [1]})
