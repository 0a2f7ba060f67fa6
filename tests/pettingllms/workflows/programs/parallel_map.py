"""Parallel map, openai in threads: every line is summed up at once, then all of them."""

from concurrent.futures import ThreadPoolExecutor

from openai import OpenAI

client = OpenAI()
executor = ThreadPoolExecutor(4)


def ask(model, text):
    stream = client.chat.completions.create(
        model=model, messages=[{"role": "user", "content": text}], stream=True
    )
    return "".join(chunk.choices[0].delta.content or "" for chunk in stream if chunk.choices)


def run(lines):
    parts = list(executor.map(lambda line: ask("small", f"Sum up: {line}"), lines))
    return ask("large", "Join: " + "; ".join(parts))
