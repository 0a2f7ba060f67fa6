"""What the programs beside this file are paid for."""


def longest(task, outcome):
    return len(str(outcome)) / 100


def draw(rng, split):
    return rng.choice(["Hola", "Hello"])
