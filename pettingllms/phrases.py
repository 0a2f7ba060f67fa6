r"""Answers of a few words: a choice, a name, a query.

`read_phrase` offers a game the readings of a text, the likeliest first, and returns what the game
makes of the first one that it takes. Thinking and the mark are as in `pettingllms.parsing`; then

1. **The line.** The answer is the first line after the mark that is neither blank nor the opening
   of a fence nor a mere heading (`Final answer`). Further lines are remarks. Without a mark, the
   whole text is the answer.
2. **Wrapping** is taken off: Markdown, quotes, brackets, `\boxed{...}`, `<answer>...</answer>`,
   a JSON list of one text or object with one `answer`, control tokens.
3. **Readings**: without a label such as `The answer is` or `Query:`; as written; without any other
   words that end in a colon; and each without a remark in parentheses at its end.
4. **Two answers** that follow one another (`#### X` and `#### Y` on the next line) are none: one of
   them may be a copied example. Nor is there one if markup is left within the words.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeVar, cast

from pettingllms.parsing import MARK, Part, answer_part, usual_answer
from pettingllms.transition import ParseError

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
_FENCE = re.compile(r"\s*`{3}[\w+-]*\s*")
_TOKEN = re.compile(r"<\|\w{1,30}\|>|\[/?INST\]|</?s>|<(?:eos|end_of_turn)>|</\w{1,20}>\s*$")
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
    """Return the answer's line, or the text of its JSON; all of a text without a mark."""
    # Bounded, so that a megabyte of fences is no work.
    rest = part.text.strip()[: 8 * MAX_CHARS]
    while rest:
        line, _, tail = rest.partition("\n")
        if line.strip() and not _FENCE.fullmatch(line) and not _HEADING.fullmatch(line[:MAX_CHARS]):
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
    """Return the text or number that a JSON value gives as the answer, if there is just one."""
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
    """Return a line without what wraps all of it."""
    said = next((one for one in _TOKEN.split(line) if one.strip()), "") if "<|" in line else line
    for _ in range(8):
        before, said = said, _BULLET.sub("", said.strip(_SIGNS), count=1)
        if said[-1:].isalnum():  # nothing wraps it
            return said
        if (command := _COMMAND.fullmatch(said)) and _is_balanced(command[1]):
            said = command[1]
        inner = next(filter(None, (one.fullmatch(said) for one in _WRAPPINGS)), None)
        said = inner[1] if inner else _TOKEN.sub("", said)
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
