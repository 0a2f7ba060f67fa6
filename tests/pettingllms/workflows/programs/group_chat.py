"""Group chat, openai: speakers in turn read all that was said, by their names, until one ends."""

from itertools import cycle

from openai import OpenAI

client, TEAM = OpenAI(), ("Ann", "Bob", "Cleo")


def main():
    said = [{"role": "user", "name": "Host", "content": input()}]
    for name in cycle(TEAM):
        system = {"role": "system", "content": f"You are {name}. Say DONE to end."}
        found = client.chat.completions.create(model="gpt-4o", messages=[system, *said])
        said.append(
            {"role": "assistant", "name": name, "content": found.choices[0].message.content}
        )
        if "DONE" in said[-1]["content"]:
            print(f"{len(said) - 1} turns, ended by {name}")
            return
