"""The argument `levels=` of the games: level texts, or files that hold levels."""

from __future__ import annotations

import glob
from collections.abc import Callable, Sequence
from os.path import isfile
from pathlib import Path
from typing import TypeVar, cast

from pettingllms.arguments import check_kind, check_texts
from pettingllms.errors import InvalidArgument, LevelFormatError

LevelT = TypeVar("LevelT")

_ALLOWED = "a path or pattern of level files, or a list of at least one level text"


def read_levels(
    levels: str | Path | Sequence[str],
    read_file: Callable[[str], Sequence[LevelT]],
    read_one: Callable[[str], LevelT],
) -> tuple[LevelT, ...]:
    """The levels that an environment was given.

    They are texts, or a path or glob pattern of UTF-8 files, which are read in sorted order.

    Raises:
        InvalidArgument: If no file matches, or the list is empty or holds something else.
        LevelFormatError: If a level is ill-formed; in a file, the message begins with its path.
    """
    if not isinstance(levels, str | Path):
        check_texts("levels", levels, _ALLOWED)
        if not levels:
            raise InvalidArgument("levels", levels, _ALLOWED)
        return tuple(read_one(text) for text in levels)
    # The name of a file may look like a pattern.
    names = [str(levels)] if isfile(levels) else sorted(glob.glob(str(levels), recursive=True))
    paths = [name for name in names if isfile(name)]
    if not paths:
        raise InvalidArgument("levels", str(levels), _ALLOWED, "No file matches.")
    found: list[LevelT] = []
    for path in paths:
        try:
            found += read_file(Path(path).read_text(encoding="utf-8"))
        except LevelFormatError as error:
            error.args = (f"{path}: {error}",)
            raise
        except UnicodeDecodeError as error:
            raise InvalidArgument("levels", path, f"files in UTF-8 ({error})") from error
    return tuple(found)


def read_blocks(
    text: str,
    read_one: Callable[[str], LevelT],
    allowed: str,
    is_remark: Callable[[str], object] = lambda line: False,
) -> list[LevelT]:
    """Read the text of a file whose levels are divided by blank lines, and by lines with a remark.

    What `read_one` is given begins with as many line breaks as the level has lines before it, so
    that errors name the line of the file.

    Raises:
        LevelFormatError: As `read_one`, or if there is no level.
    """
    blocks: list[str] = []
    is_open = False
    for number, line in enumerate(text.split("\n")):
        is_inside = bool(line.strip()) and not is_remark(line)
        if is_inside and is_open:
            blocks[-1] += f"\n{line}"
        elif is_inside:
            blocks.append("\n" * number + line)
        is_open = is_inside
    if not blocks:
        raise LevelFormatError("the file holds no level", allowed=allowed)
    return [read_one(block) for block in blocks]


def read_lines(
    text: str,
    read_one: Callable[[str, int], LevelT],
    allowed: str,
    is_remark: Callable[[str], object] = lambda line: False,
) -> list[LevelT]:
    """Read the text of a file with a level a line; `read_one` gets its number, from 1, too.

    Raises:
        LevelFormatError: As `read_one`, or if there is no level.
    """
    levels = [
        read_one(line, number)
        for number, line in enumerate(text.split("\n"), 1)
        if line.strip() and not is_remark(line)
    ]
    if not levels:
        raise LevelFormatError("the file holds no level", allowed=allowed)
    return levels


def read_level_option(level: object, read_one: Callable[[str], LevelT]) -> LevelT:
    """The level of `reset(options={"level": text})`.

    Raises:
        InvalidArgument: If it is not a text.
        LevelFormatError: If it is ill-formed.
    """
    check_kind("level", level, str, "the text of a level")
    return read_one(cast("str", level))
