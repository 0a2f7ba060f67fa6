"""`RelayEnv`: a witness describes, a builder builds; their texts and policies, targets by chance.

A target is certified by the oracle, whose messages keep the limits.
"""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import accumulate, product
from typing import Any, ClassVar, NamedTuple, Unpack

from pettingllms.arguments import check_whole
from pettingllms.env import MAX_TURNS, PlaceholderEnv, ShellArguments
from pettingllms.errors import UnreachableRequest
from pettingllms.hooks import Difficulty
from pettingllms.pages import page
from pettingllms.parsing import one_line, read_phrase
from pettingllms.prompts import (
    TURN,
    PromptField,
    PromptTemplate,
    meanings,
    of_state,
    templates_in,
)
from pettingllms.seeding import check_split, split_of
from pettingllms.types import ParseError, Transition, role_of
from pettingllms_envs.relay.rules import (
    ALPHABET,
    EMPTY,
    Board,
    Fill,
    Level,
    RelayState,
    Said,
    blank,
    board_bits,
    canonical_form,
    message_bits,
    num_wrong,
    painted,
)
from pettingllms_envs.reward import SUCCESS, costs, fault_text, shaped
from pettingllms_envs.team_table import constant_fields

COLOURS = ("red", "blue", "pink", "gold", "grey", "teal", "lime", "cyan", "plum", "jade")
SHAPES = ("star", "ring", "moon", "leaf", "bell", "boat", "tree", "fish", "key", "cup")
CLEAR = "empty"
"""The word for the symbol of empty cells."""
MAX_FILLS = 20
"""Rectangles of one answer."""
_COLUMNS = "abcdefghijklmnopqrst"
_CORNER = rf"([{_COLUMNS}])([0-9]{{1,2}})"
_CORNERS = rf"{_CORNER}(?:\s*(?:-|to|:|\s)?\s*{_CORNER})?"
_IN_BRACKETS = re.compile(r"[(\[]([^()\[\]]*)[)\]]")
_FILL = re.compile(rf"(?:(?:fill|paint)\s+)?({CLEAR}|[a-z0-9])\s*:?\s*{_CORNERS}")
_BETWEEN = re.compile(r"\s*(?:[;,.]|and)?\s*")
_DESCRIBED = re.compile(rf"([a-z]+(?: [a-z]+)?|[0-9])\s*{_CORNERS}(?![a-z0-9])")


class Build(NamedTuple):
    """What the builder does: rectangles, and a question that may be empty."""

    fills: tuple[Fill, ...]
    """Rectangles, in the order in which they are painted; may be none."""
    question: str
    """What the builder asks the witness; empty: nothing."""


def spoken(text: str, max_chars: int) -> str:
    """What is sent of a text: small letters of `ALPHABET`, up to the limit."""
    return _allowed(text)[:max_chars].strip()


def _allowed(text: str) -> str:
    kept = "".join(one for one in text.lower() if one in ALPHABET or one.isspace())
    return " ".join(kept.split())


def read_message(text: str, is_marked: bool) -> str | ParseError:
    """Read a message of the witness: all that follows `####` on its line."""

    def fits(said: str) -> str | ParseError:
        return _allowed(said) or ParseError("an empty message")

    return read_phrase(text, fits, needs_mark=is_marked, is_free=True)


def read_build(text: str, level: Level, is_marked: bool) -> Build | ParseError:
    """Read what the builder does: `Q b3 d5; T a1`, `empty a1 c2`, and after `?` a question.

    `is_marked`: the answer must follow `####`; unmarked texts may name a symbol by its number, too.
    """

    def fits(said: str) -> Build | ParseError:
        before, mark, question = said.partition("?")
        if "\n" in question.strip():
            return ParseError("a question of several lines")
        # `Q (b3, d5)`: in brackets a comma is within a rectangle.
        before = _IN_BRACKETS.sub(lambda corners: corners[1].replace(",", " "), before)
        fills = _fills_in(before.strip().lower(), level, is_marked)
        if isinstance(fills, ParseError):
            return fills
        if not fills and not _allowed(question):
            return ParseError("neither a rectangle nor a question" if mark else "an empty answer")
        return Build(fills, _allowed(question))

    return read_phrase(text, fits, needs_mark=is_marked)


