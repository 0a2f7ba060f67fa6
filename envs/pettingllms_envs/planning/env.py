"""The protocol of proposals: `PlanningEnv`, what its games give, and what their agents read."""

from __future__ import annotations

import random
import re
from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from textwrap import fill
from typing import Any, ClassVar, NamedTuple, TypeVar, cast

from pettingllms.arguments import check_choice, check_whole
from pettingllms.env import MAX_TURNS, PlaceholderEnv, ShellArguments
from pettingllms.errors import InvalidArgument, UnreachableRequest
from pettingllms.files import packaged
from pettingllms.pages import EnvT, sections_of
from pettingllms.pages import page as page_of
from pettingllms.parsing import Item, ListReader, one_line
from pettingllms.prompts import (
    HISTORY,
    TURN,
    PromptField,
    PromptTemplate,
    history_text,
    meanings,
    of_state,
    resolve_prompts,
    written,
)
from pettingllms.types import ParseError, Transition, role_of
from pettingllms_envs.grid import MOVES
from pettingllms_envs.level_files import read_level_option, read_levels
from pettingllms_envs.python_tool import INSTRUCTIONS, read_program, run_program, show_program
from pettingllms_envs.reward import LOST, MALFORMED, PROGRESS, SUCCESS, costs, costs_text, shaped
from pettingllms_envs.team_table import MAX_MOVES_PER_TURN, TEAMS, constant_fields

MoveT = TypeVar("MoveT")


class PlanningState(NamedTuple):
    """The state of an episode."""

    level: Any
    """The level: an immutable value of the game."""
    position: Any
    """What moves change: an immutable value of the game."""
    moves_used: int = 0
    """Moves executed so far; illegal moves do not count."""
    potential: float = 0.0
    """The potential of the position; after a proposal, of the position that it promises."""
    tool_call: str = ""
    """The tool agent's calls or program of this turn, as the planner reads it."""
    tool_result: str = ""
    """What the program printed or the call returned, as the planner reads it."""
    proposal: Any = ()
    """The moves proposed this turn, as `Trial.kept`."""
    refused: str = ""
    """Which parts of the last answer were refused, for the next prompts; most games say nothing."""
    unchanged: str = ""
    """Why the last turn changed nothing, for the next prompts; empty if it changed something."""


class Trial(NamedTuple):
    """What an answer does to a position, or would do."""

    position: Any
    """The position afterwards."""
    potential: float
    """The potential of that position, in [-`PROGRESS`, `PROGRESS`]."""
    is_solved: bool
    """Whether that position solves the level."""
    kept: Any
    """The part of the answer that counts, as `PlanningEnv._write` takes it: what is proposed."""
    executed: Any = ()
    """The legal moves, in order; empty in games that do not count moves."""
    num_illegal: int = 0
    """Illegal moves or refused fills; each costs `Costs.illegal`."""
    unchanged: str = ""
    """Why the position is the same as before; empty if it is another."""
    refused: str = ""
    """See `PlanningState.refused`."""
    is_lost: bool = False
    """Whether the level certainly cannot be solved any more."""
    about: Any = None
    """What else `PlanningEnv._facts` wants to know; the shell does not look at it."""


class ToolWork(NamedTuple):
    """What a tool agent's calls or program gave."""

    answer: Any
    """The moves that it found, as `PlanningEnv._reader` reads them; or a `ParseError`."""
    call: str = ""
    """What the tool agent called or wrote, bounded."""
    result: str = ""
    """What the program printed or the calls returned, bounded."""
    lack: str = ""
    """Why there are no moves, for the next prompt of a tool agent that works alone."""
    is_useful: bool | None = None
    """Whether calls that are worth something without moves were answered and not all refused; None:
    the moves are judged like those of a proposer."""


POLICIES = ("oracle", "greedy", "random")
"""Scripted policies that every game has: an optimal plan, a rule that plans nothing, random moves
that are legal."""


def why_unchanged(given: Sequence[Any], executed: Sequence[Any]) -> str:
    """Why moves, of which those executed were legal, left the position as it was, for prompts."""
    if not given:
        return "the answer had no moves"
    return "the moves led back" if executed else "all moves were illegal"


