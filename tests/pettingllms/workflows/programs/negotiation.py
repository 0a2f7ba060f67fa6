"""Negotiation, openai, Responses: two sides offer in turn, until one accepts by a call."""

import json

from openai import OpenAI

client = OpenAI()
SIDES = {"buyer": "You buy a bike and have 50.", "seller": "You sell a bike; it must earn 30."}
ACCEPT = {"type": "function", "name": "accept", "parameters": {"type": "object"}, "strict": False}
OFFER = {**ACCEPT, "name": "offer"}
OFFER["parameters"] = {"type": "object", "properties": {"price": {"type": "integer"}}}


def main():
    told, price = input(), None
    for round_number in range(6):
        side = [*SIDES][round_number % 2]
        found = client.responses.create(
            model="o4-mini",
            instructions=SIDES[side],
            input=told,
            tools=[ACCEPT, OFFER],
            tool_choice="required",
            parallel_tool_calls=False,
        )
        call = next(one for one in found.output if one.type == "function_call")
        if call.name == "accept":
            break
        price = json.loads(call.arguments).get("price")
        told = f"The {side} offers {price}."
    print(f"{price} after {round_number} offers")
