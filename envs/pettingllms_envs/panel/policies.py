"""The scripted policies of moderator and experts."""

from __future__ import annotations

import random

from pettingllms_envs.panel.rules import PanelState
from pettingllms_envs.panel.text import PASS

MEAN = 4.5
"""The mean of a value."""


def say(state: PanelState, expert: int | None, policy: str, rng: random.Random) -> str:
    """Return what a scripted policy says, without the mark.

    Args:
        state: The state.
        expert: Who speaks; None: the moderator.
        policy: `"oracle"`: the moderator asks who knows for what is missing, then answers, and
            experts say what they are asked for; `"random"`: any expert for anything known to
            that expert, or in one of four cases an answer, which is right if all is known by luck,
            and experts say any one thing they know; `"guess"`: the mean, at once.
        rng: Source of chance.
    """
    level = state.level
    if expert is None:
        return _moderate(state, policy, rng)
    own = dict(level.values[expert])
    if policy == "random" or (policy == "guess" and own):
        name = rng.choice(sorted(own))
        return f"{name} = {own[name]}"
    return f"{state.request} = {own[state.request]}" if state.request in own else PASS


def _moderate(state: PanelState, policy: str, rng: random.Random) -> str:
    level = state.level
    said = {name: value for name, value, _ in state.board}
    if policy == "guess":
        return f"= {round(MEAN * len(level.needed))}"
    if policy == "random":
        if rng.random() < 0.25:
            known = (said.get(name, rng.randrange(10)) for name in level.needed)
            return f"= {sum(known)}"
        expert = rng.randrange(len(level.values))
        return f"{expert} {rng.choice(level.values[expert])[0]}"
    for name in level.needed:
        owner = level.owner(name)
        if said.get(name) != dict(level.values[owner])[name]:
            return f"{owner} {name}"
    return f"= {level.answer}"
