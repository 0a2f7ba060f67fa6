"""`SudokuEnv`: Sudoku as a game with proposals."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pettingllms.arguments import check_choice, check_flag, plain
from pettingllms.difficulty import Difficulty
from pettingllms.errors import InvalidArgument
from pettingllms.prompts import PromptTemplate, meanings
from pettingllms.seeding import check_split
from pettingllms_envs.planning.env import PlanningEnv
from pettingllms_envs.planning.game import Game, PlanningState, Trial
from pettingllms_envs.planning.prompts import all_fields, default_prompts, limits_of
from pettingllms_envs.sudoku import text
from pettingllms_envs.sudoku.calls import CALLS
from pettingllms_envs.sudoku.drawn_text import rules_lines
from pettingllms_envs.sudoku.generator import (
    DEFAULT_CLUES,
    Puzzle,
    Request,
    check_num_clues,
    check_num_rules,
    generate_of_split,
)
from pettingllms_envs.sudoku.image import draw_image
from pettingllms_envs.sudoku.policies import fills_of
from pettingllms_envs.sudoku.program import PROGRAM
from pettingllms_envs.sudoku.prompts import FIELDS, words
from pettingllms_envs.sudoku.rules import Fill, FillAnswer, Grid, attempt, start
from pettingllms_envs.sudoku.symmetry import canonical, canonical_drawn


def facts(state: PlanningState, trial: Trial, is_done: bool) -> dict[str, Any]:
    """Return the infos of an answer."""
    fills, refused = trial.about
    grid = trial.position if is_done else state.position
    info = {
        "num_fills": len(fills),
        "num_refused": len(refused),
        "num_empty": grid.num_empty,
        "solvable": grid.num_wrong == 0,
    }
    if not is_done:
        info["proposed"] = fills
    return info


def board(puzzle: Puzzle, grid: Grid) -> str:
    """Return the grid and, below it, the rules that are drawn with the puzzle."""
    return "\n".join([grid.text, *rules_lines(puzzle.size, puzzle.rules)])


def _identity(puzzle: Puzzle) -> str:
    if puzzle.rules:
        return canonical_drawn(puzzle.size, puzzle.clues, puzzle.rules).hex()
    return canonical(puzzle.size, puzzle.clues).hex()


GAME = Game[Puzzle, Grid, FillAnswer, Sequence[Fill]](
    generate=generate_of_split,
    start=start,
    read_level=text.read_puzzle,
    read_levels=text.read_puzzles,
    identity=_identity,
    read=lambda puzzle, answer: text.read_answer(answer, puzzle.size),
    read_printed=lambda puzzle, printed: text.read_printed_answer(printed, puzzle.size),
    attempt=attempt,
    no_answer=FillAnswer(()),
    facts=facts,
    plan=fills_of,
    write=text.fills_json,
    write_terse=lambda puzzle, fills: text.fills_terse(fills, puzzle.size),
    board=board,
    program_input=board,
    length=lambda puzzle: 0,
    calls=CALLS,
)


class SudokuEnv(PlanningEnv):
    """Complete a Sudoku that has exactly one solution.

    ## Task

    An n x n grid, n one of 4, 6, 9, 16, with boxes of 2x2, 2x3, 3x3, 4x4 cells, some values
    given. Every row, column and box must hold each of 1..n once. The task is solved when the
    grid is complete, valid and has all given values in place, and only then.

    With `rules`, a puzzle has rules of its own, drawn with it: cages, which are groups of cells
    whose values differ and add up to a sum; boxes of irregular shape; both long diagonals. None
    of them can be left out, and a program that knows plain Sudoku alone solves none of them.

    ## Agents and roles

    `team="tool-planner"`: `tool_0` works for the planner, then `planner_0` reads the result and
    decides the fills. `team="proposer-planner"`: `proposer_0` proposes fills, then `planner_0`
    reads them and decides. `team="single"`: `planner_0` alone. Only the planner's fills are
    written; rules, rewards and turns are the same for all teams. `team="single-tool"`: `tool_0`
    alone, in the place of the planner: the fills that it finds are written, and its rewards and
    infos are the planner's.

    ## Observation

    The rules, the turn and the grid as it is now (0 is an empty cell); from the second turn on
    the team's own fills, the fills refused last turn, and why it changed nothing, if so; for
    the planner also what its team-mate did this turn. `prompt_fields` lists the placeholders of
    prompts.

    ## Action

    Planner and proposer: a list of fills, `#### [[1,2,3],[4,1,2]]`, each [row, column, value]
    with rows and columns from 1; value 0 clears a cell. Or a whole grid as a list of rows; it
    clears the team's old fills first. Also read are a list without `####` if it is the only one
    and ends the text, numbers without commas, and up to n = 9 fills of digits alone (`123,412`) in
    a text of nothing else. Fills are written in order. Refused are: cells
    and values outside the grid, given cells, and values that are already in the row, column
    or box, or in the cage or on the diagonal. Sums of cages are not checked. A wrong value that
    contradicts nothing is written; it can be cleared or replaced. A list of more than 2 n * n fills
    is unreadable.
    Tool with `tool="python"`: a program in a closed code block; it reads the grid from stdin,
    below it a line for each drawn rule (`boxes [[1,1,2,2],...]`, `cages [[7,[1,1],[1,2]],...]`,
    `diagonals`), and prints fills or a grid. Tool with `tool="call"`: up to 8 calls of
    `candidates(row, col)`, `places(unit, number, value)` and `check(fills)`.

    ## Reward

    The potential is 0.1 * (right fills - wrong fills) / E with E the empty cells of the puzzle. T
    is `max_turns`.

    | part | when | value |
    |---|---|---|
    | team | tool, proposer: fills are proposed | rise of the potential if they were written |
    | team | planner | rise of the potential, minus what was promised this turn |
    | team | planner: solved | +1 |
    | local | unreadable text; program that fails or prints no answer | -0.05 / T |
    | local | fills that change nothing, or none; calls of which all are refused | -0.04 / T |
    | local | else, each refused fill, -0.04 / T at most | -0.04 / (T n n) |

    What a program prints, the fills of the last `check` and the proposer's list are proposals; a
    program that fails or runs too long proposes nothing. A turn's team parts add up to its real
    progress: a promise that is not kept pays nothing, and closed loops pay 0. With alpha=1 the
    return of every agent is in [1.05, 1.1] in a solved episode and in [-0.15, 0.1) in an unsolved
    one; a team part lies in [-0.2, 1.2], a local part in [-0.05 / T, 0].

    ## Termination

    Terminated when the puzzle is solved (`success`); truncated after `max_turns` turns.

    ## Info keys

    - `reward_parts`, `parse_error`, `success`, `turn`: as in every environment.
    - `num_fills`: fills in the action, cells of a grid that repeat given values not counted.
    - `num_refused`: how many of them were refused.
    - `num_empty`: empty cells of the grid after the action.
    - `solvable`: whether the grid can still be completed without clearing a cell; never shown
      to agents.
    - `proposed`: (tool, proposer) the fills proposed to the planner.
    - `tool_call`: (tool) the program or the calls.
    - `tool_result`: (tool) what the planner reads about them.

    ## Arguments

    - `size`: n, 4, 6, 9 or 16.
    - `rules`: how many rules are drawn with a puzzle, for n 6 and 9: 1 cages, 2 irregular boxes
      too, 3 diagonals too.
    - `clues`: number of given values; None: 6, 14, 36, 150 for the four sizes, n with drawn rules.
      A number for which no puzzle is found within bounds is refused with `UnreachableRequest`.
    - `singles_only`: whether naked and hidden singles suffice to solve, or do not suffice; drawn
      rules ask for more in any case.
    - `max_turns`: turns of an episode.
    - `team`: `"tool-planner"`, `"proposer-planner"`, `"single"` or `"single-tool"`.
    - `tool`: what the tool agent may do: `"python"` or `"call"`.
    - `split`: `"train"`, `"validation"`, `"test"` or None (all); decided by a puzzle's content up
      to renaming of values, permutation of rows, columns, bands and stacks, and transposition;
      with drawn rules by that of its solution, boxes and diagonals, up to renaming, rotation and
      reflection.
    - `levels`: puzzles of `size` to draw from instead of generating: a path or pattern of files
      with one puzzle per line, or a list of puzzle texts (`1`-`9`, `A`-`G`, `.` for an empty
      cell; drawn rules behind it); `split` does not apply to them.
      `reset(options={"level": text})` sets one episode's puzzle, of `size` too.
    - `alpha`: weight of the team reward.
    - `reward`: `"shaped"`: the table above; `"outcome"`: 1 for the team when the task is solved,
      nothing else.
    - `observation_mode`: `"full"` prompts, or `"delta"`: from the second turn on only what is new.
    - `prompts`: role -> replacement of its prompt; without `####` in it, the scripted policies
      answer without it, which is all that a tiny model needs to write.
    - `render_mode`: `"ansi"`, `"human"` or `"rgb_array"` (needs the extra `render`).

    ## Example

    ```python
    import random

    import pettingllms

    env = pettingllms.make("sudoku_v0", size=9, team="proposer-planner", split="test")
    env.reset(seed=7)
    rng = random.Random(0)
    for agent in env.agent_iter():
        observation, reward, terminated, truncated, info = env.last()
        done = terminated or truncated
        env.step(None if done else env.unwrapped.scripted_action(agent, "oracle", rng))
    ```

    ## Version history

    - v0: first version.

    ## Source

    Sudoku of Stronger-MAS (arXiv 2510.11062). Changed: every puzzle has exactly one solution,
    given values cannot be overwritten, wrong values lower the potential, splits are by content.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012
        "name": "sudoku_v0",
        "render_modes": ["ansi", "human", "rgb_array"],
    }
    scripted_policies: ClassVar[tuple[str, ...]] = ("oracle", "greedy", "random", "there-and-back")
    difficulties: ClassVar[Difficulty] = Difficulty(
        {
            "easy": {"size": 4},
            "paper": "easy",
            "medium": {"size": 6, "clues": 14},
            "hard": {"size": 9, "clues": 36},
            "expert": {"size": 9, "clues": 32, "singles_only": False},
            "extreme": {"size": 9, "rules": 3, "clues": 12},
        },
        lambda k: {"size": 9, "rules": 3, "clues": 28 - 4 * k},
        last=7,
    )
    fixed_program: ClassVar[str] = PROGRAM
    game = GAME
    default_prompts: ClassVar[Mapping[str, PromptTemplate]] = default_prompts(words(4), 4, 16)
    prompt_fields: ClassVar[Mapping[str, str]] = meanings(
        all_fields(GAME, FIELDS, limits_of(words(4), 4, 16, "shaped"))
    )

    def __init__(
        self,
        *,
        size: int = 4,
        rules: int = 0,
        clues: int | None = None,
        singles_only: bool = True,
        max_turns: int = 4,
        team: str = "tool-planner",
        tool: str = "python",
        split: str | None = "train",
        levels: str | Path | Sequence[str] | None = None,
        alpha: float = 1.0,
        reward: str = "shaped",
        observation_mode: str = "full",
        prompts: Mapping[str, Any] | None = None,
        render_mode: str | None = None,
    ) -> None:
        size = plain(size)
        check_choice("size", size, DEFAULT_CLUES)
        singles_only = check_flag("singles_only", singles_only)
        num_rules = check_num_rules(size, rules)
        default = size if num_rules else DEFAULT_CLUES[size]
        num_clues = check_num_clues(size, default if clues is None else clues, num_rules)
        check_split(split)
        super().__init__(
            words=words(size, is_drawn=num_rules > 0),
            fields=FIELDS,
            team=team,
            tool=tool,
            max_turns=max_turns,
            moves_per_turn=size * size,  # refused fills that cost as much as an empty answer
            prompts=prompts,
            alpha=alpha,
            reward=reward,
            observation_mode=observation_mode,
            render_mode=render_mode,
        )
        self.size = size
        self._request = Request(size, num_clues, singles_only, split, num_rules)
        self.board = f"{size}x{size}"
        self._read_levels(levels)

    def _fitting(self, argument: str, level: Puzzle) -> Puzzle:
        """Return a puzzle from outside, if it has the size that the prompts state."""
        if level.size != self.size:
            given, allowed = (f"{n}x{n}" for n in (level.size, self.size))
            fix = f"Pass size={level.size} to play it."
            raise InvalidArgument(argument, f"a {given} puzzle", f"{allowed} puzzles", fix)
        if level.rules and not self._request.num_rules:
            fix = "Make the environment with rules=1 or more: its prompts explain them."
            raise InvalidArgument(argument, "a puzzle with drawn rules", "plain puzzles", fix)
        return level

    def _rgb_array(self, state: PlanningState) -> Any:
        return draw_image(state.level, state.position)
