"""Stacks, moves, shortest plans and canonical forms against plain references."""

import json
import random
from collections import deque

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pettingllms
from pettingllms.errors import InvalidArgument
from pettingllms_envs.blocksworld.env import (
    level_text,
    parse_level,
    program_input,
    supports_compact,
)
from pettingllms_envs.blocksworld.rules import (
    Level,
    Request,
    after,
    canonical_form,
    distance,
    generate,
    legal_moves,
    moves_needed,
    random_stacks,
    shortest_plan,
    table,
    wrong_supports,
)


def moved(stacks, block, onto):
    """The rule once more, with lists of lists."""
    lists = [list(stack) for stack in stacks]
    source = next((one for one in lists if one[-1] == block), None)
    target = next((one for one in lists if one[-1] == onto), None)
    if source is None or source is target or (target is None and (onto != "-" or len(source) < 2)):
        return None
    source.pop()
    if onto == "-":
        lists.append([block])
    else:
        target.append(block)
    return tuple(sorted("".join(one) for one in lists if one))


def lengths(goal, blocks):
    """Number of moves from every arrangement to the goal, by breadth-first search."""
    found, queue = {goal: 0}, deque([goal])
    while queue:
        stacks = queue.popleft()
        for block in blocks:
            for onto in [*blocks, "-"]:
                near = moved(stacks, block, onto)
                if near is not None and near not in found:
                    found[near] = found[stacks] + 1
                    queue.append(near)
    return found


@st.composite
def stacks_of(draw, blocks=5):
    return random_stacks(random.Random(draw(st.integers(0, 10**6))), blocks)


@given(stacks=stacks_of(), block=st.sampled_from("ABCDEF"), onto=st.sampled_from("ABCDEF-"))
def test_moves_are_those_of_the_plain_rule(stacks, block, onto):
    expected = moved(stacks, block, onto)
    assert after(stacks, block + onto) == expected
    assert (block + onto in legal_moves(stacks)) == (expected is not None)


@given(stacks=stacks_of())
def test_every_move_can_be_undone(stacks):
    for move in legal_moves(stacks):
        following = after(stacks, move)
        assert any(after(following, back) == stacks for back in legal_moves(following))


@settings(max_examples=12)
@given(goal=stacks_of(), seed=st.integers(0, 1000))
def test_plans_are_shortest(goal, seed):
    found = lengths(goal, "ABCDE")
    assert len(found) == 501  # all arrangements of five blocks
    for start in random.Random(seed).sample(sorted(found), 60):
        plan, stacks = shortest_plan(start, goal), start
        for move in plan:
            stacks = after(stacks, move)
        assert stacks == goal
        assert len(plan) == found[start] >= moves_needed(start, goal)


def renamed(stacks, names):
    return table([stack.translate(names) for stack in stacks])


@given(start=stacks_of(), goal=stacks_of(), order=st.permutations("ABCDE"))
def test_names_and_direction_do_not_matter_to_the_canonical_form(start, goal, order):
    names = str.maketrans("ABCDE", "".join(order))
    here = canonical_form(Level(start, goal, 0))
    assert canonical_form(Level(renamed(start, names), renamed(goal, names), 0)) == here
    assert canonical_form(Level(goal, start, 0)) == here


def test_canonical_forms_of_different_levels_differ():
    """All pairs of arrangements of three blocks, against a comparison of all namings."""
    every = sorted(lengths(("ABC",), "ABC"))
    orders = ["ABC", "ACB", "BAC", "BCA", "CAB", "CBA"]

    def images(start, goal):
        for order in orders:
            names = str.maketrans("ABC", order)
            pair = renamed(start, names), renamed(goal, names)
            yield from (pair, pair[::-1])

    for first in [(a, b) for a in every for b in every]:
        alike = set(images(*first))
        form = canonical_form(Level(*first, 0))
        for second in [(a, b) for a in every for b in every]:
            assert (canonical_form(Level(*second, 0)) == form) == (second in alike)


def test_supports_name_what_blocks_stand_on_now_and_in_the_goal():
    assert supports_compact(parse_level("AC B -> B CA"), ("AC", "B")) == "-C.--!A-!"


