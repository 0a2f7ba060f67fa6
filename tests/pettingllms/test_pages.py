"""What pages say alike is added, what a docstring says itself stays; so it is with signatures."""

from __future__ import annotations

import inspect
from typing import ClassVar, Unpack

from pettingllms.env import ShellArguments, TextEnv
from pettingllms.pages import ITEM, SECTIONS, page, sections_of


class Game:
    """A game.

    ## Task

    Win.

    ## Info keys

    - `won`: whether it is won.

    ## Arguments

    - `size`: of the board.
    - `alpha`: our own weight.

    `reset(options=...)` chooses a level.

    ## Source

    Ours.
    """

    metadata: ClassVar[dict] = {"name": "game_v0", "render_modes": ["ansi", "human", "rgb_array"]}

    def __init__(self, size, alpha, reward, render_mode, depth):
        pass


def test_a_page_is_completed_and_says_nothing_twice():
    def sections(kind):
        return {"Termination": f"{kind.__name__} ends."}

    made = page(
        sections, {"depth": "how deep."}, {"depth": "of the search.", "width": "none"}, size=3
    )
    kind = made(type("Game", (Game,), {"__doc__": Game.__doc__}))
    assert kind.__doc__.startswith("A game.\n\n## Task\n\nWin.\n\n## Termination\n\nGame ends.\n\n")
    found = sections_of(kind.__doc__)
    assert list(found) == [name for name in SECTIONS if name in found]
    names = ITEM.findall(found["Arguments"])
    assert names == ["size", "alpha", "reward", "render_mode", "depth"]
    assert found["Arguments"].strip().endswith("`reset(options=...)` chooses a level.")
    assert "our own weight" in found["Arguments"]
    assert '`"ansi"`, `"human"` or `"rgb_array"` (needs the extra `render`).' in found["Arguments"]
    assert found["Info keys"].count("- `") == 3
    assert 'pettingllms.make("game_v0", size=3)' in found["Example"]
    assert 'scripted_action(agent, "oracle", rng)' in found["Example"]
    assert found["Version history"].strip() == "- v0: first version."
    assert found["Source"].strip() == "Ours."


class Common(ShellArguments, total=False):
    depth: int


class Shared(TextEnv):
    def __init__(self, *, depth: int = 2, alpha: float = 0.5, **shell: Unpack[ShellArguments]):
        pass


class Handing(Shared):
    def __init__(self, *, size: int, **shell: Unpack[Common]):
        pass


class Own(Handing):
    def __init__(self, *, size: int = 3):
        pass


def test_arguments_that_are_handed_on_are_in_the_signature_of_the_class():
    found = {name: p.default for name, p in inspect.signature(Handing).parameters.items()}
    assert list(found)[:3] == ["size", "depth", "alpha"]
    assert found.keys() == Common.__optional_keys__ | {"size"}
    assert (found["depth"], found["alpha"], found["reward"]) == (2, 0.5, "shaped")
    assert list(inspect.signature(Own).parameters) == ["size"]
