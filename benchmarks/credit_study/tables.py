"""The tables of the study of credit: results by row and way, and what documents show of them."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from statistics import fmean
from typing import Any

import numpy as np
from documents import markdown, result

from credit_study.intervals import holm, p_value, paired
from credit_study.rows import read_table, ways_of
from pettingllms.evaluation.statistics import mean_interval

TABLE = read_table()
Cell = Mapping[str, Any]
Place = tuple[str, str]
"""Row and way."""
Value = Callable[[Cell], float]
_LEVEL = 0.05


class Results:
    """The cells of the tiny layer."""

    def __init__(self) -> None:
        self.data: dict[str, Any] = result("credit_tiny")
        self.cells: Mapping[str, Cell] = self.data["cells"]
        self.by_seed: dict[Place, dict[int, Cell]] = defaultdict(dict)
        for key, cell in self.cells.items():
            _, name, way, seed = key.split("|")
            self.by_seed[name, way][int(seed)] = cell
        self.rows = {row["name"]: row for row in TABLE["tiny"]["rows"]}

    def of(self, name: str, way: str) -> list[Cell]:
        """The cells of a row and way, by seed."""
        return [cell for _, cell in sorted(self.by_seed[name, way].items())]

    def has(self, name: str, way: str) -> bool:
        """Whether all seeds of a row and way are there."""
        found = self.by_seed.get((name, way), {})
        return set(found) == set(self.rows[name].get("seeds", TABLE["seeds"]))

    def is_complete(self, name: str) -> bool:
        """Whether all ways of a row are there."""
        row = self.rows[name]
        return all(self.has(name, way) for way in row.get("plays", ways_of(TABLE["tiny"], row)))

    def mean(self, place: Place, value: Value) -> float:
        """The mean over seeds of what a value takes from a cell, in percent."""
        return 100 * fmean(map(value, self.of(*place)))

    def differences(self, place: Place, other: Place, value: Value) -> list[float]:
        """The differences of two places, by the seeds that both have."""
        # Paired by seed: levels differ more than ways.
        ours, theirs = self.by_seed[place], self.by_seed[other]
        return [value(ours[s]) - value(theirs[s]) for s in sorted(set(ours) & set(theirs))]


def caption(data: Mapping[str, Any]) -> str:
    """When and how the cells of a layer were computed."""
    cells = data["cells"].values()
    hours = sum(cell["processor_seconds"] for cell in cells) / 3600
    commits = Counter(cell["commit"][:9] for cell in cells)
    at = ", ".join(f"{commit} ({number:,})" for commit, number in commits.most_common())
    return (
        f"\nMeasured until {data['date']}, {data['hardware']}, with `{data['command']}`: "
        f"{len(cells):,} cells, {hours:.1f} h. Commits (cells): {at}.\n"
    )


@lru_cache(maxsize=1)
def results() -> Results:
    """The cells, read once."""
    return Results()


def label_of(way: str) -> str:
    """What documents call a way."""
    return TABLE["ways"][way]["label"]


def at_tokens(cell: Cell, tokens: float) -> float:
    """The success of a training at a number of tokens, between its evaluations."""
    return float(np.interp(tokens, *zip(*((x, y) for x, y, _ in cell["curve"]), strict=True)))


def over_tokens(cell: Cell, tokens: float) -> float:
    """The mean success of a training up to a number of tokens."""
    return fmean(at_tokens(cell, at) for at in np.linspace(0, tokens, 200))


class Family:
    """Differences of one table, corrected together.

    Args:
        found: Place to its differences.
    """

    def __init__(self, found: Mapping[Place, Sequence[float]]) -> None:
        self._found = found
        self._p = dict(zip(found, map(p_value, found.values()), strict=True))
        self._corrected = dict(zip(found, holm([*self._p.values()]), strict=True))

    def shown(self, place: Place) -> str:
        """A difference with its interval, in bold if the correction leaves it."""
        if place not in self._found:
            return ""
        # Bold by the corrected value, while the interval is that of the difference alone.
        text = paired(self._found[place])
        return f"**{text}**" if self._corrected[place] <= _LEVEL else text

    def note(self) -> str:
        """How to read the differences."""
        alone, left = (sum(p <= _LEVEL for p in of.values()) for of in (self._p, self._corrected))
        text = "Differences in points, paired by seed, with 95 % t-intervals. "
        return (
            f"{text}The family is all {len(self._found)} of this table: one by one {alone} exclude "
            f"0; in **bold** the {left} that Holm's correction leaves.\n"
        )


_COMPARED = "at_grpo"
WAYS = (*TABLE["tiny"]["ways"], "reinforce_step")
_OTHERS = [way for way in WAYS if way != _COMPARED]
_EVERY = [row for row in TABLE["tiny"]["rows"] if "plays" not in row]
_PLAYS = {"single": "one agent", "shared": "team, one policy", "team": "team, a policy per role"}


def credit_tiny() -> str:
    """The rows of the tiny layer that are complete, and which are not."""
    found = results()
    rows = [row for row in _EVERY if found.is_complete(row["name"])]
    budgets = {row["name"]: tokens_of(row) for row in rows}
    family = Family(
        {
            (name, way): found.differences(
                (name, _COMPARED), (name, way), partial(over_tokens, tokens=tokens)
            )
            for name, tokens in budgets.items()
            for way in _OTHERS
            if found.has(name, way)
        },
    )

    def shown(name: str, way: str) -> str:
        if not found.has(name, way):
            return ""
        values = (partial(of, tokens=budgets[name]) for of in (at_tokens, over_tokens))
        end, mean = (found.mean((name, way), value) for value in values)
        return f"{end:.0f} % ({mean:.0f} %)"

    used = [way for way in WAYS if any(found.has(row["name"], way) for row in rows)]
    others = [way for way in used if way != _COMPARED]
    lines = [
        [
            row["label"],
            f"{budgets[name]:,}",
            str(len(found.of(name, _COMPARED))),
            *(shown(name, way) for way in used),
            *(family.shown((name, way)) for way in others),
        ]
        for row in rows
        for name in [row["name"]]
    ]
    head = ["task, rewards", "tokens", "seeds", *map(label_of, used)]
    head += [f"{label_of(_COMPARED)} minus {label_of(way)}" for way in others]
    missing = [row["label"] for row in _EVERY if row not in rows]
    note = "\nSuccess at the budget of sampled tokens, in brackets its mean up to there, of which "
    note += f"differences are. {family.note()}"
    note += f"Not yet in it: {'; '.join(missing)}.\n" if missing else ""
    return markdown(head, lines) + note + caption(found.data)


def tokens_of(row: Mapping[str, Any]) -> int:
    """The budget of a row."""
    return TABLE["tiny"]["tasks"][row["task"]]["tokens"]


_BEST = 3.0
"""Points behind the best that still count as well as the best."""
_SUCCESS = "reinforce_success"
_GAMES = {"normal": "common success", "rare": "rare success"}
_MISLED = ("noise", "length", "format", "taste")
_ADVISED = ("at_grpo", "reinforce", _SUCCESS, "auto")
"""What is advised, the simplest first: all have rows with language models, or compute as one does
that has."""


class Exact:
    """The trials of the exact layer."""

    def __init__(self) -> None:
        self.data = result("credit_exact")
        self.labels = {one["name"]: one["label"] for one in TABLE["exact"]["columns"]}

    def ways(self, optimizer: str, game: str, column: str) -> dict[str, Cell]:
        """Way to its cell, in the order of the table."""
        start = f"{optimizer}|{game}|{column}|"
        found = self.data["cells"].items()
        return {key.removeprefix(start): cell for key, cell in found if key.startswith(start)}

    def score(self, game: str, column: str, way: str, optimizer: str = "adam") -> np.ndarray:
        """``[S]`` mean success over budgets of every seed, in percent."""
        cell = self.data["cells"][f"{optimizer}|{game}|{column}|{way}"]
        return 100 * np.mean([*cell["success"].values()], axis=0)

    def minus(self, game: str, column: str, way: str, other: str) -> np.ndarray:
        """``[S]`` differences of two ways, in percent."""
        return self.score(game, column, way) - self.score(game, column, other)

    def caption(self) -> str:
        """When and how all was computed, and at which commit."""
        cells = self.data["cells"].values()
        (commit,) = {cell["commit"][:9] for cell in cells}
        minutes = sum(cell["processor_seconds"] for cell in cells) / 60
        study = TABLE["exact"]["study"]
        return (
            f"{study['num_seeds']} seeds of {study['num_levels']} levels; measured on "
            f"{self.data['date']}, {self.data['hardware']}, with `{self.data['command']}`: "
            f"{len(cells)} cells, {minutes:.0f} minutes, all at commit {commit}.\n"
        )


@lru_cache(maxsize=1)
def exact() -> Exact:
    """The exact layer, read once."""
    return Exact()


def _columns() -> list[str]:
    return [one["name"] for one in TABLE["exact"]["columns"] if "ways" not in one]


def _points(values: np.ndarray) -> str:
    _, low, high = mean_interval(values.tolist())
    return f"{values.mean():.0f} ({low:.0f} to {high:.0f})"


def credit_exact() -> str:
    """Success by way and column where success is not rare at first."""
    return _compared("adam", "normal")


def credit_rare() -> str:
    """The same where it is."""
    return _compared("adam", "rare")


def credit_sgd() -> str:
    """The same without Adam."""
    return "\n".join(_compared("sgd", game) for game in TABLE["exact"]["games"])


def _compared(optimizer: str, game: str) -> str:
    found, columns = exact(), _columns()
    first = found.ways(optimizer, game, "outcome")["auto"]
    best = {
        column: max(
            found.score(game, column, way, optimizer).mean()
            for way in found.ways(optimizer, game, column)
            if way in TABLE["exact"]["ways"]
        )
        for column in columns
    }

    def shown(column: str, way: str) -> str:
        cell = found.ways(optimizer, game, column)[way]
        score = found.score(game, column, way, optimizer)
        end = 100 * np.mean([*cell["success"].values()][-1])
        half = mean_interval(score.tolist()).high - score.mean()
        text = f"{score.mean():.0f} ±{half:.0f}"
        is_best = score.mean() >= best[column] - _BEST
        return f"{f'**{text}**' if is_best else text}, {end:.0f}, {100 * cell['frozen']:.0f}"

    ways = [way for way in found.ways(optimizer, game, "outcome") if way in TABLE["exact"]["ways"]]
    lines = [[label_of(way), *(shown(column, way) for column in columns)] for way in ways]
    budgets = ", ".join(f"{budget:,}" for budget in TABLE["exact"]["games"][game]["budgets"])
    name = {"adam": "Adam", "sgd": "plain SGD"}[optimizer]
    note = (
        f"\nIn percent, by {name}: success in the mean after {budgets} completions ± half of its "
        f"95 % interval, success in the end, and frozen levels. At first "
        f"{100 * first['first']:.1f} % are solved. In **bold**: within {_BEST:.0f} points of the "
        "best of a column. "
    )
    return (
        markdown(["algorithm", *(found.labels[c] for c in columns)], lines) + note + found.caption()
    )


def credit_pilot() -> str:
    """How sure the pilot of `auto` was, and in how many runs it followed rewards of steps."""
    found, lines = exact(), list[list[str]]()
    for game in _GAMES:
        for column in _columns():
            shown = np.array(found.ways("adam", game, column)["auto"]["shown"])
            pilot = found.data["cells"].get(f"pilot|{game}|{column}", {"z": []})["z"]
            known = [z for z in pilot if z is not None]
            z = (
                f"{min(known):.1f} to {max(known):.1f}"
                if known
                else "nothing paid"
                if pilot
                else ""
            )
            follows = f"{(shown >= 0).sum()} of {len(shown)}"
            lines.append([_GAMES[game], found.labels[column], z, follows])
    head = ["levels", "rewards", "z of the pilot, by seed", "runs that followed steps"]
    note = "\nWhere something is paid beside the environment's rewards there is no pilot. "
    return markdown(head, lines) + note + found.caption()


def credit_settings() -> str:
    """What one changed setting does where every step is rewarded."""
    found, lines = exact(), list[list[str]]()
    for label, way, column, other in (
        ("random branch", "at_grpo", "shaped", "tree_random"),
        ("K = 2", "at_grpo", "shaped", "at_grpo_k2"),
        ("K = 8", "at_grpo", "shaped", "at_grpo_k8"),
        ("alpha = 0.7", "at_grpo", "alpha", "at_grpo"),
        ("groups by agent", "reinforce_step", "shaped", "groups_agent"),
        ("groups by turn", "reinforce_step", "shaped", "groups_turn"),
        ("one group", "reinforce_step", "shaped", "groups_none"),
    ):
        before, after = found.score("normal", "shaped", way), found.score("normal", column, other)
        means = (f"{of.mean():.0f} %" for of in (before, after))
        lines.append([label_of(way), label, *means, _points(after - before)])
    head = ["algorithm", "changed", "before", "after", "difference (95 %)"]
    return markdown(head, lines) + "\n" + found.caption()


def credit_choice() -> str:
    """What to take, by the rewards that a task has: the smallest largest loss."""
    found = exact()
    kinds = {
        "every step, in line with the outcome": ("shaped",),
        "only the outcome": ("outcome",),
        "something that may mislead beside it": _MISLED,
        "you do not know": tuple(_columns()),
    }
    losses = {
        (way, column): max(
            (-found.minus(game, column, way, other)).mean() for game in _GAMES for other in _ADVISED
        )
        for way in _ADVISED
        for column in _columns()
    }
    lines = list[list[str]]()
    for kind, columns in kinds.items():
        largest = {way: max(losses[way, column] for column in columns) for way in _ADVISED}
        # The simplest of those that are as good as the best.
        take = next(w for w in _ADVISED if largest[w] <= min(largest.values()) + _BEST)
        lines.append([kind, _KEYS[take], *(f"{largest[way]:.0f}" for way in _ADVISED)])
    head = ["what is rewarded", "use", *(f"lost by {label_of(way)}" for way in _ADVISED)]
    return markdown(head, lines) + (
        "\nFigures are points of success lost against the best of these four, in the worst column "
        "of that kind, levels of rare success included. The advice is the first algorithm that "
        f"loses at most {_BEST:.0f} more than the one that loses least.\n"
    )


_KEYS = {
    "at_grpo": "`at_grpo`, the default",
    "reinforce": "`reinforce`",
    _SUCCESS: '`reinforce` with `credit = "success"`',
    "auto": "`auto`",
}


def tiny_ends(name: str, before: str = "reinforce") -> str:
    """Success in the end by another way, if any, and by AT-GRPO."""
    found, value = results(), partial(at_tokens, tokens=tokens_of(results().rows[name]))
    ends = [f"{found.mean((name, way), value):.0f}" for way in (before, "at_grpo") if way]
    return f"{' → '.join(ends)} %"


def trained(who: str, moment: int = -1) -> str:
    """Success of those who were trained in Figure 1, at the end or before, in percent."""
    if who in _PLAYS:
        shares = [cell["curve"][moment][1] for cell in results().of("figure", who)]
    elif who == "swapped":
        shares = [cell["swapped"] for cell in results().of("figure", "team")]
    else:
        of = [cell[who] for cell in results().of("figure", "apart")]
        shares = [one["after"] if who == "joined" else one["curve"][moment][1] for one in of]
    return f"{100 * fmean(shares):.0f}"


def judged(size: str) -> str:
    """What a trained judge makes of an ensemble, in percent."""
    cells = result("credit_ensemble_tiny")["cells"].items()
    return f"{100 * fmean(c['judge'] for key, c in cells if key.startswith(f'{size}|')):.0f}"


def exact_means(*ways: str) -> str:
    """Mean success of ways where every step is rewarded, of one at alpha = 0.7 if it says so."""
    places = [("alpha" if way.endswith(" at alpha") else "shaped", way.split()[0]) for way in ways]
    means = [f"{exact().score('normal', *place).mean():.0f}" for place in places]
    return f"{', '.join(means)} %"


def lemma(key: str) -> str:
    """In how many decisions the best reward is best in the end, of a cell."""
    found = exact().data["cells"][f"lemma|{key}"]
    return f"{100 * found['return'] / found['decisions']:.1f} %"


TABLES: Mapping[str, Callable[[], str]] = {
    of.__name__: of
    for of in (
        credit_tiny,
        credit_exact,
        credit_rare,
        credit_sgd,
        credit_pilot,
        credit_settings,
        credit_choice,
    )
}
"""Name of a table in the documents -> what makes it."""
FIGURES = {of.__name__: of for of in (tiny_ends, trained, judged, exact_means, lemma)}
"""Name in the template -> a figure of the study."""