def bounded(text: str, num_chars: int) -> str:
    """A text, cut to a number of characters if it is longer, with a note on the rest."""
    rest = len(text) - num_chars
    return text if rest <= 0 else f"{text[:num_chars]}... {rest} characters left out"


# ---- lists of the moves U, D, L, R, as answers of two games

_WORDS = {"up": "U", "down": "D", "left": "L", "right": "R"}
_MOVE = r"(?:[UDLR]++|(?i:up|down|left|right|[udlr]))"
_USUAL = re.compile(rf'\["[{MOVES}]"(?>(?:, ?"[{MOVES}]")*)\]')
_BARE = re.compile(rf"""(?>(?:["'`]?{_MOVE}["'`]?(?:[\s,;]++|$))+)""")
_ONE_MOVE = re.compile(_MOVE)
_NO_LETTER = re.compile(rf"[^{MOVES}]+")
_MOVE_WORD = re.compile(r"[A-Za-z]+")


def _bare_moves(said: str) -> str | ParseError:
    is_bare = _BARE.fullmatch(said)
    return _letters(_MOVE_WORD.findall(said)) if is_bare else ParseError("no moves")


def moves_of_items(items: list[Item]) -> str | ParseError:
    """The moves of a list, and of the lists in it, as letters, in the order of writing."""
    words: list[str] = []
    rest = items[::-1]
    while rest:
        item = rest.pop()
        if isinstance(item, list):
            rest += item[::-1]
        elif _ONE_MOVE.fullmatch(item.strip()):
            words.append(item.strip())
        else:
            return ParseError(f"{one_line(item, 30)!r} is none of the moves U, D, L, R")
    return _letters(words)


def _letters(words: list[str]) -> str:
    return "".join(_WORDS.get(word.lower()) or word.upper() for word in words)


def _usual_moves(answer: str) -> str | None:
    if not answer.strip(MOVES):
        return answer
    return _NO_LETTER.sub("", answer) if _USUAL.fullmatch(answer) else None


MOVE_READER = ListReader(moves_of_items, _usual_moves, _bare_moves)
"""Reads moves as letters U D L R, empty for an empty list.

They are written as these letters or the words up, down, left, right in any case, quoted or not;
capital letters may be joined (`UUR`). Brackets may be missing around nothing but moves.
"""


def moves_json(moves: str) -> str:
    """The JSON list of moves that prompts ask for: `UR` gives `["U","R"]`."""
    return '["' + '","'.join(moves) + '"]' if moves else "[]"


# ---- lists of moves that are pairs, as answers of two games


def pair_reader(
    terse: str,
    usual: str,
    make: Callable[[str, str], MoveT],
    read_move: Callable[[Item], MoveT | ParseError],
) -> ListReader[tuple[MoveT, ...]]:
    """A reader of lists of moves, each a pair.

    Args:
        terse: Matches texts of nothing but moves, two characters each: `B-CA`.
        usual: Matches one move of the JSON that prompts ask for, its parts as groups.
        make: A move from its two parts.
        read_move: A move from an item of a list, however it is written; or why it is none.
    """
    whole = re.sub(r"\((?!\?)", "(?:", usual)
    all_terse, one = re.compile(terse), re.compile(usual)
    all_usual = re.compile(rf"\[{whole}(?>(?:, ?{whole})*)\]")

    def of_usual(text: str) -> tuple[MoveT, ...] | None:
        if all_terse.fullmatch(text):
            return tuple(map(make, text[::2], text[1::2]))
        found = all_usual.fullmatch(text)
        return tuple([make(*parts) for parts in one.findall(text)]) if found else None

    def of_items(items: list[Item]) -> tuple[MoveT, ...] | ParseError:
        if len(items) == 2 and all(isinstance(item, str) for item in items):
            items = [items]  # one move without the outer brackets
        moves: list[MoveT] = []
        for item in items:
            move = read_move(item)
            if isinstance(move, ParseError):
                return move
            moves.append(move)
        return tuple(moves)

    return ListReader(of_items, of_usual)


# ---- what agents read

_TEXTS = packaged("pettingllms_envs.planning")


