"""Anthropic's Messages API, as its client uses it."""

import json
from contextlib import contextmanager

import pytest

from pettingllms.types import Action, TokenCounts

anthropic = pytest.importorskip("anthropic")

SUM = {"type": "object", "properties": {"a": {"type": "integer"}}}
TOOL = {"name": "add", "description": "Add.", "input_schema": SUM, "input_examples": [{"a": 1}]}
ADD = {"name": "add", "description": "Add.", "parameters": SUM, "input_examples": [{"a": 1}]}
NESTED = {"type": "function", "function": ADD}
CALL = 'I add.\n<tool_call>\n{"name": "add", "arguments": {"a": 1, "b": null}}\n</tool_call>'
GO = [{"role": "user", "content": "go"}]
TOOK = TokenCounts(7, 3, cached=2)


@contextmanager
def opened_client(client):
    base_url = client.base_url.removesuffix("/v1")
    with anthropic.Anthropic(base_url=base_url, api_key=client.api_key, max_retries=0) as found:
        yield found.messages


def create(client, **more):
    with opened_client(client) as messages:
        return messages.create(**{"model": "planner", "max_tokens": 9, "messages": GO, **more})


def test_messages_give_a_policy_the_prompts_of_chat_completions(played):
    def in_messages(client):
        asked = {"system": [{"type": "text", "text": "Be brief."}], "tools": [TOOL]}
        first = create(client, **asked)
        call = first.content[1]
        thought = {"type": "thinking", "thinking": "so", "signature": ""}
        said = {"role": "assistant", "content": [thought, *first.to_dict()["content"]]}
        result = {"type": "tool_result", "tool_use_id": call.id, "content": "2", "is_error": True}
        heard = {"role": "user", "content": [result, {"type": "text", "text": "And?"}]}
        create(client, messages=[*GO, said, heard], stop_sequences=["END"], **asked)
        return call.name, call.input

    def in_chat(client):
        chat = client.openai().chat.completions
        asked = {"model": "planner", "tools": [NESTED], "max_tokens": 9}
        messages = [{"role": "system", "content": "Be brief."}, *GO]
        said = chat.create(messages=messages, **asked).choices[0].message
        (call,) = said.tool_calls
        heard = {"role": "tool", "tool_call_id": call.id, "content": "Error: 2"}
        messages += [said, heard, {"role": "user", "content": "And?"}]
        chat.create(messages=messages, stop=["END"], **asked)
        return call.function.name, json.loads(call.function.arguments)

    assert played(in_messages, CALL, "2") == played(in_chat, CALL, "2")


@pytest.mark.parametrize(
    ("answer", "blocks", "reason", "stop"),
    [
        (Action("hello", tokens=TOOK), ["hello"], "end_turn", None),
        (Action(CALL, tokens=TOOK), ["I add.", {"a": 1, "b": None}], "tool_use", None),
        (Action("hel", "length", TOOK), ["hel"], "max_tokens", None),
        (Action("so END it", tokens=TOOK), ["so "], "stop_sequence", "END"),
        (Action("", tokens=TOOK), [], "end_turn", None),
    ],
)
def test_an_answer_whole_and_in_a_stream(played, answer, blocks, reason, stop):
    def run(client):
        asked = {"model": "planner", "max_tokens": 9, "messages": GO, "tools": [TOOL]}
        asked["stop_sequences"] = ["X", "END"]
        with opened_client(client) as messages, messages.stream(**asked) as stream:
            streamed = stream.get_final_message()
        return create(client, **asked), streamed

    _, found = played(run, answer, answer)
    for one in found:
        assert [getattr(b, "text", None) or b.input for b in one.content] == blocks
        assert (one.stop_reason, one.stop_sequence) == (reason, stop)
        usage = one.usage
        counts = (usage.input_tokens, usage.cache_read_input_tokens, usage.output_tokens)
        assert counts == (5, 2, 3)


def test_tokens_of_a_prompt_are_estimated_and_nobody_is_asked(played):
    def run(client):
        with opened_client(client) as messages:
            few, many, offered = (
                messages.count_tokens(**{"model": "planner", "messages": GO, **more}).input_tokens
                for more in ({"system": "go" * 9}, {"system": "go" * 19}, {"tools": [TOOL]})
            )
        create(client)
        return few, many, offered

    _, (few, many, offered) = played(run, "x")
    assert (few, many) == (5, 10)
    assert offered > many


def test_a_schema_is_the_form_of_an_answer(opened):
    form = {"format": {"type": "json_schema", "schema": SUM}}
    env = opened(
        lambda task, client: create(client, output_config=form).content[0].text,
        reward=lambda task, outcome: float(outcome == '{"a": 1}'),
    )
    fork = env.fork()
    fork.step("one")
    assert fork.infos["planner_0"]["parse_error"] == "the answer is not JSON"
    env.step('{"a": 1}')
    assert env.infos["planner_0"]["success"]
