"""Conversation, openai: each response builds on the one before by its id, and one is streamed."""

import random
import uuid

from openai import OpenAI

client = OpenAI()
session = uuid.uuid4()


def run(topic):
    first = client.responses.create(model="o4-mini", input=f"{session} {topic}")
    told = f"Ask for something else, number {random.randrange(10**6)}."
    with client.responses.stream(
        model="o4-mini", previous_response_id=first.id, input=told, reasoning={"effort": "low"}
    ) as stream:
        second = stream.get_final_response()
    return f"{first.output_text} {second.output_text}"
