"""Rules, solver and level texts against plain reference rules."""

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms.errors import LevelFormatError
from pettingllms_envs.plan_path import env, rules
from pettingllms_envs.plan_path.policies import greedy_walk, moves_of, target_cell

MOVES = st.text("UDLR", max_size=30)


@given(st.data())
def test_walks_equal_the_reference_rules(level_texts, reference, data):
    board, moves = data.draw(level_texts()), data.draw(MOVES)
    level = env.parse_level(board)
    maze = rules.maze_of(level)
    done = rules.walk(maze, level.start, moves)
    position, executed, illegal, unused = reference.walk(board, reference.find(board, "P"), moves)
    assert divmod(done.position, level.stride) == position
    assert done.executed == "".join(executed)
    assert done.illegal == illegal
    assert len(moves) - len(done.executed) - done.illegal == unused
    at = level.start
    for move in done.executed:
        assert maze.is_open(at, move)
        at = maze.step(at, move)
    assert at == done.position


@given(st.data())
def test_distances_and_certificate_equal_a_plain_search(level_texts, reference, data):
    board = data.draw(level_texts())
    level = env.parse_level(board)
    expected = reference.distances(board, reference.find(board, "G"))
    maze = rules.maze_of(level)
    assert level.shortest == expected[reference.find(board, "P")]
    for row in range(level.rows):
        for col in range(level.cols):
            assert maze.distance(level.cell(row, col)) == expected.get((row, col), -1)


@given(st.data())
def test_shortest_paths_are_legal_and_shortest(level_texts, reference, data):
    board = data.draw(level_texts())
    level = env.parse_level(board)
    maze = rules.maze_of(level)
    start = reference.find(board, "P")
    expected = reference.distances(board, start)
    for row in range(level.rows):
        for col in range(level.cols):
            path = rules.shortest_path(maze, level.start, level.cell(row, col))
            assert (path is None) == ((row, col) not in expected)
            if path is not None:
                assert len(path) == expected[row, col]
                at = start
                for move in path:
                    at = (at[0] + reference.STEPS[move][0], at[1] + reference.STEPS[move][1])
                    assert board.split("\n")[at[0]][at[1]] != "#"
                assert at == (row, col)


@given(st.data())
def test_no_step_leaves_the_board_or_wraps(level_texts, data):
    level = env.parse_level(data.draw(level_texts()))
    maze = rules.maze_of(level)
    for cell in range(level.area):
        if maze.distance(cell) < 0:
            continue
        row, col = divmod(cell, level.stride)
        for move, (d_row, d_col) in {"U": (-1, 0), "D": (1, 0), "L": (0, -1), "R": (0, 1)}.items():
            after = divmod(maze.step(cell, move), level.stride)
            is_free = level.is_free(row + d_row, col + d_col)
            assert after == ((row + d_row, col + d_col) if is_free else (row, col))
            assert maze.is_open(cell, move) == is_free


@given(st.data())
def test_policies_never_bump_and_the_oracle_is_optimal(level_texts, data):
    level = env.parse_level(data.draw(level_texts()))
    maze, rng = rules.maze_of(level), random.Random(data.draw(st.integers(0, 99)))
    limit = data.draw(st.integers(1, 12))
    for policy in ("oracle", "greedy", "random"):
        moves = moves_of(level, level.start, policy, limit, rng)
        done = rules.walk(maze, level.start, moves)
        assert done.illegal == 0
        assert done.executed == moves
        assert len(moves) == limit or done.position == level.goal
        target = target_cell(level, level.start, policy, limit, rng)
        assert maze.free >> target & 1
        assert target != level.start
        assert moves_of(level, level.goal, policy, limit, rng) == ""
    assert len(moves_of(level, level.start, "oracle", 99, rng)) == level.shortest


