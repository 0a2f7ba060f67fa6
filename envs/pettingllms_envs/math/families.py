"""Families of generated mathematical questions, with calculated answers; texts: `families.toml`."""

from __future__ import annotations

import math
import operator
import random
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partialmethod, reduce
from itertools import combinations
from operator import add
from typing import Any, Final, NamedTuple

from pettingllms.files import packaged

MIN_DIFFICULTY: Final = 1
MAX_DIFFICULTY: Final = 5

Params = tuple[int, ...]


_QUESTIONS: dict[str, str] = packaged("pettingllms_envs.math", "families.toml")
"""Name of a family -> its question, with places for what `Family.shown` gives."""


def _identity(params: Params) -> Params:
    return params


@dataclass(frozen=True, slots=True)
class Family:
    """Questions of one kind, drawn at random, with exact answers.

    Attributes:
        name: Unique lower-case name; `families.toml` has its text.
        sample: Draws the numbers of a question; the difficulty runs from `MIN_DIFFICULTY` to
            `MAX_DIFFICULTY`.
        value: Numbers -> exact value, or the answer in LaTeX where it is not one number.
        shown: Numbers -> what the text shows of them.
        canonical: Numbers -> the same for all questions that are the same up to renaming, such as
            swapped summands. Decides on the split.
        form: See `MathProblem.form`.
    """

    name: str
    sample: Callable[[random.Random, int], Params]
    value: Callable[[Params], Fraction | int | str]
    shown: Callable[[Params], Sequence[object]] = _identity
    canonical: Callable[[Params], Params] = _identity
    form: str = ""

    def question(self, params: Params) -> str:
        """The text of a question."""
        return _QUESTIONS[self.name].format(*self.shown(params))

    def answer(self, params: Params) -> str:
        """The exact answer, in LaTeX."""
        value = self.value(params)
        return value if isinstance(value, str) else latex(value)

    def content(self, params: Params) -> bytes:
        """The canonical form of a question, for the splits."""
        return f"{self.name}:{','.join(map(str, self.canonical(params)))}".encode()


def latex(value: Fraction | int) -> str:
    r"""A rational number in LaTeX: `7`, `-\frac{3}{4}`."""
    value = Fraction(value)
    if value.denominator == 1:
        return str(value.numerator)
    sign = "-" if value < 0 else ""
    return rf"{sign}\frac{{{abs(value.numerator)}}}{{{value.denominator}}}"


def combination(*terms: tuple[int, str]) -> str:
    """A sum of multiples as one writes it: (2, "x"), (-1, "y"), (0, "z") gives `2x - y`."""
    text = ""
    for factor, symbol in terms:
        if factor == 0:
            continue
        size = str(abs(factor)) if abs(factor) != 1 or not symbol else ""
        sign = ("-" if factor < 0 else "") if not text else (" - " if factor < 0 else " + ")
        text += sign + size + symbol
    return text or "0"


def polynomial(coefficients: Sequence[int]) -> str:
    """A polynomial in x; the coefficient of the highest power comes first."""
    powers = range(len(coefficients) - 1, -1, -1)
    symbols = ("" if p == 0 else "x" if p == 1 else f"x^{{{p}}}" for p in powers)
    return combination(*zip(coefficients, symbols, strict=True))


def nonzero(rng: random.Random, bound: int) -> int:
    """A number from -bound to bound, but not 0."""
    return rng.choice((-1, 1)) * rng.randint(1, bound)


def listed(values: Params) -> str:
    """Numbers as a phrase: `3, 4 and 5`."""
    *most, last = map(str, values)
    return f"{', '.join(most)} and {last}" if most else last


class Step(NamedTuple):
    """One calculation with two numbers."""

    formula: str
    """Numbers and result, in LaTeX: `3 \\cdot (-4) = -12`."""
    program: str
    """The same in Python, which refers to earlier steps by name: `a3 = 3 * a2`."""


class Calculation:
    """An answer by `+`, `-`, `*` and `/` alone, of a function that minds no kind of numbers."""

    def __init__(self, value: Callable[[Sequence[Any]], Any]) -> None:
        self._value = value

    def __call__(self, params: Params) -> Fraction:
        """The exact value."""
        return self._value([Fraction(number) for number in params])

    def steps(self, params: Params) -> list[Step]:
        """How the answer comes about; `a1`, `a2`, ... are the names of the results."""
        steps: list[Step] = []
        self._value([_Told(Fraction(number), str(number), steps) for number in params])
        return steps


