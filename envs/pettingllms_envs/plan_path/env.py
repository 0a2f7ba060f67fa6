"""`PlanPathEnv`: the shell around the rules of Plan-Path."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pettingllms.arguments import check_choice, check_whole
from pettingllms.env import MAX_TURNS, TextEnv
from pettingllms.errors import InvalidArgument, UnreachableRequest
from pettingllms.prompts import PromptFields, PromptTemplate, meanings, resolve_prompts
from pettingllms.transition import Transition, role_of
from pettingllms_envs.grid import moves_json, read_moves
from pettingllms_envs.level_files import read_level_option, read_levels
from pettingllms_envs.plan_path.generator import MAX_SIZE, MIN_MOVES, MIN_SIZE, Request, generate
from pettingllms_envs.plan_path.policies import moves_of, program_of, target_cell
from pettingllms_envs.plan_path.prompts import (
    VIEWS,
    fields,
    templates,
    with_limits,
)
from pettingllms_envs.plan_path.rules import Level, PlanPathState, canonical_form, maze_of
from pettingllms_envs.plan_path.text import draw_image, level_text, parse_level, parse_levels
from pettingllms_envs.plan_path.tools import TOOLS
from pettingllms_envs.plan_path.turns import Terms, call, execute, move, propose
from pettingllms_envs.reward import costs
from pettingllms_envs.team_table import MAX_MOVES_PER_TURN, TEAMS, asks_for_mark


class PlanPathEnv(TextEnv[PlanPathState]):
    """Lead a player through a maze to the goal.

    ## Task

    A board of free cells and walls, a player, a goal. The player moves up, down, left and
    right, one cell a move. The task is solved when the player is on the goal, and only
    then. Every level can be solved within the turns of an episode.

    ## Agents and roles

    `team="tool-planner"`: `tool_0` calls a function or writes a program, then `planner_0` reads the
    result and decides the moves. `team="proposer-planner"`: `proposer_0` proposes moves, then
    `planner_0` reads them and decides. `team="single"`: `planner_0` alone. Only the planner's moves
    are executed; rules, rewards and turns are the same for all teams. `team="single-tool"`:
    `tool_0` alone, in the place of the planner: the moves that it finds are executed, and its
    rewards and infos are the planner's.

    ## Observation

    The rules, the turn, why the last turn changed nothing if it did not, the board, and where
    player and goal are *now*; for the planner also what its team-mate did this turn.
    `view="board"` draws the board with row and column numbers. `view="centred"` rolls it so that
    the player is in the middle of (rows + 1) x (cols + 1) symbols, with one row and one column
    of walls as the edge. `prompt_fields` lists the placeholders of prompts.

    ## Action

    Planner and proposer: a list of moves, `#### ["U","R"]`; also read are a list without
    `####` if it is the only one and ends the text, lower case, words, missing quotes, and
    capital letters alone (`UR`). The first `moves_per_turn` moves are executed in order until
    the goal; a move into a wall or off the board changes nothing.
    Tool, `tool="call"`: one call, `#### path(2, 3)`: `path(row, col)` gives the moves of a
    shortest path from the player to a cell (at most `moves_per_turn`), `distance(row, col)` its
    length, `neighbours(row, col)` the legal moves on a cell. Two numbers alone (`2,3`) mean
    `path`.
    Tool, `tool="python"`: a program in a code block. It runs in the sandbox, reads the board
    from stdin (rows of `#`, `.`, `P`, `G`) and prints a list of moves.

    ## Reward

    d are the moves left to the goal (breadth-first search), d0 those at the start. The potential
    is 0.1 * (1 - d / d0) up to d0 and 0.01 * (d0 / d - 1) beyond it. T is `max_turns`, M is
    `moves_per_turn`.

    | part | when | value |
    |---|---|---|
    | team | tool, proposer: moves are proposed | rise of the potential if they were executed |
    | team | planner | rise of the potential, minus what was promised this turn |
    | team | planner: the goal is reached | +1 |
    | local | unreadable text; program that fails or prints no list | -0.05 / T |
    | local | moves that change nothing, or none; call that is refused | -0.04 / T |
    | local | else, each illegal move, proposed or executed | -0.04 / (T M) |

    A turn's team parts add up to its real progress: a promise that is not kept pays nothing,
    and closed loops pay 0. With alpha=1 the return of every agent is in [1.05, 1.1] in a solved
    episode and in [-0.06, 0.1) in an unsolved one; a team part lies in [-0.11, 1.11], a local
    part in [-0.05 / T, 0].

    ## Termination

    Terminated when the goal is reached (`success`); truncated after `max_turns` turns.

    ## Info keys

    - `reward_parts`, `parse_error`, `success`, `turn`: as in every environment.
    - `position`: the player's (row, column) after the action.
    - `distance`: moves left to the goal.
    - `shortest`: moves from the start to the goal on a shortest path.
    - `moves_used`: moves executed in the episode, illegal ones not counted.
    - `optimality`: shortest / moves_used once solved, else 0.
    - `executed`: (planner) the moves that were executed.
    - `illegal_moves`: (planner, proposer) number of illegal moves.
    - `cut_moves`: (planner, proposer) number of moves beyond `moves_per_turn`.
    - `unused_moves`: (planner, proposer) number of moves after the goal.
    - `proposed`: (tool, proposer) the moves proposed to the planner.
    - `promised_distance`: (tool, proposer) moves left if they were executed.
    - `call`: (tool) the call or program that was read; empty if there is none.
    - `result`: (tool) what the planner reads of its result.

    ## Arguments

    - `size`: rows and columns, 4 to 64.
    - `rows`: number of rows, if it is not `size`.
    - `cols`: number of columns, if it is not `size`.
    - `obstacle_ratio`: probability of a wall, 0 to 0.9.
    - `min_moves`: minimum length of the shortest path; None: 4, or `max_moves` if that is less.
    - `max_moves`: maximum length of the shortest path; None: `max_turns * moves_per_turn`.
    - `max_turns`: turns of an episode.
    - `moves_per_turn`: maximum number of moves executed in a turn, 1 to 10,000.
    - `team`: `"tool-planner"`, `"proposer-planner"`, `"single"` or `"single-tool"`.
    - `tool`: what the tool agent writes: `"python"`, a program, or `"call"`, one helper call.
    - `view`: `"board"` or `"centred"`.
    - `split`: `"train"`, `"validation"`, `"test"` or None (all); decided by a level's content
      up to rotation, reflection and exchange of start and goal.
    - `levels`: levels to draw from instead of generating: a path or pattern of files with levels
      divided by blank lines, or a list of level texts (rows of `#`, `.`, one `P`, one `G`);
      `split` and the ranges do not apply to them. `reset(options={"level": text})` sets one
      episode's level.
    - `alpha`: weight of the team reward.
    - `reward`: `"shaped"`: the table above; `"outcome"`: 1 for the team when the task is solved,
      nothing else.
    - `observation_mode`: `"full"` prompts, or `"delta"`: from the second turn on only what is new.
    - `prompts`: role -> replacement of its prompt; without `####` in it, the scripted policies
      answer tersely (`UR`, `2,3`), which is all that a tiny model needs to write.
    - `render_mode`: `"ansi"`, `"human"` or `"rgb_array"` (needs the extra `render`).

    ## Example

    ```python
    import random

    import pettingllms

    env = pettingllms.make("plan_path_v0", size=6, team="proposer-planner", split="test")
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

    Plan-Path of Stronger-MAS (arXiv 2510.11062). Changed: the reward is a potential by
    breadth-first distance, levels are certified and split by content, the position is current.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012
        "name": "plan_path_v0",
        "render_modes": ["ansi", "human", "rgb_array"],
    }
    scripted_policies: ClassVar[tuple[str, ...]] = ("oracle", "greedy", "random", "there-and-back")
    presets: ClassVar[Mapping[str, Mapping[str, Any]]] = {
        "easy": {"size": 6, "max_moves": 8},
        "medium": {"size": 10, "obstacle_ratio": 0.3, "min_moves": 8},
        "hard": {"size": 16, "obstacle_ratio": 0.35, "min_moves": 20, "moves_per_turn": 20},
        "expert": {"size": 32, "obstacle_ratio": 0.38, "min_moves": 60, "moves_per_turn": 60},
    }
    default_prompts: ClassVar[Mapping[str, PromptTemplate]] = {
        **templates("proposer-planner", "python", "board"),
        **templates("tool-planner", "python", "board"),
    }
    prompt_fields: ClassVar[Mapping[str, str]] = meanings(fields())

    def __init__(
        self,
        *,
        size: int = 10,
        rows: int | None = None,
        cols: int | None = None,
        obstacle_ratio: float = 0.22,
        min_moves: int | None = None,
        max_moves: int | None = None,
        max_turns: int = 4,
        moves_per_turn: int = 10,
        team: str = "tool-planner",
        tool: str = "python",
        view: str = "board",
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
        check_choice("view", view, VIEWS)
        max_turns = check_whole("max_turns", max_turns, 1, MAX_TURNS)
        size = check_whole("size", size, MIN_SIZE, MAX_SIZE)
        moves_per_turn = check_whole("moves_per_turn", moves_per_turn, 1, MAX_MOVES_PER_TURN)
        defaults = {
            role: with_limits(template, max_turns, moves_per_turn, reward)
            for role, template in templates(team, tool, view).items()
        }
        super().__init__(
            stages=TEAMS[team],
            max_turns=max_turns,
            alpha=alpha,
            reward=reward,
            observation_mode=observation_mode,
            prompts=resolve_prompts(defaults, prompts, self.prompt_fields),
            render_mode=render_mode,
        )
        self.moves_per_turn, self.view, self.tool = moves_per_turn, view, tool
        self._tool, self._tool_decides = TOOLS[tool](), team == "single-tool"
        self._terms = Terms(moves_per_turn, costs(max_turns, moves_per_turn))
        self._placeholders = fields(view, max_turns, moves_per_turn, reward)
        shape = (size if rows is None else rows, size if cols is None else cols)
        self._request = self._checked_request(shape, obstacle_ratio, min_moves, max_moves, split)
        self.board = f"{shape[0]}x{shape[1]}" if levels is None else "levels"
        given = () if levels is None else read_levels(levels, parse_levels, parse_level)
        self._levels = tuple(map(self._within_budget, given))
        self._marked = {role: asks_for_mark(prompt) for role, prompt in self.prompts.items()}

    def _checked_request(
        self,
        shape: tuple[int, int],
        obstacle_ratio: float,
        min_moves: int | None,
        max_moves: int | None,
        split: str | None,
    ) -> Request:
        budget = self.max_turns * self.moves_per_turn
        if max_moves is None:
            max_moves = budget
        max_moves = check_whole("max_moves", max_moves, 1)
        if max_moves > budget:
            raise UnreachableRequest(
                f"max_moves={max_moves} asks for levels that max_turns={self.max_turns} turns of "
                f"moves_per_turn={self.moves_per_turn} moves cannot solve; at most {budget} can be"
            )
        if min_moves is None:
            min_moves = min(MIN_MOVES, max_moves)
        return Request(*shape, obstacle_ratio, min_moves, max_moves, split).checked()

    def _within_budget(self, level: Level) -> Level:
        budget = self.max_turns * self.moves_per_turn
        if level.shortest > budget:
            raise InvalidArgument(
                "level",
                f"a level of {level.shortest} moves",
                f"levels of at most {budget} moves",
                "Raise max_turns or moves_per_turn.",
            )
        return level

    def _generate(self, rng: random.Random, options: Mapping[str, Any]) -> PlanPathState:
        if options.get("level") is not None:
            level = self._within_budget(read_level_option(options["level"], parse_level))
        elif self._levels:
            level = rng.choice(self._levels)
        else:
            level = generate(rng, self._request)
        return PlanPathState(level, level.start)

    def _fields(self, state: PlanPathState, agent: str, turn: int) -> Mapping[str, object]:
        return PromptFields(self._placeholders, state, agent, turn)

    def _parse(self, state: PlanPathState, agent: str, text: str) -> Any:
        return self._tool.read(text) if agent == "tool_0" else read_moves(text)

    def _act(self, state: PlanPathState, agent: str, action: Any) -> Transition:
        if agent == "planner_0":
            return move(state, action, self._terms)
        if agent == "proposer_0":
            return propose(state, action, self._terms)
        play = execute if self._tool_decides else call
        return play(state, action, self._tool, self._terms)

    def _level_json(self, state: PlanPathState) -> str:
        return canonical_form(state.level).decode()

    def _ansi(self, state: PlanPathState) -> str:
        return level_text(state.level, state.position)

    def _rgb_array(self, state: PlanPathState) -> Any:
        return draw_image(state.level, state.position)

    def _scripted(self, state: PlanPathState, agent: str, policy: str, rng: random.Random) -> str:
        role, maze, limit = role_of(agent), maze_of(state.level), self.moves_per_turn
        mark = "#### " if self._marked[role] else ""
        if role == "tool" and self.tool == "python":
            searches = not self._tool_decides
            return program_of(maze, state.position, policy, limit, rng, searches)
        if role == "tool":
            row, col = divmod(
                target_cell(maze, state.position, policy, limit, rng), maze.level.stride
            )
            return f"{mark}path({row}, {col})" if mark else f"{row},{col}"
        moves = moves_of(maze, state.position, policy, limit, rng)
        return mark + moves_json(moves) if mark or not moves else moves
