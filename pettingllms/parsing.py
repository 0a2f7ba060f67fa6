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

Programs, boxed answers, and answers of a few words follow further below.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias, TypeVar, cast

from pettingllms.types import ParseError

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
    """What follows the mark, where the rules on thinking and marks need no thought.

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
    """What follows the last `</think>`; a `ParseError` if a `<think>` is never closed."""
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
    """What follows the thinking and the last mark, if there are any."""
    rest = after_thinking(text)
    return rest if isinstance(rest, ParseError) else _marked(rest)


def printed_part(text: str) -> Part:
    """The part of a program's output that can hold its answer.

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
    """The first line after the mark, or else all of the text, less decoration and label.

    For answers that need no brackets, such as `#### U, R`.
    """
    if not part.is_marked:
        return part.text.strip(_SIGNS)
    line = part.text.lstrip().partition("\n")[0].strip(_SIGNS)
    label = _LABEL.match(line)
    return line[label.end() :].strip(_SIGNS) if label and label[2] else line


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
    """What is between mark and answer; an empty text if it is only decoration."""
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
    """The calls that are an answer and no remark, given what follows them."""
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
    """The lines of a text; the breaks between them begin all but the first."""
    return re.split(r"(?=\n)", text)


def one_line(text: str, limit: int) -> str:
    """A text fit for one line of a prompt: no control characters, at most `limit` long."""
    # Four times the limit is enough after runs of spaces collapse, and bounds the work on long
    # texts.
    clean = " ".join("".join(c if c.isprintable() else " " for c in text[: 4 * limit]).split())
    return clean if len(clean) <= limit else clean[: limit - 3] + "..."


_CODE_FENCE = re.compile(r"(?<!`)(`{3,}+)[ \t]*([^`\n]*)$", re.MULTILINE)
_MARKERS = re.compile(r"(?>(?:[ \t]|[*+-](?=[ \t])|\d{1,3}[.)](?=[ \t]))*)")
_AFTER_FENCE = re.compile(r"\s*(?:<\|\w{1,20}\|>)?\s*")
_INFO = re.compile(r"((?:\w[\w+#.-]*)?)[ \t]*(?:\{[^}]*\}|(?>(?:[\w-]+=\S+[ \t]*)*))(.*)")
_BRACE = re.compile(r"\\boxed\s{0,9}\{|\\[{}\\]|[{}]")
_ON_ONE_LINE = re.compile(r"```[ \t]*+py[\w.]*+[ \t]++[^`\n]*+```")
_PYTHON = re.compile(r"py(?:thon)?[\d.]*")


class Block(NamedTuple):
    """A fenced code block."""

    label: str
    """The language, in lower case; empty if there is none."""
    extra: str
    """What else follows the opening fence on its line; attributes excluded."""
    content: str
    is_closed: bool


class _Opening(NamedTuple):
    num_ticks: int
    indent: int
    label: str
    extra: str
    end: int


