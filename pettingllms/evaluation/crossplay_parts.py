"""A cross-play as headings, paragraphs and tables."""

from __future__ import annotations

from pettingllms.evaluation.crossplay import Cell, CrossPlay
from pettingllms.evaluation.presentation import share, share_difference
from pettingllms.tables import Block, TextTable


def crossplay_parts(found: CrossPlay) -> list[Block]:
    """Return the figures of a cross-play."""
    players = list(found.competence)
    moving = list(dict.fromkeys(cell.player for cell in found.cells if cell.player))
    parts: list[Block] = ["# Cross-play", verdict(found)]
    for player in moving:
        others = players[1] if len(players) == 2 else "all others"
        parts += [f"## {player} of the row, {others} of the column", _matrix(found, player)]
    pairs = [
        [
            " and ".join(pair.runs),
            share(pair.cross),
            share_difference(pair.coordination),
            share_difference(pair.clash),
        ]
        for pair in found.pairs
    ]
    head = ["runs", "mixed teams", "coordination", "clash"]
    competence = [
        [run, *[share(found.competence[player][run]) for player in players]] for run in found.runs
    ]
    return [
        *parts,
        "## Pairs",
        TextTable(head, pairs),
        "## Competence: success among strangers",
        TextTable(["run", *players], competence),
    ]


def verdict(found: CrossPlay) -> str:
    """Return in two sentences what was found."""
    text = (
        f"Own teams solve {share(found.within)}, mixed teams {share(found.cross)}: coordination is "
        f"worth {share_difference(found.coordination)}."
    )
    if found.conventions:
        names = "; ".join(" and ".join(pair) for pair in found.conventions)
        return f"{text} Different conventions, surely: {names}."
    return f"{text} No pair of runs surely follows different conventions."


def _matrix(found: CrossPlay, player: str) -> TextTable:
    rows = [
        [
            member,
            *[
                share(found.cells[Cell(player if member != team else None, member, team)])
                for team in found.runs
            ],
        ]
        for member in found.runs
    ]
    return TextTable(["", *found.runs], rows)
