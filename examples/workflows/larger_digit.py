"""Plain Python: a scout reads two digits and names the larger one, a writer answers.

Train it from this folder: pettingllms-train larger_digit.toml
"""

import itertools

from pettingllms.workflows import Workflow


def run(task, client):
    """Ask the scout, and then the writer with what the scout said."""
    chat = client.openai().chat.completions

    def ask(role, text):
        messages = [{"role": "user", "content": text}]
        return chat.create(model=role, messages=messages).choices[0].message.content

    said = ask("scout", task)
    return ask("writer", f"{task} {said}")


PAIRS = ["".join(pair) for pair in itertools.permutations("0123456789", 2)]


workflow = Workflow(
    run=run,
    reward=lambda task, answer: answer == max(task),
    roles=("scout", "writer"),
    tasks={"train": [pair for pair in PAIRS if pair not in PAIRS[::5]], "test": PAIRS[::5]},
    demonstrators={
        "right": lambda task, agent, messages, rng: max(task),
        "any": lambda task, agent, messages, rng: rng.choice(task),
    },
)
