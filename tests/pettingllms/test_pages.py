"""What pages say alike is added, and what a docstring says itself stays."""

from typing import ClassVar

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
