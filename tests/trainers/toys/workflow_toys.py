"""Workflows for the tests of the trainer."""

import json

from pettingllms.workflows import Score, Workflow


def number(text):
    """The number that the toy environment reads from a text, or None."""
    return int(text) if text.strip("-").isdecimal() else None


def play_echo(base, client):
    """The two-agent toy of conftest.py as anybody would write it."""
    chat, called, results = client.openai().chat.completions, None, []

    def ask(role):
        messages = [
            {"role": "system", "content": f"You are the {role}."},
            {"role": "user", "content": f"called={called} results={results}"},
        ]
        found = chat.create(model=role, messages=messages)
        return number(found.choices[0].message.content)

    while True:
        answer = ask("caller")
        if answer is None:
            client.reward(-1.0, parse_error="not a number")
        else:
            client.reward(answer / 10)
            called = answer
        answer = ask("echo")
        if answer is None:
            client.reward(-1.0, parse_error="not a number")
            continue
        client.reward(answer, team=float(answer == called))
        results.append(base + (called or 0) + answer)
        called = None
        if answer == 99:
            return results


def echo(max_turns=3):
    return Workflow(
        run=play_echo,
        reward=lambda base, results: Score(0.0, True),
        roles=("caller", "echo"),
        tasks=lambda rng, split: rng.randrange(10**6) * 2 + (split == "test"),
        step_rewards=True,
        max_turns=max_turns,
    )


def say_digits(task, client):
    """Both agents are asked once."""
    chat = client.openai().chat.completions
    messages = [{"role": "user", "content": f"{task}"}]
    first = chat.create(model="caller", messages=messages).choices[0].message.content
    messages = [{"role": "user", "content": f"{task} {first}"}]
    return first + chat.create(model="echo", messages=messages).choices[0].message.content


def outcome_only():
    """A workflow that pays for its outcome alone: the share of digits in it."""
    return Workflow(
        run=say_digits,
        reward=lambda task, outcome: sum(map(str.isdecimal, outcome)) / 2,
        roles=("caller", "echo"),
        tasks={"train": [1, 2, 3, 4, 5], "test": [6, 7]},
    )


NUMBER = {
    "type": "object",
    "properties": {"n": {"enum": list(range(10))}},
    "required": ["n"],
    "additionalProperties": False,
}


def say_numbers(task, client):
    """One agent answers with JSON, the other one by a call."""
    create = client.openai().chat.completions.create
    wanted = {"type": "json_schema", "json_schema": {"name": "number", "schema": NUMBER}}
    messages = [{"role": "user", "content": f"{task}"}]
    first = create(model="caller", messages=messages, response_format=wanted)
    tools = [{"type": "function", "function": {"name": "tell", "parameters": NUMBER}}]
    second = create(model="echo", messages=messages, tools=tools, tool_choice="required")
    (call, *_) = second.choices[0].message.tool_calls
    texts = first.choices[0].message.content, call.function.arguments
    return [json.loads(text)["n"] for text in texts]


def structured():
    """A workflow whose answers have a form: the more is said, the better."""
    return Workflow(
        run=say_numbers,
        reward=lambda task, outcome: sum(outcome) / 20,
        roles=("caller", "echo"),
        tasks={"train": [1, 2, 3, 4, 5], "test": [6, 7]},
        misfit_reward=-1.0,
    )