class CallWords(NamedTuple):
    """What prompts say about the helper functions of a game."""

    duty: str
    """What the tool agent does: `"call functions"`."""
    mate: str
    """The same in the planner's prompt: `"tool agent calls functions"`."""
    outcome: str
    """What the planner reads: `"the results"`."""
    alone: str
    """What becomes of the results if the tool agent works alone."""
    answer: str
    """The functions, and the form of the answer; `{use}` is what becomes of the moves."""
    reads: str
    """How the planner's prompt shows calls and results."""
    planner_functions: str = ""
    """What the planner's prompt says about the functions."""


class Words(NamedTuple):
    """What the prompts of a game say; `{max_turns}`, `{moves_per_turn}` and `{costs}` are known."""

    goal: str
    """What is to be done, without a full stop."""
    rules: str
    """What a position and a move are, and the limits."""
    user: str
    """The turn and the position, with placeholders."""
    example: str
    """A list of moves, as JSON, that prompts show as an example."""
    program: str
    """What a program reads and what it prints."""
    calls: CallWords | None = None
    """What prompts say about helper functions; None: the game has none."""
    update: str = ""
    """What replaces `user` from the second turn on in delta mode; empty: `user`."""
    moves: str = "moves"
    """What answers consist of."""
    done: str = "executed"
    """What is done with the moves that the planner decides on."""
    illegal: str = "illegal move"
    """What the page of the game calls a move that costs `Costs.illegal`."""
    answer_note: str = ""
    """What else the prompt says about the answer of planner and proposer."""
    duties: str = "together"
    """Which of the duties of `planning/prompts.toml` the prompt begins with."""
    counts_moves: bool = True
    """Whether a turn has a limit of moves, so that prompts may speak of it."""


def words_in(package: str, variant: str = "", **parts: object) -> Words:
    """The words of a game, as the `prompts.toml` of its package has them.

    Args:
        package: The package.
        variant: The table whose texts replace those above it; empty: none.
        **parts: What stands in place of `{name}` in the texts. `{limits}` is known.
    """
    parts = {"limits": _TEXTS["limits"], **parts}

    def filled(texts: Mapping[str, Any]) -> dict[str, Any]:
        return {k: _filled(v, parts) if isinstance(v, str) else v for k, v in texts.items()}

    table = packaged(package)
    known = filled({name: table[name] for name in table if name in Words._fields})
    if "calls" in known:
        known["calls"] = CallWords(**filled(known["calls"]))
    return Words(**known | filled(table.get(variant, {})))


def limits_of(words: Words, max_turns: int, moves_per_turn: int, reward: str) -> dict[str, object]:
    """The placeholders that are the same in all observations of an environment.

    In the game's own words they are filled in once; replaced prompts may name them too.
    """
    sentence = costs_text(costs(max_turns, moves_per_turn), words.illegal, reward)
    # Sentences on costs are the same in all prompts: they are made once, not per observation.
    limits: dict[str, object] = {"max_turns": max_turns, "costs": sentence}
    return {**limits, "moves_per_turn": moves_per_turn} if words.counts_moves else limits


def templates(
    words: Words, team: str, tool: str, limits: Mapping[str, object]
) -> dict[str, PromptTemplate]:
    """Role -> prompt template of a team, with the `limits` of `limits_of` filled in."""
    mate = tool if team == "tool-planner" else "proposer"
    found: dict[str, PromptTemplate] = {}
    for (agent,) in TEAMS[team]:
        role = role_of(agent)
        is_planner = role == "planner"
        duty = "single" if team == "single" else tool if role == "tool" else role
        duty = f"single-{tool}" if team == "single-tool" else duty
        functions = words.calls.planner_functions if words.calls and mate == "call" else ""
        system = [
            _duty(words, duty, mate),
            words.rules,
            functions if is_planner and team == "tool-planner" else "",
            _answer(words, tool if role == "tool" else "", is_alone=team == "single-tool"),
        ]
        reads = _reads(words, mate) if is_planner and team != "single" else ""
        user = [words.user, reads]
        update = [words.update, reads] if words.update else []
        parts = ("\n".join(filter(None, part)) for part in (system, user, update))
        found[role] = PromptTemplate(*(_filled(part, limits) for part in parts))
    return found


def _duty(words: Words, duty: str, mate: str) -> str:
    calls = words.calls or CallWords("", "", "", "", "", "")
    mate = calls.mate if mate == "call" else _TEXTS["mates"][mate].format(moves=words.moves)
    return _TEXTS["duties"][words.duties][duty].format(
        goal=words.goal,
        mate=mate,
        moves=words.moves,
        done=words.done,
        call=calls.duty,
        outcome=calls.outcome,
        alone=calls.alone,
    )


