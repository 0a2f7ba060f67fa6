"""What every game's generator promises: its request is kept, or refused after bounded work."""

import random
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from pettingllms.errors import UnreachableRequest
from pettingllms.seeding import SPLITS, split_of
from pettingllms_envs.blocksworld import env as blocksworld_env
from pettingllms_envs.blocksworld import rules as blocksworld
from pettingllms_envs.dining import env as dining_env
from pettingllms_envs.dining import rules as dining
from pettingllms_envs.fireworks import rules as fireworks
from pettingllms_envs.fireworks.rules import Rules
from pettingllms_envs.panel import rules as panel
from pettingllms_envs.plan_path import env as plan_path_env
from pettingllms_envs.plan_path import rules as plan_path
from pettingllms_envs.queens import env as queens_env
from pettingllms_envs.queens import rules as queens
from pettingllms_envs.relay import env as relay
from pettingllms_envs.relay.rules import blank, canonical_form, painted
from pettingllms_envs.search import tasks as search
from pettingllms_envs.sokoban import rules as sokoban
from pettingllms_envs.sokoban.env import level_text as sokoban_text
from pettingllms_envs.sokoban.env import read_level as read_sokoban
from pettingllms_envs.sudoku import generator as sudoku
from pettingllms_envs.sudoku.symmetry import canonical


class Game(NamedTuple):
    generate: Callable[..., Any]
    request: Any
    form: Callable[[Any], bytes]
    """What decides the split."""
    write: Callable[[Any], str] | None = None
    read: Callable[[str], Any] | None = None
    keeps: Callable[[Any], bool] = lambda level: True
    """Whether a level is what the request asks for."""


def keeps_relay(level):
    fewer = (level.fills[:at] + level.fills[at + 1 :] for at in range(3))
    letters = {*level.witness_letters, *level.builder_letters}
    return (
        painted(blank(6), *level.fills) == level.target
        and all(painted(blank(6), *fills) != level.target for fills in fewer)
        and (len({*level.palette}), len(letters)) == (3, 6)
    )


PERFECT = Rules(3, 3, 4, 3, 4, 2, 12)
RELAY = relay.Request(6, 3, 3, 30, 3, is_terse=False, split=None)
PATHS = plan_path.Request(10, 10, 0.22, 4, 40, None)
BOXES = sokoban.Request(6, 6, 2, 0.25, 8, 30, None)
GAMES = {
    "blocksworld": Game(
        *(blocksworld.generate, blocksworld.Request(5, 4, 6, None), blocksworld.canonical_form),
        lambda level: blocksworld_env.level_text(level, level.start),
        blocksworld_env.parse_level,
        lambda level: (
            sorted("".join(level.start)) == sorted("".join(level.goal)) == list("ABCDE")
            and 4 <= level.shortest == blocksworld.distance(level, level.start) <= 6
        ),
    ),
    "blocksworld with weights": Game(
        *(blocksworld.generate, blocksworld.Request(9, 7, 8, None, True)),
        blocksworld.canonical_form,
        keeps=lambda level: (
            level.weights.hold(level.start)
            and level.weights.hold(level.goal)
            and 7 <= level.shortest == blocksworld.distance(level, level.start) <= 8
        ),
    ),
    "dining": Game(
        *(dining.generate, dining.Request(7, 3, 6, 10, 2, None)),
        lambda level: dining.canonical_form(level.start),
        lambda level: dining_env.level_text(level.start),
        dining_env.parse_level,
        lambda level: (
            6 <= level.shortest == len(dining.shortest_schedule(level.start)) <= 10 - 2
            and 0 < min(level.start.hunger) < max(level.start.hunger) <= 3
        ),
    ),
    "fireworks": Game(
        fireworks.generate, fireworks.Request(PERFECT, 30, None), fireworks.dealt_form
    ),
    "panel": Game(
        *(panel.generate, panel.Request(4, 3, 3, None), panel.content_of),
        keeps=lambda level: (
            len({name for own in level.values for name, _ in own}) == 12
            and len({*level.needed}) == 3
        ),
    ),
    "plan_path": Game(
        *(plan_path.generate, PATHS, plan_path.canonical_form),
        *(plan_path_env.level_text, plan_path_env.parse_level),
        lambda level: 4 <= level.shortest <= 40,
    ),
    "queens": Game(
        *(queens.generate, queens.Request(8, 2, 4, 5, None), queens.canonical_form),
        lambda level: queens_env.board_text(level, level.start),
        queens_env.parse_level,
        lambda level: (
            4 <= level.shortest == queens.distance(level, level.start) <= 5
            and sum(level.fixed) == 2
        ),
    ),
    "relay": Game(
        relay.generate, RELAY, lambda level: canonical_form(level.target), keeps=keeps_relay
    ),
    "search": Game(search.generate, search.Request(2, 20, 2, "names", None), search.content_of),
    "sokoban": Game(
        *(sokoban.generate, BOXES, sokoban.canonical_form),
        *(sokoban_text, read_sokoban),
        lambda level: 8 <= level.num_moves <= 30,
    ),
    "sudoku with rules": Game(  # no solution is in two splits
        *(sudoku.generate_of_split, sudoku.Request(6, 4, True, None, 2)),
        lambda puzzle: canonical(6, puzzle.solution, puzzle.rules._replace(cages=())),
    ),
}


@pytest.mark.parametrize("split", SPLITS)
@pytest.mark.parametrize("name", GAMES)
def test_levels_are_of_their_split_keep_their_request_and_are_read_back(name, split):
    game = GAMES[name]
    for seed in range(6):
        level = game.generate(random.Random(seed), game.request._replace(split=split))
        assert split_of(game.form(level)) == split
        assert game.keeps(level)
        assert game.write is None or game.read(game.write(level)) == level


def generated(game, **changes):
    return lambda: GAMES[game].generate(random.Random(0), GAMES[game].request._replace(**changes))


NOT_FOUND = [
    (generated("blocksworld", blocks=4, min_moves=6, split="test"), "2000 random levels held none"),
    (
        generated("queens", size=6, fixed=3, min_moves=4, max_moves=4),
        "2000 random boards held no level",
    ),
    (
        generated("dining", philosophers=3, meals=1, min_turns=8, max_turns=9, sight=6),
        "2000 random tables held none",
    ),
    (generated("fireworks", max_actions=11), "raise max_turns or hints, or lower target"),
    (generated("panel", experts=3, known=1, needed=1, split="test"), "raise experts=3 or known=1"),
    (generated("relay", max_chars=5), "raise max_chars, max_turns or size"),
    (generated("search", hops=1, results=0), "200 random worlds held no task"),
    (generated("plan_path", min_moves=60, max_moves=99), "min_moves=60, max_moves=99"),
    (
        generated("sokoban", rows=5, cols=5, num_boxes=1, min_moves=60, max_moves=70),
        r"60 to 70 moves and rules=0 in \d+ attempts",
    ),
]


@pytest.mark.parametrize(("call", "message"), NOT_FOUND)
def test_what_is_not_found_is_refused_after_bounded_work(call, message):
    with pytest.raises(UnreachableRequest, match=message):
        call()
