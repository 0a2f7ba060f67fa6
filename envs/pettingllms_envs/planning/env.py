"""`PlanningEnv`: the shell of the protocol of proposals."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar

from pettingllms.arguments import check_choice, check_whole
from pettingllms.env import MAX_TURNS, TextEnv
from pettingllms.errors import InvalidArgument, UnreachableRequest
from pettingllms.prompts import PromptField, PromptFields, resolve_prompts
from pettingllms.types import ParseError, Transition, role_of
from pettingllms_envs.level_files import read_level_option, read_levels
from pettingllms_envs.planning.game import POLICIES, Game, PlanningState, ToolWork, Trial
from pettingllms_envs.planning.prompts import Words, all_fields, limits_of, templates
from pettingllms_envs.python_tool import read_program, run_program, show_program
from pettingllms_envs.reward import SUCCESS, costs
from pettingllms_envs.team_table import MAX_MOVES_PER_TURN, TEAMS, TOOLS, asks_for_mark

_PROPOSED = ToolWork(None)
"""The work of a proposer, which uses no tool."""


class PlanningEnv(TextEnv[PlanningState]):
    """The shell of games with proposals; see `pettingllms_envs.planning` for what a game gives.

    A subclass sets `game`, `default_prompts`, `prompt_fields` and, at the end of its constructor,
    `self.board` and `self._request`, which `game.generate` is given.

    Args:
        words: What prompts say, for these arguments.
        fields: Placeholders of the game, for these arguments.
        team: One of `TEAMS`.
        tool: What the tool agent does: `"python"`, or `"call"` if the game has functions.
        max_turns: Turns of an episode.
        moves_per_turn: Maximum number of moves that one answer may make; as many illegal ones cost
            as much as an empty answer.
        stop_when_lost: Whether the episode ends when the level certainly cannot be solved.
        reward: As for `TextEnv`; `"outcome"` leaves costs out of the prompts too.
        prompts: As for `TextEnv`.
        **common: The other arguments of `TextEnv`.
    """

    game: ClassVar[Game[Any, Any, Any, Any]]
    scripted_policies: ClassVar[tuple[str, ...]] = POLICIES
    _request: Any
    _levels: tuple[Any, ...] = ()

    def __init__(
        self,
        *,
        words: Words,
        fields: Mapping[str, PromptField[PlanningState]],
        team: str,
        tool: str = "python",
        max_turns: int,
        moves_per_turn: int,
        stop_when_lost: bool = False,
        reward: str,
        prompts: Mapping[str, Any] | None,
        **common: Any,
    ) -> None:
        check_choice("team", team, TEAMS)
        check_choice("tool", tool, TOOLS)
        max_turns = check_whole("max_turns", max_turns, 1, MAX_TURNS)
        moves_per_turn = check_whole("moves_per_turn", moves_per_turn, 1, MAX_MOVES_PER_TURN)
        limits = limits_of(words, max_turns, moves_per_turn, reward)
        defaults = templates(words, team, tool, limits)
        super().__init__(
            stages=TEAMS[team],
            max_turns=max_turns,
            reward=reward,
            prompts=resolve_prompts(defaults, prompts, self.prompt_fields),
            **common,
        )
        self.tool, self.moves_per_turn = tool, moves_per_turn
        self._tool_decides = team == "single-tool"
        self._stop_when_lost = stop_when_lost
        self._costs = costs(max_turns, moves_per_turn)
        self._placeholders = all_fields(self.game, fields, limits)
        self._is_terse = {role: not asks_for_mark(text) for role, text in self.prompts.items()}

    # Levels -------------------------------------------------------------------------------------

    def _read_levels(self, levels: str | Path | Sequence[str] | None) -> None:
        """Read what `levels=` names, and draw levels from it instead of generating them."""
        if levels is not None:
            found = read_levels(levels, self.game.read_levels, self.game.read_level)
            self._levels = tuple(self._fitting("levels", level) for level in found)

    def _fitting(self, argument: str, level: Any) -> Any:
        """Return a level from outside, if an episode can solve it as far as is known."""
        budget = self.max_turns * self.moves_per_turn
        if (moves := self.game.length(level)) > budget:
            raise InvalidArgument(
                "level",
                f"a level of {moves} moves",
                f"levels of at most {budget} moves",
                "Raise max_turns or moves_per_turn.",
            )
        return level

    def _range_of_moves(
        self, min_moves: int | None, max_moves: int | None, default: int
    ) -> tuple[int, int]:
        """Return the range of the shortest solutions of levels, with what None stands for."""
        budget = self.max_turns * self.moves_per_turn
        high = budget if max_moves is None else check_whole("max_moves", max_moves, 1)
        if high > budget:
            raise UnreachableRequest(
                f"max_moves={high} asks for levels that max_turns={self.max_turns} turns of "
                f"moves_per_turn={self.moves_per_turn} moves cannot solve; at most {budget} can be"
            )
        low = min(default, high) if min_moves is None else check_whole("min_moves", min_moves, 1)
        return low, high

    def _generate(self, rng: random.Random, options: Mapping[str, Any]) -> PlanningState:
        game = self.game
        if options.get("level") is not None:
            level = self._fitting("level", read_level_option(options["level"], game.read_level))
        elif self._levels:
            level = rng.choice(self._levels)
        else:
            level = game.generate(rng, self._request)
        return PlanningState(level, game.start(level))

    def _level_json(self, state: PlanningState) -> str:
        return self.game.identity(state.level)

    def _ansi(self, state: PlanningState) -> str:
        return self.game.board(state.level, state.position)

    # Texts --------------------------------------------------------------------------------------

    def _fields(self, state: PlanningState, agent: str, turn: int) -> Mapping[str, object]:
        return PromptFields(self._placeholders, state, agent, turn)

    def _parse(self, state: PlanningState, agent: str, text: str) -> Any:
        if agent != "tool_0":
            return self.game.read(state.level, text)
        if self.tool == "python":
            return read_program(text)
        assert self.game.calls is not None
        return self.game.calls.read(state.level, text)

    def _scripted(self, state: PlanningState, agent: str, policy: str, rng: random.Random) -> str:
        game, role = self.game, role_of(agent)
        moves = game.plan(state.level, state.position, policy, self.moves_per_turn, rng)
        if role == "tool" and self.tool == "python":
            return f"```python\nprint({game.write(moves)!r})\n```"
        if role == "tool" and game.calls is not None:
            return f"#### {game.calls.write}({game.write(moves)})"
        if self._is_terse[role]:
            return game.write_terse(state.level, moves) or game.write(moves)
        return f"#### {game.write(moves)}"

    # Turns --------------------------------------------------------------------------------------

    def _act(self, state: PlanningState, agent: str, action: Any) -> Transition:
        if agent == "planner_0":
            return self._decide(state, action)
        if agent == "proposer_0":
            return self._propose(state, action, _PROPOSED)
        return self._use_tool(state, action)

    def _decide(self, state: PlanningState, action: Any) -> Transition:
        """Make the moves of the agent that decides, and settle the proposal of the turn."""
        trial, local, unchanged = self._judged(state, action)
        position, reached, solved, _, executed, _, _, refused, is_lost, _ = trial
        used = state.moves_used + len(executed)
        after = PlanningState(state.level, position, used, reached, "", "", (), refused, unchanged)
        # The proposal has been paid for: what is not done of it is paid back here.
        team = reached - state.potential + SUCCESS * solved
        ends = solved or (is_lost and self._stop_when_lost)
        return Transition(after, team, local, ends, solved, self.game.facts(state, trial, True))

    def _propose(self, state: PlanningState, action: Any, work: ToolWork) -> Transition:
        """Try moves without making them, and show them to the planner."""
        trial, local, _ = self._judged(state, action)
        if work.is_useful is not None:
            local = 0.0 if work.is_useful else self._costs.empty
        level, position, used, before, _, _, _, refused, unchanged = state
        promised = trial.potential
        after = PlanningState(
            level, position, used, promised, work.call, work.result, trial.kept, refused, unchanged
        )
        facts = self.game.facts(state, trial, False)
        return Transition(after, promised - before, local, False, False, facts)

    def _judged(self, state: PlanningState, action: Any) -> tuple[Trial, float, str]:
        """Return what an answer does, what it costs, and why it changes nothing if it does not."""
        game, costs = self.game, self._costs
        if isinstance(action, ParseError):
            trial = game.attempt(state.level, state.position, game.no_answer, self.moves_per_turn)
            return trial, costs.malformed, "the answer could not be read"
        trial = game.attempt(state.level, state.position, action, self.moves_per_turn)
        if trial.unchanged:
            return trial, costs.empty, trial.unchanged
        if not (illegal := trial.num_illegal):
            return trial, 0.0, ""
        # However much is refused beside moves that count, an empty answer is not cheaper.
        return trial, max(costs.empty, illegal * costs.illegal), ""

    def _use_tool(self, state: PlanningState, action: Any) -> Transition:
        """Run what the tool agent asks for: a proposal, or made if the agent is alone."""
        work = self._work(state, action)
        if self._tool_decides:
            done = self._decide(state, work.answer)
        else:
            done = self._propose(state, work.answer, work)
        info: dict[str, Any] = {**done.info, "tool_call": work.call, "tool_result": work.result}
        if work.num_cut:
            info["cut_moves"] += work.num_cut
        if self._tool_decides and work.lack:
            return done._replace(state=done.state._replace(unchanged=work.lack), info=info)
        return done._replace(info=info)

    def _work(self, state: PlanningState, action: Any) -> ToolWork:
        if isinstance(action, ParseError):
            return ToolWork(action, "", f"none: {action.reason}")
        game, level, position = self.game, state.level, state.position
        if self.tool == "call":
            assert game.calls is not None
            return game.calls.answer(level, position, action, self.moves_per_turn)
        run = run_program(action, game.program_input(level, position) + "\n")
        answer = run.answer(lambda printed: game.read_printed(level, printed))
        lack = answer.reason if isinstance(answer, ParseError) else ""
        return ToolWork(answer, show_program(action), run.report, lack)
