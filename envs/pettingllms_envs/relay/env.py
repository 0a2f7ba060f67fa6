"""`RelayEnv`: the shell around the boards; a witness describes, a builder builds."""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import Any, ClassVar, Unpack

from pettingllms.arguments import check_whole
from pettingllms.env import MAX_TURNS, PlaceholderEnv, ShellArguments
from pettingllms.hooks import Difficulty
from pettingllms.pages import page
from pettingllms.prompts import (
    TURN,
    PromptField,
    PromptTemplate,
    meanings,
    of_state,
    templates_in,
)
from pettingllms.types import ParseError, Transition, role_of
from pettingllms_envs.relay.rules import (
    RelayState,
    Said,
    blank,
    board_bits,
    canonical_form,
    message_bits,
    num_wrong,
    painted,
)
from pettingllms_envs.relay.text import (
    Build,
    Request,
    board_compact,
    board_text,
    fills_of,
    fills_text,
    generate,
    legend_text,
    message_of,
    messages_text,
    missing_compact,
    read_build,
    read_message,
    spoken,
    terse,
)
from pettingllms_envs.reward import SUCCESS, costs, fault_text, shaped
from pettingllms_envs.team_table import constant_fields


def _is_builder(agent: str) -> bool:
    return role_of(agent) == "builder"


def _letters(state: RelayState, agent: str) -> str:
    level = state.level
    return level.builder_letters if _is_builder(agent) else level.witness_letters


def _last_message(state: RelayState) -> str:
    return next((one.text for one in state.messages[::-1] if not one.is_builder), "")


_FIELDS: dict[str, PromptField[RelayState]] = {
    "turn": TURN,
    "legend": PromptField(
        "what the letters of the reader stand for",
        lambda state, agent, turn: legend_text(state.level, _letters(state, agent)),
    ),
    "target": PromptField(
        "(witness) the target, in the witness's letters; empty for the builder",
        lambda state, agent, turn: (
            "" if _is_builder(agent) else board_text(state.level.target, _letters(state, agent))
        ),
    ),
    "target_compact": PromptField(
        "(witness) the numbers of its symbols, row by row: 0011",
        lambda state, agent, turn: "" if _is_builder(agent) else board_compact(state.level.target),
    ),
    "missing_compact": PromptField(
        "(witness) the same where the builder's board is wrong, - elsewhere: --11",
        lambda state, agent, turn: (
            "" if _is_builder(agent) else missing_compact(state.board, state.level.target)
        ),
    ),
    "board": PromptField(
        "the builder's board, in the reader's letters",
        lambda state, agent, turn: board_text(state.board, _letters(state, agent)),
    ),
    "board_compact": of_state(
        "the numbers of its symbols, row by row: 0011", lambda state: board_compact(state.board)
    ),
    "num_wrong": PromptField(
        "(witness) cells that are not those of the target; empty for the builder",
        lambda state, agent, turn: (
            "" if _is_builder(agent) else num_wrong(state.board, state.level.target)
        ),
    ),
    "messages": of_state(
        "a line for everything that was said", lambda state: messages_text(state.messages)
    ),
    "last_message": of_state("the witness's last message", _last_message),
}
_LIMITS = {
    "size": "rows of a board, and columns",
    "max_chars": "characters of a message",
    "max_turns": "turns of the episode",
    "costs": "a sentence on what bad answers cost",
}


def potential(state: RelayState) -> float:
    """The potential of `shaped` for the cells that are wrong, 0 on an empty board."""
    target = state.level.target
    return shaped(num_wrong(state.board, target), num_wrong(blank(len(target)), target))