def test_greedy_is_held_by_a_dead_end_and_reaches_the_goal_without_walls():
    trap = env.parse_level("....\n.##.\nP.#G\n.##.\n....")
    maze = rules.maze_of(trap)
    walked = rules.walk(maze, trap.start, greedy_walk(maze, trap.start, 40, random.Random(0)))
    assert walked.position != trap.goal
    free = env.parse_level("P....\n.....\n....G")
    moves = greedy_walk(rules.maze_of(free), free.start, 40, random.Random(0))
    assert len(moves) == free.shortest


@given(st.data())
def test_a_written_level_is_read_back(level_texts, data):
    board = data.draw(level_texts())
    level = env.parse_level(board)
    assert env.level_text(level) == board
    assert env.parse_level(f"\n{board}\n\n") == level


@given(st.data())
def test_canonical_form_ignores_symmetry_and_direction(level_texts, data):
    board = data.draw(level_texts(max_side=5))
    form = rules.canonical_form(env.parse_level(board))
    back = board.translate({ord("P"): "G", ord("G"): "P"})
    for rows in (board.split("\n"), back.split("\n")):
        for _ in range(4):
            rows = ["".join(column) for column in zip(*rows[::-1], strict=True)]
            for image in (rows, rows[::-1]):
                assert rules.canonical_form(env.parse_level("\n".join(image))) == form


def test_canonical_form_tells_other_levels_apart():
    boards = ["P.G\n...", "P..\n..G", "P.G\n.#.", "PG.\n...", ".P.\n..G"]
    assert len({rules.canonical_form(env.parse_level(board)) for board in boards}) == 5


@pytest.mark.parametrize(
    ("board", "line", "column", "word"),
    [
        ("", 0, 0, "no rows"),
        ("...\n.G.", 0, 0, "no P"),
        ("...\n.P.", 0, 0, "no G"),
        ("P.G\n..P", 2, 3, "a second P"),
        ("G.G\n..P", 1, 3, "a second G"),
        ("P.\n.x\nG.", 2, 2, "unknown symbol 'x'"),
        ("P.*", 1, 3, "unknown symbol"),
        ("P..\nG.", 2, 3, "2 cells"),
        ("P..\n\n..G", 2, 0, "blank line"),
        ("\nP#.\n##.\n..G", 4, 3, "no path"),
        ("P" + "." * 64 + "G", 1, 0, "66 cells"),
        ("\n".join(["P", *["."] * 64, "G"]), 1, 0, "66x1"),
    ],
)
def test_ill_formed_levels_are_refused_with_their_place(board, line, column, word):
    with pytest.raises(LevelFormatError, match=word) as caught:
        env.parse_level(board)
    assert (caught.value.line, caught.value.column) == (line, column)


@given(st.data())
def test_drawings_show_every_cell_where_it_is(level_texts, data):
    board = data.draw(level_texts(max_side=12))
    level = env.parse_level(board)
    for position in (level.start, level.goal):
        expected = env.level_text(level, position).split("\n")
        lines = env.labelled_board(level, position).split("\n")
        assert [line.split() for line in lines[-level.rows :]] == [
            [str(row), *symbols] for row, symbols in enumerate(expected)
        ]
        assert len({len(line) for line in lines}) == 1
    assert "*" in env.level_text(level, level.goal)


@given(st.data())
def test_centred_map_is_the_board_seen_from_the_player(level_texts, data):
    level = env.parse_level(data.draw(level_texts()))
    maze = rules.maze_of(level)
    reachable = [cell for cell in range(level.area) if maze.distance(cell) >= 0]
    position = data.draw(st.sampled_from(reachable))
    rows = env.centred_rows(level, position)
    height, width = level.rows + 1, level.cols + 1
    assert len(rows) == height
    assert {len(row) for row in rows} == {width}
    player_row, player_col = divmod(position, level.stride)
    plain = env.level_text(level, position).split("\n")
    for row in range(height):
        for col in range(width):
            source = (
                (player_row + row - height // 2) % height,
                (player_col + col - width // 2) % width,
            )
            is_edge = source[0] == level.rows or source[1] == level.cols
            assert rows[row][col] == ("#" if is_edge else plain[source[0]][source[1]])
    assert rows[height // 2][width // 2] in "P*"
