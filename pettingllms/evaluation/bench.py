"""The benchmark: how far does a team climb in every game of a fixed suite?

In each game the hardest level of difficulty that a team passes is looked for with few held-out
boards, where success so far is nearest to one half (`pettingllms.curriculum`). There its success is
measured, on boards of their own: those that chose the level are no evidence of how it does there.
The score of a game is the hardest level passed; that of the suite is the mean share of levels.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from pettingllms.curriculum import PASSED, LevelRecord, hardest_passed, next_level, with_episodes
from pettingllms.errors import InvalidArgument
from pettingllms.evaluation.plan import MAIN, EvaluationPlan
from pettingllms.evaluation.report import Report, VariantReport, figures_json, mean, share, tokens
from pettingllms.evaluation.statistics import Interval, clustered_share
from pettingllms.policies import Usage
from pettingllms.seeding import derive_seed
from pettingllms.tables import Block, TextTable
from pettingllms.trust import Name

FORMAT = "pettingllms-bench"
# Boards on which a level is tried first; each further try has as many as all before it.
FIRST = 4


class Suite(NamedTuple):
    """The games, levels and boards of a benchmark; another choice has another name."""

    name: str
    """Results of suites with equal names are comparable."""
    levels: Mapping[str, tuple[int, ...]]
    """Environment -> levels of difficulty, from easy to hard."""
    num_boards: int
    """Held-out boards on which a team is measured, and at most as many to try a level on; fewer
    where a level has fewer different ones."""


_GAMES = {
    "plan_path_v0": (0, 2, 3, 4, 5),
    "sokoban_v0": (0, 2, 3, 4, 5),
    "sudoku_v0": (0, 1, 2, 3, 4),
    "queens_v0": (0, 1, 2, 3, 4),
    "blocksworld_v0": (0, 1, 2, 3, 4),
    "search_v0": (0, 1, 2, 3, 4),
    "panel_v0": (0, 1, 2, 3, 4),
    "dining_v0": (0, 1, 2, 3, 4),
    "fireworks_v0": (0, 1, 2, 3, 4),
    "relay_v0": (0, 1, 2, 3, 4),
    "math_v0": (0, 1, 2, 3),
    "code_v0": (0, 1),
}
FULL = Suite("games-3", _GAMES, 50)
QUICK = Suite("games-3-quick", {game: levels[:3] for game, levels in _GAMES.items()}, 8)


class GameResult(NamedTuple):
    """How a team did in one game."""

    levels: tuple[int, ...]
    """Levels of the suite."""
    passed: tuple[int, ...] = ()
    """The hardest level passed and all easier ones; empty if none was passed."""
    tried: Mapping[int, LevelRecord] = {}
    """Level -> its episodes in the search for the hardest level passed."""
    measured: VariantReport | None = None
    """Figures at the level `measured_at`; None: not played."""
    skipped: str = ""
    """Why the team cannot play the game; empty if it can."""

    @property
    def measured_at(self) -> int:
        """The hardest level passed; the first one if none was."""
        return self.passed[-1] if self.passed else self.levels[0]

    @property
    def num_played(self) -> int:
        """Episodes that were played."""
        num_tried = sum(int(record.num_episodes) for record in self.tried.values())
        return num_tried + (self.measured.num_episodes if self.measured else 0)


PlayLevel = Callable[[int, int | None, int], VariantReport]
"""Plays a level. Given are its number; the boards on which it was tried before, None if it is
measured; and the number of boards."""


def climbed(levels: tuple[int, ...], num_boards: int, play: PlayLevel) -> GameResult:
    """Find the hardest level that a team passes, and measure it there."""
    records = [LevelRecord()] * len(levels)
    while (place := next_level(records, num_boards)) is not None:
        num_tried = int(records[place].num_episodes)
        # Twice as many boards each time: clear levels cost little, close ones get what they need.
        num = min(max(FIRST, num_tried), num_boards - num_tried)
        report = play(levels[place], num_tried, num)
        ended = [(place, k < report.num_success) for k in range(report.num_episodes)]
        records = with_episodes(records, ended)
    hardest = hardest_passed(records, num_boards)
    passed = () if hardest is None else levels[: hardest + 1]
    tried = {k: record for k, record in zip(levels, records, strict=True) if record.num_episodes}
    return GameResult(levels, passed, tried, play(levels[hardest or 0], None, num_boards))


def cell_plan(
    env_id: str,
    level: int,
    num_tried: int | None,
    num_boards: int,
    seed: int,
    assignment: Mapping[str, Name],
    **plan: Any,
) -> EvaluationPlan:
    """What is played at one level of one game.

    Args:
        env_id: The game.
        level: Its level of difficulty.
        num_tried: Boards on which it was tried before, None if it is measured: every try and the
            measurement draw boards and chance of their own.
        num_boards: Boards, fewer where the level has fewer that differ.
        seed: Decides boards and chance; entries of one suite have the same.
        assignment: Role -> policy.
        **plan: `sampling` and `prices` of the plan.
    """
    found = EvaluationPlan(
        env_id=env_id,
        variants={MAIN: assignment},
        env_kwargs={"difficulty": level, "split": "test"},
        # Boards that chose the level were lucky or unlucky: the measurement draws its own.
        seed=seed if num_tried is None else derive_seed(seed, "try", num_tried),
        num_levels=num_boards,
        **plan,
    )
    return found.with_distinct_levels(found.make_env())


class BenchResult(NamedTuple):
    """How a team did in all games of a suite: an entry of a leader board."""

    about: Mapping[str, Any]
    """The fields `name`, `suite`, `policies`, `seed`, `versions` and so on."""
    games: Mapping[str, GameResult]
    """Environment -> how the team did in it."""
    reports: Sequence[Report]
    """Reports of all evaluations, tries and measurements, for the bill."""

    @property
    def score(self) -> Interval:
        """The mean share of levels passed, with an interval over games; 0 for one not played."""
        shares = [len(game.passed) / len(game.levels) for game in self.games.values()]
        return clustered_share(shares, [1] * len(shares))

    @property
    def spent(self) -> Usage:
        """What was spent on all levels, failed attempts included."""
        bills = (roles for report in self.reports for roles in report.bill.values())
        return sum((usage for roles in bills for usage in roles.values()), Usage())

    def to_json(self) -> dict[str, Any]:
        """The result file as JSON data."""
        found = {
            env_id: {
                "num_levels": len(game.levels),
                "passed": list(game.passed),
                "success": figures_json(game.measured.success if game.measured else None),
                "skipped": game.skipped,
                "tried": {
                    str(k): {"solved": int(record.num_success), "played": int(record.num_episodes)}
                    for k, record in game.tried.items()
                },
                "levels": {str(game.measured_at): _level_json(game.measured)}
                if game.measured
                else {},
            }
            for env_id, game in self.games.items()
        }
        dollars = [
            role.spent_usd
            for report in self.reports
            for variant in report.variants.values()
            for role in variant.roles.values()
        ]
        known = [one for one in dollars if one is not None]
        bill = {
            "tokens": figures_json(self.spent),
            "usd": sum(known) if dollars and len(known) == len(dollars) else None,
        }
        return {
            "format": FORMAT,
            **self.about,
            "score": figures_json(self.score),
            "games": found,
            "episodes": {"played": self.num_played},
            "bill": bill,
        }

    @property
    def num_played(self) -> int:
        """Episodes of all games."""
        return sum(game.num_played for game in self.games.values())

    def parts(self) -> list[Block]:
        """The same as headings, paragraphs and tables."""
        spent = self.spent
        rows = [_game_row(env_id, game) for env_id, game in self.games.items()]
        by_role = [
            [env_id, level, name, role.policy, mean(role.reward), share(role.parse_errors)]
            for env_id, level, measured in (
                (env_id, str(game.measured_at), game.measured)
                for env_id, game in self.games.items()
            )
            if measured
            for name, role in measured.roles.items()
        ]
        return [
            f"# {self.about['name']} on {self.about['suite']}",
            f"Score: {share(self.score)} of the levels passed, mean over games. A level is passed "
            f"if {PASSED:.0%} of the boards tried there are solved. pettingllms "
            f"{self.about['versions']['pettingllms']}, seed {self.about['seed']}.",
            f"{self.num_played} episodes were played. "
            + (
                f"Tokens spent: {tokens(spent)}." if spent.num_requests else "No tokens were spent."
            ),
            "## Games",
            TextTable(
                ["game", "levels passed", "hardest", "success there", "tried, to find it"], rows
            ),
            "Success is measured on boards that had no part in choosing the level. The last column "
            "has the boards that did: level, solved of those played.",
            *(
                f"{env_id} is not played: {game.skipped}"
                for env_id, game in self.games.items()
                if game.skipped
            ),
            "## Roles",
            TextTable(["game", "level", "role", "policy", "own reward", "unreadable"], by_role),
        ]


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


def _game_row(env_id: str, game: GameResult) -> list[str]:
    if game.measured is None:
        return [env_id, f"0 of {len(game.levels)}", "not played", "", ""]
    hardest = str(game.passed[-1]) if game.passed else "none"
    tried = ", ".join(
        f"{k}: {one.num_success:.0f} of {one.num_episodes:.0f}" for k, one in game.tried.items()
    )
    passed = f"{len(game.passed)} of {len(game.levels)}"
    return [env_id, passed, hardest, share(game.measured.success), tried]


def checked_about(data: Any, source: object) -> dict[str, Any]:
    """The fields of a bench folder's file, checked.

    Raises:
        InvalidArgument: If the data is not that of a bench of a known suite.
    """
    suites = sorted(suite.name for suite in (FULL, QUICK))
    match data:
        case {
            "name": str(),
            "policies": list(policies),
            "sampling": list(sampling),
            "prices": list(prices),
            "seed": int(),
            "versions": {"pettingllms": str()},
        } if data.get("format") == FORMAT and data.get("suite") in suites:
            if all(isinstance(text, str) for text in (*policies, *sampling, *prices)):
                return data
        case _:
            pass
    allowed = "a folder that `pettingllms bench` wrote, of " + " or ".join(suites)
    raise InvalidArgument("folder", str(source), allowed)
