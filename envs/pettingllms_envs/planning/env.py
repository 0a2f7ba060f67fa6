"""`PlanningEnv`: teams, programs, proposals and rewards of a game whose moves can be undone."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple

from pettingllms.arguments import check_choice, check_whole
from pettingllms.env import MAX_TURNS, TextEnv
from pettingllms.errors import InvalidArgument, UnreachableRequest
from pettingllms.prompts import PromptField, PromptFields, resolve_prompts
from pettingllms.transition import ParseError, Transition, role_of
from pettingllms_envs.planning.game import POLICIES, Moves, PlanningState, Rules, Words
from pettingllms_envs.planning.prompts import limits_of, templates
from pettingllms_envs.python_tool import read_program, run_program, show_program
from pettingllms_envs.reward import SUCCESS, costs, shaped, unchanged_answer, with_reason
from pettingllms_envs.team_table import MAX_MOVES_PER_TURN, TEAMS


class MadeMoves(NamedTuple):
    """What a list of moves does."""

    position: Any
    executed: Moves
    illegal: int


class PlanningEnv(TextEnv[PlanningState]):
    """The shell of games with proposals; subclasses set `rules`, `words` and `placeholders`.

    Args:
        team: One of `TEAMS`.
        max_turns: Turns of an episode.
        moves_per_turn: Maximum number of moves executed or proposed in a turn.
        reward: As for `TextEnv`; `"outcome"` leaves costs out of the prompts too.
        prompts: As for `TextEnv`.
        **common: The other arguments of `TextEnv`.
    """

    rules: ClassVar[Rules]
    words: ClassVar[Words]
    placeholders: ClassVar[Mapping[str, PromptField[PlanningState]]]
    scripted_policies: ClassVar[tuple[str, ...]] = POLICIES

    def __init__(
        self,
        *,
        team: str,
        max_turns: int,
        moves_per_turn: int,
        reward: str,
        prompts: Mapping[str, Any] | None,
        **common: Any,
    ) -> None:
        check_choice("team", team, TEAMS)
        max_turns = check_whole("max_turns", max_turns, 1, MAX_TURNS)
        moves_per_turn = check_whole("moves_per_turn", moves_per_turn, 1, MAX_MOVES_PER_TURN)
        defaults = templates(self.words, team, limits_of(max_turns, moves_per_turn, reward))
        super().__init__(
            stages=TEAMS[team],
            max_turns=max_turns,
            reward=reward,
            prompts=resolve_prompts(defaults, prompts, self.prompt_fields),
            **common,
        )
        self.moves_per_turn = moves_per_turn
        self._tool_decides = team == "single-tool"
        self._costs = costs(max_turns, moves_per_turn)
        self._is_terse = {
            role: "####" not in template.system + template.user
            for role, template in self.prompts.items()
        }

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

    def _within_budget(self, level: Any) -> Any:
        budget = self.max_turns * self.moves_per_turn
        if level.shortest > budget:
            raise InvalidArgument(
                "level",
                f"a level of {level.shortest} moves",
                f"levels of at most {budget} moves",
                "Raise max_turns or moves_per_turn.",
            )
        return level

    def _fields(self, state: PlanningState, agent: str, turn: int) -> Mapping[str, object]:
        return PromptFields(self.placeholders, state, agent, turn)

    def _parse(self, state: PlanningState, agent: str, text: str) -> Any:
        return read_program(text) if agent == "tool_0" else self.rules.read(text)

    def _act(self, state: PlanningState, agent: str, action: Any) -> Transition:
        if agent == "tool_0":
            return self._run(state, action)
        if agent == "proposer_0":
            return self._propose(state, action, {})
        return self._decide(state, action)

    def _scripted(self, state: PlanningState, agent: str, policy: str, rng: random.Random) -> str:
        rules, role = self.rules, role_of(agent)
        moves = rules.plan(state.level, state.position, policy, self.moves_per_turn, rng)
        if role == "tool":
            return f"```python\nprint({rules.write(moves)!r})\n```"
        if self._is_terse[role]:
            return rules.write_terse(moves)
        return f"#### {rules.write(moves)}"

    def _potential(self, level: Any, position: Any) -> float:
        return shaped(self.rules.distance(level, position), level.shortest)

    def _try(self, state: PlanningState, action: Moves | ParseError) -> MadeMoves:
        level, position, executed, illegal = state.level, state.position, [], 0
        moves = () if isinstance(action, ParseError) else action[: self.moves_per_turn]
        for move in moves:
            if self.rules.distance(level, position) == 0:
                break
            following = self.rules.after(level, position, move)
            if following is None:
                illegal += 1
            else:
                position = following
                executed.append(move)
        return MadeMoves(position, tuple(executed), illegal)

    def _local(
        self, state: PlanningState, action: Moves | ParseError, trial: MadeMoves
    ) -> tuple[float, str]:
        """Return what an answer costs, and why it changed nothing if it did not."""
        if trial.position == state.position:
            return unchanged_answer(action, trial.executed, self._costs)
        return trial.illegal * self._costs.illegal, ""

    def _facts(self, state: PlanningState, trial: MadeMoves, used: int) -> dict[str, Any]:
        left = self.rules.distance(state.level, trial.position)
        shortest = state.level.shortest
        return {
            "distance": left,
            "shortest": shortest,
            "moves_used": used,
            "illegal_moves": trial.illegal,
            "optimality": shortest / used if not left and used else 0.0,
        }

    def _propose(
        self, state: PlanningState, action: Moves | ParseError, shown: dict[str, str]
    ) -> Transition:
        """Try moves without executing them, and show them to the planner."""
        trial = self._try(state, action)
        local, _ = self._local(state, action, trial)
        level, position = state.level, state.position
        team = self._potential(level, trial.position) - self._potential(level, position)
        proposal = () if isinstance(action, ParseError) else action[: self.moves_per_turn]
        after = state._replace(promised=trial.position, proposal=proposal, **shown)
        facts = self._facts(state, trial, state.moves_used)
        info = {**facts, "proposed": self.rules.write(proposal)}
        return Transition(after, team, local, False, False, info)

    def _run(self, state: PlanningState, action: str | ParseError) -> Transition:
        """Run a program; the list that it prints is a proposal, or made if the agent is alone."""
        if isinstance(action, ParseError):
            shown = {"program": "", "result": f"none: {action.reason}"}
            decides = self._tool_decides
            return self._decide(state, action) if decides else self._propose(state, action, shown)
        run = run_program(action, self.rules.as_input(state.level, state.position) + "\n")
        printed = run.answer(self.rules.read_printed)
        if not self._tool_decides:
            shown = {"program": show_program(action), "result": run.report}
            return self._propose(state, printed, shown)
        done = self._decide(state, printed)
        return with_reason(done, printed.reason) if isinstance(printed, ParseError) else done

    def _decide(self, state: PlanningState, action: Moves | ParseError) -> Transition:
        """Make the moves of the agent that decides and settle the proposal of the turn."""
        level, before, trial = state.level, state.position, self._try(state, action)
        local, unchanged = self._local(state, action, trial)
        used = state.moves_used + len(trial.executed)
        solved = self.rules.distance(level, trial.position) == 0
        promised = before if state.promised is None else state.promised
        team = self._potential(level, trial.position) - self._potential(level, promised)
        after = PlanningState(level, trial.position, used, unchanged=unchanged)
        facts = self._facts(state, trial, used)
        info = {**facts, "executed": self.rules.write(trial.executed)}
        return Transition(after, team + SUCCESS * solved, local, solved, solved, info)
