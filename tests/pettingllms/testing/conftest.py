"""An honest game on which the conformance kit is tested, and what the kit says about a game."""

import random
import re
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pytest

from pettingllms import ParseError, PromptTemplate, TextEnv, Transition
from pettingllms.arguments import check_whole
from pettingllms.parsing import read_list
from pettingllms.seeding import check_split, split_of
from pettingllms.testing import CHECKS, CheckStatus
from pettingllms.testing.conformance import finding_of
from pettingllms.testing.interface import check_other_process
from pettingllms.testing.report import Subject

IN_PROCESS = tuple(check for check in CHECKS if check is not check_other_process)


class Corridor(NamedTuple):
    length: int
    goal: int
    start: int
    position: int
    advice: str = ""
    trail: str = ""


class CorridorEnv(TextEnv):
    __doc__ = Path(__file__).with_name("corridor.md").read_text(encoding="utf-8")
    metadata = {"name": "corridor_v0", "render_modes": ["ansi", "human"]}
    scripted_policies = ("oracle", "random")
    prompt_fields = {"where": "the corridor", "advice": "the scout's advice", "turn": "the turn"}
    default_prompts = {
        "scout": PromptTemplate('Advise the walker, as:\n#### ["L"]', "Turn {turn}. {where}"),
        "walker": PromptTemplate("Walk.", "Turn {turn}. {where} The scout says: {advice}"),
    }

    def __init__(self, *, longest=24, split=None, max_turns=4, alpha=1.0, reward="shaped"):
        check_whole("longest", longest, 4)
        check_split(split)
        self.longest, self.split = longest, split
        stages = (("scout_0",), ("walker_0",))
        super().__init__(stages=stages, max_turns=max_turns, alpha=alpha, reward=reward)

    def _generate(self, rng, options):
        while True:
            length = rng.randint(4, self.longest)
            start, goal = rng.sample(range(length), 2)
            mirrored = (length, length - 1 - goal, length - 1 - start)
            content = repr(min((length, goal, start), mirrored)).encode()
            if self.split in (None, split_of(content)):
                return Corridor(length, goal, start, start)

    def _fields(self, state, agent, turn):
        where = f"Cells 0 to {state.length - 1}, goal {state.goal}, you are on {state.position}."
        return {"where": where, "advice": state.advice or "nothing", "turn": turn}

    def _parse(self, state, agent, text):
        items = read_list(text, lambda items: items)
        if isinstance(items, ParseError) or any(item not in ("L", "R") for item in items):
            return ParseError("no list of the moves L, R")
        return "".join(items[:8])

    def _act(self, state, agent, action):
        if isinstance(action, ParseError):
            return Transition(state._replace(advice=""), local=-0.24 / self.max_turns)
        if agent == "scout_0":
            return Transition(state._replace(advice=action), info={"executed": ""})
        if not action:
            return Transition(state._replace(advice=""), local=-0.2 / self.max_turns)
        after, bumps = walk(state, action)
        reached = after.position == after.goal
        rise = (distance(state) - distance(after)) / abs(state.goal - state.start)
        local = -0.2 * bumps / (8 * self.max_turns)
        info = {"executed": after.trail}
        return Transition(after, rise + reached, local, reached, reached, info)

    def _ansi(self, state):
        return f"{state.position} of {state.length}, goal {state.goal}"

    def _scripted(self, state, agent, policy, rng):
        if policy == "random":
            moves = [rng.choice("LR") for _ in range(rng.randint(1, 8))]
        else:
            moves = ["R" if state.goal > state.position else "L"] * min(8, distance(state))
        return "#### [" + ",".join(f'"{move}"' for move in moves) + "]"


def distance(state):
    return abs(state.goal - state.position)


def walk(state, moves):
    """Walk until the goal; return the state afterwards and the number of bumps."""
    position, trail = state.position, ""
    for move in moves:
        if position != state.goal:
            position = min(max(position + (1 if move == "R" else -1), 0), state.length - 1)
            trail += move
    bumps = len(trail) - sum(abs(b - a) for a, b in pairwise(path(state, trail)))
    return state._replace(position=position, advice="", trail=trail), bumps


def path(state, moves):
    """Return the cells that moves lead over, with the first one."""
    cells = [state.position]
    for move in moves:
        cells.append(min(max(cells[-1] + (1 if move == "R" else -1), 0), state.length - 1))
    return cells


def towards(before, after):
    """The share of the way that was walked, with nothing taken back for steps away."""
    cells = [abs(before.goal - cell) for cell in path(before, after.trail)]
    return sum(b < a for a, b in pairwise(cells)) / abs(before.goal - before.start)


@pytest.fixture
def corridor_env():
    """The class of an honest game."""
    return CorridorEnv


@pytest.fixture
def faults():
    """Return what the checks say is broken; in this process alone unless asked otherwise."""

    def found(env, checks=IN_PROCESS, **kwargs):
        subject = Subject(env, kwargs)
        findings = [finding_of(check, subject) for check in checks]
        return [str(f) for f in findings if f.status is CheckStatus.BROKEN]

    return found


@pytest.fixture
def mention():
    """Require that a fault is among those that were found, and named as expected."""
    rngs = random.getstate(), np.random.get_state()

    def check(found, message):
        assert found, "no check noticed the fault"
        texts = "\n".join(found)
        assert re.search(message, texts), f"expected {message!r} among:\n{texts}"

    yield check
    random.setstate(rngs[0])  # some mutants draw from the global generators
    np.random.set_state(rngs[1])