def _fills_in(said: str, level: Level, is_marked: bool) -> tuple[Fill, ...] | ParseError:
    symbols = {CLEAR: EMPTY}
    symbols |= {letter.lower(): n for n, letter in enumerate(level.builder_letters, 1)}
    if not is_marked:
        symbols |= {str(number): number for number in range(len(level.palette) + 1)}
    fills: list[Fill] = []
    at = 0
    while at < len(said):
        found = _FILL.match(said, at)
        if found is None or len(fills) == MAX_FILLS:
            shown = one_line(said[at:], 40)
            return ParseError(
                f"{shown} is not a rectangle such as Q b3 d5, or more than {MAX_FILLS}"
            )
        fill = _fill(symbols.get(found[1]), found.groups()[1:], len(level.target))
        if fill is None:
            return ParseError(f"{one_line(found[0], 40)} is not on the board, or no letter of it")
        fills.append(fill)
        between = _BETWEEN.match(said, found.end())
        at = between.end() if between else found.end()
    return tuple(fills)


def _fill(symbol: int | None, corners: tuple[str | None, ...], size: int) -> Fill | None:
    left, top, right, bottom = corners
    if symbol is None or left is None or top is None:
        return None
    # Corners may come in any order: two opposite ones make the same rectangle.
    columns = sorted((_COLUMNS.index(left), _COLUMNS.index(right or left)))
    rows = sorted((int(top) - 1, int(bottom or top) - 1))
    if rows[0] < 0 or max(rows[1], columns[1]) >= size:
        return None
    return Fill(symbol, rows[0], columns[0], rows[1], columns[1])


# The protocol of the scripted policies --------------------------------------------------------


def symbol_words(level: Level, symbol: int) -> str:
    """The shortest words that tell a symbol from the others: its colour, shape, or both."""
    if symbol == EMPTY:
        return CLEAR
    colour, shape = level.palette[symbol - 1]
    colours, shapes = zip(*level.palette, strict=True)
    words = [word for word, all_ in ((colour, colours), (shape, shapes)) if all_.count(word) == 1]
    return min(words, key=len) if words else f"{colour} {shape}"


def corners_text(fill: Fill) -> str:
    """The corners of a rectangle: `b3 d5`, or `b3` if it is one cell."""
    first = f"{_COLUMNS[fill.left]}{fill.top + 1}"
    last = f"{_COLUMNS[fill.right]}{fill.bottom + 1}"
    return first if first == last else f"{first} {last}"


def described(level: Level, fill: Fill) -> str:
    """A rectangle in words that both agents know: `red b3 d5`."""
    return f"{symbol_words(level, fill.symbol)} {corners_text(fill)}"


def fills_text(level: Level, fills: tuple[Fill, ...]) -> str:
    """Rectangles in the builder's letters, as `read_build` reads them."""
    letters = (CLEAR, *level.builder_letters)
    return "; ".join(f"{letters[fill.symbol]} {corners_text(fill)}" for fill in fills)


def terse(fills: tuple[Fill, ...]) -> str:
    """Rectangles by the numbers of their symbols: `1b3d5,2a1`."""
    return ",".join(f"{fill.symbol}{corners_text(fill).replace(' ', '')}" for fill in fills)


def understood(level: Level, message: str) -> tuple[Fill, ...]:
    """The rectangles that a message describes as `described` or `terse` do."""
    words = {symbol_words(level, symbol): symbol for symbol in range(len(level.palette) + 1)}
    # Full names are understood too, whichever words would be enough.
    words |= {" ".join(pair): number for number, pair in enumerate(level.palette, 1)}
    words |= {str(number): number for number in range(len(level.palette) + 1)}
    found = (
        _fill(words.get(one[1]), one.groups()[1:], len(level.target))
        for one in _DESCRIBED.finditer(message)
    )
    return tuple(fill for fill in found if fill is not None)[:MAX_FILLS]


# What agents read -----------------------------------------------------------------------------


@lru_cache(maxsize=256)
def board_text(board: Board, letters: str) -> str:
    """A board: a line of columns, then a line per row; `.` is an empty cell."""
    width = len(str(len(board)))
    lines = [" " * width + "  " + " ".join(_COLUMNS[: len(board)])]
    for number, row in enumerate(board, 1):
        lines.append(f"{number:>{width}}  " + " ".join(f".{letters}"[cell] for cell in row))
    return "\n".join(lines)