def code_blocks(text: str) -> list[Block]:
    """The blocks of a text, in order.

    A block that another labelled fence interrupts is not closed. Line ends become line feeds, and
    the indentation of the opening fence is taken off every line.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    blocks: list[Block] = []
    opening: _Opening | None = None
    for fence in _CODE_FENCE.finditer(text):
        before = text[text.rfind("\n", 0, fence.start()) + 1 : fence.start()]
        is_closing = (
            opening is not None
            and _AFTER_FENCE.fullmatch(fence[2])
            and not before.strip()
            and len(fence[1]) >= opening.num_ticks
            and len(before) <= max(3, opening.indent)
        )
        if opening is not None and is_closing:
            end = text.rfind("\n", 0, fence.start()) + 1
            blocks.append(_block(text, opening, end, is_closed=True))
            opening = None
            continue
        found = _opening(fence, before)
        if found is None or (opening is not None and not _interrupts(found, opening)):
            continue
        if opening is not None:
            blocks.append(_block(text, opening, fence.start(), is_closed=False))
        opening = found
    if opening is not None:
        blocks.append(_block(text, opening, len(text), is_closed=False))
    return blocks


def _opening(fence: re.Match[str], before: str) -> _Opening | None:
    info = _INFO.fullmatch(fence[2].strip())
    label, extra = (info[1].lower(), info[2].strip()) if info else ("", fence[2].strip())
    markers = _MARKERS.fullmatch(before)
    if markers is None and ("```" in before or (extra and not _PYTHON.fullmatch(label))):
        return None  # code within a line
    indent = len(before) if markers else len(before) - len(before.lstrip(" \t"))
    return _Opening(len(fence[1]), indent, label, extra, fence.end() + 1)


def _interrupts(found: _Opening, opening: _Opening) -> bool:
    is_as_far_out = found.indent <= max(3, opening.indent)
    return bool(found.label) and is_as_far_out and found.num_ticks >= opening.num_ticks


def _block(text: str, opening: _Opening, end: int, *, is_closed: bool) -> Block:
    content = text[opening.end : end]
    if opening.indent:
        content = re.sub(rf"^[ \t]{{1,{opening.indent}}}", "", content, flags=re.MULTILINE)
    return Block(opening.label, opening.extra, content, is_closed)


def read_program(text: str, max_chars: int) -> str | ParseError:
    """Read the Python program of an answer.

    Args:
        text: What a model wrote.
        max_chars: Longer programs are refused.
    """
    answer = after_thinking(text)
    if isinstance(answer, ParseError):
        return answer
    blocks = code_blocks(answer)
    labelled = [block for block in blocks if _PYTHON.fullmatch(block.label)]
    if any(not block.is_closed for block in labelled):
        return ParseError("a ```python block that is not closed")
    behind = blocks[blocks.index(labelled[-1]) :] if labelled else blocks
    if any(not block.label and not block.is_closed for block in behind):
        return ParseError("a ``` that neither closes a block nor opens one")
    if _ON_ONE_LINE.search(answer):
        return ParseError("a ```python block on one line")
    unlabelled = [block for block in blocks if not block.label]
    if not labelled and len(unlabelled) > 1:
        return ParseError("several code blocks, none of them labelled ```python")
    if not labelled and not unlabelled:
        return ParseError("no closed ```python block with a program")
    chosen = labelled[-1] if labelled else unlabelled[0]
    if chosen.extra:
        return ParseError("text behind ```python on the same line")
    if not chosen.content.strip():
        return ParseError("a ```python block without a program")
    if len(chosen.content) > max_chars:
        return ParseError(f"a program of more than {max_chars} characters")
    return chosen.content


def read_boxed(text: str) -> str | ParseError:
    r"""Read the last `\boxed{...}` behind the thinking."""
    rest = after_thinking(text)
    if isinstance(rest, ParseError):
        return rest
    return last_boxed(rest) or ParseError(
        "no \\boxed{...} with an answer, or one that is not closed"
    )


def last_boxed(text: str) -> str | None:
    r"""The content of the last `\boxed{...}` with balanced braces.

    None if there is none, or if the last one is not closed.
    """
    last = (-1, -1)
    opened: list[tuple[bool, int]] = []
    for brace in _BRACE.finditer(text):
        token = brace.group()
        if token.endswith("{") and token != "\\{":
            is_boxed = len(token) > 1
            opened.append((is_boxed, brace.end()))
            if is_boxed:
                last = (brace.end(), -1)
        elif token == "}" and opened:
            is_boxed, start = opened.pop()
            if is_boxed and start == last[0]:
                last = (start, brace.start())
    return text[last[0] : last[1]].strip() if last[1] >= 0 else None


ValueT = TypeVar("ValueT")

MAX_CHARS = 1000
"""Longest line that is read."""
MAX_USUAL = 40
_USUAL = re.compile(r"(?:= ?)?\w+(?: \w+)?|\w is \w")
"""What most answers look like: of two words no reading is another one."""
_KEYS = ("answer", "final_answer", "query", "choice", "action")
"""Names of the text that counts in a JSON object."""
_NOUN = (
    r"(?:(?:so|thus|hence|therefore|okay|ok|well)\b[\s,:]*)?"
    r"(?:(?:the|my|our|a|final|correct|right|best|next|new|search)\s+)*"
    r"(?:answer|query|search|choice|decision|action|move|statement|response)"
)
_CONNECTED = re.compile(
    rf"{_NOUN}[\s*_]*(?:(?:is|would be|will be|should be)\b:?|[:=\uff1a]|->|\u2192)", re.IGNORECASE
)
_HEADING = re.compile(rf"[\s*_#]*{_NOUN}[\s*_:]*", re.IGNORECASE)
_OTHER_LABEL = re.compile(
    r"(?:(?!(?:no|not|never|nor|and|or|if|instead|than|except|rejected|wrong)\b)"
    r"[^\W\d_]{2,20}[ *_]*){1,6}"
    r"(?::|\uff1a|->|\u2192)",
    re.IGNORECASE,
)
_FENCED = re.compile(r"\s*`{3}[\w+-]*\s*")
_CONTROL = re.compile(r"<\|\w{1,30}\|>|\[/?INST\]|</?s>|<(?:eos|end_of_turn)>|</\w{1,20}>\s*$")
_BULLET = re.compile(r"^[->\u2022]\s+(?=\S)")
_WRAPPINGS = (
    re.compile(r"\\[(\[](.*)\\[)\]]"),
    re.compile(r"\[([^\[\]]*)\]"),
    re.compile(r"\(([^()]*)\)"),
    re.compile(r'"([^"]*)"'),
    re.compile(r"'([^']*)'"),
    re.compile(r"[\u201c\u2018\u00ab]([^\u201c\u2018\u00ab]*)[\u201d\u2019\u00bb]"),
    re.compile(r"<(?:answer|b|i|strong|em|code|query|final_answer)>([^<>]*)</\w{1,20}>"),
)
_COMMAND = re.compile(r"\\(?:boxed|text\w{0,2}|mathrm|mathbf)\s{0,9}\{(.*)\}")
_REMARK = re.compile(r"\([^()]*\)$")
_MARKUP = re.compile(r"\\boxed|</?\w{1,20}>|```|####|<\|")
_SIGNS = " \t\r\n*_`~$.!"


def read_phrase(
    text: str, fits: Callable[[str], ValueT | ParseError], *, needs_mark: bool
) -> ValueT | ParseError:
    """Read an answer of a few words.

    Args:
        text: What a model wrote.
        fits: Returns what a reading means in the game, or a `ParseError` if it means nothing. Of
            the readings that mean something the first counts.
        needs_mark: Whether only what follows `####` is an answer.

    Returns:
        What `fits` made of it; or why no reading is an answer.
    """
    usual = usual_answer(text, MAX_USUAL)
    if usual and _USUAL.fullmatch(usual) and text.count(MARK) == 1:
        return fits(usual)
    part = answer_part(text)
    if isinstance(part, ParseError):
        return part
    if needs_mark and not part.is_marked:
        return ParseError(f"no {MARK}")
    found = _first_that_fits(part, fits)
    if isinstance(found, ParseError) or not part.is_repeated:
        return found
    before = text[: len(text) - len(part.text) - len(MARK)]
    # Words on the line of a later mark speak about it: "(The line with #### is my answer.)"
    if before.rpartition("\n")[2].strip(_SIGNS + ">-"):
        return ParseError(f"several {MARK}, and words before the last one")
    earlier = before.rstrip(_SIGNS + ">-").rpartition("\n")[2].rpartition(MARK)
    if not earlier[1]:
        return found
    other = _first_that_fits(Part(earlier[2], is_marked=True), fits)
    is_alone = isinstance(other, ParseError) or other == found
    return found if is_alone else ParseError("two answers that follow one another")


def _first_that_fits(part: Part, fits: Callable[[str], ValueT | ParseError]) -> ValueT | ParseError:
    line = _line(part)
    if len(line) > MAX_CHARS:
        return ParseError(f"an answer of more than {MAX_CHARS} characters")
    fault: ParseError | None = None
    for reading in _readings(line):
        found = ParseError("markup in the answer") if _MARKUP.search(reading) else fits(reading)
        if not isinstance(found, ParseError):
            return found
        fault = fault or found
    return fault or ParseError("an empty answer")


def _line(part: Part) -> str:
    """The answer's line, or the text of its JSON; all of a text without a mark."""
    # Bounded, so that a megabyte of fences is no work.
    rest = part.text.strip()[: 8 * MAX_CHARS]
    while rest:
        line, _, tail = rest.partition("\n")
        if (
            line.strip()
            and not _FENCED.fullmatch(line)
            and not _HEADING.fullmatch(line[:MAX_CHARS])
        ):
            break
        rest = tail
    if rest[:1] in ("{", "["):
        try:
            value, end = json.JSONDecoder().raw_decode(rest)
        except (ValueError, RecursionError):
            value, end = None, 0  # no JSON: brackets around words, say
        said = _said_in(value)
        if said is not None and (part.is_marked or not rest[end:].strip("` \n")):
            return said
    return rest.partition("\n")[0] if part.is_marked else rest.removesuffix("```")


