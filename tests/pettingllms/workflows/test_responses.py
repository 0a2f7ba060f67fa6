"""The Responses API, as the client of OpenAI and the Agents SDK use it."""

import json

import pytest

from pettingllms.types import Action, TokenCounts

SUM = {"type": "object", "properties": {"a": {"type": "integer"}}}
TOOL = {"type": "function", "name": "add", "description": "Add.", "parameters": SUM, "strict": True}
CALL = 'I add.\n<tool_call>\n{"name": "add", "arguments": {"a": 1}}\n</tool_call>'
CUT = Action("hel", "length", TokenCounts(7, 3, cached=2, reasoning=1))


def contents(request):
    return [(message.role, message.content) for message in request.messages]


@pytest.mark.parametrize("text", ["hello", CUT])
def test_a_response(played, text):
    def run(client):
        return client.openai().responses.create(
            model="planner", instructions="Be brief.", input="go", max_output_tokens=9
        )

    (request,), found = played(run, text)
    assert contents(request) == [("system", "Be brief."), ("user", "go")]
    assert request.constraints.max_tokens == 9
    assert (found.output_text, found.model) == (str(text), "planner")
    assert found.status == ("incomplete" if text is CUT else "completed")
    if text is CUT:
        assert found.incomplete_details.reason == "max_output_tokens"
        usage = found.usage
        assert (usage.input_tokens, usage.output_tokens, usage.total_tokens) == (7, 3, 10)
        assert usage.input_tokens_details.cached_tokens == 2
        assert usage.output_tokens_details.reasoning_tokens == 1


def test_calls_and_their_results_are_those_of_chat_completions(played):
    def in_responses(client):
        create, items = client.openai().responses.create, [{"role": "user", "content": "go"}]
        first = create(model="planner", input=items, tools=[TOOL])
        (call,) = [one for one in first.output if one.type == "function_call"]
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "2"}
        create(model="planner", input=[*items, *first.output, result], tools=[TOOL])
        return call.name, json.loads(call.arguments)

    def in_chat(client):
        create, chat = client.openai().chat.completions.create, [{"role": "user", "content": "go"}]
        nested = {"type": "function", "function": {k: v for k, v in TOOL.items() if k != "type"}}
        first = create(model="planner", messages=chat, tools=[nested]).choices[0].message
        result = {"role": "tool", "tool_call_id": first.tool_calls[0].id, "content": "2"}
        create(model="planner", messages=[*chat, first, result], tools=[nested])
        return first.tool_calls[0].function.name, json.loads(first.tool_calls[0].function.arguments)

    ours = played(in_responses, CALL, "It is 2.")
    theirs = played(in_chat, CALL, "It is 2.")
    assert ours == theirs
    assert ours[1] == ("add", {"a": 1})


def test_a_response_that_continues_another(played):
    def run(client):
        create = client.openai().responses.create
        first = create(model="planner", instructions="Be brief.", input="one", tools=[TOOL])
        (_, call) = first.output
        result = {"type": "function_call_output", "call_id": call.call_id, "output": "2"}
        more = {"instructions": "Be long.", "previous_response_id": first.id}
        return create(model="worker", input=[result], **more).output_text

    (_, request), found = played(run, CALL, "two")
    assert found == "two"
    assert contents(request) == [
        ("system", "Be long."),
        ("user", "one"),
        ("assistant", CALL),
        ("user", "<tool_response>\n2\n</tool_response>"),
    ]


@pytest.mark.parametrize("text", [CALL, "hello", CUT, ""])
def test_a_stream_builds_the_same_response(played, text):
    def run(client):
        create = client.openai().responses
        whole = create.create(model="planner", input="go", tools=[TOOL])
        events = list(create.create(model="planner", input="go", tools=[TOOL], stream=True))
        with create.stream(model="planner", input="go", tools=[TOOL]) as stream:
            return whole, events, list(stream)[-1].response

    _, (whole, events, built) = played(run, text, text, text)

    def items(found):
        return [one.to_dict() | {"id": "", "call_id": ""} for one in found.output]

    streamed = events[-1].response
    assert items(whole) == items(streamed)
    assert streamed.status == whole.status
    assert built.output_text == whole.output_text
    deltas = [e.delta for e in events if e.type == "response.output_text.delta"]
    assert "".join(deltas) == whole.output_text
    calls = [e.arguments for e in events if e.type == "response.function_call_arguments.done"]
    assert calls == [one.arguments for one in whole.output if one.type == "function_call"]
    assert [event.sequence_number for event in events] == list(range(len(events)))


def test_structured_responses(opened):
    from pydantic import BaseModel

    class Sum(BaseModel):
        sum: int

    def run(task, client):
        found = client.openai().responses.parse(model="planner", input="go", text_format=Sum)
        return found.output_parsed.sum

    env = opened(run, reward=lambda task, outcome: float(outcome == 3))
    fork = env.fork()
    fork.step("three")
    assert fork.infos["planner_0"]["parse_error"] == "the answer is not JSON"
    env.step('{"sum": 3}')
    assert env.infos["planner_0"]["success"]


def test_a_json_object_and_a_single_call_may_be_asked_for(played):
    def run(client):
        create = client.openai().responses.create
        create(model="planner", input="go", text={"format": {"type": "json_object"}})
        create(model="planner", input="go", tools=[TOOL], parallel_tool_calls=False)

    (first, second), _ = played(run, "{}", CALL)
    assert first.form.schema == '{"type": "object"}'
    assert second.form.one_call


def test_a_hand_off_of_the_agents_sdk_with_its_defaults(opened):
    agents = pytest.importorskip("agents")

    @agents.function_tool
    def double(number: int) -> int:
        """Double a number."""
        return 2 * number

    async def run(task, client):
        async with client.async_openai() as asked:

            def model(name):
                return agents.OpenAIResponsesModel(model=name, openai_client=asked)

            solver = agents.Agent(name="solver", model=model("worker"), tools=[double])
            triage = agents.Agent(name="triage", model=model("planner"), handoffs=[solver])
            config = agents.RunConfig(tracing_disabled=True)
            return (await agents.Runner.run(triage, "Double 3.", run_config=config)).final_output

    env = opened(run, reward=lambda task, outcome: float(outcome == "6"))
    env.step('<tool_call>\n{"name": "transfer_to_solver", "arguments": {}}\n</tool_call>')
    assert env.agent_selection == "worker_0"
    env.step('<tool_call>\n{"name": "double", "arguments": {"number": 3}}\n</tool_call>')
    assert env.messages("worker_0")[-1]["content"] == "<tool_response>\n6\n</tool_response>"
    env.fork().step("6")
    env.step("6")
    assert env.infos["worker_0"]["success"]