def board_compact(board: Board) -> str:
    """The numbers of the symbols, row by row: `0011`."""
    return "".join(str(cell) for row in board for cell in row)


def missing_compact(board: Board, target: Board) -> str:
    """The numbers of the target's symbols where a board is wrong, `-` elsewhere: `--11`."""
    pairs = zip(board_compact(board), board_compact(target), strict=True)
    return "".join("-" if here == there else there for here, there in pairs)


def legend_text(level: Level, letters: str) -> str:
    """What the letters stand for, in the order of the alphabet: `K red star, T blue cup`."""
    pairs = sorted(zip(letters, level.palette, strict=True))
    return ", ".join(f"{letter} {' '.join(words)}" for letter, words in pairs)


def messages_text(messages: tuple[Said, ...]) -> str:
    """A line for everything that was said."""
    names = ("witness", "builder")
    said = (f"{names[message.is_builder]}: {message.text}" for message in messages)
    return "\n".join(said) or "nothing"


def message_of(
    state: RelayState, policy: str, rng: random.Random, max_chars: int, is_terse: bool
) -> str:
    """What a scripted witness says: rectangles in words, as many as fit into a message.

    Oracle names the rectangles that the level was made of, which may cover one another; greedy the
    largest rectangle of one symbol with a wrong cell, again and again; random any rectangle. Terse
    messages name symbols by their numbers instead of by words.
    """
    if policy == "random":
        fills = (_any_fill(rng, len(state.board), len(state.level.palette)),)
    else:
        fills = _left(state) if policy == "oracle" else _largest(state, max_chars)
    said = ""
    for fill in fills:
        one = terse((fill,)) if is_terse else described(state.level, fill)
        longer = f"{said}{(',' if is_terse else ';') if said else ''}{one}"
        # Half a rectangle would be read as another one: what does not fit waits for the next turn.
        if len(longer) > max_chars:
            break
        said = longer
    return said


def fills_of(state: RelayState, policy: str, rng: random.Random) -> tuple[Fill, ...]:
    """What a scripted builder paints: what the last message says, or anything (random)."""
    if policy == "random":
        return (_any_fill(rng, len(state.board), len(state.level.palette)),)
    return understood(state.level, state.messages[-1].text) if state.messages else ()


def _any_fill(rng: random.Random, size: int, symbols: int) -> Fill:
    rows, columns = (sorted(rng.choices(range(size), k=2)) for _ in range(2))
    return Fill(rng.randint(1, symbols), rows[0], columns[0], rows[1], columns[1])


def _left(state: RelayState) -> tuple[Fill, ...]:
    """The fewest last rectangles of the level that make the target of what is built."""
    level = state.level
    for number in range(1, len(level.fills) + 1):
        if painted(state.board, *level.fills[-number:]) == level.target:
            return level.fills[-number:]
    # What was built is beyond repair by the level's rectangles: clear the board, begin again.
    end = len(level.target) - 1
    return (Fill(EMPTY, 0, 0, end, end), *level.fills)


def _largest(state: RelayState, max_chars: int) -> tuple[Fill, ...]:
    """Rectangles of one symbol, the one with the most wrong cells first.

    What is painted is never painted over, which takes more rectangles than the level was made of.
    """
    board, target = state.board, state.level.target
    rectangles = _uniform(target)
    fills: list[Fill] = []
    # A rectangle takes four characters at least: further ones could not be said anyway.
    while board != target and 4 * len(fills) < max_chars:
        wrong = _wrong_before(board, target)
        fill = max(rectangles, key=lambda one, wrong=wrong: _num_mended(wrong, one))
        board = painted(board, fill)
        fills.append(fill)
    return tuple(fills)


def _uniform(target: Board) -> list[Fill]:
    """The rectangles of one symbol that reach as far to the right as they can."""
    size = len(target)
    found: list[Fill] = []
    for top, left in product(range(size), repeat=2):
        symbol, width = target[top][left], size - left
        for bottom in range(top, size):
            row = target[bottom][left : left + width]
            width = next((n for n, cell in enumerate(row) if cell != symbol), width)
            if not width:
                break
            found.append(Fill(symbol, top, left, bottom, left + width - 1))
    return found


def _wrong_before(board: Board, target: Board) -> list[list[int]]:
    """The number of wrong cells above and to the left of every corner between cells."""
    above = [0] * (len(board) + 1)
    sums = [above]
    for here, there in zip(board, target, strict=True):
        so_far = accumulate((one != two for one, two in zip(here, there, strict=True)), initial=0)
        above = [one + two for one, two in zip(above, so_far, strict=True)]
        sums.append(above)
    return sums


