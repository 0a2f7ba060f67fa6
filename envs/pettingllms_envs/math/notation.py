"""Answers as text: what a model or a program wrote, brought into LaTeX that can be compared."""

from __future__ import annotations

import re
from collections import Counter

from pettingllms.parsing import last_boxed

MAX_ANSWER_CHARS = 1000
"""A longer answer is not read at all."""

_MATHS = re.compile(r"(?<!\\)(?:\$|\\[()\[\]])|\A`|`\Z")
_SIGNS = str.maketrans(
    {
        "\u2212": "-",
        "\u2013": "-",
        "\u00d7": r"\times ",
        "\u00b7": r"\cdot ",
        "\u03c0": r"\pi ",
        "\u221e": r"\infty ",
        "\u00b0": r"^{\circ}",
        "\u00b2": "^2",
        "\u00b3": "^3",
        "\u20ac": r"\text{ euros}",
        "\u2260": r"\neq ",
        "\u2264": r"\le ",
        "\u2265": r"\ge ",
        "\u222a": r"\cup ",
        "\u00a0": " ",
    }
)
_ROOT = re.compile(r"\u221a\s*(\w+|\([^()]*\))")
_PYTHON_FRACTION = re.compile(r"Fraction\(\s*(-?\d+)\s*,\s*(\d+)\s*\)")
_SCIENTIFIC = re.compile(r"(?<![\w.])(-?\d+(?:\.\d+)?)[eE]([+-]?\d{1,3})(?!\w)")
_NAMED_SUBSCRIPT = re.compile(r"_\{\s*\\(?:max|min|text\{\w+\}|mathrm\{\w+\})\s*\}")
_OPERATORS = (("**", "^"), ("<=", r"\le "), (">=", r"\ge "), ("!=", r"\neq "))
_UPRIGHT = re.compile(r"\\mathrm\s*(?:\{([eidx])\}|\s([eidx])(?![A-Za-z]))")
_PI = re.compile(r"(?<![\\A-Za-z])pi(?![A-Za-z])")
_THIN_IN_NUMBER = re.compile(r"(?<=\d)(?:,\\! *|\\[,;: ]|~| )(?=\d{3}(?!\d))")
_SPACING = re.compile(r"(?<!\\)(?:\\[,;: ]|~|\\(?:q?quad|displaystyle)(?![A-Za-z]))")
_GROUPED = re.compile(
    r"((?:[^,;=]*=)?(?:[^\d,;.()\[\]{\\]|(?<=[A-Za-z}])\{|\\[A-Za-z$])*)"  # no list, no interval
    r"([1-9]\d{0,2}(?:(?:\{,\}|,)\d{3})+)"
    r"(?![\d,])([^,;]*)"
)
_MAX_WRAPPERS = 4
_BOXED = re.compile(r"\\boxed\s*\{(.*)\}", re.DOTALL)
_MEMBER = re.compile(r"\A[A-Za-z]\s*\\in(?![A-Za-z])\s*")
_BAR = r"\\(?:overline|overbar|bar|dot)(?![A-Za-z])\s*"
_REPEATING = re.compile(
    rf"(?<!\d)(\d+)\.(\d*)(?:{_BAR}(?:\{{(\d+)\}}|(\d))|\((\d+)\))(?![\d.]|\s*\\dot)"
    r"|(?<!\d)(\d+)\.(\d*)\\dot\s*\{?(\d)\}?(\d*)\\dot\s*\{?(\d)\}?(?![\d.])"
)
_BRACKETS = re.compile(r"[()\[\]{}]")
_PYTHON_LIST = re.compile(r"\[([^\[\]();]*)\]")
_AND = re.compile(r"\\text\s*\{\s*(?:and|or)\s*\}|\b(?:and|or)\b")
_INTEGER = re.compile(r"-?\d+")


def normalised(text: str) -> str:
    r"""Return an answer without decoration, with the notation of Python turned into LaTeX.

    Dollar signs, `\(...\)`, a final full stop, unicode signs, `**`, `<=`, `Fraction(1, 2)`, `1e3`
    and `10,000` are brought into one form; so is `x = 10,000`, one number with separators between
    groups of three digits and perhaps a name before or a unit after it. A repeating decimal such as
    `0.\overline{3}` becomes a fraction. The spaces of LaTeX (`\,`, `~`, `\quad`) become plain ones.
    The meaning is left alone.
    """
    # First of all: the comma of `\,` separates nothing, and `\!` is no space at all.
    text = _THIN_IN_NUMBER.sub("", text).replace(r"\!", "")
    text = _UPRIGHT.sub(r"\1", _bare(_SPACING.sub(" ", text)))
    text = _ROOT.sub(r"\\sqrt{\1}", text).translate(_SIGNS)
    text = _PYTHON_FRACTION.sub(r"\\frac{\1}{\2}", text)
    text = _SCIENTIFIC.sub(lambda m: rf"{m[1]} \cdot 10^{{{int(m[2])}}}", text)
    text = _REPEATING.sub(_as_fraction, _MEMBER.sub("", text))
    text = _NAMED_SUBSCRIPT.sub("", text)
    text = _PI.sub(r"\\pi ", text)
    for python, latex in _OPERATORS:
        text = text.replace(python, latex)
    grouped = _GROUPED.fullmatch(text)
    return grouped[1] + re.sub(r"\D", "", grouped[2]) + grouped[3] if grouped else text


