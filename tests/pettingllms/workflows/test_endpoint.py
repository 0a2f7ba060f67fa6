"""The endpoint as the client of OpenAI sees it."""

import importlib
import json
import threading

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pettingllms
from pettingllms.errors import InvalidArgument
from pettingllms.types import UNBOUND, Action, Constraints, TokenCounts
from pettingllms.workflows import WorkflowFailure, call_text
from pettingllms.workflows import definition as client_module
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


WRITTEN = Action("hello END", "length", TokenCounts(7, 3, cached=2, reasoning=1))


def test_what_an_answer_took(opened):
    def run(client):
        chat = client.openai().chat.completions
        whole = chat.create(model="planner", messages=user())
        chunks = chat.create(
            model="planner", messages=user(), stream=True, stream_options={"include_usage": True}
        )
        return whole, list(chunks)

    _, (whole, chunks) = played(opened, run, WRITTEN, WRITTEN)
    assert whole.choices[0].finish_reason == chunks[-2].choices[0].finish_reason == "length"
    assert chunks[-1].choices == []
    assert [chunk.usage for chunk in chunks[:-1]] == [None] * (len(chunks) - 1)
    for usage in (whole.usage, chunks[-1].usage):
        assert (usage.prompt_tokens, usage.completion_tokens, usage.total_tokens) == (7, 3, 10)
        assert usage.prompt_tokens_details.cached_tokens == 2
        assert usage.completion_tokens_details.reasoning_tokens == 1


def test_equal_texts_that_took_different_numbers_of_tokens_are_told_apart(opened):
    def run(task, client):
        found = client.openai().chat.completions.create(model="planner", messages=user())
        return found.usage.completion_tokens

    env = opened(run, reward=lambda task, outcome: float(outcome))
    texts = [Action("x", tokens=TokenCounts(1, number)) for number in (1, 2)]
    env.expect(texts)
    forks = [env.fork() for _ in texts]
    for fork, text in zip(reversed(forks), reversed(texts), strict=True):
        fork.step(text)
    assert [fork.rewards["planner_0"] for fork in forks] == [1.0, 2.0]