def _answer(words: Words, tool: str, is_alone: bool) -> str:
    if tool == "python":
        return f"{words.program}\n{INSTRUCTIONS}"
    if tool == "call":
        assert words.calls is not None
        return words.calls.answer.replace("{use}", words.done if is_alone else "your proposal")
    answer = _TEXTS["answer"].format(moves=words.moves, example=words.example)
    return f"{answer}\n{words.answer_note}" if words.answer_note else answer


def _reads(words: Words, mate: str) -> str:
    return words.calls.reads if words.calls and mate == "call" else _TEXTS["reads"][mate]


def _filled(text: str, limits: Mapping[str, object]) -> str:
    """A text with its limits in their layouts: what is left changes from turn to turn."""
    named = rf"{{({'|'.join(limits)})(?::([^{{}}]*))?}}"
    return re.sub(named, lambda found: written(limits[found[1]], found[2] or ""), text)


def default_prompts(words: Words, max_turns: int, moves_per_turn: int) -> dict[str, PromptTemplate]:
    """The templates of every role with the given default limits."""
    limits = limits_of(words, max_turns, moves_per_turn, "shaped")
    pair = templates(words, "proposer-planner", "python", limits)
    return {**pair, **templates(words, "tool-planner", "python", limits)}


def all_fields(
    game: type[PlanningEnv],
    own: Mapping[str, PromptField[PlanningState]],
    limits: Mapping[str, object],
) -> dict[str, PromptField[PlanningState]]:
    """The placeholders that all games have, and a game's own, which replace them."""
    max_turns = cast("int", limits["max_turns"])
    common: dict[str, PromptField[PlanningState]] = {
        "proposal": of_state(
            "what the tool agent or the proposer proposes this turn, as a JSON list",
            lambda state: game._write(state.proposal),
        ),
        "proposal_compact": of_state(
            "the same, as short as can be",
            lambda state: game._write_terse(state.level, state.proposal),
        ),
        "tool_call": of_state(
            "the tool agent's calls or program of this turn",
            lambda state: state.tool_call or "none",
        ),
        "tool_result": of_state("what they gave", lambda state: state.tool_result or "none"),
        "turn": TURN,
        "turns_left": PromptField(
            "turns left, with the present one", lambda state, agent, turn: max_turns - turn
        ),
        "history": of_state(HISTORY, lambda state: history_text(state.unchanged)),
    }
    if "moves_per_turn" in limits:
        common["moves_used"] = of_state("moves executed so far", lambda state: state.moves_used)
    known = {name: _TEXTS["fields"][name] for name in limits}
    constant = constant_fields(known, limits.values())
    return {**common, **constant, **own}


def field(meaning: str, shown: Callable[[Any, Any], object]) -> PromptField[PlanningState]:
    """A placeholder that shows something of level and position, the same to all who read it."""
    return PromptField(meaning, lambda state, agent, turn: shown(state.level, state.position))


# ---- the shell


class GameArguments(ShellArguments, total=False):
    """The arguments that every game takes and hands on to `PlanningEnv`."""

    team: str
    """One of `TEAMS`."""
    max_turns: int
    """Turns of an episode, from 1."""


_PROPOSED = ToolWork(None)
"""The work of a proposer, which uses no tool."""


