"""Verdicts of the mathematics verifier on right answers in other words and on wrong ones.

    python benchmarks/suites/math_verdicts.py --data FOLDER [--limit N]

References are those of OlympiadBench, AIME 2024 and GSM8K samples (the files of FOLDER that are
there), of the built-in families, and lists, intervals, repeating decimals and quantities made by
chance. Each is written in several other ways that are right by construction, and changed in several
ways that are wrong by construction. Counted are right answers that are refused and wrong ones that
are accepted, by the verifier of `math_v0` and by math-verify alone. Verdicts that were not reached
count as refusals.
"""

from __future__ import annotations

import random
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from fractions import Fraction
from pathlib import Path
from typing import NamedTuple

from measuring import frame, parser_of, write

from pettingllms_envs.datasets import load_math_problems
from pettingllms_envs.math import FAMILIES, Verifier

SAMPLES = ("olympiadbench_sample", "aime_2024", "gsm8k_sample")
SEED = 20_261
MAX_CASES = 40
"""Cases of each kind of mistake that the result holds."""

_INTEGER = re.compile(r"-?\d+")
_FRACTION = re.compile(r"(-?)\\frac\{(\d+)\}\{(\d+)\}")
_ROOT = re.compile(r"(\d+) ?\\sqrt\{(\d+)\}")


class Pair(NamedTuple):
    """A reference, an answer, and whether the answer is right."""

    kind: str
    reference: str
    answer: str
    is_right: bool
    unit: str = ""


def number_of(reference: str) -> Fraction | None:
    """Return the rational number that a plain reference is, or None."""
    if _INTEGER.fullmatch(reference):
        return Fraction(int(reference))
    found = _FRACTION.fullmatch(reference)
    if found:
        value = Fraction(int(found[2]), int(found[3]))
        return -value if found[1] else value
    return Fraction(reference) if re.fullmatch(r"-?\d+\.\d+", reference) else None


def latex(value: Fraction, factor: int = 1) -> str:
    """Return a fraction in LaTeX, expanded by a factor."""
    if value.denominator == 1 and factor == 1:
        return str(value.numerator)
    sign = "-" if value < 0 else ""
    return rf"{sign}\frac{{{abs(value.numerator) * factor}}}{{{value.denominator * factor}}}"


def repeating(value: Fraction) -> str | None:
    """Return a fraction as a repeating decimal with a short period, or None."""
    whole, rest = divmod(abs(value), 1)
    digits, seen = "", dict[int, int]()
    numerator, denominator = rest.numerator, rest.denominator
    while numerator and numerator not in seen and len(digits) <= 12:
        seen[numerator] = len(digits)
        digit, numerator = divmod(numerator * 10, denominator)
        digits += str(digit)
    if numerator not in seen:
        return None
    start = seen[numerator]
    sign = "-" if value < 0 else ""
    return rf"{sign}{whole}.{digits[:start]}\overline{{{digits[start:]}}}"


def terminating(value: Fraction) -> str | None:
    """Return a fraction as a decimal, or None where it does not end after a few digits."""
    for places in range(1, 7):
        scaled = value * 10**places
        if scaled.denominator == 1:
            sign = "-" if value < 0 else ""
            digits = f"{abs(scaled.numerator):0{places + 1}d}"
            return f"{sign}{digits[:-places]}.{digits[-places:]}"
    return None


def other_words(reference: str) -> Iterator[str]:
    """Yield what every answer may be written like."""
    yield f"${reference}$"
    yield rf"\({reference}\)"
    yield f" {reference} ."
    yield reference.replace(r"\frac", r"\dfrac").replace("$", "")
    yield rf"\displaystyle {reference}".replace("$", "")
    plain = re.fullmatch(r"[\w\s{}\\^./+*-]+", reference)
    if plain and "=" not in reference and r"\geq" not in reference:
        yield f"x = {reference}"
        yield rf"\boxed{{{reference}}}"
    if "(" in reference and r"\left" not in reference:
        yield reference.replace("(", r"\left(").replace(")", r"\right)")
    found = _ROOT.fullmatch(reference)
    if found:
        yield rf"\sqrt{{{int(found[1]) ** 2 * int(found[2])}}}"
        yield f"{found[1]}*sqrt({found[2]})"


def number_in_other_words(value: Fraction) -> Iterator[str]:
    """Yield ways to write a rational number."""
    yield latex(value, 3)
    yield f"{value.numerator}/{value.denominator}" if value.denominator > 1 else f"{value}.0"
    yield f"Fraction({value.numerator}, {value.denominator})"
    yield rf"{latex(value)} \text{{ marbles}}"
    yield from filter(None, (terminating(value), repeating(value)))
    if value.denominator == 1 and abs(value) >= 1000:
        yield f"{value.numerator:,}"
        yield f"{value.numerator:,}".replace(",", "{,}")