class _Told:
    """A number that writes down what is calculated with it."""

    def __init__(self, value: Fraction, name: str, steps: list[Step]) -> None:
        self.value, self.name, self.steps = value, name, steps

    # For exponents and counts, of which there is no step to write down.
    def __int__(self) -> int:
        return int(self.value)

    def with_(self, sign: str, other: _Told | int, *, is_second: bool = False) -> _Told:
        """The result of a calculation with another number, which is written down."""
        if isinstance(other, int):
            other = _Told(Fraction(other), str(other), self.steps)
        first, second = (other, self) if is_second else (self, other)
        written, calculate = _SIGNS[sign]
        value = calculate(first.value, second.value)
        name = f"a{len(self.steps) + 1}"
        formula = f"{latex(first.value)} {written} {_bracketed(latex(second.value))}"
        program = f"{first.name} {sign} {_bracketed(second.name)}"
        if sign == "/":
            program = f"Fraction({first.name}, {second.name})"
        self.steps.append(Step(f"{formula} = {latex(value)}", f"{name} = {program}"))
        return _Told(value, name, self.steps)


def _bracketed(number: str) -> str:
    return f"({number})" if number.startswith("-") else number


_SIGNS: dict[str, tuple[str, Callable[[Fraction, Fraction], Fraction]]] = {
    "+": ("+", operator.add),
    "-": ("-", operator.sub),
    "*": (r"\cdot", operator.mul),
    "/": (":", operator.truediv),
}
# Python looks operators up in the class, so that they are set there, both ways round.
for _sign, _name in zip("+-*/", ("add", "sub", "mul", "truediv"), strict=True):
    setattr(_Told, f"__{_name}__", partialmethod(_Told.with_, _sign))
    setattr(_Told, f"__r{_name}__", partialmethod(_Told.with_, _sign, is_second=True))


def _in_order(params: Params) -> Params:
    return tuple(sorted(params))


def _pairs(params: Sequence[Any]) -> list[tuple[Any, Any]]:
    return list(zip(params[::2], params[1::2], strict=True))


def _pairs_in_order(params: Params) -> Params:
    return tuple(number for pair in sorted(_pairs(params)) for number in pair)


# ---- arithmetic


