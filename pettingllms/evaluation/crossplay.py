"""Cross-play: teams whose members come from different runs.

For every two runs i and j and every player (a role, or an agent of a team of one role), a team of j
plays with i's policy in the place of that player; beside them every run's own team plays. All teams
play the same levels with the same chance. With two players one of them is enough: the cell (i, j)
then has the first player of i and the second of j.

- *Competence* of a run's player: the success of teams of other runs that it joins.
- *Coordination*: success within a run minus success across runs. What a member contributes whoever
  plays with it is in both means equally often, so that it cancels. What is left is that members
  who were trained together play better together than with strangers.
- *Clash* of two runs: success of the weaker of their two teams minus that of their mixed teams.
  Also where everybody must be good (success is a product of competences, not their sum) mixed teams
  are on average no worse than the weaker team. If they surely are, the runs follow different
  conventions.

Intervals treat levels as the independent draws; they are about these runs, not about others that
could have been trained. Every one holds by itself.

Source:
    Hu et al., "Other-Play" (arXiv 2003.02979), for the matrix; the clash is ours.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, permutations
from typing import Any, NamedTuple

from pettingllms.errors import InvalidArgument
from pettingllms.evaluation.blame import players_of
from pettingllms.evaluation.episode import EpisodeResult
from pettingllms.evaluation.plan import EvaluationPlan, policy_of
from pettingllms.evaluation.report import (
    by_content,
    compare,
    figures_json,
    share,
    share_difference,
    solved_of,
)
from pettingllms.evaluation.sides import RunTeam, task_table
from pettingllms.evaluation.statistics import Interval, clustered_share
from pettingllms.tables import Block, TextTable
from pettingllms.trust import Name

FILE = "crossplay.json"
FORMAT = "pettingllms-crossplay"
VERSION = 1


class Cell(NamedTuple):
    """A team: a run's own, or with one player of another run."""

    player: str | None
    """The player that comes from another run; None in a run's own team."""
    member: str
    """Name of the run that this player comes from."""
    team: str
    """Name of the run of all other players."""

    @property
    def variant(self) -> str:
        """Name of the team as a variant of the evaluation."""
        return self.team if self.player is None else f"{self.team}, {self.player} of {self.member}"


@dataclass(frozen=True, kw_only=True, slots=True)
class PairFigures:
    """How two runs play together; success in [0, 1], with 95 % intervals."""

    runs: tuple[str, str]
    """Their names."""
    cross: Interval
    """Success of their mixed teams."""
    coordination: Interval
    """Success of their own teams minus that of mixed ones."""
    clash: Interval
    """Success of the weaker team minus that of mixed ones; above 0: different conventions."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CrossPlay:
    """How the members of runs play together; success in [0, 1], with 95 % intervals."""

    runs: Sequence[str]
    """Their names, in the order of the tables."""
    cells: Mapping[Cell, Interval]
    """Team -> its success."""
    within: Interval
    """Success of the runs' own teams."""
    cross: Interval
    """Success of mixed teams."""
    coordination: Interval
    """`within` minus `cross`."""
    competence: Mapping[str, Mapping[str, Interval]]
    """Player -> run -> success of the other runs' teams that this run's player joins."""
    pairs: Sequence[PairFigures]
    """One for every two runs."""

    @property
    def conventions(self) -> list[tuple[str, str]]:
        """Pairs of runs whose clash is above 0, with its whole interval."""
        return [pair.runs for pair in self.pairs if pair.clash.low > 0]

    def to_json(self) -> dict[str, Any]:
        """The figures as JSON data; intervals are objects."""
        return {
            "format": FORMAT,
            "version": VERSION,
            **figures_json(self),
            "cells": [
                {**cell._asdict(), "success": figures_json(value)}
                for cell, value in self.cells.items()
            ],
            "conventions": self.conventions,
        }

    def parts(self) -> list[Block]:
        """The figures as tables."""
        players = list(self.competence)
        moving = list(dict.fromkeys(cell.player for cell in self.cells if cell.player))
        parts: list[Block] = ["# Cross-play", verdict(self)]
        for player in moving:
            others = players[1] if len(players) == 2 else "all others"
            parts += [f"## {player} of the row, {others} of the column", _matrix(self, player)]
        pairs = [
            [
                " and ".join(pair.runs),
                share(pair.cross),
                share_difference(pair.coordination),
                share_difference(pair.clash),
            ]
            for pair in self.pairs
        ]
        head = ["runs", "mixed teams", "coordination", "clash"]
        competence = [
            [run, *[share(self.competence[player][run]) for player in players]] for run in self.runs
        ]
        return [
            *parts,
            "## Pairs",
            TextTable(head, pairs),
            "## Competence: success among strangers",
            TextTable(["run", *players], competence),
        ]


def cells_of(runs: Sequence[str], agents: Sequence[str]) -> list[Cell]:
    """All teams: the runs' own, then those with a player from elsewhere.

    Raises:
        InvalidArgument: If there are fewer than 2 runs or players, or a name is given twice.
    """
    if len(set(runs)) != len(runs) or len(runs) < 2:
        raise InvalidArgument("runs", list(runs), "at least two, each once")
    players = list(players_of(agents))
    if len(players) < 2:
        raise InvalidArgument("team", list(agents), "a team of at least two agents")
    # With two players the cell (i, j) with the other one moved is the cell (j, i).
    moving = players[:1] if len(players) == 2 else players
    own = [Cell(None, run, run) for run in runs]
    return own + [Cell(p, member, team) for p in moving for member, team in permutations(runs, 2)]


