"""What witness and builder read and write, their scripted policies, and targets by chance.

A target is certified by the oracle, whose messages keep the limits.
"""

from __future__ import annotations

import random
import re
from functools import lru_cache
from itertools import accumulate, product
from typing import NamedTuple

from pettingllms.arguments import check_whole
from pettingllms.errors import UnreachableRequest
from pettingllms.parsing import one_line, read_phrase
from pettingllms.seeding import check_split, split_of
from pettingllms.types import ParseError
from pettingllms_envs.relay.rules import (
    ALPHABET,
    EMPTY,
    Board,
    Fill,
    Level,
    RelayState,
    Said,
    blank,
    canonical_form,
    painted,
)

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
