r"""Units at the end of answers: `45\text{ hours}` is not 45 minutes."""

from __future__ import annotations

import re
from typing import NamedTuple

_NAMES = {
    "second": "s sec secs second seconds",
    "minute": "min mins minute minutes",
    "hour": "h hr hrs hour hours",
    "day": "day days",
    "week": "week weeks",
    "month": "month months",
    "year": "yr yrs year years",
    "millimetre": "mm millimeter millimeters millimetre millimetres",
    "centimetre": "cm centimeter centimeters centimetre centimetres",
    "metre": "m meter meters metre metres",
    "kilometre": "km kilometer kilometers kilometre kilometres",
    "inch": "inch inches",
    "foot": "ft foot feet",
    "yard": "yd yard yards",
    "mile": "mi mile miles",
    "milligram": "mg milligram milligrams",
    "gram": "g gram grams",
    "kilogram": "kg kilogram kilograms",
    "pound": "lb lbs pound pounds",
    "ounce": "oz ounce ounces",
    "millilitre": "ml mL milliliter milliliters millilitre millilitres",
    "litre": "l L liter liters litre litres",
    "cent": "cent cents",
    "dollar": "dollar dollars",
    "degree": r"degree degrees ^\circ ^{\circ}",
    "radian": "rad rads radian radians",
    "percent": r"percent % \%",
}
_UNITS = {spelling: name for name, words in _NAMES.items() for spelling in words.split()}
_POWERS = {"square": 2, "sq": 2, "cubic": 3}

_GAP = r"(?:\\[,;:! ]|~|\s)*"
_POWER = r"(?:\^\s*\{?([1-9])\}?)?"
_MACRO = r"\\(?:text|mathrm|textrm|textnormal|mbox|rm)\s*\{"
_ENDING = re.compile(
    rf"{_GAP}(?P<macro>{_MACRO}{_GAP})?(?:(?P<power>square|sq|cubic)\b\.?{_GAP})?"
    rf"(?P<unit>[A-Za-z]+|\\?%|\^\{{?\\circ\}}?){_POWER}\.?{_GAP}(?P<end>\}})?{_POWER}\s*"
)
_BEFORE = re.compile(r"(?<=[\d}])(?=\\[,;:! tmr%]|[~\sA-Za-z^%])")


class Unit(NamedTuple):
    """A unit of measure, with its power: `cm^2` is `("centimetre", 2)`."""

    name: str
    power: int


def unit_named(text: str) -> Unit | None:
    r"""Return the unit that a text names, such as `minute`, `\mathrm{cm}^2` or `%`, or None."""
    found = _ENDING.fullmatch(text.strip().strip("$"))
    return _unit(found) if found else None


def split_unit(text: str, *, is_quantity: bool) -> tuple[str, Unit | None]:
    r"""Return a text without the unit at its end, and the unit; the text itself where none is.

    Args:
        text: An answer such as `45\text{ minutes}`.
        is_quantity: Whether a unit is expected. If not, a single letter is a symbol (`5m`), unless
            it is marked as text, and a percentage is a number.
    """
    for gap in _BEFORE.finditer(text):
        found = _ENDING.fullmatch(text, gap.start())
        unit = _unit(found) if found else None
        if found is None or unit is None:
            continue
        is_symbol = found["macro"] is None and len(found["unit"]) == 1 and found["unit"].isalpha()
        if is_quantity or not (is_symbol or unit.name == "percent"):
            return text[: gap.start()], unit
    return text, None


def _unit(found: re.Match[str]) -> Unit | None:
    name = _UNITS.get(found["unit"])
    is_closed = (found["macro"] is None) == (found["end"] is None)
    if name is None or not is_closed:
        return None
    powers = [int(power) for power in (found[4], found[6]) if power]
    powers += [_POWERS[found["power"]]] if found["power"] else []
    return Unit(name, powers[0] if powers else 1) if len(powers) < 2 else None