def crossplay_plan(
    teams: Mapping[str, RunTeam],
    agents: Sequence[str],
    *,
    seed: int,
    num_levels: int,
    num_samples: int,
) -> EvaluationPlan:
    """The evaluation in which all teams play.

    Raises:
        InvalidArgument: If runs play unlike tasks, or sample differently.
    """
    cells = cells_of(list(teams), agents)
    first = next(iter(teams.values()))
    for name, team in teams.items():
        _check_alike(first, team, name)
    players = players_of(agents)
    return EvaluationPlan(
        env_id=first.env_id,
        variants={cell.variant: _assignment(cell, teams, players) for cell in cells},
        env_kwargs=first.env_kwargs,
        options=first.options,
        sampling=first.sampling,
        seed=seed,
        num_levels=num_levels,
        num_samples=num_samples,
    )


def _assignment(
    cell: Cell, teams: Mapping[str, RunTeam], players: Mapping[str, Sequence[str]]
) -> dict[str, Name]:
    def run(player: str) -> str:
        return cell.member if player == cell.player else cell.team

    return {
        agent: policy_of(teams[run(player)].policies, agent)
        for player, agents in players.items()
        for agent in agents
    }


def _check_alike(first: RunTeam, other: RunTeam, name: str) -> None:
    one, two = (
        task_table(team.env_id, team.env_kwargs, team.options) | {"sampling": dict(team.sampling)}
        for team in (first, other)
    )
    differing = [key for key in {**one, **two} if one.get(key) != two.get(key)]
    if differing:
        raise InvalidArgument(
            "runs",
            f"{name}, whose {', '.join(differing)} differs",
            "runs of one task that sample alike",
            "Evaluate the teams with the same settings first, and name these evaluations.",
        )


def cross_play(
    runs: Sequence[str], agents: Sequence[str], results: Iterable[EpisodeResult]
) -> CrossPlay:
    """The figures of a cross-play.

    Raises:
        InvalidArgument: If a team has not played yet.
    """
    cells = cells_of(runs, agents)
    plays: dict[str, list[EpisodeResult]] = {cell.variant: [] for cell in cells}
    for result in results:
        plays[result.variant].append(result)
    if missing := [name for name, own in plays.items() if not own]:
        raise InvalidArgument("results", f"no episode of {missing[0]}", "all teams have played")

    def of(chosen: Iterable[Cell]) -> list[EpisodeResult]:
        return [play for cell in chosen for play in plays[cell.variant]]

    own, mixed = cells[: len(runs)], cells[len(runs) :]
    # Level by level: what makes a level hard for everybody cancels.
    both = compare(of(mixed), of(own))
    return CrossPlay(
        runs=runs,
        cells={cell: _share(plays[cell.variant]) for cell in cells},
        within=both.second_success,
        cross=both.first_success,
        coordination=both.success.difference,
        competence=_competence(runs, agents, mixed, plays),
        pairs=[_pair(pair, own, mixed, plays) for pair in combinations(runs, 2)],
    )


Plays = Mapping[str, list[EpisodeResult]]


def _share(results: Iterable[EpisodeResult]) -> Interval:
    return clustered_share(*solved_of(by_content(results)))


def _pair(
    runs: tuple[str, str], own: Sequence[Cell], mixed: Sequence[Cell], plays: Plays
) -> PairFigures:
    across = [p for c in mixed if {c.member, c.team} == set(runs) for p in plays[c.variant]]
    teams = [plays[cell.variant] for cell in own if cell.team in runs]
    both = compare(across, [play for team in teams for play in team])
    # Against the mean of both, any difference of competence would look like a clash.
    weaker = min(teams, key=lambda team: _share(team).value)
    return PairFigures(
        runs=runs,
        cross=both.first_success,
        coordination=both.success.difference,
        clash=compare(across, weaker).success.difference,
    )


def _competence(
    runs: Sequence[str], agents: Sequence[str], mixed: Sequence[Cell], plays: Plays
) -> dict[str, dict[str, Interval]]:
    players = list(players_of(agents))

    def joins(player: str, run: str, cell: Cell) -> bool:
        # Of two players the second of a cell's team joins the first of another run.
        if len(players) == 2 and player != cell.player:
            return cell.team == run
        return cell.player == player and cell.member == run

    return {
        player: {
            run: _share(p for c in mixed if joins(player, run, c) for p in plays[c.variant])
            for run in runs
        }
        for player in players
    }


def verdict(found: CrossPlay) -> str:
    """In two sentences what was found."""
    text = (
        f"Own teams solve {share(found.within)}, mixed teams {share(found.cross)}: coordination is "
        f"worth {share_difference(found.coordination)}."
    )
    if found.conventions:
        names = "; ".join(" and ".join(pair) for pair in found.conventions)
        return f"{text} Clearly different conventions: {names}."
    return f"{text} No pair of runs clearly follows different conventions."


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
