"""Levels are what was asked for, with a certificate that holds."""

import itertools
import random

import pytest

from pettingllms.errors import InvalidArgument, UnreachableRequest
from pettingllms.seeding import SPLITS, split_of
from pettingllms_envs.grid import cells_of, flood
from pettingllms_envs.sokoban import SokobanEnv
from pettingllms_envs.sokoban.generator import Request, canonical_form, generate
from pettingllms_envs.sokoban.rules import warehouse_of
from pettingllms_envs.sokoban.text import level_text, read_level


def request(size, boxes, low=None, high=None, split=None, ratio=0.25, budget=400):
    return Request(size, size, boxes, ratio, low, high, split).checked(budget)


@pytest.mark.parametrize(
    ("size", "boxes"), [(5, 1), (6, 1), (6, 2), (6, 3), (8, 2), (8, 3), (12, 1)]
)
def test_small_levels_have_exactly_the_certified_length(size, boxes):
    wanted = request(size, boxes, low=2 if size == 5 else None)
    for seed in range(15 if size < 8 else 4):
        level = generate(random.Random(seed), wanted)
        assert level.certificate == "optimal"
        assert wanted.min_moves <= level.num_moves <= wanted.max_moves
        solution = warehouse_of(level).solve(level.start)
        assert len(solution) == level.num_moves


@pytest.mark.parametrize(("size", "boxes"), [(10, 4), (16, 6)])
def test_large_levels_carry_a_solution(size, boxes):
    wanted = request(size, boxes)
    for seed in range(5):
        level = generate(random.Random(seed), wanted)
        assert level.certificate == "reference"
        assert len(level.solution) == level.num_moves <= wanted.max_moves
        place, executed, num_illegal, _ = warehouse_of(level).play(level.start, level.solution)
        assert (place.boxes, executed, num_illegal) == (level.goals, level.solution, 0)


@pytest.mark.parametrize(("size", "boxes"), [(6, 1), (6, 3), (10, 4)])
def test_levels_are_well_formed_and_not_trivial(size, boxes):
    for seed in range(20):
        level = generate(random.Random(seed), request(size, boxes))
        again = read_level(level_text(level))
        if size < 10:
            assert again == level
        else:
            assert again == level._replace(certificate="none", num_moves=0, solution="")
        assert not level.boxes & level.goals
        assert level.boxes.bit_count() == level.goals.bit_count() == boxes
        assert level.num_moves >= 4 + 2 * boxes
        assert flood(level.floor, 1 << level.player, level.stride) == level.floor


@pytest.mark.parametrize("length", [1, 2, 9, 20])
def test_lengths_on_request(length):
    level = generate(random.Random(3), request(6, 1, length, length))
    assert level.num_moves == length


def test_rectangles():
    level = generate(random.Random(0), Request(5, 9, 2, 0.2, 8, 30, None).checked(400))
    assert (level.rows, level.cols) == (5, 9)


def test_what_is_not_found_is_refused_after_bounded_work():
    with pytest.raises(UnreachableRequest, match=r"60 to 70 moves and rules=0 in \d+ attempts"):
        generate(random.Random(0), request(5, 1, 60, 70))
    with pytest.raises(UnreachableRequest):
        generate(random.Random(0), request(6, 6, 30, 40))


@pytest.mark.parametrize(
    "changed",
    [
        {"rows": 4},
        {"cols": 17},
        {"num_boxes": 0},
        {"num_boxes": 7},
        {"num_boxes": True},
        {"wall_ratio": 0.9},
        {"wall_ratio": "a"},
        {"min_moves": 0},
        {"max_moves": 3},
        {"split": "dev"},
    ],
)
def test_requests_that_make_no_sense(changed):
    with pytest.raises(InvalidArgument, match="allowed"):
        request(6, 1, 5, 9)._replace(**changed).checked(400)


def images(text):
    """All rotations and reflections of a board."""
    rows = text.split("\n")
    for turned in (rows, ["".join(column) for column in zip(*rows, strict=True)]):
        for image in (turned, turned[::-1]):
            yield "\n".join(image)
            yield "\n".join(row[::-1] for row in image)


def test_canonical_form_ignores_symmetry_the_players_place_and_the_frame():
    for seed in range(15):
        level = generate(random.Random(seed), request(7, 2))
        form = canonical_form(level)
        text = level_text(level)
        assert {canonical_form(read_level(image)) for image in images(text)} == {form}
        region = flood(level.floor & ~level.boxes, 1 << level.player, level.stride)
        for player in cells_of(region):
            assert canonical_form(level._replace(player=player)) == form
        framed = "\n".join(["#" * 9, *("#" + row + "#" for row in text.split("\n"))])
        assert canonical_form(read_level(framed)) == form
        others = level.floor & ~level.boxes & ~region
        for player in cells_of(others):
            assert canonical_form(level._replace(player=player)) != form


def test_splits_hold_what_they_promise():
    forms = {}
    for split in SPLITS:
        forms[split] = {
            canonical_form(generate(random.Random(seed), request(6, 2, split=split)))
            for seed in range(40)
        }
        assert {split_of(form) for form in forms[split]} == {split}
    for one, other in itertools.combinations(SPLITS, 2):
        assert not forms[one] & forms[other]


@pytest.mark.parametrize("split", ["train", "validation", "test"])
def test_the_smallest_boards_have_levels_in_every_split(split):
    env = SokobanEnv(size=5, team="single", split=split)
    hashes = set()
    for seed in range(60):
        env.reset(seed=seed)
        hashes.add(env.level_hash())
        assert env.state().level.num_moves >= 2
    assert len(hashes) >= 5
