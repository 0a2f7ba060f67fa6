"""Answers as text: what a model or a program wrote, brought into LaTeX that can be compared."""

from __future__ import annotations

import re

MAX_ANSWER_CHARS = 1000
"""A longer answer is not read at all."""

_WRAPPERS = (("$$", "$$"), ("$", "$"), (r"\(", r"\)"), (r"\[", r"\]"), ("`", "`"))
_SIGNS = str.maketrans(
    {
        "\u2212": "-",
        "\u2013": "-",
        "\u00d7": r"\times ",
        "\u00b7": r"\cdot ",
        "\u03c0": r"\pi ",
        "\u221e": r"\infty ",
        "\u00b0": r"^{\circ}",
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
_PI = re.compile(r"(?<![\\A-Za-z])pi(?![A-Za-z])")
_GROUPED = re.compile(
    r"((?:[^,;=]*=)?(?:[^\d,;.()\[\]{\\]|(?<=[A-Za-z}])\{|\\[A-Za-z$])*)"  # no list, no interval
    r"([1-9]\d{0,2}(?:(?:\{,\}|,(?:\\!)?|\\[,;])\d{3})+)"
    r"(?![\d,])([^,;]*)"
)
_PYTHON_LIST = re.compile(r"\[([^\[\]();]*)\]")
_INTEGER = re.compile(r"-?\d+")


def normalised(text: str) -> str:
    r"""Return an answer without decoration, with the notation of Python turned into LaTeX.

    Dollar signs, `\(...\)`, a final full stop, unicode signs, `**`, `<=`, `Fraction(1, 2)`, `1e3`
    and `10,000` are brought into one form; so is `x = 10,000`, one number with separators between
    groups of three digits and perhaps a name before or a unit after it. The meaning is left alone.
    """
    text = text.strip()
    for start, end in _WRAPPERS:
        inner = text[len(start) : len(text) - len(end)]
        if len(text) > len(start + end) and text.startswith(start) and text.endswith(end):
            text = inner.strip() if start not in inner else text.replace(start, "").strip()
    text = text.rstrip(".").strip() if not text.endswith("..") else text
    text = _ROOT.sub(r"\\sqrt{\1}", text).translate(_SIGNS)
    text = _PYTHON_FRACTION.sub(r"\\frac{\1}{\2}", text)
    text = _SCIENTIFIC.sub(lambda m: rf"{m[1]} \cdot 10^{{{int(m[2])}}}", text)
    text = _NAMED_SUBSCRIPT.sub("", text)
    text = _PI.sub(r"\\pi ", text)
    text = text.replace("**", "^").replace("<=", r"\le ").replace(">=", r"\ge ")
    grouped = _GROUPED.fullmatch(text)
    return grouped[1] + re.sub(r"\D", "", grouped[2]) + grouped[3] if grouped else text


def without_unit(text: str, unit: str) -> str:
    r"""Return an answer without a unit at its end: `45\text{ minutes}` with `minute` gives `45`."""
    if not unit:
        return text
    word = re.escape(unit.strip().lstrip("\\"))
    ending = rf"\s*(\\[,;: ]\s*)?(\\(text|mathrm|textrm|rm)\s*\{{\s*)?\\?{word}s?\s*\}}?\s*$"
    return re.sub(ending, "", text)


def as_integer(text: str) -> int | None:
    """Return the whole number that a text is, or None if it is anything else."""
    short = len(text) <= MAX_ANSWER_CHARS
    return int(text) if short and _INTEGER.fullmatch(text) else None


def in_shape_of(reference: str, candidate: str) -> str:
    """Return a candidate with the brackets that the reference's kind of answer needs.

    A bare list is an ordered tuple where the reference is one, and a Python list is a set or a
    tuple where the reference is no interval.
    """
    is_list = _PYTHON_LIST.fullmatch(candidate)
    if reference.startswith("(") and reference.endswith(")") and reference.count("(") == 1:
        if is_list and "," in is_list[1]:
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