def _expression(rng: random.Random, difficulty: int) -> Params:
    bound = 10 * 3**difficulty
    return tuple(rng.randint(bound // 10, bound) for _ in range(4))


def _fractions(rng: random.Random, difficulty: int) -> Params:
    bound = 6 + 12 * difficulty
    count = 2 + difficulty // 3
    return tuple(n for _ in range(count) for n in (rng.randint(1, bound), rng.randint(2, bound)))


def _percent(rng: random.Random, difficulty: int) -> Params:
    # Easy questions have tens, with which one calculates in the head.
    step = 10 if difficulty < 3 else 1
    changes = tuple(
        rng.choice((-1, 1)) * rng.randint(1, 90 // step) * step for _ in range(1 + difficulty // 2)
    )
    return (rng.randint(2, 20 * difficulty) * 50, *changes)


def _changes(params: Params) -> Sequence[object]:
    words = (f"{'rises' if n > 0 else 'falls'} by {abs(n)}%" for n in params[1:])
    return (params[0], ", then ".join(words))


def _base(rng: random.Random, difficulty: int) -> Params:
    base = rng.choice((2, 3, 4, 5, 6, 7, 8, 9))
    return (base, rng.randint(base**2, base ** (3 + difficulty)))


def _digits(number: int, base: int) -> str:
    text = ""
    while number:
        number, digit = divmod(number, base)
        text = str(digit) + text
    return text


def _base_value(params: Sequence[Any]) -> Any:
    base, number = params
    return reduce(
        lambda value, digit: value * base + digit, map(int, _digits(int(number), int(base)))
    )


def _mean(rng: random.Random, difficulty: int) -> Params:
    count = rng.randint(3, 4 + 2 * difficulty)
    mean = rng.randint(5, 20 * difficulty)
    return (count, mean, rng.randint(mean, mean + 5 * difficulty))


def _equation(rng: random.Random, difficulty: int) -> Params:
    factor, term = 4 * difficulty + 2, 20 * difficulty
    left = (rng.randint(2, factor), rng.randint(-term, term))
    return (*left, -rng.randint(1, factor), rng.randint(-term, term))


ARITHMETIC = (
    Family("expression", _expression, Calculation(lambda p: p[0] * p[1] - p[2] * (p[3] - p[0]))),
    Family(
        "fraction_sum",
        _fractions,
        Calculation(lambda p: reduce(add, [a / b for a, b in _pairs(p)])),
        shown=lambda p: (" + ".join(rf"\frac{{{a}}}{{{b}}}" for a, b in _pairs(p)),),
        canonical=_pairs_in_order,
    ),
    Family(
        "percent_chain",
        _percent,
        Calculation(lambda p: reduce(lambda value, change: value * (100 + change) / 100, p)),
        shown=_changes,
        canonical=lambda p: (p[0], *sorted(p[1:])),
    ),
    Family(
        "base_value", _base, Calculation(_base_value), shown=lambda p: (_digits(p[1], p[0]), p[0])
    ),
    Family("missing_mark", _mean, Calculation(lambda p: p[2] * (p[0] + 1) - p[1] * p[0])),
    Family(
        "joint_work",
        lambda rng, d: tuple(rng.randint(2, 16 + 8 * d) for _ in range(2 + d // 3)),
        Calculation(lambda p: 1 / reduce(add, [1 / hours for hours in p])),
        shown=lambda p: (len(p), listed(p)),
        canonical=_in_order,
    ),
    Family(
        "linear_equation",
        _equation,
        Calculation(lambda p: (p[3] - p[1]) / (p[0] - p[2])),
        shown=lambda p: (polynomial(p[:2]), polynomial(p[2:])),
    ),
)


# ---- divisibility and remainders


def _several(rng: random.Random, difficulty: int) -> Params:
    factor = rng.choice((1, 2, 3, 4, 6))
    bound = 10 + 15 * difficulty
    return tuple(factor * rng.randint(2, bound) for _ in range(2 + difficulty // 2))


def _power(rng: random.Random, difficulty: int) -> Params:
    base, exponent = rng.randint(2, 9 + 10 * difficulty), rng.randint(5, 4**difficulty + 20)
    return (base, exponent, rng.randint(5, 20 + 30 * difficulty))


def _congruence(rng: random.Random, difficulty: int) -> Params:
    modulus = rng.randint(7, 12 + 30 * difficulty)
    factor = rng.choice([a for a in range(2, modulus) if math.gcd(a, modulus) == 1])
    return (factor, rng.randint(1, modulus - 1), modulus)


def _two_remainders(rng: random.Random, difficulty: int) -> Params:
    m = rng.randint(3, 8 + 9 * difficulty)
    n = rng.choice([k for k in range(m + 1, 2 * m + 9) if math.gcd(k, m) == 1])
    return (rng.randrange(m), m, rng.randrange(n), n)


def _two_remainders_value(params: Params) -> int:
    a, m, b, n = params
    return (a + m * ((b - a) * pow(m, -1, n) % n)) % (m * n)


def _composite(rng: random.Random, difficulty: int) -> Params:
    primes = (2, 3, 5, 7, 11, 13, 17, 19)
    number = math.prod(rng.choice(primes[: 3 + difficulty]) for _ in range(2 + difficulty))
    return (number * rng.randint(1, 29),)


def _factors(number: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    prime = 2
    while number > 1:
        power = 0
        while number % prime == 0:
            number //= prime
            power += 1
        if power:
            found.append((prime, power))
        prime += 1
    return found


def _zeros(params: Params) -> int:
    zeros, power = 0, 5
    while power <= params[0]:
        zeros += params[0] // power
        power *= 5
    return zeros


NUMBER_THEORY = (
    Family(
        "least_common_multiple",
        _several,
        lambda p: math.lcm(*p),
        shown=lambda p: (listed(p),),
        canonical=_in_order,
    ),
    Family("power_remainder", _power, lambda p: pow(*p)),
    Family("linear_congruence", _congruence, lambda p: p[1] * pow(p[0], -1, p[2]) % p[2]),
    Family("two_remainders", _two_remainders, _two_remainders_value),
    Family("divisor_number", _composite, lambda p: math.prod(k + 1 for _, k in _factors(p[0]))),
    Family(
        "divisor_sum",
        _composite,
        lambda p: math.prod((q ** (k + 1) - 1) // (q - 1) for q, k in _factors(p[0])),
    ),
    Family("factorial_zeros", lambda rng, d: (rng.randint(10, 60 * 4**d),), _zeros),
    Family(
        "coprime_numbers",
        _composite,
        lambda p: math.prod(q ** (k - 1) * (q - 1) for q, k in _factors(p[0])),
    ),
    Family(
        "power_digit_sum",
        lambda rng, d: (rng.randint(2, 30), rng.randint(3 * d, 8 * d + 4)),
        lambda p: sum(map(int, str(p[0] ** p[1]))),
    ),
)


# ---- counting and chance


def _committee(rng: random.Random, difficulty: int) -> Params:
    women, men = (rng.randint(4, 6 + 3 * difficulty) for _ in range(2))
    return (women, men, rng.randint(1, min(women, 1 + difficulty)), rng.randint(1, 2))


def _shares(rng: random.Random, difficulty: int) -> Params:
    parts = rng.randint(3, 4 + difficulty)
    least = rng.randint(0, difficulty)
    return (parts, least, parts * least + rng.randint(4, 12 + 6 * difficulty))


def _paths(rng: random.Random, difficulty: int) -> Params:
    east, north = (rng.randint(3, 4 + 2 * difficulty) for _ in range(2))
    return (east, north, rng.randint(1, east - 1), rng.randint(1, north - 1))


def _paths_value(params: Params) -> int:
    east, north, x, y = params
    # Ways through the point are ways to it times ways from it.
    through = math.comb(x + y, x) * math.comb(east - x + north - y, east - x)
    return math.comb(east + north, east) - through


def _marbles(rng: random.Random, difficulty: int) -> Params:
    red, blue = (rng.randint(3, 4 + 3 * difficulty) for _ in range(2))
    drawn = rng.randint(2, min(red + blue - 1, 2 + difficulty))
    wanted = rng.randint(max(0, drawn - blue), min(red, drawn))
    return (red, blue, drawn, wanted)


def _marbles_value(params: Params) -> Fraction:
    red, blue, drawn, wanted = params
    good = math.comb(red, wanted) * math.comb(blue, drawn - wanted)
    return Fraction(good, math.comb(red + blue, drawn))


def _multiples(rng: random.Random, difficulty: int) -> Params:
    divisors = rng.sample(range(2, 8 + 4 * difficulty), 2 + difficulty // 3)
    return (rng.randint(30, 40 * 3**difficulty), *divisors)


def _multiples_value(params: Params) -> int:
    limit, *divisors = params
    # Inclusion and exclusion: multiples of several divisors would be counted more than once.
    return sum(
        (-1) ** (size + 1) * (limit // math.lcm(*chosen))
        for size in range(1, len(divisors) + 1)
        for chosen in combinations(divisors, size)
    )


def _fixed(rng: random.Random, difficulty: int) -> Params:
    people = rng.randint(4, 5 + 2 * difficulty)
    # There are few such counts: the number that is added makes many questions of them.
    return (people, rng.randint(0, people - 2), rng.randint(0, 999))


def _fixed_value(params: Params) -> int:
    rest = params[0] - params[1]
    # Derangements of the rest: nobody else may get their own hat.
    none = sum((-1) ** k * math.factorial(rest) // math.factorial(k) for k in range(rest + 1))
    return math.comb(params[0], params[1]) * none + params[2]


def _dice(rng: random.Random, difficulty: int) -> Params:
    dice, faces = rng.randint(2, 2 + difficulty // 2), rng.randint(4, 12 + 2 * difficulty)
    return (dice, faces, rng.randint(dice, dice * faces))


def _dice_value(params: Params) -> Fraction:
    dice, faces, total = params
    # Inclusion and exclusion over dice that would show more than they have faces.
    ways = sum(
        (-1) ** k * math.comb(dice, k) * math.comb(total - faces * k - 1, dice - 1)
        for k in range((total - dice) // faces + 1)
    )
    return Fraction(ways, faces**dice)


COMBINATORICS = (
    Family("committee", _committee, lambda p: math.comb(p[0], p[2]) * math.comb(p[1], p[3])),
    Family(
        "letter_orders",
        lambda rng, d: tuple(rng.randint(1, 4) for _ in range(rng.randint(3, 3 + d))),
        lambda p: math.factorial(sum(p)) // math.prod(map(math.factorial, p)),
        shown=lambda p: ("".join(a * n for a, n in zip("ABCDEFGH", p, strict=False)),),
        canonical=_in_order,
    ),
    Family(
        "equal_coins_shares", _shares, lambda p: math.comb(p[2] - p[0] * p[1] + p[0] - 1, p[0] - 1)
    ),
    Family(
        "paths_around", _paths, _paths_value, canonical=lambda p: min(p, (p[1], p[0], p[3], p[2]))
    ),
    Family("drawn_marbles", _marbles, _marbles_value),
    Family(
        "multiples_of_any",
        _multiples,
        _multiples_value,
        shown=lambda p: (p[0], listed(p[1:])),
        canonical=lambda p: (p[0], *sorted(p[1:])),
    ),
    Family("hats_returned", _fixed, _fixed_value),
    Family("dice_total", _dice, _dice_value),
)


# ---- equations and polynomials


def _system(rng: random.Random, difficulty: int) -> Params:
    bound = 3 + 3 * difficulty
    while True:
        a, b, d, e = (nonzero(rng, bound) for _ in range(4))
        # Lines that are not parallel have exactly one point in common.
        if a * e != b * d:
            x, y = rng.randint(-3 * bound, 3 * bound), rng.randint(-3 * bound, 3 * bound)
            return (a, b, a * x + b * y, d, e, d * x + e * y)


def _system_value(params: Params) -> str:
    a, b, c, d, e, f = params
    det = a * e - b * d
    return f"({latex(Fraction(c * e - b * f, det))},{latex(Fraction(a * f - c * d, det))})"


def _system_shown(params: Params) -> Sequence[object]:
    a, b, c, d, e, f = params
    return (combination((a, "x"), (b, "y")), c, combination((d, "x"), (e, "y")), f)


def _roots(rng: random.Random, difficulty: int) -> Params:
    bound = 8 + 6 * difficulty
    first = rng.randint(-bound, bound)
    # A double root would be one answer where two are asked for.
    second = rng.choice([r for r in range(-bound, bound + 1) if r != first])
    scale = rng.randint(1, difficulty)
    return (scale, *sorted((first, second)))


def _quadratic(params: Params) -> Sequence[object]:
    scale, r, s = params
    return (polynomial((scale, -scale * (r + s), scale * r * s)),)


def _division(rng: random.Random, difficulty: int) -> Params:
    root, first = nonzero(rng, 2 + difficulty), nonzero(rng, 3 + difficulty)
    return (root, first, *(nonzero(rng, 9) for _ in range(difficulty + 2)))


def _symmetric(rng: random.Random, difficulty: int) -> Params:
    total, product = nonzero(rng, 4 + 2 * difficulty), nonzero(rng, 4 + 3 * difficulty)
    return (total, product, rng.randint(2, 2 + difficulty))


def _power_sum(params: Sequence[Any]) -> Any:
    total, product, power = params
    # Newton's identity: no root is ever calculated, so that complex ones do no harm.
    sums = [2, total]
    while len(sums) <= int(power):
        sums.append(total * sums[-1] - product * sums[-2])
    return sums[-1]


def _composed(rng: random.Random, difficulty: int) -> Params:
    bound = 2 + 2 * difficulty
    return (*(nonzero(rng, bound) for _ in range(5)), rng.randint(-bound, bound))


def _composed_value(params: Sequence[Any]) -> Any:
    a, b, c, d, e, x = params
    inner = c * x * x + d * x + e
    return a * inner + b


ALGEBRA = (
    Family(
        "two_equations",
        _system,
        _system_value,
        shown=_system_shown,
        canonical=lambda p: min(p, p[3:] + p[:3]),
    ),
    Family("both_roots", _roots, lambda p: f"{p[1]},{p[2]}", shown=_quadratic),
    Family("negative_values", _roots, lambda p: f"[{p[1]},{p[2]}]", shown=_quadratic),
    Family(
        "polynomial_remainder",
        _division,
        Calculation(lambda p: reduce(lambda value, factor: value * p[0] + factor, p[1:])),
        shown=lambda p: (polynomial(p[1:]), polynomial((1, -p[0]))),
    ),
    Family("power_sum", _symmetric, Calculation(_power_sum)),
    Family(
        "root_reciprocals",
        lambda rng, d: (nonzero(rng, 2 * d), nonzero(rng, 9 * d), nonzero(rng, 9 * d)),
        Calculation(lambda p: -1 * p[1] / p[2]),
        shown=lambda p: (polynomial(p),),
    ),
    Family(
        "composed_functions",
        _composed,
        Calculation(_composed_value),
        shown=lambda p: (polynomial(p[:2]), polynomial(p[2:5]), p[5]),
    ),
)


# ---- sequences and sums


def _series(rng: random.Random, difficulty: int) -> Params:
    bound = 5 + 10 * difficulty
    return (rng.randint(-bound, bound), nonzero(rng, bound), rng.randint(8, 10 * 2**difficulty))


def _geometric(rng: random.Random, difficulty: int) -> Params:
    term, top = rng.randint(1, 6 * difficulty), nonzero(rng, 2 + difficulty)
    return (term, top, rng.randint(2, 5 + difficulty), rng.randint(3, 4 + difficulty))


def _geometric_value(params: Sequence[Any]) -> Any:
    term, top, bottom, count = params
    ratio, total = top / bottom, term
    for _ in range(int(count) - 1):
        term = term * ratio
        total = total + term
    return total


def _recurrence(rng: random.Random, difficulty: int) -> Params:
    bound = 2 + difficulty
    factors = (nonzero(rng, bound), nonzero(rng, bound))
    starts = (rng.randint(-bound, bound), nonzero(rng, bound))
    return (*factors, *starts, rng.randint(4 + difficulty, 5 + 3 * difficulty))


def _recurrence_value(params: Sequence[Any]) -> Any:
    p, q, first, second, index = params
    terms = [first, second]
    while len(terms) < int(index):
        terms.append(p * terms[-1] + q * terms[-2])
    return terms[-1]


def _telescope_value(params: Params) -> Fraction:
    gap, count = params
    # All terms between the first and the last `gap` cancel.
    kept = sum((Fraction(1, k) - Fraction(1, count + k) for k in range(1, gap + 1)), Fraction(0))
    return kept / gap


def _powers(rng: random.Random, difficulty: int) -> Params:
    factor, term = rng.randint(1, 9), nonzero(rng, 9)
    return (factor, term, rng.randint(2, 3), rng.randint(5, 8 + 12 * difficulty))


def _powers_value(params: Params) -> int:
    a, b, power, n = params
    squares = n * (n + 1) * (2 * n + 1) // 6
    cubes = (n * (n + 1) // 2) ** 2
    return a * (squares if power == 2 else cubes) + b * n


def _repeating(rng: random.Random, difficulty: int) -> Params:
    # A period of nines would be an integer in disguise: the largest number is left out.
    length = 2 + difficulty // 2
    return (length, rng.randint(1, 10**length - 2), rng.randint(0, 3 * difficulty))


SEQUENCES = (
    Family(
        "arithmetic_series",
        _series,
        Calculation(lambda p: p[2] * (2 * p[0] + (p[2] - 1) * p[1]) / 2),
    ),
    Family(
        "geometric_series",
        _geometric,
        Calculation(_geometric_value),
        shown=lambda p: (p[0], latex(Fraction(p[1], p[2])), p[3]),
        canonical=lambda p: (p[0], *Fraction(p[1], p[2]).as_integer_ratio(), p[3]),
    ),
    Family(
        "recurrence_term",
        _recurrence,
        Calculation(_recurrence_value),
        shown=lambda p: (p[2], p[3], combination((p[0], "a_{n-1}"), (p[1], "a_{n-2}")), p[4]),
    ),
    Family(
        "telescoping_sum",
        lambda rng, d: (rng.randint(1, 2 + d), rng.randint(4, 30 + 30 * d)),
        _telescope_value,
    ),
    Family(
        "power_total",
        _powers,
        _powers_value,
        shown=lambda p: (p[3], combination((p[0], f"k^{p[2]}"), (p[1], ""))),
    ),
    Family(
        "repeating_decimal",
        _repeating,
        Calculation(lambda p: p[2] + p[1] / (10 ** int(p[0]) - 1)),
        canonical=lambda p: (p[2], *Fraction(p[1], 10 ** p[0] - 1).as_integer_ratio()),
        form="fraction",
    ),
)


# ---- lengths, areas and angles


def _triangle(rng: random.Random, difficulty: int) -> Params:
    bound = 3 + 4 * difficulty
    while True:
        corners = tuple(rng.randint(-bound, bound) for _ in range(6))
        # Three corners on one line are not a triangle.
        if _doubled_area(corners):
            return corners


def _doubled_area(params: Params) -> int:
    ax, ay, bx, by, cx, cy = params
    return abs((bx - ax) * (cy - ay) - (cx - ax) * (by - ay))


def _corners(params: Params) -> Sequence[object]:
    return (", ".join(f"$({x},{y})$" for x, y in _pairs(params)),)


def _inside(params: Params) -> int:
    corners = _pairs(params)
    edges = zip(corners, corners[1:] + corners[:1], strict=True)
    # Pick's theorem: what lies inside follows from the area and the points on the border.
    border = sum(math.gcd(bx - ax, by - ay) for (ax, ay), (bx, by) in edges)
    return (_doubled_area(params) - border + 2) // 2


def _root(squares: Iterable[int]) -> str:
    square = sum(squares)
    # The largest square comes out, so that there is one simplest form.
    outside = max(k for k in range(1, math.isqrt(square) + 1) if square % (k * k) == 0)
    inside = square // outside**2
    if inside == 1:
        return str(outside)
    return ("" if outside == 1 else str(outside)) + rf"\sqrt{{{inside}}}"


def _ring(rng: random.Random, difficulty: int) -> Params:
    inner = rng.randint(1, 10 + 20 * difficulty)
    return (inner, rng.randint(inner + 1, 2 * inner + 15))


def _right(rng: random.Random, difficulty: int) -> Params:
    # Euclid's formula: all three sides are integers, and so is the radius.
    m = rng.randint(2, 5 + 2 * difficulty)
    n = rng.randint(1, m - 1)
    return (m * m - n * n, 2 * m * n, rng.randint(1, 9 + 3 * difficulty))


def _legs(params: Params) -> Params:
    return (params[0] * params[2], params[1] * params[2])


GEOMETRY = (
    Family(
        "triangle_area",
        _triangle,
        lambda p: Fraction(_doubled_area(p), 2),
        shown=_corners,
        canonical=_pairs_in_order,
    ),
    Family("points_inside", _triangle, _inside, shown=_corners, canonical=_pairs_in_order),
    Family(
        "box_diagonal",
        lambda rng, d: tuple(rng.randint(1, 4 + 4 * d) for _ in range(3)),
        lambda p: _root(side * side for side in p),
        canonical=_in_order,
    ),
    Family("ring_area", _ring, lambda p: rf"{p[1] ** 2 - p[0] ** 2}\pi"),
    Family(
        "polygon_angle",
        lambda rng, d: (rng.randint(5, 150 * d),),
        Calculation(lambda p: 180 * (p[0] - 2) / p[0]),
    ),
    Family(
        "tree_shadow",
        lambda rng, d: tuple(rng.randint(2, 8 + 9 * d) for _ in range(3)),
        Calculation(lambda p: p[0] * p[2] / p[1]),
    ),
    Family(
        "inscribed_circle",
        _right,
        lambda p: (p[0] + p[1] - math.isqrt(p[0] ** 2 + p[1] ** 2)) * p[2] // 2,
        shown=_legs,
        canonical=lambda p: _in_order(_legs(p)),
    ),
)

FAMILIES = (*ARITHMETIC, *NUMBER_THEORY, *COMBINATORICS, *ALGEBRA, *SEQUENCES, *GEOMETRY)
"""All families, by topic."""
