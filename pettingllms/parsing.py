r"""How answers are read out of model text: one grammar for every environment.

Nothing here raises, evaluates text, or takes more than time linear in its length. A text that does
not fit the grammar is a `ParseError` with a reason; it is never read as something else.

1. **Thinking.** Text up to the last `</think>` is no answer. Where a `<think>` is never closed, the
   text was truncated and holds no answer.
2. **The mark.** If there is a `####`, only what follows the last one counts. Longer runs of `#` and
   `####` in a row of a drawn board are no marks.
3. **After the mark**, the first complete list counts (`["U","R"]`, `[[1,2,3]]`), or the first calls
   (`walk(2, 1)`). Only decoration (Markdown, quotes, a code fence, `\boxed{`) and, if there is but
   one mark, a label that ends in a colon or its line may stand before it. A remark may follow. A
   list on a later line than the mark is alone on its line; one with a label is the only one there.
4. **Without a mark**, the text must leave no choice: it holds one list, or one run of calls, and
   ends with it, up to decoration.
5. **Lists** hold words and numbers, quoted or not, divided by commas or spaces, and lists or
   tuples of these. Lists that follow one another (`[1,2,3],[4,1,2]`) are one list of lists; one
   that begins a line and is followed by words is a remark, as is one behind a blank line.
6. **Calls** that follow one another, divided by commas, spaces or line ends, are read in order;
   remarks are as for lists. A call that cannot be read, or follows other words on the same
   line, makes the answer unreadable: none is dropped.

Programs and boxed answers: see `pettingllms.markup`; answers of a few words: `pettingllms.phrases`.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import NamedTuple, TypeAlias

from pettingllms.transition import ParseError

Item: TypeAlias = "str | list[Item]"
"""An item of a list: a word or number as text, or a list."""

MARK = "####"
"""What the line with the answer begins with."""
MAX_ITEMS = 20_000
"""Maximum number of items of a list, those of inner lists included."""
MAX_DEPTH = 4
"""Deepest nesting of lists."""
_MAX_PREFIX = 200
_THINK = re.compile(r"<(/?)think(?:ing)?>", re.IGNORECASE)
_BOARD_SIGNS = r"#.$*@+_PG"
# Four walls of a board are no mark; signs of a board follow them, but no lone letter in the line.
_IS_MARK = re.compile(
    rf"(?<!#)####(?!#)(?=\s*+[ \t{_BOARD_SIGNS}]{{0,80}}+[^\s{_BOARD_SIGNS}]"
    r"|[ \t]++[PG][ \t.]*+(?:\n|\Z))"
)
_OPEN = re.compile(r"(?<!\\)\[")
_VALUE = r"""(?:
    ([\[(]) | ([\])])
    | "([^"\n]*+)" | '([^'\n]*+)' | `([^`\n]*+)`
    | [\u2018\u201c]([^\u2018\u2019\u201c\u201d\n]*+)[\u2019\u201d]
    | ([^\s,;\[\]()"'`\u201c\u201d\u2018\u2019]++)
)"""
_TOKEN = re.compile(rf"[\s,;]*+{_VALUE}", re.VERBOSE)
_ARGUMENT = re.compile(rf"[\s,;]*+(?>(?:[A-Za-z_]{{1,20}}+\s*+=\s*+)?){_VALUE}", re.VERBOSE)
_CLOSING = {"[": "]", "(": ")"}

_QUOTES = r"`\"'\u2018\u2019\u201c\u201d\u00ab\u00bb"
_SIGN = rf"[\s*_~{_QUOTES}.,;:!)}}$>|\u3002\uff01]|\\[\])]|</?\w{{1,20}}>|<\|\w{{1,20}}\|>"
# Atomic groups instead of `(?:...)*+`: Python 3.11.0 to 3.11.4 lose characters after a possessive
# quantifier of a group (CPython issue 106052).
_DECORATION = re.compile(rf"(?>(?:{_SIGN})*)")
_END_OF_LINE = re.compile(rf"(?>(?:(?!\n)(?:{_SIGN}))*)(?:\n|\Z)")
_NOISE = re.compile(
    rf"```[\w+-]*|\d{{1,2}}[.)](?=\s)|</?\w{{1,20}}>|\\(?:boxed|text|left)?[{{(\[]?|[\s*_~{_QUOTES}${{(>|\u2022-]+"
)
_WORDS = r"[^.,;!?()\[\]{}<>:=\uff1a\n]{1,60}"
_LABEL = re.compile(rf"({_WORDS})([:=\uff1a])?")
_NEXT_LIST = re.compile(r"(\s*+)([,;+]?)\s*+(?=\[)")
_REPEAT = re.compile(r"[ \t]*(?:\*(?!\*)|[x\u00d7])[ \t]*\d")
_BETWEEN_CALLS = re.compile(
    r"(?>(?:[\s,;.*\u2192\u2022|-]|(?<!`)`(?!`)|->|(?i:\b(?:then|and)\b)|\d{1,2}[.)](?=\s))*)"
)
_ANY_CALL = re.compile(r"\w\(")


class Part(NamedTuple):
    """The part of a text that can hold the answer."""

    text: str
    is_marked: bool
    """Whether it follows a mark."""
    is_repeated: bool = False
    """Whether there is a mark before that one."""


def usual_answer(text: str, max_chars: int) -> str | None:
    """Return what follows the mark, where the rules on thinking and marks need no thought.

    Nearly all answers of a trained policy have the form that the prompt shows: `#### ["U","R"]` at
    the end of the text. A game may read these with one regular expression, and leave to `read_list`
    whatever that does not match in full.

    Args:
        text: What a model wrote.
        max_chars: The longest answer that is returned.
    """
    mark = text.rfind(MARK)
    if mark < 0 or len(text) - mark > max_chars + len(MARK):
        return None
    # A `<` may open a thinking tag, and a longer run of `#` is no mark: leave both to the full
    # rules.
    if "<" in text or text[mark - 1 : mark] == "#":
        return None
    return text[mark + len(MARK) :].strip()


def after_thinking(text: str) -> str | ParseError:
    """Return what follows the last `</think>`; a `ParseError` if a `<think>` is never closed."""
    if "<" not in text:
        return text
    last: re.Match[str] | None = None
    # Only the last tag matters: whatever was thought before a `</think>` is no answer.
    for tag in _THINK.finditer(text):
        last = tag
    if last is None:
        return text
    return text[last.end() :] if last[1] else ParseError("thinking that never ends")


def answer_part(text: str) -> Part | ParseError:
    """Return what follows the thinking and the last mark, if there are any."""
    rest = after_thinking(text)
    return rest if isinstance(rest, ParseError) else _marked(rest)


def printed_part(text: str) -> Part:
    """Return the part of a program's output that can hold its answer.

    Where there is no mark, it is the last list that the program printed, or else all of its output.
    """
    part = _marked(text)
    end = part.text.rfind("]") + 1
    if part.is_marked or not end:
        return part
    depth, start = 0, end
    # Backwards from the last `]` to the bracket that opens it: programs print drafts before their
    # answer, and one scan keeps the work linear.
    for bracket in re.finditer(r"[\[\]]", part.text[end - 1 :: -1]):
        depth += 1 if bracket.group() == "]" else -1
        if not depth:
            start = end - bracket.end()
            break
    # As if it were marked: text around the list of a program is no reason to refuse it.
    return Part(text[start:end], is_marked=True)


def _marked(text: str) -> Part:
    end = len(text)
    # From the end, so that only the marks in the tail of a text are looked at.
    while (at := text.rfind(MARK, 0, end)) >= 0:
        if _IS_MARK.match(text, at):
            return Part(text[at + len(MARK) :], is_marked=True, is_repeated=MARK in text[:at])
        end = at
    return Part(text, is_marked=False)


def bare_answer(part: Part) -> str:
    """Return the first line after the mark, or else all of the text, less decoration and label.

    For answers that need no brackets, such as `#### U, R`.
    """
    signs = " \t\r\n*_`~$.!"
    if not part.is_marked:
        return part.text.strip(signs)
    line = part.text.lstrip().partition("\n")[0].strip(signs)
    label = _LABEL.match(line)
    return line[label.end() :].strip(signs) if label and label[2] else line


def read_list(part: Part) -> list[Item] | ParseError:
    """Read the list of an answer.

    Returns:
        Its items; words and numbers as text. Several lists that follow one another are a list of
        lists.
    """
    text = part.text
    if (found := _OPEN.search(text)) is None:
        return ParseError(f"no list after {MARK}" if part.is_marked else f"no {MARK} and no list")
    label = _label_before(part, found.start())
    if isinstance(label, ParseError):
        return label
    scanned = _scan_lists(text, found.start())
    if isinstance(scanned, ParseError):
        return scanned
    items, end = scanned
    if not part.is_marked:
        is_end = _DECORATION.fullmatch(text, end)
        return items if is_end else ParseError(f"no {MARK}, and words or lists behind a list")
    # A list below the mark's line may be part of an explanation, unless it has its line to itself.
    if "\n" in text[: found.start()] and not _END_OF_LINE.match(text, end):
        return ParseError(f"words behind a list that is not on the line of {MARK}")
    # Two labelled lists are two answers; choosing one of them would be a guess.
    rest = text[end:] if "{" in label else text[end:].partition("\n")[0]
    return ParseError("several lists with labels") if label and "[" in rest else items


def _label_before(part: Part, start: int) -> str | ParseError:
    """Return what is between mark and answer; an empty text if it is only decoration."""
    prefix = part.text[:start].strip()
    if not prefix or not part.is_marked:
        return ""
    # A label is short; this bounds the regular expressions below.
    if len(prefix) > _MAX_PREFIX:
        return ParseError(f"words between {MARK} and the answer")
    lines = part.text[:start].replace("->", ":").replace("\u2192", ":").split("\n")
    cleaned = [" ".join(_NOISE.sub(" ", line).split()) for line in lines]
    labels = [(line, number) for number, line in enumerate(cleaned) if line]
    if not labels:
        return ""
    # With several marks, words before the list may belong to another mark's answer.
    if part.is_repeated:
        return ParseError(f"several {MARK}, and words between the last one and the answer")
    label = _LABEL.fullmatch(labels[0][0].replace(" :", ":"))
    if len(labels) > 1 or label is None or not (label[2] or labels[0][1] < len(lines) - 1):
        return ParseError(f"words between {MARK} and the answer that are no label")
    return prefix


def _scan_lists(text: str, start: int) -> tuple[list[Item], int] | ParseError:
    """Read the lists that follow one another; returns them and the end of the last one."""
    scanned = _scan(text, start, _TOKEN)
    if isinstance(scanned, ParseError):
        return scanned
    first, end = scanned
    lists: list[Item] = [first]
    while (following := _NEXT_LIST.match(text, end)) and following[1].count("\n") < 2:
        scanned = _scan(text, following.end(), _TOKEN)
        # On a line of its own and followed by words, the next list explains the answer.
        if "\n" in following[1] and not following[2] and not _is_alone(text, scanned):
            break  # a remark
        if isinstance(scanned, ParseError):
            return scanned
        lists.append(scanned[0])
        end = scanned[1]
        if len(lists) > MAX_ITEMS:
            return ParseError(f"more than {MAX_ITEMS} lists")
    # `["U"] * 3` would be read as one move: refuse it rather than execute half of it.
    if _REPEAT.match(text, end):
        return ParseError("a list that is multiplied")
    if len(lists) == 1:
        return first, end
    return (lists, end) if _END_OF_LINE.match(text, end) else ParseError("words behind the lists")


def _is_alone(text: str, scanned: tuple[list[Item], int] | ParseError) -> bool:
    return not isinstance(scanned, ParseError) and bool(_END_OF_LINE.match(text, scanned[1]))


def _scan(text: str, start: int, token: re.Pattern[str]) -> tuple[list[Item], int] | ParseError:
    """Read one bracketed list, or the arguments of a call; returns its items and its end."""
    # An explicit stack instead of recursion: the depth is model text, and must not end in a
    # RecursionError.
    outer: list[tuple[list[Item], str]] = []
    items: list[Item] = []
    at, num_items = start, 0
    while (found := token.match(text, at)) is not None:
        at, kind, value = found.end(), found.lastindex or 0, found[found.lastindex or 0]
        # All tokens count, brackets too, so that empty lists cannot grow without a limit.
        if (num_items := num_items + 1) > MAX_ITEMS:
            return ParseError(f"a list of more than {MAX_ITEMS} items")
        if kind == 1:
            if len(outer) == MAX_DEPTH:
                return ParseError(f"lists nested more than {MAX_DEPTH} deep")
            outer.append((items, _CLOSING[value]))
            items = []
        elif kind == 2:
            enclosing, closing = outer.pop()
            if value != closing:
                return ParseError("brackets that do not match")
            if not outer:
                return items, at
            enclosing.append(items)
            items = enclosing
        else:
            items.append(value)
    return ParseError("a list that is not closed")


def read_calls(part: Part, names: Collection[str]) -> list[tuple[str, list[Item]]] | ParseError:
    """Read the calls of an answer.

    Args:
        part: The part of the text that can hold them.
        names: The functions that can be called.

    Returns:
        Name and arguments of each call, in order. An argument is a word or number as text, or a
        list; `name=` before it is dropped.
    """
    # Possessive quantifiers (`*+`) throughout: no backtracking, so the time stays linear.
    text, a_call = part.text, re.compile(rf"\b({'|'.join(names)})\s*+(?=\()")
    if (first := a_call.search(text)) is None:
        return ParseError(f"no call of {', '.join(names)}")
    label = _label_before(part, first.start())
    if isinstance(label, ParseError):
        return label
    num_before_line = at = 0
    calls: list[tuple[str, list[Item]]] = []
    name: re.Match[str] | None = first
    while name is not None:
        if "\n" in text[at : name.start()]:
            num_before_line = len(calls)
        scanned = _scan(text, name.end(), _ARGUMENT)
        if isinstance(scanned, ParseError):
            return ParseError(f"a call of {name[1]} that cannot be read")
        calls.append((name[1], scanned[0]))
        at = scanned[1]
        behind = _BETWEEN_CALLS.match(text, at)
        is_next = behind is not None and behind.group().count("\n") < 2
        name = a_call.match(text, behind.end()) if behind and is_next else None
    is_below = "\n" in text[: first.start()]
    return _checked_calls(part, calls, num_before_line, at, is_below)


def _checked_calls(
    part: Part, calls: list[tuple[str, list[Item]]], num_before_line: int, end: int, is_below: bool
) -> list[tuple[str, list[Item]]] | ParseError:
    """Return the calls that are an answer and no remark, given what follows them."""
    if not part.is_marked:
        is_end = _DECORATION.fullmatch(part.text, end)
        return calls if is_end else ParseError(f"no {MARK}, and words behind the calls")
    if _END_OF_LINE.match(part.text, end):
        return calls
    # Words follow the calls of the last line: that line is a remark, those above are the answer.
    if num_before_line:
        return calls[:num_before_line]
    if is_below:
        return ParseError(f"words behind calls that are not on the line of {MARK}")
    if _ANY_CALL.search(part.text[end:].partition("\n")[0]):
        return ParseError("words between calls, or a call of an unknown function")
    return calls


def lines_of(text: str) -> list[str]:
    """Return the lines of a text; the breaks between them begin all but the first."""
    return re.split(r"(?=\n)", text)


def one_line(text: str, limit: int) -> str:
    """Return a text fit for one line of a prompt: no control characters, at most `limit` long."""
    # Four times the limit is enough after runs of spaces collapse, and bounds the work on long
    # texts.
    clean = " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * limit]).split())
    return clean if len(clean) <= limit else clean[: limit - 3] + "..."