class PlanningEnv(PlaceholderEnv[PlanningState]):
    """The shell of games with proposals; see `pettingllms_envs.planning` for what a game gives.

    A subclass defines the hooks below, mostly pure functions of its modules, and sets
    `difficulties` and, at the end of its constructor, `self.board` and `self._request`.

    Args:
        words: What prompts say, for these arguments.
        fields: Placeholders of the game, for these arguments.
        team: One of `TEAMS`.
        tool: One of `tools`.
        max_turns: Turns of an episode.
        moves_per_turn: Maximum number of moves that one answer may make; as many illegal ones cost
            as much as an empty answer.
        stop_when_lost: Whether the episode ends when the level certainly cannot be solved.
        reward: As for `TextEnv`; `"outcome"` leaves costs out of the prompts too.
        prompts: As for `TextEnv`.
        **common: The other arguments of `TextEnv`.
    """

    scripted_policies: ClassVar[tuple[str, ...]] = POLICIES
    tools: ClassVar[tuple[str, ...]] = ("python",)
    """What a tool agent may do; `"call"`: call helper functions, which are never executed."""
    _request: Any
    _levels: tuple[Any, ...] = ()

    # What a game gives: functions of their arguments. Levels and positions are immutable values.
    # An *answer* is what `_reader` reads in a readable text; *moves* are what `Trial.kept`,
    # `_plan` and `_write` have in common. In most games both are the same tuple or text.

    words: ClassVar[Words]
    """What prompts say with default arguments."""
    own_fields: ClassVar[Mapping[str, PromptField[PlanningState]]]
    """The game's own placeholders with default arguments."""
    default_limits: ClassVar[tuple[int, int]]
    """The default `max_turns` and `moves_per_turn`."""
    least_potential: ClassVar[float] = LOST
    """The lowest potential of a position."""
    _no_answer: ClassVar[Any] = ()
    """The answer without any moves."""
    _canonical: ClassVar[Callable[[Any], bytes]]
    """What identifies a level, unless `_identity` does."""
    _answers: ClassVar[ListReader[Any]]
    """What reads answers on all levels, unless `_reader` says it by level."""

    @staticmethod
    @abstractmethod
    def _draw(rng: random.Random, request: Any, /) -> Any:
        """A level with a certificate, as a checked request asks for."""

    @staticmethod
    def _start(level: Any, /) -> Any:
        """The first position of a level."""
        return level.start

    @staticmethod
    @abstractmethod
    def _read_level(text: str, /) -> Any:
        """The level that a text describes; raises `LevelFormatError`."""

    @staticmethod
    @abstractmethod
    def _read_level_file(text: str, /) -> Sequence[Any]:
        """The levels that a file holds; raises `LevelFormatError`."""

    @classmethod
    def _identity(cls, level: Any, /) -> str:
        """The same text for all images of a level under the symmetries of the game."""
        return cls._canonical(level).decode()

    @classmethod
    def _reader(cls, level: Any, /) -> ListReader[Any]:
        """What reads the answers of planners, proposers and programs."""
        return cls._answers

    @classmethod
    @abstractmethod
    def _attempt(cls, level: Any, position: Any, answer: Any, max_moves: int, /) -> Trial:
        """What an answer would do, of at most so many moves. Changes nothing."""

    @classmethod
    @abstractmethod
    def _facts(cls, state: PlanningState, trial: Trial, is_done: bool, /) -> dict[str, Any]:
        """The game's own infos of a trial, which is done or only proposed."""

    @staticmethod
    @abstractmethod
    def _plan(level: Any, position: Any, policy: str, num_moves: int, rng: random.Random, /) -> Any:
        """The moves of a scripted policy."""

    @staticmethod
    @abstractmethod
    def _write(moves: Any, /) -> str:
        """Moves as JSON, as prompts show them and `_reader` reads them."""

    @staticmethod
    def _write_terse(level: Any, moves: Any, /) -> str:
        """The shortest text that `_reader` reads as these moves."""
        return "".join(moves)

    @staticmethod
    @abstractmethod
    def _board(level: Any, position: Any, /) -> str:
        """The position as text, for people."""

    @classmethod
    def _program_input(cls, level: Any, position: Any, /) -> str:
        """What a program reads from stdin, without the last line break."""
        return cls._board(level, position)

    @staticmethod
    def _length(level: Any, /) -> int:
        """Moves of the level's certified solution; 0 if none is known or moves are not counted."""
        return level.shortest

    def _read_call(self, level: Any, text: str, /) -> Any:
        """The call of helper functions that a text asks for, with `tool="call"`."""
        raise NotImplementedError

    def _answer_call(self, state: PlanningState, call: Any, /) -> ToolWork:
        """What such a call gave."""
        raise NotImplementedError

    def __init_subclass__(cls) -> None:
        """Derive the prompts of default arguments, and what placeholders mean, from its words."""
        super().__init_subclass__()
        if "words" in vars(cls):
            limits = limits_of(cls.words, *cls.default_limits, "shaped")
            cls.default_prompts = default_prompts(cls.words, *cls.default_limits)
            cls.prompt_fields = meanings(all_fields(cls, cls.own_fields, limits))

    def __init__(
        self,
        *,
        words: Words,
        fields: Mapping[str, PromptField[PlanningState]],
        moves_per_turn: int,
        team: str = "tool-planner",
        tool: str = "python",
        max_turns: int = 4,
        stop_when_lost: bool = False,
        reward: str = "shaped",
        prompts: Mapping[str, Any] | None = None,
        **common: Any,
    ) -> None:
        check_choice("team", team, TEAMS)
        check_choice("tool", tool, self.tools)
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
        self._placeholders = all_fields(type(self), fields, limits)

    # Levels -------------------------------------------------------------------------------------

    def _read_levels(self, levels: str | Path | Sequence[str] | None) -> None:
        """Read what `levels=` names, and draw levels from it instead of generating them."""
        if levels is not None:
            # All of them now: an error in a file is the caller's at once, not some episode's.
            found = read_levels(levels, self._read_level_file, self._read_level)
            self._levels = tuple(self._fitting("levels", level) for level in found)

    def _fitting(self, argument: str, level: Any) -> Any:
        """The level itself; refuses one from outside that no episode is long enough for."""
        budget = self.max_turns * self.moves_per_turn
        if (moves := self._length(level)) > budget:
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
        """The range of the lengths of shortest solutions, with what None stands for."""
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
        if options.get("level") is not None:
            level = self._fitting("level", read_level_option(options["level"], self._read_level))
        elif self._levels:
            level = rng.choice(self._levels)
        else:
            level = self._draw(rng, self._request)
        return PlanningState(level, self._start(level))

    def _level_json(self, state: PlanningState) -> str:
        return self._identity(state.level)

    def _ansi(self, state: PlanningState) -> str:
        return self._board(state.level, state.position)

    # Texts --------------------------------------------------------------------------------------

    def _parse(self, state: PlanningState, agent: str, text: str) -> Any:
        if agent != "tool_0":
            return self._reader(state.level).read(text)
        if self.tool == "python":
            return read_program(text)
        return self._read_call(state.level, text)

    def _scripted(self, state: PlanningState, agent: str, policy: str, rng: random.Random) -> str:
        moves = self._plan(state.level, state.position, policy, self.moves_per_turn, rng)
        if agent == "tool_0" and self.tool == "python":
            return f"```python\nprint({self._write(moves)!r})\n```"
        if self._is_marked(agent):
            return f"#### {self._write(moves)}"
        return self._write_terse(state.level, moves) or self._write(moves)

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
        return Transition(after, team, local, ends, solved, self._facts(state, trial, True))

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
        facts = self._facts(state, trial, False)
        return Transition(after, promised - before, local, False, False, facts)

    def _judged(self, state: PlanningState, action: Any) -> tuple[Trial, float, str]:
        """What an answer does, what it costs, and why it changes nothing if it does not."""
        costs = self._costs
        if isinstance(action, ParseError):
            trial = self._attempt(state.level, state.position, self._no_answer, self.moves_per_turn)
            return trial, costs.malformed, "the answer could not be read"
        trial = self._attempt(state.level, state.position, action, self.moves_per_turn)
        if trial.unchanged:
            return trial, costs.empty, trial.unchanged
        if not (illegal := trial.num_illegal):
            return trial, 0.0, ""
        # However much is refused beside moves that count, an empty answer is not cheaper.
        return trial, max(costs.empty, illegal * costs.illegal), ""

    def _use_tool(self, state: PlanningState, action: Any) -> Transition:
        """Run what the tool agent asks for; its moves are proposed, or executed if it is alone."""
        # Alone, the tool agent takes the planner's place, and its moves are executed.
        work = self._work(state, action)
        if self._tool_decides:
            done = self._decide(state, work.answer)
        else:
            done = self._propose(state, work.answer, work)
        info: dict[str, Any] = {**done.info, "tool_call": work.call, "tool_result": work.result}
        if self._tool_decides and work.lack:
            return done._replace(state=done.state._replace(unchanged=work.lack), info=info)
        return done._replace(info=info)

    def _work(self, state: PlanningState, action: Any) -> ToolWork:
        if isinstance(action, ParseError):
            return ToolWork(action, "", f"none: {action.reason}")
        if self.tool == "call":
            return self._answer_call(state, action)
        level = state.level
        run = run_program(action, self._program_input(level, state.position) + "\n")
        answer = run.answer(self._reader(level).read_printed)
        lack = answer.reason if isinstance(answer, ParseError) else ""
        return ToolWork(answer, show_program(action), run.report, lack)