def _num_mended(wrong: list[list[int]], fill: Fill) -> int:
    # By sums over corners, in constant time: a large board has thousands of rectangles.
    upper, lower = wrong[fill.top], wrong[fill.bottom + 1]
    return lower[fill.right + 1] - lower[fill.left] - upper[fill.right + 1] + upper[fill.left]


MIN_SIZE, MAX_SIZE = 2, 20
MAX_SYMBOLS = 6
MAX_FIGURES = 12
MAX_CHARS = 200
ATTEMPTS = 2_000
_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_SIDE = 3
"""Colours and shapes of a palette, at least: some symbols share a colour, some a shape."""


class Request(NamedTuple):
    """Properties of the levels to generate; see the arguments of `RelayEnv` of the same names."""

    size: int
    symbols: int
    figures: int
    max_chars: int
    max_turns: int
    is_terse: bool
    """Whether the witness speaks without `####`, so that messages are numbers and not words."""
    split: str | None

    def checked(self) -> Request:
        """The request, in Python's numbers.

        Raises:
            InvalidArgument: If a value is out of its range or of the wrong kind.
        """
        check_split(self.split)
        return self._replace(
            size=check_whole("size", self.size, MIN_SIZE, MAX_SIZE),
            symbols=check_whole("symbols", self.symbols, 1, MAX_SYMBOLS),
            figures=check_whole("figures", self.figures, 1, MAX_FIGURES),
            max_chars=check_whole("max_chars", self.max_chars, 1, MAX_CHARS),
        )


def generate(rng: random.Random, request: Request) -> Level:
    """A random level with the properties of a checked request.

    Rectangles are painted over one another; of each a part is seen in the end. The certificate is
    an episode: that of the oracle, whose messages keep the limits.

    Raises:
        UnreachableRequest: If 2,000 levels held none.
    """
    for _ in range(ATTEMPTS):
        fills = tuple(_any_fill(rng, request.size, request.symbols) for _ in range(request.figures))
        target = painted(blank(request.size), *fills)
        # A rectangle that nobody sees would make a level easier than its number of figures says.
        if not _all_seen(fills, target):
            continue
        if request.split is not None and split_of(canonical_form(target)) != request.split:
            continue
        # No letter is in both alphabets: a board that is copied is unreadable, never another board.
        letters = "".join(rng.sample(_LETTERS, 2 * request.symbols))
        level = Level(
            target,
            fills,
            _palette(rng, request.symbols),
            letters[: request.symbols],
            letters[request.symbols :],
            turns_needed=0,
        )
        turns = turns_needed(level, request)
        if turns:
            return level._replace(turns_needed=turns)
    raise UnreachableRequest(
        f"{ATTEMPTS} random targets held none that can be described: {request}; raise max_chars, "
        "max_turns or size, or lower figures"
    )


def turns_needed(level: Level, request: Request) -> int:
    """The turns in which the oracle builds the target; 0 if it does not in time."""
    rng = random.Random(0)
    state = RelayState(level, blank(len(level.target)))
    for turn in range(1, request.max_turns + 1):
        said = message_of(state, "oracle", rng, request.max_chars, request.is_terse)
        # The builder reads this message alone: a certificate that needed memory would promise more.
        state = state._replace(messages=(Said(is_builder=False, text=said),))
        state = state._replace(board=painted(state.board, *fills_of(state, "oracle", rng)))
        if state.board == level.target:
            return turn
    return 0


def _all_seen(fills: tuple[Fill, ...], target: Board) -> bool:
    """Whether without any one of the rectangles the board would be another one."""
    start = blank(len(target))
    others = (fills[:at] + fills[at + 1 :] for at in range(len(fills)))
    return target != start and all(painted(start, *one) != target for one in others)


def _palette(rng: random.Random, symbols: int) -> tuple[tuple[str, str], ...]:
    """Different pairs of colour and shape, with words that are drawn for the level."""
    # Fewer words than symbols: some must be named by both, colour and shape.
    side = max(_SIDE, symbols // 2)
    pairs = list(product(rng.sample(COLOURS, side), rng.sample(SHAPES, side)))
    return tuple(rng.sample(pairs, symbols))


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
