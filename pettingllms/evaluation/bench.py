"""The benchmark: how far does a team climb in every game of a fixed suite?

In each game a team plays the levels of difficulty from easy to hard, on held-out boards, as long as
it passes them. The score of a game is the hardest level passed, with the success there; that of the
suite is the mean share of levels passed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from pettingllms.errors import InvalidArgument
from pettingllms.evaluation.plan import MAIN, EvaluationPlan
from pettingllms.evaluation.presentation import Part, TextTable, mean, share, tokens
from pettingllms.evaluation.report import Report, VariantReport, figures_json
from pettingllms.evaluation.statistics import Interval, clustered_share
from pettingllms.policies import Usage

FORMAT = "pettingllms-bench"
PASSED = 0.5
"""Share of the boards of a level that a team must solve to pass it."""


class Suite(NamedTuple):
    """What is played. Another choice is another name, so that equal names are comparable."""

    name: str
    levels: Mapping[str, tuple[int, ...]]
    """Environment -> levels of difficulty, from easy to hard."""
    num_boards: int
    """Held-out boards of every level; fewer where a level has fewer that differ."""


_GAMES = {
    "plan_path_v0": (0, 2, 3, 4, 8),
    "sokoban_v0": (0, 2, 3, 4, 7),
    "sudoku_v0": (0, 1, 2, 3, 7),
    "queens_v0": (0, 1, 2, 3, 4),
    "blocksworld_v0": (0, 1, 2, 3, 4),
    "search_v0": (0, 1, 2, 3),
    "panel_v0": (0, 1, 2, 3),
    "dining_v0": (0, 1, 2, 3),
    "math_v0": (0, 1, 2, 3),
    "code_v0": (0, 1),
}
FULL = Suite("games-1", _GAMES, 50)
QUICK = Suite("games-1-quick", {game: levels[:3] for game, levels in _GAMES.items()}, 8)


class GameResult(NamedTuple):
    """How a team did in one game."""

    num_levels: int
    """Levels of the suite."""
    played: Mapping[int, VariantReport]
    """Level -> figures, as far as the team climbed: the last one may be failed."""
    skipped: str = ""
    """Why the team cannot play the game; empty if it can."""

    @property
    def passed(self) -> tuple[int, ...]:
        """The levels that were passed."""
        return tuple(k for k, report in self.played.items() if is_passed(report))

    @property
    def success(self) -> Interval | None:
        """Success at the hardest level passed; at the first one if none was; None: not played."""
        if not self.played:
            return None
        return self.played[(self.passed or tuple(self.played))[-1]].success


def is_passed(report: VariantReport) -> bool:
    """Return whether a team passes a level."""
    return report.success.value >= PASSED


def cell_plan(
    suite: Suite, env_id: str, level: int, seed: int, line_up: Mapping[str, str], **plan: Any
) -> EvaluationPlan:
    """Return what is played at one level of one game.

    Args:
        suite: The suite.
        env_id: The game.
        level: Its level of difficulty.
        seed: Decides boards and chance; entries of one suite have the same.
        line_up: Role -> policy.
        **plan: `sampling` and `prices` of the plan.
    """
    found = EvaluationPlan(
        env_id=env_id,
        variants={MAIN: line_up},
        env_kwargs={"level": level, "split": "test"},
        seed=seed,
        num_levels=suite.num_boards,
        **plan,
    )
    return found.with_distinct_levels(found.make_env())


def score(games: Mapping[str, GameResult]) -> Interval:
    """Return the mean share of levels passed, with an interval over games.

    A game that the team cannot play counts as 0.
    """
    shares = [len(game.passed) / game.num_levels for game in games.values()]
    return clustered_share(shares, [1] * len(shares))


def total(reports: Sequence[Report]) -> Usage:
    """Return what was spent on all levels, failed attempts included."""
    bills = (roles for report in reports for roles in report.bill.values())
    return sum((usage for roles in bills for usage in roles.values()), Usage())


def result_json(
    about: Mapping[str, Any], games: Mapping[str, GameResult], reports: Sequence[Report]
) -> dict[str, Any]:
    """Return a result file: an entry of a leader board.

    Args:
        about: The fields `name`, `suite`, `policies`, `seed`, `versions` and so on.
        games: Game -> how the team did.
        reports: Those of all levels, for the bill.
    """
    found = {
        env_id: {
            "num_levels": game.num_levels,
            "passed": list(game.passed),
            "success": figures_json(game.success),
            "skipped": game.skipped,
            "levels": {str(k): _level_json(report) for k, report in game.played.items()},
        }
        for env_id, game in games.items()
    }
    dollars = [
        role.spent_usd
        for report in reports
        for variant in report.variants.values()
        for role in variant.roles.values()
    ]
    known = [one for one in dollars if one is not None]
    bill = {
        "tokens": figures_json(total(reports)),
        "usd": sum(known) if dollars and len(known) == len(dollars) else None,
    }
    return {
        "format": FORMAT,
        **about,
        "score": figures_json(score(games)),
        "games": found,
        "bill": bill,
    }


def _level_json(report: VariantReport) -> dict[str, Any]:
    roles = {
        name: {
            "policy": role.policy,
            "reward": figures_json(role.reward),
            "parse_errors": figures_json(role.parse_errors),
            "tokens": figures_json(role.spent),
        }
        for name, role in report.roles.items()
    }
    return {
        "success": figures_json(report.success),
        "num_boards": report.num_levels,
        "manifest": report.manifest,
        "roles": roles,
    }


def bench_parts(
    about: Mapping[str, Any], games: Mapping[str, GameResult], reports: Sequence[Report]
) -> list[Part]:
    """Return the result as headings, paragraphs and tables."""
    spent = total(reports)
    rows = [_game_row(env_id, game) for env_id, game in games.items()]
    by_role = [
        [env_id, str(level), name, role.policy, mean(role.reward), share(role.parse_errors)]
        for env_id, game in games.items()
        for level, report in game.played.items()
        for name, role in report.roles.items()
    ]
    return [
        f"# {about['name']} on {about['suite']}",
        f"Score: {share(score(games))} of the levels passed, mean over games; a level is passed if "
        f"{PASSED:.0%} of its boards are solved. pettingllms {about['versions']['pettingllms']}, "
        f"seed {about['seed']}.",
        f"Tokens spent: {tokens(spent)}." if spent.num_requests else "No tokens were spent.",
        "## Games",
        TextTable(["game", "levels passed", "hardest", "success there", "levels played"], rows),
        "## Roles",
        TextTable(["game", "level", "role", "policy", "own reward", "unreadable"], by_role),
    ]


def _game_row(env_id: str, game: GameResult) -> list[str]:
    if game.skipped or game.success is None:
        return [env_id, f"0 of {game.num_levels}", "not played", game.skipped, ""]
    hardest = str(game.passed[-1]) if game.passed else "none"
    levels = ", ".join(f"{k}: {report.success.value:.0%}" for k, report in game.played.items())
    passed = f"{len(game.passed)} of {game.num_levels}"
    return [env_id, passed, hardest, share(game.success), levels]


def checked_about(data: Any, source: object) -> dict[str, Any]:
    """Return the fields of a bench folder's file, refuse what is none.

    Raises:
        InvalidArgument: If the data is not that of a bench of a known suite.
    """
    suites = {suite.name for suite in (FULL, QUICK)}
    if not isinstance(data, dict) or data.get("format") != FORMAT or data["suite"] not in suites:
        allowed = "a folder that `pettingllms bench` wrote, of " + " or ".join(sorted(suites))
        raise InvalidArgument("folder", str(source), allowed)
    return data
