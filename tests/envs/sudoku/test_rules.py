"""Fills, puzzles, the solver, canonical forms and texts against the rules read as text."""

import itertools
import json
import random

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import pettingllms
from pettingllms.errors import InvalidArgument, LevelFormatError, UnreachableRequest
from pettingllms.types import ParseError
from pettingllms_envs.grid import SAND
from pettingllms_envs.sudoku import SudokuEnv
from pettingllms_envs.sudoku.drawn import Rules, draw, read_rules, rules_lines, solutions
from pettingllms_envs.sudoku.env import FillAnswer, fills_json, puzzle_text, read_puzzle, reader
from pettingllms_envs.sudoku.generator import Request, generate, generate_of_split, random_solution
from pettingllms_envs.sudoku.rules import candidates, is_solved, start, write
from pettingllms_envs.sudoku.solver import BOX_SHAPES, geometry, singles_suffice
from pettingllms_envs.sudoku.solver import solutions as usual_solutions
from pettingllms_envs.sudoku.symmetry import canonical

CASES = [(6, 1, 6), (6, 2, 4), (6, 3, 5), (9, 3, 12)]
PUZZLES = [
    generate_of_split(random.Random(seed), Request(size, clues, True, None, num_rules))
    for seed, (size, num_rules, clues) in enumerate(CASES * 2)
]
USUAL_PUZZLES = {size: generate(random.Random(size), size) for size in (4, 6, 9, 16)}


