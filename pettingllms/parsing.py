r"""How answers are read out of model text: one grammar for every environment.

Nothing here raises, evaluates text, or takes more than time linear in its length. A text that does
not fit the grammar is a `ParseError` with a reason; it is never read as something else.

1. **Thinking.** Text up to the last `</think>` is not an answer. Where a `<think>` is never closed,
   the text was truncated and holds no answer. In a string of an answer in JSON, tags are text.
2. **The mark.** If there is a `####`, only what follows the last one counts. Longer runs of `#` and
   `####` in a row of a drawn board are not marks. Words before the mark on its line must not take
   it back (`never #### U`), and there are none if there is another mark. Marks on lines that follow
   one another have the same answer.
3. **The answer** is what follows: a list (`["U","R"]`), or words. Only decoration (Markdown,
   quotes, a code fence, `\boxed{`) and a label may stand before it: `moves:`, `the answer is`, or a
   line of its own. Signs and struck text (`~~no~~`) are as if they were not there.
4. **Without a mark**, the text must leave no choice: it holds one answer, and ends with it.
5. **A remark** may follow. It does not take the answer back, and holds no other one, unless that is
   set aside: by `because`, `not`, `instead of` and the like, or by brackets behind the answer.
6. **Lists** hold words and numbers, quoted or not, divided by commas or spaces, and lists or
   tuples of these. Lists that follow one another (`[1,2,3],[4,1,2]`) are one list of lists.
7. **Words** are the answer's line without what wraps it, and the lines below that go on with it.

Programs and boxed answers follow further below.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, Generic, NamedTuple, TypeAlias, TypeVar, cast

from pettingllms.types import ParseError

ValueT = TypeVar("ValueT")
Item: TypeAlias = "str | list[Item]"
"""An item of a list: a word or number as text, or a list."""

MARK = "####"
"""What the line with the answer begins with."""
MAX_ITEMS = 20_000
"""Maximum number of items of a list, those of inner lists included."""
MAX_DEPTH = 4
"""Deepest nesting of lists."""
MAX_SHORT = 120
"""Longest text, or answer in the usual form, that is remembered with its meaning."""
MAX_CHARS = 1000
"""Longest answer of words that is read."""
_MAX_REMARK = 8 * MAX_CHARS
_MAX_PREFIX = 200
_MAX_WINDOW = 6
_THINK = re.compile(r"<(/?)think(?:ing)?>", re.IGNORECASE)
_BOARD_SIGNS = r"#.$*@+_PG"
# Four walls of a board are not a mark; signs of a board follow them, but no lone letter in a line.
_IS_MARK = re.compile(
    rf"(?<!#)####(?!#)(?=\s*+[ \t{_BOARD_SIGNS}]{{0,80}}+[^\s{_BOARD_SIGNS}]"
    r"|[ \t]++[PG][ \t.]*+(?:\n|\Z))"
)
_SPACES = (0xFE0F, *range(0x200B, 0x200E), *range(0x2600, 0x27C0), *range(0x1F300, 0x1FB00))
# Dashes that stand for minus signs, wide forms of ASCII, CJK stops; symbols are as good as spaces.
_PLAIN: dict[int, int | str] = {
    **dict.fromkeys((*range(0x2010, 0x2016), 0x2212), "-"),
    **{code: code - 0xFEE0 for code in range(0xFF01, 0xFF5F)},
    **dict.fromkeys(_SPACES, " "),
    0x3001: ",",
    0x3002: ".",
}
_STRUCK = re.compile(r"(?<!~)~~(?!~)[^~\n]++~~(?!~)")
_OPEN = re.compile(r"(?<!\\)\[")
_VALUE = r"""(?:
    ([\[(]) | ([\])])
    | "([^"\n]*+)" | '([^'\n]*+)' | `([^`\n]*+)`
    | [\u2018\u201c]([^\u2018\u2019\u201c\u201d\n]*+)[\u2019\u201d]
    | ([^\s,;\[\]()"'`\u201c\u201d\u2018\u2019]++)
)"""
_TOKEN = re.compile(rf"[\s,;]*+{_VALUE}", re.VERBOSE)
_CLOSING = {"[": "]", "(": ")"}

_QUOTES = r"`\"'\u2018\u2019\u201c\u201d\u00ab\u00bb"
_SIGN = rf"[\s*_~{_QUOTES}.,;:!)}}$>|]|\\[\])]|</?\w{{1,20}}>|<\|\w{{1,20}}\|>"
# Atomic groups instead of `(?:...)*+`: Python 3.11.0 to 3.11.4 lose characters after a possessive
# quantifier of a group (CPython issue 106052).
_DECORATION = re.compile(rf"(?>(?:{_SIGN})*)")
_END_OF_LINE = re.compile(rf"(?>(?:(?!\n)(?:{_SIGN}))*)(?:\n|\Z)")
_NOISE = re.compile(
    rf"```[\w+-]*|\d{{1,2}}[.)](?=\s)|</?\w{{1,20}}>|\\(?:boxed|text|left)?[{{(\[]?|[\s*_~{_QUOTES}${{(>|\u2022-]+"
)
_LABEL = re.compile(r"[^.,;!?()\[\]{}<>:=\n]{1,60}([:=])?")
_NEXT_LIST = re.compile(r"(\s*+)([,+]?)\s*+(?=\[)")
_REPEAT = re.compile(r"[ \t]*(?:\*(?!\*)|[x\u00d7])[ \t]*\d")
_NEGATED = re.compile(
    r"\b(?:no|not|never|nor|or|if|instead|than|except|rejected|wrong|avoid|cannot|example)\b|n['\u2019]t\b",
    re.IGNORECASE,
)
_ASIDE = re.compile(
    r"\((?=[^()\n]*\)[^\w\n]*(?:\n|\Z))|\b(?:because|since|not(?! (?:sure|certain|quite|really))"
    r"|rather than|instead of)\b|\bas (?=(?:it|this|that|the|they|there|i|we)\b)",
    re.IGNORECASE,
)
_PAUSE = re.compile(r"[.!]\s|\s-+\s|[,:] (?=(?:it|this|that|which)\b)", re.IGNORECASE)
_BACK = re.compile(
    r"\b(?:or|and|then|but|no|wait(?=\s*[,.!-])|actually|instead|so|sorry|correction|hmm|better|oops"
    r"|rather|thoughts?|reconsider\w*|mind|mistake|revised?|should|alternatively|maybe|perhaps)\b",
    re.IGNORECASE,
)
_HALF = re.compile(r"\W*(?:or|and|then)\b", re.IGNORECASE)
_REVOKED = re.compile(
    r"\W*+(?:(?:no|nope|oops|wait|sorry)(?=\s*[,.!:;-])|(?:actually|better|edit|instead)(?=\s*:)"
    r"|(?:never|correction|hmm+|on second thoughts?)\b|(?:(?:this|that|it|which) )?"
    r"(?:(?:is|was|would|will|does|looks|seems) )?(?:be )?(?:clearly |probably |also )?"
    r"(?:wrong|incorrect|illegal|invalid|a mistake|not (?:correct|work|good)|fails?|loses?)\b"
    r"|(?:please )?(?:i |let me )?(?:take (?:that|it) back"
    r"|(?:ignore|disregard|forget|scratch|retract|withdraw) (?:that|this|it|everything"
    r"|(?:the|my) (?:above|answer|list|line|last|previous)))\b)",
    re.IGNORECASE,
)

_DISPUTED = ParseError("words behind the answer that take it back, or another answer")


class Part(NamedTuple):
    """The part of a text that can hold the answer."""

    text: str
    """The text without what cannot belong to the answer."""
    is_marked: bool
    """Whether it follows a mark."""
    is_repeated: bool = False
    """Whether there is a mark before that one."""


def usual_answer(text: str, max_chars: int) -> str | None:
    """What follows the mark, where the rules on thinking and marks need no thought.

    Nearly all answers of a trained policy have the form that the prompt shows: `#### ["U","R"]` as
    the last line of the text. A game may read these with one regular expression, and leave whatever
    that does not match in full to the full rules.

    Args:
        text: What a model wrote.
        max_chars: The longest answer that is returned.
    """
    mark = text.rfind(MARK)
    if mark < 0 or len(text) - mark > max_chars + len(MARK):
        return None
    # A `<` may open a thinking tag, words before the mark may take it back, and another mark may
    # have another answer.
    if "<" in text or text[mark - 1 : mark] not in ("", "\n") or text.find(MARK) != mark:
        return None
    return text[mark + len(MARK) :].strip()


def encodable(text: str) -> str:
    """A text with replacement characters for surrogates without a partner.

    Servers send them; who reads them in a prompt could neither tokenise nor save it.
    """
    if text.isascii():
        return text
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


def after_thinking(text: str) -> str | ParseError:
    """What follows the last `</think>`; a `ParseError` if a `<think>` is never closed.

    A tag in a string is text, where all of the text, or all behind the first `</think>`, is JSON.
    """
    tags = [*_THINK.finditer(text)] if "<" in text else []
    if not tags:
        return text
    first = next((tag.end() for tag in tags if tag[1]), 0)
    for rest in (text, text[first:]) if text.rstrip().endswith(("}", "]")) else ():
        try:
            json.loads(rest)
            return rest
        except (ValueError, RecursionError):
            pass
    # Only the last tag matters: whatever was thought before a `</think>` is not an answer.
    is_over = tags[-1][1]
    return text[tags[-1].end() :] if is_over else ParseError("thinking that never ends")


def printed_part(text: str) -> Part:
    """The part of a program's output that can hold its answer.

    Where there is no mark, it is the last list that the program printed, or else all of its output.
    """
    part = _part(text, _last_mark(text))
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
    # As if it were marked: text around the list of a program is not a reason to refuse it.
    return Part(part.text[start:end], is_marked=True)


def _last_mark(text: str, end: int | None = None) -> int:
    end = len(text) if end is None else end
    # From the end, so that only the marks in the tail of a text are looked at.
    while (at := text.rfind(MARK, 0, end)) >= 0:
        if _IS_MARK.match(text, at) and not _is_wall(text, at):
            return at
        end = at
    return -1


def _is_wall(text: str, at: int) -> bool:
    """Whether four walls that fill their line are below another row of a board."""
    if not text.startswith("\n", at + len(MARK)):
        return False
    end = text.rfind("\n", 0, at)
    above = text[max(end - 80, text.rfind("\n", 0, max(0, end)) + 1, 0) : max(0, end)]
    return "#" in above and not above.strip(_BOARD_SIGNS + " \t")


def _part(text: str, mark: int) -> Part:
    rest = text[mark + len(MARK) :] if mark >= 0 else text
    if not rest.isascii():
        rest = rest.translate(_PLAIN)
    if "~~" in rest:
        rest = _STRUCK.sub("", rest)
    return Part(rest, mark >= 0, mark > 0 and _last_mark(text, mark) >= 0)


def _decided(
    text: str, find: Callable[[Part], ValueT | ParseError], *, needs_mark: bool = False
) -> ValueT | ParseError:
    """What `find` makes of the part of a text that holds its answer."""
    rest = after_thinking(text)
    if isinstance(rest, ParseError):
        return rest
    mark = _last_mark(rest)
    if needs_mark and mark < 0:
        return ParseError(f"no {MARK}")
    part = _part(rest, mark)
    found = find(part)
    if isinstance(found, ParseError) or mark < 0:
        return found
    above, _, line = rest[:mark].rpartition("\n")
    if line.strip(_SIGNS + ">-"):
        # Words on the line of a later mark speak about it: "(The line with #### is my answer.)"
        if part.is_repeated:
            return ParseError(f"several {MARK}, and words before the last one")
        if _NEGATED.search(line):
            return ParseError(f"words before {MARK} that take the answer back")
    above = above.rstrip(_SIGNS + ">-").rpartition("\n")[2]
    other = find(_part(above, at)) if (at := _last_mark(above)) >= 0 else found
    is_same = isinstance(other, ParseError) or other == found
    return found if is_same else ParseError("two answers that follow one another")


def read_list(
    text: str | Part,
    fits: Callable[[list[Item]], ValueT | ParseError],
    words: Callable[[str], ValueT | ParseError] | None = None,
) -> ValueT | ParseError:
    """Read an answer that is a list.

    Args:
        text: What a model wrote, or the part of it that can hold the answer.
        fits: What items mean in the game, or a `ParseError` if they mean nothing. Words and numbers
            are text; several lists that follow one another are a list of lists.
        words: The same for an answer without brackets.
    """

    def find(part: Part) -> ValueT | ParseError:
        if words is not None and "[" not in part.text.lstrip().partition("\n")[0]:
            bare = _words_in(part, words, others)
            if not isinstance(bare, ParseError) or bare is _DISPUTED:
                return bare
        scanned = _lists_in(part)
        if isinstance(scanned, ParseError):
            return scanned
        found = fits(scanned[0])
        if isinstance(found, ParseError):
            return found
        label = part.text[: part.text.find("[")] if part.is_marked and words is not None else ""
        if words is not None and any(other != found for other in _said_within(label, words)):
            return _DISPUTED
        return _undisputed(found, part.text[scanned[1] :], others)

    def others(remark: str) -> Iterator[ValueT]:
        at = 0
        while (start := _OPEN.search(remark, at)) is not None:
            scanned = _scan(remark, start.start())
            at = start.end() if isinstance(scanned, ParseError) else scanned[1]
            found = scanned if isinstance(scanned, ParseError) else fits(scanned[0])
            if not isinstance(found, ParseError):
                yield found
        if words is not None:
            yield from _said_in_lines(remark, words)

    return find(text) if isinstance(text, Part) else _decided(text, find)


def _undisputed(
    found: ValueT, remark: str, others: Callable[[str], Iterable[ValueT]]
) -> ValueT | ParseError:
    """An answer, unless the remark behind it takes it back or has another one not set aside."""
    if _REVOKED.match(remark):
        return _DISPUTED
    if aside := _aside(remark, 0):
        line, _, below = remark[aside.end() :].partition("\n")
        remark = remark[aside.end() :] if _BACK.search(line) else below
    if any(other != found for other in others(remark)):
        return _DISPUTED
    return found


def _aside(text: str, at: int) -> re.Match[str] | None:
    """What sets aside the rest of a line that begins here, after decoration."""
    decoration = _DECORATION.match(text, at)
    return _ASIDE.match(text, decoration.end()) if decoration else None


def _lists_in(part: Part) -> tuple[list[Item], int] | ParseError:
    """The items of the list with which a part begins, and where it ends."""
    text = part.text
    if (found := _OPEN.search(text)) is None:
        return ParseError(f"no list after {MARK}" if part.is_marked else f"no {MARK} and no list")
    if problem := _words_before(part, found.start()):
        return problem
    scanned = _scan_lists(text, found.start())
    if isinstance(scanned, ParseError):
        return scanned
    end = scanned[1]
    if not part.is_marked and not _DECORATION.fullmatch(text, end):
        return ParseError(f"no {MARK}, and words or lists behind a list")
    # A list below the mark's line may be part of an explanation, unless it has its lines to itself.
    is_alone = _END_OF_LINE.match(text, end) or _aside(text, end)
    if part.is_marked and "\n" in text[: found.start()] and not is_alone:
        return ParseError(f"words behind a list that is not on the line of {MARK}")
    return scanned


def _words_before(part: Part, start: int) -> ParseError | None:
    """Why what is between mark and answer is neither decoration nor a label."""
    text = part.text[:start]
    if not part.is_marked:
        is_back = _NEGATED.search(text.rpartition("\n")[2][-_MAX_PREFIX:])
        return ParseError("words before the answer that take it back") if is_back else None
    prefix = text.strip()
    # A label is short; this bounds the regular expressions below.
    if len(prefix) > _MAX_PREFIX:
        return ParseError(f"words between {MARK} and the answer")
    lines = text.replace("->", ":").replace("\u2192", ":").split("\n")
    cleaned = [" ".join(_NOISE.sub(" ", line).split()) for line in lines]
    labels = [(line, number) for number, line in enumerate(cleaned) if line]
    if not labels:
        return None
    said = labels[0][0].replace(" :", ":")
    # With several marks, words before the list may belong to another mark's answer.
    if part.is_repeated and not (_CONNECTED.fullmatch(said) or _HEADING.fullmatch(said)):
        return ParseError(f"several {MARK}, and words between the last one and the answer")
    label = _LABEL.fullmatch(said)
    is_label = label and (label[1] or labels[0][1] < len(lines) - 1)
    if len(labels) > 1 or _NEGATED.search(said) or not (is_label or _CONNECTED.fullmatch(said)):
        return ParseError(f"words between {MARK} and the answer that are not a label")
    return None


def _scan_lists(text: str, start: int) -> tuple[list[Item], int] | ParseError:
    """Read the lists that follow one another; returns them and the end of the last one."""
    scanned = _scan(text, start)
    if isinstance(scanned, ParseError):
        return scanned
    first, end = scanned
    lists: list[Item] = [first]
    while (following := _NEXT_LIST.match(text, end)) and following[1].count("\n") < 2:
        scanned = _scan(text, following.end())
        if isinstance(scanned, ParseError):
            return scanned
        # Rows may have a line each, without a comma if they are numbers; other lists below are
        # other answers.
        row = [item for item in scanned[0] if isinstance(item, str)]
        is_row = len(row) == len(scanned[0]) == len(first)
        if "\n" in following[0] and not (is_row and (following[2] or "".join(row).isdecimal())):
            break
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


def _scan(text: str, start: int) -> tuple[list[Item], int] | ParseError:
    """Read one bracketed list; returns its items and its end."""
    # An explicit stack instead of recursion: the depth is model text, and must not end in a
    # RecursionError.
    outer: list[tuple[list[Item], str]] = []
    items: list[Item] = []
    at, num_items = start, 0
    while (found := _TOKEN.match(text, at)) is not None:
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


class ListReader(Generic[ValueT]):
    """Reads the lists of a game from answers and from what programs print.

    Args:
        fits: As in `read_list`.
        usual: What an answer or a whole text means that has the form that prompts ask for; None for
            any other text.
        words: As in `read_list`.
        max_usual: Longest answer in the usual form that is remembered with its meaning.
    """

    def __init__(
        self,
        fits: Callable[[list[Item]], ValueT | ParseError],
        usual: Callable[[str], ValueT | None],
        words: Callable[[str], ValueT | ParseError] | None = None,
        max_usual: int = MAX_SHORT,
    ) -> None:
        self._fits, self._words, self._max_usual = fits, words, max_usual
        # Trained policies write few different answers, and branches of a group often the same.
        self._usual = lru_cache(maxsize=4096)(usual)
        self._short = lru_cache(maxsize=4096)(self._read)

    def read(self, text: str) -> ValueT | ParseError:
        """The answer in what a model wrote. Takes time linear in its length, and never raises."""
        return self._short(text) if len(text) <= MAX_SHORT else self._read(text)

    def read_printed(self, text: str) -> ValueT | ParseError:
        """The answer that a program printed: the last list, or a text of nothing but an answer."""
        return read_list(printed_part(text), self._fits, self._words)

    def _read(self, text: str) -> ValueT | ParseError:
        usual = usual_answer(text, self._max_usual) if MARK in text else text[: self._max_usual + 1]
        if usual and len(usual) <= self._max_usual and (found := self._usual(usual)) is not None:
            return found
        return read_list(text, self._fits, self._words)


def lines_of(text: str) -> list[str]:
    """The lines of a text; the breaks between them begin all but the first."""
    return re.split(r"(?=\n)", text)


def quoted(text: str, own_line: re.Pattern[str]) -> str:
    """What somebody else has written, for a prompt: what could be a line of its own begins by >.

    Args:
        own_line: Matches the beginning of such lines.
    """
    lines = text.splitlines(keepends=True)
    return "".join(f"> {line}" if own_line.match(line) else line for line in lines)


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
_BETWEEN_BOXES = re.compile(
    r"(?>(?:[ \t,;$&]|\n(?!\s*\n)|\\[,;: ()]|\\q?quad\b|\b(?:and|or)\b"
    r"|\\text\s*\{\s*(?:and|or)\s*\}|\b[A-Za-z]\w{0,3}\s*=)*)"
)
_ON_ONE_LINE = re.compile(r"```[ \t]*+py[\w.]*+[ \t]++[^`\n]*+```")
_PYTHON = re.compile(r"py(?:thon)?[\d.]*")


class Block(NamedTuple):
    """A fenced code block."""

    label: str
    """The language, in lower case; empty if there is none."""
    extra: str
    """What else follows the opening fence on its line; attributes excluded."""
    content: str
    """The lines between the fences, without the indentation of the opening one."""
    is_closed: bool
    """Whether a closing fence ends the block."""


class _Opening(NamedTuple):
    """A fence that opens a block."""

    num_ticks: int
    """Length of the fence."""
    indent: int
    """Characters before the fence on its line."""
    label: str
    """See `Block.label`."""
    extra: str
    """See `Block.extra`."""
    end: int
    """Index in the text at which the content begins."""


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
    r"""Read the last `\boxed{...}` behind the thinking, unless words take it back.

    See `boxed_answer`.
    """
    rest = after_thinking(text)
    if isinstance(rest, ParseError):
        return rest
    if not (answer := boxed_answer(rest)):
        return ParseError("no \\boxed{...} with an answer, or one that is not closed")
    start, _, end = _boxes(rest)[-1]
    is_not = rest[:start].rstrip(" $*").lower().endswith((" not", " never"))
    return _DISPUTED if is_not or _REVOKED.match(rest, end + 1) else answer


def boxed_answer(text: str) -> str | None:
    r"""The content of the last `\boxed{...}` with balanced braces.

    Several with nothing but commas, `and`, `or` and names (`y =`) between them are a list, whatever
    is asked for: who hedges has not answered. None if there is none, or if the last one is not
    closed.
    """
    boxes = _boxes(text)
    if not boxes or boxes[-1][2] < 0:
        return None
    answers = [text[slice(*boxes[-1][1:])].strip()]
    for (_, start, end), (behind, *_) in zip(boxes[-2::-1], boxes[:0:-1], strict=True):
        if not 0 <= end < behind or not _BETWEEN_BOXES.fullmatch(text, end + 1, behind):
            break
        answers.insert(0, text[start:end].strip())
    return ", ".join(dict.fromkeys(answers))


def _boxes(text: str) -> list[tuple[int, int, int]]:
    """Where each box and its content begins, and where it ends, -1 if it is not closed."""
    boxes: list[tuple[int, int, int]] = []
    opened: list[int] = []
    for brace in _BRACE.finditer(text):
        token = brace.group()
        if token.endswith("{") and token != "\\{":
            opened.append(len(boxes) if len(token) > 1 else -1)
            if len(token) > 1:
                boxes.append((brace.start(), brace.end(), -1))
        elif token == "}" and opened and (number := opened.pop()) >= 0:
            boxes[number] = (*boxes[number][:2], brace.start())
    return boxes


MAX_USUAL = 40
_USUAL = re.compile(r"(?:= ?)?\w+(?: \w+)?|\w is \w")
"""What most answers look like: of two words no reading is another one."""
_KEYS = ("answer", "final_answer", "query", "choice", "action")
"""Names of the text that counts in a JSON object."""
_NOUN = (
    r"(?:(?:so|thus|hence|therefore|okay|ok|well)\b[\s,:]*)?"
    r"(?:(?:the|my|our|a|final|correct|right|best|next|new|search) +)*"
    r"(?:answer|query|search|choice|decision|action|moves?|plan|statement|response)"
)
_CONNECTED = re.compile(
    rf"{_NOUN}[ *_]*(?:(?:is|are|would be|will be|should be)\b:?|[:=]|->|\u2192)", re.IGNORECASE
)
_HEADING = re.compile(rf"[\s*_#]*{_NOUN}[\s*_:]*", re.IGNORECASE)
_OTHER_LABEL = re.compile(
    rf"(?:(?!{_NEGATED.pattern}|and\b)[^\x00-@[-`{{-\x7f\s\u2192]{{2,20}}+[ *_]*+){{1,6}}"
    r"(?::|->|\u2192)",
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
_MARKUP = re.compile(r"\\boxed|</?\w{1,20}>|```|####|<\|")
_SIGNS = " \t\r\n*_`~$.!;,"


def read_phrase(
    text: str,
    fits: Callable[[str], ValueT | ParseError],
    *,
    needs_mark: bool,
    is_free: bool = False,
) -> ValueT | ParseError:
    """Read an answer of a few words.

    Args:
        text: What a model wrote.
        fits: Returns what a reading means in the game, or a `ParseError` if it means nothing. Of
            the readings that mean something the first counts. Lines that belong together are
            offered with the line breaks between them.
        needs_mark: Whether only what follows `####` is an answer.
        is_free: Whether any words are an answer, so that a remark cannot be told from another one;
            it is the first line then.

    Returns:
        What `fits` made of it; or why no reading is an answer.
    """
    usual = usual_answer(text, MAX_USUAL)
    if usual and _USUAL.fullmatch(usual):
        return fits(usual)

    def others(remark: str) -> Iterator[ValueT]:
        return _said_in_lines(remark, fits)

    def find(part: Part) -> ValueT | ParseError:
        return _words_in(part, fits, None if is_free else others)

    return _decided(text, find, needs_mark=needs_mark)


def _words_in(
    part: Part,
    fits: Callable[[str], ValueT | ParseError],
    others: Callable[[str], Iterable[ValueT]] | None,
) -> ValueT | ParseError:
    """The answer in words of a part, unless the lines below have one of the others."""
    line, below = _line(part)
    if len(line) > MAX_CHARS:
        return ParseError(f"an answer of more than {MAX_CHARS} characters")
    if others is None:
        is_back = _REVOKED.match(below)
        return _DISPUTED if is_back else _first_that_fits(line, fits, is_whole=True)
    first = line
    found = _first_that_fits(line, fits)
    if isinstance(found, ParseError):
        return found
    # An answer may go on below: `left`, and on the next line `say I need 2`.
    while (lines := below.strip("\n")) and len(line) <= MAX_CHARS:
        following, _, rest = lines.partition("\n")
        # A blank line ends what a comma has left open.
        is_open = line.rstrip().endswith((",", ";")) and not below.startswith("\n")
        if not is_open and not isinstance(_first_that_fits(following, fits), ParseError):
            break  # another answer
        longer = _first_that_fits(f"{line}\n{following}", fits)
        if isinstance(longer, ParseError):
            # Two lines, each of which continues the first: `say I need 2`, `say I need 3`.
            other = _first_that_fits(f"{first}\n{following}", fits)
            if line != first and not isinstance(other, ParseError) and other != found:
                return _DISPUTED
            break
        found, line, below = longer, f"{line}\n{following}", rest
    return _undisputed(found, below.strip("\n"), others)


def _first_that_fits(
    line: str, fits: Callable[[str], ValueT | ParseError], *, is_whole: bool = False
) -> ValueT | ParseError:
    fault: ParseError | None = None
    for reading, aside in _readings(line):
        if is_whole and aside is not None:
            continue
        found = ParseError("markup in the answer") if _MARKUP.search(reading) else fits(reading)
        if isinstance(found, ParseError):
            fault = fault or found
            continue
        if aside and any(other != found for other in _said_within(aside, fits)):
            return _DISPUTED
        return found
    return fault or ParseError("an empty answer")


def _said_in_lines(remark: str, fits: Callable[[str], ValueT | ParseError]) -> Iterator[ValueT]:
    """What the lines of a remark say, if they are read as answers."""
    for line in remark[:_MAX_REMARK].split("\n"):
        if not line.strip() or len(line) > MAX_CHARS:
            continue
        found = _first_that_fits(line, fits)
        if not isinstance(found, ParseError):
            yield found
        elif _BACK.search(line):
            yield from _said_within(line, fits)


def _said_within(text: str, fits: Callable[[str], ValueT | ParseError]) -> Iterator[ValueT]:
    """What any few words of a remark say that takes an answer back."""
    words = text.split()[:60]
    for start in range(len(words)):
        for end in range(start + 1, min(len(words), start + _MAX_WINDOW) + 1):
            found = fits(_unwrapped(" ".join(words[start:end])))
            if not isinstance(found, ParseError):
                yield found


def _line(part: Part) -> tuple[str, str]:
    """The answer's line, or the text of its JSON, or all of a text without a mark; what follows."""
    # Bounded, so that a megabyte of fences costs nothing.
    rest = part.text.strip()[:_MAX_REMARK]
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
            return said, rest[end:]
    if not part.is_marked:
        return rest.removesuffix("```"), ""
    line, _, below = rest.partition("\n")
    return line, below


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


def _readings(line: str) -> Iterator[tuple[str, str | None]]:
    """What a line may say, and what follows there that may take it back; None: nothing follows."""
    plain = _unwrapped(line)
    for label in (_CONNECTED, None, _OTHER_LABEL):
        found = label.match(plain) if label else None
        if label and not found:
            continue
        reading = _unwrapped(plain[found.end() :]) if found else plain
        # A label that is an answer itself is another one: `left -> right`.
        yield reading, found[0] if found and label is _OTHER_LABEL else None
        for end in (_ASIDE, _PAUSE):
            cut = end.search(reading, 1)
            behind = reading[cut.end() :] if cut else ""
            # Before `or` stands half of an answer, and `left (wrong)` is not an answer.
            is_own = cut is not None and not cut[0][-1:].isalpha()
            if cut and not _HALF.match(behind) and not (is_own and _REVOKED.match(behind)):
                is_said = end is _PAUSE or _BACK.search(behind)
                yield _unwrapped(reading[: cut.start()].rstrip(" ([")), behind if is_said else ""


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
