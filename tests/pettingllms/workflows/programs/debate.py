"""Debate, openai: two sides speak in turn, each with the words of the other; a judge decides."""

import os
import random

from openai import OpenAI

os.environ.setdefault("OPENAI_API_KEY", "sk-of-somebody")
client = OpenAI(api_key=os.environ["OPENAI_API_KEY"])
history: list[str] = []  # of the module: a second call would continue the first


def speak(side):
    told = f"You argue {side} the motion."
    found = client.responses.create(
        model="gpt-4o", instructions=told, input="\n".join(history), store=False
    )
    history.append(f"{side}: {found.output_text}")


def run(motion):
    history.append(motion)
    sides = ["for", "against"]
    random.shuffle(sides)
    for side in sides * 2:
        speak(side)
    found = client.chat.completions.create(
        model="gpt-4o", messages=[{"role": "user", "content": "Who won?\n" + "\n".join(history)}]
    )
    return f"{len(history)} {found.choices[0].message.content}"