def weighed(level, lists, block, onto):
    """The rules once more, from the JSON that programs read; None for an illegal move."""
    rules = json.loads(program_input(level, level.start).split("\n")[2])
    lists = [list(one) for one in lists]
    source = next(one for one in lists if block in one)
    lifted = source[source.index(block) :]
    target = next((one for one in lists if one[-1] == onto and one is not source), None)
    if sum(rules["weight"][one] for one in lifted) > rules["lift"]:
        return None
    if target is None and (onto != "-" or lifted == source):
        return None
    del source[-len(lifted) :]
    target.extend(lifted) if target else lists.append(lifted)
    lists = [one for one in lists if one]
    for one in lists:
        for at, low in enumerate(one):
            if sum(rules["weight"][high] for high in one[at + 1 :]) > rules["load"][low]:
                return None
    return sorted(lists) if len(lists) <= rules["places"] else None


def weighty(blocks=5, low=2):
    request = Request(blocks, low, 20, None, True).checked()
    return st.integers(0, 10**6).map(lambda seed: generate(random.Random(seed), request))


@settings(max_examples=12)
@given(level=weighty())
def test_rules_with_weights_are_those_of_the_text(level):
    """Every arrangement that is reached from the goal, and its distance by plain search."""
    names, goal = "ABCDE", sorted(map(list, level.goal))
    found, queue = {level.goal: 0}, deque([goal])
    while queue:
        lists = queue.popleft()
        here = table(["".join(one) for one in lists])
        moves = {a + b: weighed(level, lists, a, b) for a in names for b in [*names, "-"]}
        legal = {move: near for move, near in moves.items() if near is not None}
        assert legal_moves(here, level.weights) == sorted(legal)
        for move, near in legal.items():
            following = table(["".join(one) for one in near])
            assert after(here, move, level.weights) == following
            if following not in found:
                found[following] = found[here] + 1
                queue.append(near)
        assert all(after(here, move, level.weights) is None for move in set(moves) - set(legal))
    assert found[level.start] == level.shortest
    for stacks in random.Random(0).sample(sorted(found), min(20, len(found))):
        assert wrong_supports(stacks, level.goal) <= distance(level, stacks) == found[stacks]


@settings(max_examples=25)
@given(level=weighty(9, 6), order=st.permutations("ABCDEFGHI"))
def test_levels_with_weights_are_read_back_and_have_one_form(level, order):
    text = level_text(level, level.start)
    assert parse_level(text) == level
    sides, _, tail = text.translate(str.maketrans("ABCDEFGHI", "".join(order))).partition(" : ")
    *pairs, _, lift, _, places = tail.split()
    start, goal = sides.split(" -> ")
    for image in (f"{start} -> {goal}", f"{goal} -> {start}"):
        image += f" : {' '.join(sorted(pairs))} lift {lift} places {places}"
        assert canonical_form(parse_level(image)) == canonical_form(level)


@given(level=weighty(), at=st.integers(0, 4))
def test_other_weights_are_another_form(level, at):
    weights = level.weights
    heavier = tuple(one + (n == at) for n, one in enumerate(weights.weight))
    stronger = tuple(one + (n == at) for n, one in enumerate(weights.load))
    for other in (
        weights._replace(weight=heavier),
        weights._replace(load=stronger),
        weights._replace(lift=weights.lift + 1),
        weights._replace(places=weights.places + 1),
        None,
    ):
        assert canonical_form(level._replace(weights=other)) != canonical_form(level)


def test_environments_take_levels_that_their_prompts_explain():
    text = "AB -> A B : A1/1 B1/0 lift 2 places 2"
    with pytest.raises(InvalidArgument, match="got False; allowed: True for levels with weights"):
        pettingllms.make("blocksworld_v0", levels=[text])
    with pytest.raises(InvalidArgument, match="got True; allowed: False for levels without"):
        pettingllms.make("blocksworld_v0", levels=["AB -> A B"], weights=True)
    env = pettingllms.make("blocksworld_v0", levels=[text], weights=True, team="single")
    env.reset(seed=0)
    shown = "Weight/load: A 1/1, B 1/0. A move lifts at most 2. The table has 2 places."
    assert shown in env.observe("planner_0")