@page(size=8, split="test")
class RelayEnv(PlaceholderEnv[RelayState]):
    """Reproduce a board that only a team-mate sees.

    ## Task

    A target board has symbols in some of its cells: rectangles, painted over one another. The
    witness sees the target, the builder does not. The task is solved when the builder's board,
    empty at the start, is the target.

    Every level is certified: within the limits of turns and characters the oracle's witness
    describes the rectangles that the level was made of, in words, and its builder, who reads
    nothing but the messages, paints the target.

    ## Agents and roles

    `witness_0` sends a message, then `builder_0` paints; two stages, so that the builder reads the
    message of the turn. Both know the symbols by colour and shape. The letters that stand for
    them on boards are drawn for each level and differ between the two, as are the words: a board
    that is copied letter by letter tells the builder nothing.

    ## Observation

    Witness: the rules, target, the builder's board, what was said. Builder: the rules, its own
    board, what was said. `prompt_fields` lists the placeholders of prompts.

    ## Action

    Witness: `####` and any text. Small letters, digits, spaces and `.,;:-` are sent, everything
    else is left out, and what exceeds `max_chars` characters is cut off. Builder: rectangles by
    letter and corners, `#### Q b3 d5; T a1`, `empty` for none; after a `?` comes a question, of as
    many characters. Texts without `####` are read only if the prompt of the role does not show
    it; then symbols may be named by their numbers, too, `1b3d5`.

    All messages of an episode carry at most `max_turns * max_chars * log2(43)` bits, for each
    character is one of 42 and a message may be shorter. On the levels expert and extreme that is
    less than the `size * size * log2(symbols + 1)` bits that tell any board from all others: no
    code whatever transmits boards cell by cell; on the level hard one character a cell is too
    much. What is described is how the target was made.

    ## Reward

    d is the number of wrong cells, d0 that at the start. The potential is 0.1 * (1 - d / d0) up to
    d0 and 0.01 * (d0 / d - 1) beyond it. T is `max_turns`.

    | part | when | value |
    |---|---|---|
    | team | the builder has painted | rise of the potential |
    | team | the board is the target | +1 |
    | local | unreadable text | -0.05 / T |
    | local | witness: a message that is cut; builder: an answer that changes nothing | -0.04 / T |

    With alpha=1 the return of every agent is in [1.05, 1.1] in a solved episode and in
    [-0.06, 0.1) in an unsolved one; a team part lies in [-0.11, 1.11], a local part in
    [-0.05 / T, 0].

    ## Termination

    Terminated when the board is the target (`success`); truncated after `max_turns` turns.

    ## Info keys

    - `num_wrong`: cells that are not those of the target.
    - `num_cut`: (witness) characters that were cut off.
    - `num_fills`: (builder) rectangles that were painted.
    - `turns_needed`: turns in which the oracle solves the level.
    - `message_bits`: the most that all messages of an episode can tell.
    - `board_bits`: what it takes to tell any board from all others.

    ## Arguments

    - `size`: rows and columns of a board, 2 to 20.
    - `symbols`: symbols of the palette, 1 to 6.
    - `figures`: rectangles that make the target, 1 to 12.
    - `max_chars`: characters of a message, 1 to 200.
    - `split`: `"train"`, `"validation"`, `"test"` or None (all); decided by the target up to
      rotation, reflection and the names of symbols.
    - `prompts`: role -> replacement of its prompt; without `####` in it, answers need none.

    ## Source

    This project; a reference game (Lewis 1969) over several turns, as in collaborative building
    from instructions (Narayan-Chen et al. 2019). Changed: boards are certified, names are drawn for
    each level, and messages are too short for the board itself.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012
        "name": "relay_v0",
        "render_modes": ["ansi", "human"],
    }
    scripted_policies: ClassVar[tuple[str, ...]] = ("oracle", "greedy", "random")
    difficulties: ClassVar[Difficulty] = Difficulty(
        {
            "easy": {"size": 5, "symbols": 3, "figures": 2, "max_chars": 40, "max_turns": 3},
            "medium": {"size": 6, "symbols": 3, "figures": 3, "max_chars": 30, "max_turns": 3},
            "hard": {"size": 8, "symbols": 4, "figures": 4, "max_chars": 20, "max_turns": 3},
            "expert": {"size": 12, "symbols": 5, "figures": 4, "max_chars": 33, "max_turns": 2},
            "extreme": {"size": 20, "symbols": 6, "figures": 9, "max_chars": 48, "max_turns": 3},
        }
    )
    default_prompts: ClassVar[Mapping[str, PromptTemplate]] = templates_in("pettingllms_envs.relay")
    prompt_fields: ClassVar[Mapping[str, str]] = {**meanings(_FIELDS), **_LIMITS}
    private_fields: ClassVar[tuple[str, ...]] = ("target",)

    def __init__(
        self,
        *,
        size: int = 5,
        symbols: int = 3,
        figures: int = 2,
        max_chars: int = 40,
        max_turns: int = 3,
        split: str | None = "train",
        **shell: Unpack[ShellArguments],
    ) -> None:
        max_turns = check_whole("max_turns", max_turns, 1, MAX_TURNS)
        super().__init__(
            stages=(("witness_0",), ("builder_0",)),
            max_turns=max_turns,
            **shell,
        )
        is_terse = not self._is_marked("witness_0")
        request = Request(size, symbols, figures, max_chars, max_turns, is_terse, split)
        self._request = request.checked()
        self._message_bits = message_bits(max_chars, max_turns)
        self._board_bits = board_bits(size, symbols)
        self._costs = costs(max_turns, 1)
        fault = "a message that is cut, or painting that changes nothing"
        costs_text = fault_text(self._costs, fault, "a reproduced board", self.reward)
        limits = (size, max_chars, max_turns, costs_text)
        self._placeholders = _FIELDS | constant_fields(_LIMITS, limits)
        self.board = f"size={size} symbols={symbols} figures={figures} max_chars={max_chars}"

    def _generate(self, rng: random.Random, options: Mapping[str, Any]) -> RelayState:
        return RelayState(generate(rng, self._request), blank(self._request.size))

    def _parse(self, state: RelayState, agent: str, text: str) -> str | Build | ParseError:
        is_marked = self._is_marked(agent)
        if _is_builder(agent):
            return read_build(text, state.level, is_marked)
        return read_message(text, is_marked)

    def _act(self, state: RelayState, agent: str, action: str | Build | ParseError) -> Transition:
        if isinstance(action, ParseError):
            return self._done(state, state, self._costs.malformed)
        if isinstance(action, str):
            # Cut here and not in the reader: what exceeds the limit is a fault with a cost.
            said = spoken(action, self._request.max_chars)
            after = state._replace(messages=(*state.messages, Said(False, said)))
            num_cut = len(action) - len(said)
            local = self._costs.empty if num_cut else 0.0
            return self._done(state, after, local, num_cut=num_cut)
        after = state._replace(board=painted(state.board, *action.fills))
        # Questions have the limit of messages, or the builder could answer for the witness.
        if action.question:
            asked = spoken(action.question, self._request.max_chars)
            after = after._replace(messages=(*state.messages, Said(True, asked)))
        # A question alone changes what was said, and is not a fault.
        local = 0.0 if after != state else self._costs.empty
        return self._done(state, after, local, num_fills=len(action.fills))

    def _done(
        self, before: RelayState, after: RelayState, local: float, **facts: int
    ) -> Transition:
        # Compared as a whole: a board that is nearly right is not a success, however much it paid.
        is_built = after.board == after.level.target
        team = potential(after) - potential(before) + SUCCESS * is_built
        info = {
            "num_wrong": num_wrong(after.board, after.level.target),
            "num_cut": 0,
            "num_fills": 0,
            "turns_needed": after.level.turns_needed,
            "message_bits": self._message_bits,
            "board_bits": self._board_bits,
        } | facts
        return Transition(after, team, local, is_built, is_built, info)

    def _ansi(self, state: RelayState) -> str:
        level = state.level
        target = board_text(level.target, level.witness_letters)
        board = board_text(state.board, level.witness_letters)
        legend = legend_text(level, level.witness_letters)
        return f"target, {legend}:\n{target}\nbuilt:\n{board}\n{messages_text(state.messages)}"

    def _key_json(self, state: RelayState) -> Any:
        # Who can still earn what depends on what is built, and on what the builder was told last.
        return [state.level.target, state.board, _last_message(state)]

    def _level_json(self, state: RelayState) -> str:
        return canonical_form(state.level.target).hex()

    def _scripted(self, state: RelayState, agent: str, policy: str, rng: random.Random) -> str:
        is_marked = self._is_marked(agent)
        if not _is_builder(agent):
            said = message_of(state, policy, rng, self._request.max_chars, not is_marked)
            return f"#### {said}" if is_marked else said
        fills = fills_of(state, policy, rng)
        if not is_marked:
            return terse(fills)
        return f"#### {fills_text(state.level, fills)}" if fills else "#### ? please say it again"