def _said_in(value: object) -> str | None:
    """The text or number that a JSON value gives as the answer, if there is just one."""
    if isinstance(value, Mapping):
        fields = cast("Mapping[str, Any]", value)
        values = [one for name, one in fields.items() if name.casefold() in _KEYS]
    else:
        values = cast("list[Any]", value) if isinstance(value, list) else []
    if len(values) != 1 or isinstance(values[0], bool) or not isinstance(values[0], str | int):
        return None
    return str(values[0])


def _readings(line: str) -> Iterator[str]:
    plain = _unwrapped(line)
    for label in (_CONNECTED, None, _OTHER_LABEL):
        found = label.match(plain) if label else None
        if label and not found:
            continue
        reading = _unwrapped(plain[found.end() :]) if found else plain
        yield reading
        if reading.endswith(")"):
            yield _unwrapped(_REMARK.sub("", reading))


def _unwrapped(line: str) -> str:
    """A line without what wraps all of it."""
    said = next((one for one in _CONTROL.split(line) if one.strip()), "") if "<|" in line else line
    for _ in range(8):
        before, said = said, _BULLET.sub("", said.strip(_SIGNS), count=1)
        if said[-1:].isalnum():  # nothing wraps it
            return said
        if (command := _COMMAND.fullmatch(said)) and _is_balanced(command[1]):
            said = command[1]
        inner = next(filter(None, (one.fullmatch(said) for one in _WRAPPINGS)), None)
        said = inner[1] if inner else _CONTROL.sub("", said)
        if said == before:
            break
    return said


def _is_balanced(text: str) -> bool:
    depth = 0
    for sign in text:
        depth += (sign == "{") - (sign == "}")
        if depth < 0:
            return False
    return not depth