def other_numbers(value: Fraction) -> Iterator[str]:
    """Yield answers that are not a given number."""
    for wrong in (value + 1, value - 1, -value, value * 10, 1 / value if value else value + 2):
        if wrong != value:
            yield latex(wrong)
    yield rf"{latex(value)}, {latex(value + 1)}"
    yield rf"{latex(value)} + 1"
    if value.denominator > 1:
        rounded = f"{float(value):.3f}"
        if Fraction(rounded) != value:
            yield rounded
        yield str(value.numerator)
    else:
        yield f"{value.numerator}.5"
        yield f"{value.numerator}00000001"


def items_of(reference: str) -> list[str] | None:
    """Return the items of a plain list of numbers, or None."""
    parts = [part.strip().strip("$").strip() for part in reference.split(",")]
    return parts if len(parts) > 1 and all(number_of(part) is not None for part in parts) else None


def pairs_of(kind: str, reference: str, others: list[str], unit: str = "") -> Iterator[Pair]:
    """Yield right and wrong answers to one reference."""
    bare = reference.strip().strip("$").strip()
    value, items = number_of(bare), items_of(reference)
    right = list(other_words(bare) if reference.count("$") <= 2 else ())
    wrong: list[str] = []
    if value is not None:
        right += number_in_other_words(value)
        wrong += other_numbers(value)
        wrong += [other for other in others if number_of(other) not in (None, value)]
    if items is not None:
        right += [", ".join(reversed(items)), " and ".join(items), "[" + ", ".join(items) + "]"]
        wrong += [", ".join(items[1:]), ", ".join([*items, "123457"])]
        wrong.append(", ".join([str(number_of(items[0] or "0") or 0) + "1", *items[1:]]))
    elif value is None:
        wrong += [f"{bare}+1", f"2({bare})", "123457"] if "=" not in bare else ["123457"]
    yield from (Pair(kind, reference, answer, True, unit) for answer in right)
    yield from (Pair(kind, reference, answer, False, unit) for answer in wrong)


def intervals(rng: random.Random, count: int) -> Iterator[Pair]:
    """Yield intervals: other ways to write them, and other ends."""
    for _ in range(count):
        low = rng.randint(-20, 20)
        high = low + rng.randint(1, 30)
        left, right = rng.choice("(["), rng.choice(")]")
        signs = {"(": "<", "[": r"\le", ")": "<", "]": r"\le"}
        reference = f"{left}{low},{high}{right}"
        for answer in (
            f"{left}{low}, {high}{right}",
            rf"\left{left}{low},{high}\right{right}",
            f"{low} {signs[left]} x {signs[right]} {high}",
            rf"x \in {left}{low},{high}{right}",
        ):
            yield Pair("interval", reference, answer, True)
        flipped = {"(": "[", "[": "(", ")": "]", "]": ")"}
        for answer in (
            f"{flipped[left]}{low},{high}{right}",
            f"{left}{low},{high}{flipped[right]}",
            f"{flipped[left]}{low},{high}{flipped[right]}",
            f"{low} {signs[flipped[left]]} x {signs[right]} {high}",
            f"{left}{low},{high + 1}{right}",
        ):
            yield Pair("interval", reference, answer, False)
        union = rf"{reference}\cup({high + 3},\infty)"
        yield Pair("interval", union, rf"({high + 3},\infty) \cup {reference}", True)
        yield Pair("interval", union, rf"{reference}\cup[{high + 3},\infty)", False)


def lists(rng: random.Random, count: int) -> Iterator[Pair]:
    """Yield lists of numbers, some of them twice."""
    for _ in range(count):
        items = [str(rng.randint(-30, 30)) for _ in range(rng.randint(2, 5))]
        items.append(rng.choice(items))
        shuffled = rng.sample(items, len(items))
        reference = ",".join(items)
        yield Pair("list with a duplicate", reference, ", ".join(shuffled), True)
        yield Pair("list with a duplicate", reference, ", ".join(dict.fromkeys(items)), False)
        distinct = list(dict.fromkeys(items))
        if len(distinct) > 1:
            shorter = ",".join(distinct)
            yield Pair("list", shorter, ", ".join(reversed(distinct)), True)
            yield Pair("list", shorter, ", ".join(distinct[:-1]), False)


def decimals(rng: random.Random, count: int) -> Iterator[Pair]:
    """Yield fractions as repeating decimals, and decimals with another period."""
    for _ in range(count):
        value = Fraction(rng.randint(1, 200), rng.choice((3, 6, 7, 9, 11, 12, 27, 37, 99)))
        written = repeating(value)
        if written is None:
            continue
        yield Pair("repeating decimal", latex(value), written, True)
        yield Pair("repeating decimal", written, latex(value), True)
        yield Pair("repeating decimal", latex(value), written.replace(r"\overline", ""), False)
        wrong = repeating(value + Fraction(1, 9))
        if wrong:
            yield Pair("repeating decimal", latex(value), wrong, False)