def test_replays_repeat_what_an_answer_took(tmp_path, monkeypatch):
    from pettingllms.transcript import RecordTranscripts, Transcript

    (tmp_path / "counting_team.py").write_text(
        "from pettingllms.workflows import Workflow\n"
        "def run(task, client):\n"
        "    chat = client.openai().chat.completions\n"
        "    found = chat.create(model='solo', messages=[{'role': 'user', 'content': task}])\n"
        "    return found.usage.total_tokens + (found.choices[0].finish_reason == 'length')\n"
        "workflow = Workflow(run=run, reward=lambda task, outcome: float(outcome),"
        " roles=['solo'], tasks={'train': ['a']})\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    recorder = RecordTranscripts(pettingllms.make("workflow:counting_team:workflow"))
    recorder.reset(seed=1)
    recorder.step(WRITTEN)
    assert recorder.transcript.returns() == {"solo_0": 11.0}
    recorder.transcript.save(tmp_path / "one.jsonl")
    assert Transcript.load(tmp_path / "one.jsonl", trust=True).replay().rewards == {"solo_0": 11.0}


def test_stop_texts_and_limits_bind_the_answer(opened):
    def run(client):
        chat = client.openai().chat.completions
        one = chat.create(model="planner", messages=user(), stop="END", max_tokens=9)
        two = chat.create(
            model="planner", messages=user(), stop=["x", "el"], max_completion_tokens=5
        )
        return one.choices[0], two.choices[0]

    env = opened(lambda task, client: run(client))
    assert env.constraints("planner_0") == Constraints(("END",), 9)
    assert env.constraints("worker_0") == UNBOUND
    env, (one, two) = played(opened, run, WRITTEN, WRITTEN)
    assert (one.message.content, one.finish_reason) == ("hello ", "stop")
    assert (two.message.content, two.finish_reason) == ("h", "stop")
    assert env.state().calls[1].request.constraints == Constraints(("x", "el"), 5)


def test_names_of_speakers_reach_the_prompt(opened):
    def run(client):
        said = [
            {"role": "user", "name": "Alice", "content": "hi"},
            {"role": "user", "name": "Bob", "content": "hi"},
            {"role": "assistant", "name": "planner", "content": "mine"},
            {"role": "assistant", "name": "worker", "content": "yours"},
        ]
        client.openai().chat.completions.create(model="planner", messages=said)

    env, _ = played(opened, run, "x")
    texts = [message.content for message in env.state().calls[0].request.messages]
    assert texts == ["Alice: hi", "Bob: hi", "mine", "worker: yours"]


def test_refusals_are_texts(opened):
    def run(client):
        parts = [{"type": "text", "text": "No. "}, {"type": "refusal", "refusal": "I must not."}]
        said = [
            {"role": "assistant", "content": parts},
            {"role": "assistant", "content": None, "refusal": "Never."},
            *user(),
        ]
        client.openai().chat.completions.create(model="planner", messages=said)

    env, _ = played(opened, run, "x")
    texts = [message.content for message in env.state().calls[0].request.messages]
    assert texts == ["No. I must not.", "Never.", "go"]


def test_roles_as_frameworks_name_them(opened):
    roles = ("code_writer", "user-proxy", "agent1")

    def run(client):
        for model in roles:
            client.openai().chat.completions.create(model=model, messages=user())

    env, _ = played(opened, run, *"xyz", roles=roles)
    asked = [call.request.agent for call in env.state().calls]
    assert asked == ["code_writer_0", "user-proxy_0", "agent1_0"]
    assert tuple(map(pettingllms.role_of, asked)) == roles


def raw(client, method, route, **more):
    import httpx2

    url = client.base_url.removesuffix("/v1") + route
    headers = {"Authorization": f"Bearer {client.api_key}"}
    with httpx2.Client(trust_env=False) as sender:
        return sender.request(method, url, headers=headers, **more)


def test_bodies_in_chunks(opened):
    def run(client):
        body = json.dumps({"model": "planner", "messages": user()}).encode()
        parts = (body[at : at + 7] for at in range(0, len(body), 7))
        return [
            raw(client, "POST", "/v1/chat/completions", content=parts).json(),
            raw(client, "POST", "/v1/chat/completions", content=body).json(),
        ]

    env, (one, two) = played(opened, run, "hello", "hello")
    assert {**one, "id": ""} == {**two, "id": ""}
    assert env.state().calls[0].request == env.state().calls[1].request


def test_models(opened):
    import openai

    def run(client):
        models = client.openai().models
        listed = raw(client, "GET", "/v1/models?x=1").json()["data"]
        with pytest.raises(openai.NotFoundError, match="names the role: planner, worker"):
            models.retrieve("boss")
        found = models.retrieve("planner")
        client.openai().chat.completions.create(model=found.id, messages=user())
        return found, listed

    _, (found, listed) = played(opened, run, "x")
    assert found.id == "planner"
    assert [model["id"] for model in listed] == ["planner", "worker", "planner_0", "worker_0"]


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
        ({"n": 2}, "BadRequestError", "n: Input should be 1; it has 2"),
        ({"response_format": {"type": "xml"}}, "BadRequestError", "'text', 'json_object' or"),
        ({"response_format": {"type": "json_schema"}}, "BadRequestError", "response_format"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"schema": {"type": 3}}}},
            "BadRequestError",
            "ill-formed JSON schema",
        ),
        ({"logprobs": True}, "BadRequestError", "logprobs"),
        ({"tool_choice": "required"}, "BadRequestError", "no tool is offered"),
        ({"tool_choice": {"type": "custom"}}, "BadRequestError", "tool_choice"),
        (
            {"tool_choice": {"type": "function", "function": {"name": "add"}}},
            "BadRequestError",
            "names add, which is not offered",
        ),
        ({"messages": []}, "BadRequestError", "messages: List should have at least 1"),
        ({"messages": [{"role": "bard", "content": "x"}]}, "BadRequestError", "'bard'"),
        ({"messages": user([{"type": "image_url"}])}, "BadRequestError", "image_url"),
        ({"tools": [{"type": "web"}]}, "BadRequestError", "tools.0.type: .*'function'"),
        ({"tools": [{"type": "function"}]}, "BadRequestError", "tools.0.function: Field required"),
        ({"stop": [1]}, "BadRequestError", "stop.0: .* string"),
        ({"max_tokens": 0}, "BadRequestError", "max_tokens: .*greater"),
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


def test_embeddings_are_not_there(opened):
    def run(task, client):
        client.openai().embeddings.create(model="planner", input="x")

    with pytest.raises(WorkflowFailure, match="use chat completions, or responses"):
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

    monkeypatch.setattr("pettingllms.workflows.endpoint.completion", broken)

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
                model="planner", messages=user(), temperature=0.3, top_p=0.5
            )

    played(opened, run, "x", "y")
    (record,) = caplog.records
    assert "temperature, top_p" in record.getMessage()


@given(st.text())
def test_any_text_is_a_reply(text):
    assert read_reply(text, ()) == Reply(text)
    read_reply(f"<tool_call>{text}</tool_call>", ("add",))


@given(st.dictionaries(st.text(), st.integers() | st.text()))
def test_calls_that_are_written_are_read(arguments):
    data = json.dumps(arguments)
    text = assistant_text("so", [("add", arguments)])
    assert text == f"so\n{call_text('add', **arguments)}"
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
    importlib.import_module("pettingllms.workflows.endpoint")
    monkeypatch.setitem(__import__("sys").modules, "openai", None)
    client_module._shared.cache_clear()
    with pytest.raises(WorkflowFailure, match=r"pettingllms\[cli\]"):
        opened()
    client_module._shared.cache_clear()


def test_a_workflow_needs_known_splits(opened):
    with pytest.raises(InvalidArgument, match="split"):
        opened(tasks={"test": [1]})
