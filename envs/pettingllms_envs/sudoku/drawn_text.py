"""Drawn rules as text: what prompts show, what programs read, and what stands behind the clues."""

from __future__ import annotations

import re

from pettingllms.errors import LevelFormatError
from pettingllms_envs.sudoku.drawn import SIZES
from pettingllms_envs.sudoku.drawn_solver import Rules, is_connected
from pettingllms_envs.sudoku.solver import geometry

_BOXES = r"\[\[\d{1,2}(?:,\d{1,2}|\],\[\d{1,2})*\]\]"
_CAGE = r"\[\d{1,3}(?:,\[\d{1,2},\d{1,2}\])+\]"
_RULES = re.compile(
    rf"(?:\s+boxes ({_BOXES}))?(?:\s+cages (\[{_CAGE}(?:,{_CAGE})*\]))?(\s+diagonals)?\s*", re.ASCII
)
_FORMAT = "boxes [[1,1,2,2],...], cages [[7,[1,1],[1,2]],...] and diagonals, in this order"


def rules_lines(size: int, rules: Rules | None) -> list[str]:
    """A line for each drawn rule, as `read_rules` reads them; none without rules."""
    lines: list[str] = []
    if rules is None:
        return lines
    if rules.boxes != geometry(size).boxes:
        numbers = [str(box + 1) for box in rules.boxes]
        rows = (",".join(numbers[at : at + size]) for at in range(0, size * size, size))
        lines.append("boxes [" + ",".join(f"[{row}]" for row in rows) + "]")
    if rules.cages:
        cages = (
            ",".join([str(total), *(f"[{cell // size + 1},{cell % size + 1}]" for cell in cells)])
            for total, cells in rules.cages
        )
        lines.append("cages [" + ",".join(f"[{cage}]" for cage in cages) + "]")
    return lines + ["diagonals"] * rules.diagonals


def read_rules(size: int, text: str, line: int) -> Rules | None:
    """Read the rules behind the clues; None if the text has none. Errors name `line`.

    Raises:
        LevelFormatError: If it is no list of rules, the size has none, boxes are not n connected
            groups of n cells, or cages are not connected, overlap or have more than n cells.
    """
    if not text.strip():
        return None
    found = _RULES.fullmatch(text)
    if found is None:
        raise LevelFormatError("no rules in the form that is read", line, 0, _FORMAT)
    if size not in SIZES:
        raise LevelFormatError(f"rules of a {size}x{size} grid", line, 0, f"n one of {SIZES}")
    boxes = geometry(size).boxes
    if found[1]:
        boxes = tuple(int(number) - 1 for number in re.findall(r"\d+", found[1]))
        groups = [[at for at, box in enumerate(boxes) if box == one] for one in range(size)]
        if not (
            len(boxes) == size * size
            and all(len(one) == size and is_connected(size, one) for one in groups)
        ):
            allowed = f"{size} connected boxes of {size} cells, numbered from 1"
            raise LevelFormatError("boxes that are no boxes", line, 0, allowed)
    cages = [tuple(map(int, re.findall(r"\d+", one))) for one in re.findall(_CAGE, found[2] or "")]
    read = tuple(
        (
            total,
            tuple((row - 1) * size + col - 1 for row, col in zip(*[iter(rest)] * 2, strict=True)),
        )
        for total, *rest in cages
    )
    taken = [cell for _, cells in read for cell in cells]
    inside = all(1 <= number <= size for _, *rest in cages for number in rest)
    if not (
        inside
        and len({*taken}) == len(taken)
        and all(len(cells) <= size and is_connected(size, cells) for _, cells in read)
    ):
        allowed = f"connected cells of the grid, at most {size}, none in two cages"
        raise LevelFormatError("cages that are no cages", line, 0, allowed)
    return Rules(boxes, read, bool(found[3]))