UNITS = (
    ("minute", ("minutes", "minute", "min"), ("hours", "seconds", "days")),
    ("hour", ("hours", "hour", "h"), ("minutes", "days")),
    ("cm", ("cm", "centimeters"), ("m", "meters", "mm", "cm^2")),
    ("%", ("\\%", "percent"), ("dollars",)),
    ("kg", ("kg", "kilograms"), ("g", "grams")),
    ("m^2", ("m^2", "m^{2}"), ("m", "cm^2")),
)


def quantities(rng: random.Random, count: int) -> Iterator[Pair]:
    """Yield numbers with units: the same, none, and another one."""
    for _ in range(count):
        unit, same, others = rng.choice(UNITS)
        number = str(rng.choice((rng.randint(1, 500), rng.randint(1, 99) / 10)))
        reference = rng.choice(
            (number, rf"{number} \text{{ {unit}}}", rf"{number}\mathrm{{{unit}}}")
        )
        if unit == "%":
            reference = number
        yield Pair("quantity", reference, number, True, unit)
        yield from (Pair("quantity", reference, f"{number} {word}", True, unit) for word in same)
        for word in (word for word in same if not word.startswith("\\")):
            yield Pair("quantity", reference, rf"{number}\text{{ {word}}}", True, unit)
        for word in others:
            yield Pair("quantity", reference, f"{number} {word}", False, unit)
            yield Pair("quantity", reference, rf"{number}\text{{ {word}}}", False, unit)


def all_pairs(folder: Path | None, limit: int | None) -> list[Pair]:
    """Return the pairs of every source, the same ones at every call."""
    rng = random.Random(SEED)
    found: list[Pair] = []
    for sample in SAMPLES:
        path = folder / f"{sample}.jsonl" if folder else None
        if path is not None and path.exists():
            problems = load_math_problems(path).problems
            answers = [problem.answer for problem in problems]
            for problem in problems:
                others = rng.sample(answers, 4)
                found += pairs_of(sample, problem.answer, others, problem.unit)
    drawn = [
        (family.name, family.answer(family.sample(rng, 1 + number % 5)))
        for family in FAMILIES
        for number in range(8)
    ]
    for _, answer in drawn:
        found += pairs_of("built-in family", answer, [rng.choice(drawn)[1] for _ in range(3)])
    for made in (intervals(rng, 60), lists(rng, 80), decimals(rng, 80), quantities(rng, 60)):
        found += made
    found = list(dict.fromkeys(found))
    rng.shuffle(found)
    return found[:limit]


def count(pairs: Iterable[Pair], accepts: Callable[[Pair], bool]) -> dict[str, object]:
    """Return how many right answers were refused and wrong ones accepted, with the cases."""
    asked: Counter[str] = Counter()
    missed: dict[str, list[list[str]]] = {"refused": [], "accepted": []}
    for pair in pairs:
        asked["right" if pair.is_right else "wrong"] += 1
        if accepts(pair) != pair.is_right:
            case = [pair.kind, pair.reference, pair.answer]
            missed["refused" if pair.is_right else "accepted"].append(case)
    return {
        "num_right": asked["right"],
        "num_wrong": asked["wrong"],
        "num_false_refusals": len(missed["refused"]),
        "num_false_acceptances": len(missed["accepted"]),
        "cases": {name: sorted(cases)[:MAX_CASES] for name, cases in missed.items()},
        "by_kind": {
            name: dict(sorted(Counter(case[0] for case in cases).items()))
            for name, cases in missed.items()
        },
    }


def math_verify_alone(pair: Pair) -> bool:
    """Return what math-verify says without anything around it."""
    import math_verify

    try:
        wanted, given = (math_verify.parse(f"${text}$") for text in (pair.reference, pair.answer))
        return bool(math_verify.verify(wanted, given))
    except Exception:  # noqa: BLE001  whatever it raises is a refusal
        return False


def main() -> None:
    """Compare, print and write the result file."""
    parser = parser_of("math_verdicts", __doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--limit", type=int)
    options = parser.parse_args()
    result = frame("math_verdicts", [SEED])
    pairs = all_pairs(options.data, options.limit)
    verifier = Verifier(num_workers=1, timeout_s=20)
    result["verifier"] = count(
        pairs, lambda p: verifier.judge(p.reference, p.answer, unit=p.unit).is_correct
    )
    print({k: v for k, v in result["verifier"].items() if k != "cases"}, flush=True)
    result["math_verify_alone"] = count(pairs, math_verify_alone)
    print({k: v for k, v in result["math_verify_alone"].items() if k != "cases"}, flush=True)
    write(result, options.output)


if __name__ == "__main__":
    main()