class Plain:
    """The rules as a reader of the lines would check a grid, a list of rows."""

    def __init__(self, size, lines):
        n, (height, width) = size, BOX_SHAPES[size]
        self.size = size
        self.means = {name: value for name, _, value in (line.partition(" ") for line in lines)}
        usual = [[r // height * height + c // width for c in range(n)] for r in range(n)]
        self.boxes = json.loads(self.means.get("boxes", str(usual)))
        self.cages = [
            (total, [(row, col) for row, col in cells])
            for total, *cells in json.loads(self.means.get("cages", "[]"))
        ]
        cells = list(itertools.product(range(n), repeat=2))
        self.groups = [
            [cell for cell in cells if cell[axis] == at] for axis in (0, 1) for at in range(n)
        ]
        names = {self.boxes[r][c] for r, c in cells}
        self.groups += [[(r, c) for r, c in cells if self.boxes[r][c] == name] for name in names]
        if "diagonals" in self.means:
            self.groups += [[(at, at) for at in range(n)], [(at, n - 1 - at) for at in range(n)]]
        self.groups += [cells for _, cells in self.cages]

    def agrees(self, grid):
        """Whether no group holds a value twice, and full cages have their sum."""
        for group in self.groups:
            values = [grid[r][c] for r, c in group if grid[r][c]]
            if len({*values}) < len(values):
                return False
        sums = ((total, [grid[r][c] for r, c in cells]) for total, cells in self.cages)
        return all(0 in values or sum(values) == total for total, values in sums)

    def completions(self, grid):
        """All of them, cell by cell."""
        empty = [(r, c) for r, row in enumerate(grid) for c, value in enumerate(row) if not value]
        if not self.agrees(grid):
            return
        if not empty:
            yield bytes(itertools.chain(*grid))
            return
        r, c = empty[0]
        for value in range(1, self.size + 1):
            yield from self.completions(
                [
                    [value if (r, c) == (y, x) else old for x, old in enumerate(row)]
                    for y, row in enumerate(grid)
                ]
            )


def rows_of(cells, size):
    return [list(cells[at : at + size]) for at in range(0, size * size, size)]


def check_solutions(size, clues):
    expected = Plain(size, []).completions(rows_of(clues, size))
    assert sorted(usual_solutions(size, clues, limit=10**6)) == sorted(expected)


@given(st.lists(st.sampled_from([0, 0, 0, 1, 2, 3, 4]), min_size=16, max_size=16))
@example([0] * 16)
def test_finds_exactly_the_solutions_of_the_rules(clues):
    check_solutions(4, bytes(clues))


HARD = "8..........36......7..9.2...5...7.......457.....1...3...1....68..85...1..9....4.."
SEVENTEEN = "000000010400000000020000000000050407008000300001090000300400200050100000000806000"


@pytest.mark.parametrize("text", [HARD, SEVENTEEN])
def test_known_puzzles_have_one_solution(text):
    clues = bytes(int(symbol) for symbol in text.replace(".", "0"))
    (found,) = usual_solutions(9, clues)
    assert all(clue in (0, value) for clue, value in zip(clues, found, strict=True))
    assert Plain(9, []).agrees(rows_of(found, 9))
    assert not singles_suffice(9, clues) or text == SEVENTEEN


def test_search_is_bounded_and_says_so():
    with pytest.raises(UnreachableRequest, match="within 3 search nodes"):
        usual_solutions(16, bytes(256), limit=2, node_limit=3)


def tiny(seed, num_rules):
    """Return clues, solution and rules of a 4x4 grid, of which everything can be tried."""
    rng = random.Random(seed)
    tries = (draw(rng, 4, 2, num_rules, lambda grid, rules: True) for _ in range(1000))
    return next(found for found in tries if found)


@given(st.integers(0, 10**6), st.integers(1, 2), st.booleans(), st.integers(0, 2), st.data())
def test_the_search_finds_what_trying_everything_finds(seed, num_rules, diagonals, kept, data):
    _, solution, rules = tiny(seed, num_rules)
    wrong = [data.draw(st.sampled_from((0, 0, 1))) for _ in rules.cages]
    pairs = zip(rules.cages, wrong, strict=True)
    cages = tuple((total + more, cells) for (total, cells), more in pairs)
    rules = Rules(rules.boxes, cages[kept:], diagonals)
    clues = bytes(value if data.draw(st.booleans()) else 0 for value in solution)
    expected = Plain(4, rules_lines(4, rules)).completions(rows_of(clues, 4))
    assert sorted(solutions(4, clues, rules, limit=1000)) == sorted(expected)


@given(st.integers(0, 10**6), st.integers(1, 2))
def test_every_drawn_rule_is_needed(seed, num_rules):
    clues, solution, rules = tiny(seed, num_rules)
    lines, grid = rules_lines(4, rules), rows_of(clues, 4)
    assert [line.split()[0] for line in lines] == ["boxes", "cages"][-num_rules:]
    assert [*Plain(4, lines).completions(grid)] == [solution]
    for without in lines:
        fewer = Plain(4, [line for line in lines if line != without])
        assert [*fewer.completions(grid)] != [solution]


@pytest.mark.parametrize("puzzle", [PUZZLES[2], PUZZLES[3]], ids=["6", "9"])
def test_diagonals_are_needed(puzzle):
    assert len(solutions(puzzle.size, puzzle.clues, puzzle.rules._replace(diagonals=False))) == 2


@pytest.mark.parametrize("puzzle", PUZZLES, ids=[str(case) for case in CASES * 2])
def test_boxes_are_connected_and_equal_and_cages_add_up(puzzle):
    size, plain = puzzle.size, Plain(puzzle.size, rules_lines(puzzle.size, puzzle.rules))
    assert plain.agrees(rows_of(puzzle.solution, size))
    groups = plain.groups[2 * size : 3 * size] + [cells for _, cells in plain.cages]
    assert all(len(group) == size for group in groups[:size])
    for group in groups:
        reached = [group[0]]
        for r, c in reached:
            near = {(r - 1, c), (r + 1, c), (r, c - 1), (r, c + 1)} & {*group}
            reached += near - {*reached}
        assert len(reached) == len(group)
    taken = [cell for _, cells in plain.cages for cell in cells]
    assert len({*taken}) == len(taken)
    assert all(len(cells) > 1 for _, cells in plain.cages)
    assert solutions(size, puzzle.clues, puzzle.rules) == [puzzle.solution]
    assert all(
        clue in (0, value) for clue, value in zip(puzzle.clues, puzzle.solution, strict=True)
    )


@pytest.mark.parametrize(
    "puzzle", [*USUAL_PUZZLES.values(), *PUZZLES[:4]], ids=[*USUAL_PUZZLES, *map(str, CASES)]
)
def test_texts_are_read_back(puzzle):
    text = puzzle_text(puzzle)
    assert "\n" not in text
    clues = text.split(" ")[0]
    rows = [clues[at : at + puzzle.size] for at in range(0, len(clues), puzzle.size)]
    rules = rules_lines(puzzle.size, puzzle.rules) if puzzle.rules else []
    for written in (text, "\n".join([*rows, *rules]), text.lower().replace(".", "0") + "\n"):
        assert read_puzzle(written) == puzzle
    if rules:
        with pytest.raises(LevelFormatError, match="several solutions"):
            read_puzzle(f"{clues} diagonals" if puzzle.size == 9 else clues)


@given(st.data(), st.sampled_from([*USUAL_PUZZLES.values(), *PUZZLES]))
def test_any_sequence_of_fills(data, puzzle):
    size = puzzle.size
    plain = Plain(size, rules_lines(size, puzzle.rules) if puzzle.rules else [])
    plain.cages.clear()  # sums are not checked
    grid, rows, fills, number = (
        start(puzzle),
        rows_of(puzzle.clues, size),
        [],
        st.integers(-1, size + 1),
    )
    # Values of the solution are mixed in, so that grids get full.
    for _ in range(data.draw(st.integers(1, 25))):
        row, col, value = data.draw(number), data.draw(number), data.draw(number)
        if fills and data.draw(st.booleans()):
            row, col, _ = fills[-1]  # to replace and clear what was written
        is_inside = 0 <= row < size and 0 <= col < size
        tried = [[*line] for line in rows]
        if is_inside:
            value = puzzle.solution[row * size + col] if data.draw(st.booleans()) else value
            tried[row][col] = value
        is_clue = is_inside and puzzle.clues[row * size + col]
        is_right = is_inside and not is_clue and 0 <= value <= size and plain.agrees(tried)
        before = grid
        grid, refused = write(puzzle, grid, [(row, col, value)])
        assert [fill for fill, _ in refused] == ([] if is_right else [(row, col, value)])
        assert is_right or grid == before
        rows = tried if is_right else rows
        fills.append((row, col, value))
    assert write(puzzle, start(puzzle), fills)[0] == grid
    cells = bytes(itertools.chain(*rows))
    assert grid.cells == cells
    assert [list(map(int, row.split())) for row in grid.text.split("\n")] == rows
    assert len({len(row) for row in grid.text.split("\n")}) == 1
    pairs = list(zip(puzzle.clues, cells, puzzle.solution, strict=True))
    assert grid.num_right == sum(not clue and cell == right for clue, cell, right in pairs)
    assert grid.num_empty == cells.count(0)
    assert is_solved(grid) == (cells == puzzle.solution)
    assert grid.num_wrong == sum(cell not in (0, right) for _, cell, right in pairs)
    for cell in range(size * size):
        groups = [group for group in plain.groups if divmod(cell, size) in group]
        taken = {rows[r][c] for group in groups for r, c in group}
        options = [] if cells[cell] else sorted({*range(1, size + 1)} - taken)
        assert candidates(puzzle, grid, cell) == options


@given(st.sampled_from(PUZZLES), st.integers(1, 7), st.booleans(), st.randoms())
def test_the_same_puzzle_turned_or_renamed_has_one_form(puzzle, turns, is_mirrored, rng):
    size, rules = puzzle.size, puzzle.rules
    cells = [[r * size + c for c in range(size)] for r in range(size)]
    for _ in range(turns):
        cells = [list(row) for row in zip(*cells[::-1], strict=True)]
    cells = list(itertools.chain(*([row[::-1] for row in cells] if is_mirrored else cells)))
    names = rng.sample(range(size), size)
    place = {cell: at for at, cell in enumerate(cells)}
    groups = [(total, tuple(sorted(place[one] for one in group))) for total, group in rules.cages]
    boxes = tuple(names[rules.boxes[cell]] for cell in cells)
    others = tuple((len(group) * (size + 1) - total, group) for total, group in groups)
    digits = [0, *(name + 1 for name in names)]
    image = [puzzle.clues[cell] for cell in cells]
    turned, bare = Rules(boxes, tuple(groups), rules.diagonals), rules._replace(cages=())
    form = canonical(size, puzzle.clues, rules)
    assert canonical(size, bytes(image), turned) == form
    opposite = bytes(value and size + 1 - value for value in image)
    assert canonical(size, opposite, turned._replace(cages=others)) == form
    solved = bytes(digits[puzzle.solution[cell]] for cell in cells)
    turned_bare = turned._replace(cages=())
    assert canonical(size, solved, turned_bare) == canonical(size, puzzle.solution, bare)


def test_forms_tell_puzzles_apart():
    clues, rules = PUZZLES[3].clues, PUZZLES[3].rules
    (total, cells), *rest = rules.cages
    others = [
        PUZZLES[7].rules,
        rules._replace(diagonals=False),
        rules._replace(cages=((total + 1, cells), *rest)),
        rules._replace(cages=tuple(rest)),
        rules._replace(boxes=geometry(9).boxes),
    ]
    assert len({canonical(9, clues, one) for one in (rules, *others)}) == 6


USUAL = (
    "boxes [[1,1,1,2,2,2],[1,1,1,2,2,2],[3,3,3,4,4,4],[3,3,3,4,4,4],[5,5,5,6,6,6],[5,5,5,6,6,6]]"
)


def test_usual_boxes_may_be_written_out():
    assert read_rules(6, f" {USUAL}", 1).boxes == geometry(6).boxes
    assert read_rules(6, " \n", 1) is None
    with pytest.raises(LevelFormatError, match="16x16"):
        read_puzzle("." * 256 + " diagonals")


LONG = """
import sys
from pettingllms.errors import LevelFormatError
from pettingllms_envs.sudoku.env import read_puzzle
for gap in (300_000 * " ", 300_000 * "\\n"):
    assert read_puzzle(sys.argv[1].replace(" ", gap, 1)) == read_puzzle(sys.argv[1])
    try:
        read_puzzle(81 * "." + gap + "x")
    except LevelFormatError:
        continue
    raise AssertionError
"""


def test_long_texts_of_puzzles_are_read_in_linear_time(ends):
    ends(LONG, puzzle_text(PUZZLES[3]))


def test_a_puzzle_that_is_not_found_is_refused(monkeypatch):
    monkeypatch.setattr("pettingllms_envs.sudoku.generator.DRAWS", 20)
    with pytest.raises(UnreachableRequest, match="drawn rules"):
        generate_of_split(random.Random(0), Request(6, 35, True, None, 1))


def test_agents_read_the_rules_once_in_delta_mode_and_programs_every_turn():
    env = pettingllms.make("sudoku_v0", size=6, rules=3, team="single", observation_mode="delta")
    env.reset(seed=0)
    puzzle = env.unwrapped.state().level
    lines = "\n".join(rules_lines(6, puzzle.rules))
    assert env.observe("planner_0").endswith(lines)
    env.step("#### []")
    assert lines not in env.observe("planner_0")
    tool = pettingllms.make("sudoku_v0", size=6, rules=3, clues=4, team="single-tool", checks=False)
    tool.reset(seed=0, options={"level": puzzle_text(puzzle)})
    tool.step("```python\nimport sys\nprint(*sys.stdin.read().split('\\n')[6:], sep='|')\n```")
    assert "|".join(rules_lines(6, puzzle.rules)) in tool.infos["tool_0"]["tool_result"]


def test_environments_without_drawn_rules_refuse_puzzles_that_have_them():
    env = pettingllms.make("sudoku_v0", size=6, team="single", checks=False)
    with pytest.raises(InvalidArgument, match="rules=1 or more"):
        env.reset(seed=0, options={"level": puzzle_text(PUZZLES[0])})


def read_answer(text, size):
    return reader(size).read(text)


@pytest.mark.parametrize("size", [4, 6, 9, 16])
def test_too_many_fills_are_no_answer(size):
    most = 2 * size * size
    assert read_answer(fills_json([(1, 1, 1)] * most), size) == FillAnswer(((1, 1, 1),) * most)
    read = read_answer(fills_json([(1, 1, 1)] * (most + 1)), size)
    assert read == ParseError(f"more than {most} fills")


def lines(rng, size, thickness):
    """A random order of rows (or columns) that keeps bands together."""
    bands = [list(range(start, start + thickness)) for start in range(0, size, thickness)]
    rng.shuffle(bands)
    return [line for band in bands for line in rng.sample(band, thickness)]


def transformed(rng, size, clues):
    height, width = BOX_SHAPES[size]
    rows, cols = lines(rng, size, height), lines(rng, size, width)
    names = [0, *rng.sample(range(1, size + 1), size)]
    image = bytes(names[clues[row * size + col]] for row in rows for col in cols)
    if height == width and rng.random() < 0.5:
        image = bytes(image[col * size + row] for row in range(size) for col in range(size))
    return image


def smallest_image(clues):
    """The canonical form of size 4 by trying everything."""
    orders = [
        (*first, *second)
        for bands in (((0, 1), (2, 3)), ((2, 3), (0, 1)))
        for first in itertools.permutations(bands[0])
        for second in itertools.permutations(bands[1])
    ]
    images = []
    for grid in (clues, bytes(clues[c * 4 + r] for r in range(4) for c in range(4))):
        for rows in orders:
            for cols in orders:
                names = {0: 0}
                image = (grid[row * 4 + col] for row in rows for col in cols)
                images.append(bytes(names.setdefault(v, len(names)) for v in image))
    return min(images)


@pytest.mark.parametrize("size", [4, 6, 9, 16])
def test_symmetries_do_not_change_it(size):
    rng = random.Random(size)
    for _ in range(12 if size < 16 else 2):
        clues = generate(rng, size).clues
        form = canonical(size, clues)
        for _ in range(10):
            assert canonical(size, transformed(rng, size, clues)) == form


def test_size_four_is_exact():
    rng = random.Random(0)
    grids = [generate(rng, 4, rng.randint(4, 9)).clues for _ in range(150)]
    forms = {}
    for clues in grids:
        forms.setdefault(canonical(4, clues), set()).add(smallest_image(clues))
    assert all(len(images) == 1 for images in forms.values())
    assert len(forms) == len({smallest_image(clues) for clues in grids})


def test_the_invariant_of_size_nine_tells_puzzles_apart():
    rng = random.Random(2)
    puzzles = [generate(rng, 9, 31) for _ in range(100)]
    assert len({canonical(9, puzzle.clues) for puzzle in puzzles}) == 100


SINGLES = [
    (4, 6),
    (4, 5),
    (6, 14),
    (6, 10),
    (9, 60),
    (9, 40),
    (9, 31),
    (9, 26),
    (16, 150),
    (16, 200),
]
HARDER = [(6, 14), (9, 30), (9, 45)]


@pytest.mark.parametrize(
    ("size", "num_clues", "is_easy"), [(*c, True) for c in SINGLES] + [(*c, False) for c in HARDER]
)
def test_clues_are_as_many_as_asked_for_and_singles_suffice_or_not(size, num_clues, is_easy):
    for seed in range(3 if size < 16 else 1):
        puzzle = generate(random.Random(seed), size, num_clues, singles_only=is_easy)
        assert size * size - puzzle.clues.count(0) == num_clues
        assert usual_solutions(size, puzzle.clues) == [puzzle.solution]
        assert puzzle.singles_only == singles_suffice(size, puzzle.clues) == is_easy


@pytest.mark.parametrize(("size", "num_clues"), [(4, 3), (6, 7), (9, 16), (16, 54)])
def test_fewer_clues_than_any_known_puzzle_are_refused_at_once(size, num_clues):
    with pytest.raises(UnreachableRequest, match="fewest are"):
        generate(random.Random(0), size, num_clues)


def test_what_is_not_found_is_refused_after_bounded_work():
    with pytest.raises(UnreachableRequest, match="attempts"):
        generate(random.Random(0), 9, 17)
    with pytest.raises(UnreachableRequest, match="not solvable by singles"):
        generate(random.Random(0), 4, 6, singles_only=False)


def test_all_grids_of_size_four_occur():
    rng = random.Random(0)
    seen = {random_solution(rng, geometry(4)) for _ in range(6000)}
    assert len(seen) == 288


LARGE = puzzle_text(generate(random.Random(0), 16))


def test_given_values_cannot_be_overwritten():
    """A valid grid that ignores the clues is not a solution (the paper's code accepts it)."""
    env = SudokuEnv(team="single", split=None)
    for seed in range(5):
        env.reset(seed=seed)
        puzzle = env.state().level
        other = bytes(value % 4 + 1 for value in puzzle.solution)
        rows = [list(other[start : start + 4]) for start in range(0, 16, 4)]
        env.step(f"#### {rows}")
        grid = env.state().position
        cells = bytes(map(int, grid.text.split()))
        assert not env.infos["planner_0"]["success"]
        assert env.infos["planner_0"]["num_refused"] >= 6
        assert all(clue in (0, cell) for clue, cell in zip(puzzle.clues, cells, strict=True))
        assert env.rewards["planner_0"] < 0
        env.step(f"#### {[list(puzzle.solution[start : start + 4]) for start in range(0, 16, 4)]}")
        assert env.infos["planner_0"]["success"]


def test_refused_fills_are_told_next_turn():
    env = SudokuEnv(team="single")
    env.reset(seed=2)
    clues = env.state().level.clues
    cell = next(index for index, value in enumerate(clues) if value)
    row, col = divmod(cell, 4)
    env.step(f"#### [[{row},{col},1],[9,9,9]]")
    text = env.observe("planner_0")
    assert f"Refused last turn: [{row},{col},1] (a clue), [9,9,9] (outside the grid)" in text
    env.step("#### []")
    assert "Refused" not in env.observe("planner_0")


def test_levels_of_another_size_are_refused():
    with pytest.raises(InvalidArgument, match=r"levels.*16x16.*4x4.*size=16"):
        SudokuEnv(levels=[LARGE])
    env = SudokuEnv(size=9)
    with pytest.raises(InvalidArgument, match=r"level.*16x16.*9x9.*size=16"):
        env.reset(seed=0, options={"level": LARGE})
    env.reset(seed=0, options={"level": puzzle_text(generate(random.Random(0), 9))})
    assert "9x9" in env.observe("tool_0")


def test_a_picture_shows_the_rules_that_were_drawn():
    """Diagonals are sand; a cage is dashed all around it, and between its cells nowhere."""
    env = SudokuEnv(size=6, clues=4, rules=3, team="single", render_mode="rgb_array", split=None)
    env.reset(seed=0)
    rules = env.unwrapped.state().level.rules
    is_dash = (env.render() == (126, 84, 160)).all(-1)
    for cell in range(36):
        row, col = divmod(cell, 6)
        corner = env.render()[row * 32 + 29, col * 32 + 26]
        assert (tuple(corner) == SAND) == (col in (row, 5 - row))
    for _, cells in rules.cages:
        for cell in cells:
            y, x = (place * 32 + 1 for place in divmod(cell, 6))
            middle = slice(10, 23)
            sides = {
                cell - 6: is_dash[y + 3, x:][middle],
                cell + 6: is_dash[y + 29, x:][middle],
                cell - 1: is_dash[y:, x + 3][middle],
                cell + 1: is_dash[y:, x + 29][middle],
            }
            for other, dashes in sides.items():
                is_near = abs(cell % 6 - other % 6) < 2 and other in cells
                assert dashes.any() != is_near