class ExactEnv(PlanningEnv):
    """The shell of games in which the moves left to the goal are known exactly.

    Such a game defines `_after`, `_distance` and `_is_goal` instead of `_attempt` and `_facts`; its
    levels have the length of a shortest solution as `shortest`.
    """

    @staticmethod
    @abstractmethod
    def _after(level: Any, position: Any, move: Any, /) -> Any:
        """The position after a move; None if the move is illegal."""

    @staticmethod
    @abstractmethod
    def _distance(level: Any, position: Any, /) -> int:
        """The length of a shortest solution from a position on, in moves."""

    @staticmethod
    @abstractmethod
    def _is_goal(level: Any, position: Any, /) -> bool:
        """Whether a position solves the level."""

    @classmethod
    def _attempt(cls, level: Any, position: Any, answer: Any, max_moves: int, /) -> Trial:
        return _exact_trial(cls, level, position, answer, max_moves)

    @classmethod
    def _facts(cls, state: PlanningState, trial: Trial, is_done: bool, /) -> dict[str, Any]:
        # Those of a proposal are what they would be if it were done.
        left, shortest = trial.about, state.level.shortest
        used = state.moves_used + (len(trial.executed) if is_done else 0)
        name, moves = ("executed", trial.executed) if is_done else ("proposed", trial.kept)
        return {
            "distance": left,
            "shortest": shortest,
            "moves_used": used,
            "optimality": shortest / used if is_done and used and not left else 0.0,
            "illegal_moves": trial.num_illegal,
            name: cls._write(moves),
        }


