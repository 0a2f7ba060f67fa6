"""Blackboard, openai: who knows something writes on it; a moderator says who, and when to end."""

from openai import OpenAI

client = OpenAI()
EXPERTS = {"doctor": "You know medicine.", "lawyer": "You know the law."}


def ask(model, system, text):
    messages = [{"role": "system", "content": system}, {"role": "user", "content": text}]
    found = client.chat.completions.create(model=model, messages=messages)
    return found.choices[0].message.content


def main(question):
    board = [question]
    for _ in range(6):
        chosen = ask("moderator", f"Name one of {[*EXPERTS]}, or END.", "\n".join(board))
        if chosen not in EXPERTS:
            break
        board.append(f"{chosen}: {ask('expert', EXPERTS[chosen], chr(10).join(board))}")
    return " / ".join(board)
