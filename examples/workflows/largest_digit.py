"""Plain Python: a scout reads two of four digits and names one, a writer names the largest of all.

Train it from this folder: pettingllms-train largest_digit.toml --trust
"""

import itertools

from pettingllms.workflows import Workflow


def run(task, client):
    """Ask the scout, and then the writer with what the scout said."""
    chat = client.openai().chat.completions

    def ask(role, text):
        messages = [{"role": "user", "content": text}]
        return chat.create(model=role, messages=messages).choices[0].message.content

    said = ask("scout", task[:2])
    return ask("writer", f"{task[2:]} {said}")


TASKS = ["".join(digits) for digits in itertools.permutations("0123456789", 4)]

workflow = Workflow(
    run=run,
    reward=lambda task, answer: answer == max(task),
    roles=("scout", "writer"),
    tasks={"train": [task for task in TASKS if task not in TASKS[::5]], "test": TASKS[::5]},
    demonstrators={
        "right": lambda task, agent, messages, rng: max(messages[-1]["content"]),
        "any": lambda task, agent, messages, rng: rng.choice(
            messages[-1]["content"].replace(" ", "")
        ),
    },
)