def _bare(text: str) -> str:
    r"""Return a text without full stops and wrappers around it, in any order: `$\boxed{5}$.`."""
    for _ in range(_MAX_WRAPPERS):
        inside = text.strip()
        inside = inside if inside.endswith("..") else inside.rstrip(".").rstrip()
        boxed = _BOXED.fullmatch(inside)
        if boxed and last_boxed(inside) == boxed[1].strip():
            inside = boxed[1]
        inside = _MATHS.sub("", inside)
        if inside == text:
            break
        text = inside
    return text.strip()


def is_repeating(text: str) -> bool:
    """Return whether a text has a repeating decimal in it, such as `0.(3)`."""
    return _REPEATING.search(text) is not None


def _as_fraction(found: re.Match[str]) -> str:
    """Return a repeating decimal as a fraction: 0.1(6) is (16 - 1) / 90."""
    if found[10]:
        whole, start, period = found[6], found[7], found[8] + found[9] + found[10]
    else:
        whole, start, period = found[1], found[2], found[3] or found[4] or found[5]
    fixed = whole + start
    top = int(fixed + period) - int(fixed or "0")
    return rf"\frac{{{top}}}{{{(10 ** len(period) - 1) * 10 ** len(start)}}}"


def depth(text: str) -> int:
    """Return how deep brackets are nested, whatever their kinds: `[0,1)` is an interval."""
    level = deepest = 0
    for bracket in _BRACKETS.finditer(text):
        level = level + 1 if bracket[0] in "([{" else max(0, level - 1)
        deepest = max(deepest, level)
    return deepest


def drops_duplicates(reference: str, candidate: str) -> bool:
    """Return whether two bare lists have equal members, but not equally often.

    For the verifier a bare list is a set; a list in which an answer is given twice has it twice.
    Lists in brackets are left to the verifier: in braces they are sets.
    """
    wanted, given = _counted(reference), _counted(candidate)
    if max((*wanted.values(), *given.values()), default=0) < 2:
        return False
    return wanted.total() != given.total() or any(
        given[item] not in (0, number) for item, number in wanted.items()
    )


def _counted(text: str) -> Counter[str]:
    """Return how often each item of a bare list is in it; anything in brackets is one item."""
    level, items = 0, [""]
    for char in _AND.sub(",", text):
        level += (char in "([{") - (char in ")]}")
        if char == "," and level == 0:
            items.append("")
        elif not char.isspace():
            items[-1] += char
    return Counter(item for item in items if item)


def without_unit(text: str, unit: str) -> str:
    r"""Return an answer without a unit at its end: `45\text{ minutes}` with `minute` gives `45`."""
    if not unit:
        return text
    word = re.escape(unit.strip().lstrip("\\"))
    ending = rf"\s*(\\[,;: ]\s*)?(\\(text|mathrm|textrm|rm)\s*\{{\s*)?\\?{word}s?\s*\}}?\s*$"
    return re.sub(ending, "", text)


def as_integer(text: str) -> int | None:
    """Return the integer that a text is, or None if it is anything else."""
    short = len(text) <= MAX_ANSWER_CHARS
    return int(text) if short and _INTEGER.fullmatch(text) else None


def in_shape_of(reference: str, candidate: str) -> str:
    """Return a candidate with the brackets that the reference's kind of answer needs.

    A bare list is an ordered tuple where the reference is one, and a Python list is a set or a
    tuple where the reference is no interval. A Python list of two is left alone where the
    reference is `(a,b)`, because that may be an open interval, and `[a,b]` is a closed one.
    """
    is_list = _PYTHON_LIST.fullmatch(candidate)
    if reference.startswith("(") and reference.endswith(")") and reference.count("(") == 1:
        if is_list and is_list[1].count(",") > 1:
            return f"({is_list[1]})"
        if "," in candidate and not candidate.startswith(("(", "[", "{", r"\{", r"\left", "\\(")):
            return f"({candidate})"
    elif is_list and "," in reference and not reference.startswith(("[", "(", r"\left")):
        return is_list[1]
    return candidate


def last_printed(stdout: str) -> str | None:
    """Return the last non-blank line that a program printed, or None."""
    lines = [line.strip() for line in stdout.splitlines() if line.strip()]
    return lines[-1] if lines else None
