"""`SudokuEnv`: the shell around the rules of Sudoku."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pettingllms.arguments import check_choice, check_flag, check_whole, plain
from pettingllms.env import MAX_TURNS, TextEnv
from pettingllms.errors import InvalidArgument, UnreachableRequest
from pettingllms.prompts import PromptFields, PromptTemplate, meanings, resolve_prompts
from pettingllms.splits import check_split, split_of
from pettingllms.transition import Transition, role_of
from pettingllms_envs.level_files import read_level_option, read_levels
from pettingllms_envs.python_tool import read_program
from pettingllms_envs.reward import costs
from pettingllms_envs.sudoku.generator import DEFAULT_CLUES, Puzzle, check_num_clues, generate
from pettingllms_envs.sudoku.image import draw_image
from pettingllms_envs.sudoku.policies import fills_of
from pettingllms_envs.sudoku.prompts import fields, templates
from pettingllms_envs.sudoku.rules import start
from pettingllms_envs.sudoku.symmetry import canonical
from pettingllms_envs.sudoku.text import (
    fills_json,
    fills_terse,
    read_answer,
    read_puzzle,
    read_puzzles,
)
from pettingllms_envs.sudoku.tools import execute, read_calls, use_tool
from pettingllms_envs.sudoku.turns import SudokuState, decide, propose
from pettingllms_envs.team_table import TEAMS, TOOLS, asks_for_mark

SPLIT_ATTEMPTS = 300
"""Puzzles tried before a request for a split is refused."""


class SudokuEnv(TextEnv[SudokuState]):
    """Complete a Sudoku that has exactly one solution.

    ## Task

    An n x n grid, n one of 4, 6, 9, 16, with boxes of 2x2, 2x3, 3x3, 4x4 cells, some values
    given. Every row, column and box must hold each of 1..n once. The task is solved when the
    grid is complete, valid and has all given values in place, and only then.

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
    or box. A wrong value that contradicts nothing is written; it can be cleared or replaced. A
    list of more than 2 n * n fills is unreadable.
    Tool with `tool="python"`: a program in a closed code block; it reads the grid from stdin
    and prints fills or a grid. Tool with `tool="call"`: up to 8 calls of
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
    - `call`: (tool) the program or the calls.
    - `result`: (tool) what the planner reads about them.

    ## Arguments

    - `size`: n, 4, 6, 9 or 16.
    - `clues`: number of given values; None: 6, 14, 36, 150 for the four sizes. A number for which
      no puzzle is found within bounds is refused with `UnreachableRequest`.
    - `singles_only`: whether naked and hidden singles suffice to solve, or do not suffice.
    - `max_turns`: turns of an episode.
    - `team`: `"tool-planner"`, `"proposer-planner"`, `"single"` or `"single-tool"`.
    - `tool`: what the tool agent may do: `"python"` or `"call"`.
    - `split`: `"train"`, `"validation"`, `"test"` or None (all); decided by a puzzle's content up
      to renaming of values, permutation of rows, columns, bands and stacks, and transposition.
    - `levels`: puzzles of `size` to draw from instead of generating: a path or pattern of files
      with one puzzle per line, or a list of puzzle texts (`1`-`9`, `A`-`G`, `.` for an empty
      cell); `split` does not apply to them. `reset(options={"level": text})` sets one episode's
      puzzle, of `size` too.
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
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "easy": {"size": 4},
        "medium": {"size": 6, "clues": 14},
        "hard": {"size": 9, "clues": 36},
        "expert": {"size": 9, "clues": 32, "singles_only": False},
    }
    default_prompts: ClassVar[Mapping[str, PromptTemplate]] = {
        **templates("proposer-planner", "python", 4, 4),
        **templates("tool-planner", "python", 4, 4),
    }
    prompt_fields: ClassVar[Mapping[str, str]] = meanings(fields())

    def __init__(
        self,
        *,
        size: int = 4,
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
        check_choice("team", team, TEAMS)
        check_choice("tool", tool, TOOLS)
        max_turns = check_whole("max_turns", max_turns, 1, MAX_TURNS)
        size = plain(size)
        check_choice("size", size, DEFAULT_CLUES)
        singles_only = check_flag("singles_only", singles_only)
        self.num_clues = check_num_clues(size, DEFAULT_CLUES[size] if clues is None else clues)
        self.size = size
        self.singles_only = singles_only
        check_split(split)
        self.split = split
        self.tool = tool
        self._tool_decides = team == "single-tool"
        self._costs = costs(max_turns, size * size)
        self._placeholders = fields(max_turns)
        own = templates(team, tool, size, max_turns, reward)
        super().__init__(
            stages=TEAMS[team],
            max_turns=max_turns,
            alpha=alpha,
            reward=reward,
            observation_mode=observation_mode,
            prompts=resolve_prompts(own, prompts, self.prompt_fields),
            render_mode=render_mode,
        )
        self.board = f"{size}x{size}"
        self._levels: tuple[Puzzle, ...] | None = None
        if levels is not None:
            found = read_levels(levels, read_puzzles, read_puzzle)
            self._levels = tuple(self._fitting("levels", puzzle) for puzzle in found)

    def _fitting(self, argument: str, puzzle: Puzzle) -> Puzzle:
        """Return a puzzle from outside, if it has the size that the prompts state."""
        if puzzle.size != self.size:
            given, allowed = (f"{n}x{n}" for n in (puzzle.size, self.size))
            fix = f"Pass size={puzzle.size} to play it."
            raise InvalidArgument(argument, f"a {given} puzzle", f"{allowed} puzzles", fix)
        return puzzle

    def _generate(self, rng: random.Random, options: Mapping[str, Any]) -> SudokuState:
        if options.get("level") is not None:
            puzzle = self._fitting("level", read_level_option(options["level"], read_puzzle))
        elif self._levels is not None:
            puzzle = rng.choice(self._levels)
        else:
            puzzle = self._puzzle_of_split(rng)
        return SudokuState(puzzle, start(puzzle))

    def _puzzle_of_split(self, rng: random.Random) -> Puzzle:
        for _ in range(SPLIT_ATTEMPTS):
            puzzle = generate(rng, self.size, self.num_clues, self.singles_only)
            if self.split is None or split_of(canonical(self.size, puzzle.clues)) == self.split:
                return puzzle
        raise UnreachableRequest(
            f"no {self.size}x{self.size} puzzle with {self.num_clues} clues of the split "
            f"{self.split!r} among {SPLIT_ATTEMPTS}; ask for more clues"
        )

    def _fields(self, state: SudokuState, agent: str, turn: int) -> Mapping[str, object]:
        return PromptFields(self._placeholders, state, agent, turn)

    def _parse(self, state: SudokuState, agent: str, text: str) -> Any:
        if agent != "tool_0":
            return read_answer(text, state.puzzle.size)
        return read_program(text) if self.tool == "python" else read_calls(text, state.puzzle.size)

    def _act(self, state: SudokuState, agent: str, action: Any) -> Transition:
        if agent == "planner_0":
            return decide(state, action, self._costs)
        if agent == "proposer_0":
            return propose(state, action, self._costs)
        play = execute if self._tool_decides else use_tool
        return play(state, action, self.tool, self._costs)

    def _level_json(self, state: SudokuState) -> str:
        return canonical(state.puzzle.size, state.puzzle.clues).hex()

    def _ansi(self, state: SudokuState) -> str:
        return state.grid.text

    def _rgb_array(self, state: SudokuState) -> Any:
        return draw_image(state)

    def _scripted(self, state: SudokuState, agent: str, policy: str, rng: random.Random) -> str:
        found = fills_of(state, policy, rng)
        fills = fills_json(found)
        if role_of(agent) != "tool":
            has_mark = asks_for_mark(self.prompts[role_of(agent)])
            return f"#### {fills}" if has_mark else fills_terse(found, self.size)
        return (
            f"```python\nprint({fills!r})\n```" if self.tool == "python" else f"#### check({fills})"
        )