# The planner often does what was proposed, and branches of a group often the same.
@lru_cache(maxsize=4096)
def _exact_trial(
    game: type[ExactEnv], level: Any, position: Any, answer: Any, max_moves: int
) -> Trial:
    kept, reached = answer[:max_moves], position
    executed: list[Any] = []
    illegal = 0
    for move in kept:
        if game._is_goal(level, reached):
            break
        following = game._after(level, reached, move)
        if following is None:
            illegal += 1
        else:
            reached = following
            executed.append(move)
    left = game._distance(level, reached)
    unchanged = why_unchanged(answer, executed) if reached == position else ""
    worth, done = shaped(left, level.shortest), tuple(executed)
    return Trial(reached, worth, not left, kept, done, illegal, unchanged, about=left)


# ---- what the pages of all games say


def page(**example: Any) -> Callable[[EnvT], EnvT]:
    """Complete the page of a game; see `pettingllms.pages.page`.

    The docstring says under "Reward" what the potential and M are.
    """

    def completed(kind: EnvT) -> EnvT:
        said = _TEXTS["page"]
        infos = (said["exact_infos"] if issubclass(kind, ExactEnv) else {}) | said["infos"]
        example.update(team="proposer-planner", split="test")
        return page_of(_sections, infos, said["arguments"], **example)(kind)

    return completed


def _sections(game: type[PlanningEnv]) -> dict[str, str]:
    texts: Mapping[str, str] = _TEXTS["page"]
    own, words, has_calls = sections_of(game.__doc__ or ""), game.words, "call" in game.tools
    said = {
        "moves": words.moves,
        "done": words.done,
        "illegal": words.illegal,
        "works": "writes a program or calls a function" if has_calls else "writes a program",
        "refused": "; call that is refused" if has_calls else "",
        "own": own.get("Reward", "").strip(),
        "limit": ", M is `moves_per_turn`" if words.counts_moves else "",
        # What costs leave of the return, and rises between the ends of the range of the potential.
        "worst": f"{game.least_potential - MALFORMED:g}",
        "low": f"{game.least_potential - PROGRESS:g}",
        "high": f"{SUCCESS + PROGRESS - game.least_potential:g}",
    }
    return {
        "Agents and roles": fill(texts["roles"].format(**said), 98),
        "Reward": texts["reward"].format(**said),
        "Termination": own.get("Termination", texts["termination"]),
    }
