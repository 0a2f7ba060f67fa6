"""The scripted policies of moderator and experts."""

from __future__ import annotations

import random

from pettingllms_envs.panel.rules import PanelState
from pettingllms_envs.panel.text import PASS, statement_text

MEAN, MEAN_LINKED = 4.5, 49.5
"""The mean of a value, without and with links."""


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
    own = sorted(dict(level.values[expert]))
    if policy == "random" or (policy == "guess" and own):
        return statement_text(level.fact(rng.choice(own)))
    return statement_text(level.fact(state.request)) if state.request in own else PASS


def _moderate(state: PanelState, policy: str, rng: random.Random) -> str:
    level = state.level
    said = state.said
    if policy == "guess":
        return f"= {round((MEAN_LINKED if level.links else MEAN) * len(level.needed))}"
    if policy == "random":
        if rng.random() < 0.25:
            most = 100 if level.links else 10
            known = [
                said[name].value if name in said else rng.randrange(most) for name in level.needed
            ]
            return f"= {max(0, sum(known))}"
        expert = rng.randrange(len(level.values))
        return f"{expert} {rng.choice(level.values[expert])[0]}"
    for name in level.wanted:
        if said.get(name) != level.fact(name):
            return f"{level.owner(name)} {name}"
    return f"= {level.answer}"
