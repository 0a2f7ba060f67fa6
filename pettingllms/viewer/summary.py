"""What the page of a run opens on: results, instructive decisions, one level twice, failures.

```
episodes, one by one ──► RunSummary ──► instructive.py   three decisions
                                    ├─► pairs.py         a level before and after
                                    └─► failures.py      causes and counts
curves, figures ──────────────────────► milestones.py    success, with intervals
blame.json, crossplay.json ───────────► judged.py        who lost, and who plays with whom
```
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping
from itertools import combinations, permutations
from typing import Any, Protocol

from pettingllms.viewer.episodes import ShownEpisode
from pettingllms.viewer.failures import FailureCounts
from pettingllms.viewer.instructive import InstructiveDecisions
from pettingllms.viewer.milestones import evaluation_table, moment_name, training_table
from pettingllms.viewer.opened import OpenedRun
from pettingllms.viewer.pairs import LevelPairs

TRAINING = "training"
"""Set of the episodes that are trained on, and their group."""


class RunSummary:
    """Gathers the summary of a run while its episodes pass.

    Args:
        run: The run.
    """

    def __init__(self, run: OpenedRun) -> None:
        self._blame, self._crossplay = run.blame, run.crossplay
        self._grouping = _Training(run) if run.kind == TRAINING else _Played(run)
        self._groups: dict[Hashable, None] = {}
        self._decisions, self._failures = InstructiveDecisions(), FailureCounts()
        self._levels = LevelPairs()
        self._num_episodes = 0

    def add(self, episode: ShownEpisode) -> None:
        """Take an episode into account; they come in the order of the page."""
        position, group = self._num_episodes, self._grouping.group(episode)
        self._num_episodes += 1
        self._groups[group] = None
        self._decisions.add(position, self._grouping.step(episode), episode)
        self._failures.add(position, group, episode)
        self._levels.add(position, group, episode)

    def to_json(self) -> dict[str, Any]:
        """Return what the page shows; for each part see its module."""
        columns = self._grouping.columns(list(self._groups))
        plays = self._levels.best(self._grouping.pairs(list(columns.values())))
        names = {group: name for name, group in columns.items()}
        return {
            "blame": self._blame,
            "crossplay": self._crossplay,
            "milestones": self._grouping.milestones(),
            "instructive": self._decisions.to_json(),
            "pair": [{"name": names[play.group], "episode": play.episode} for play in plays],
            "failures": self._failures.table(columns),
        }


class _Grouping(Protocol):
    """Which episodes of a run belong together."""

    def group(self, episode: ShownEpisode) -> Hashable: ...

    def step(self, episode: ShownEpisode) -> int:
        """Return after how many train steps an episode was played; 0 where none were."""
        ...

    def columns(self, groups: list[Hashable]) -> Mapping[str, Hashable]:
        """Return heading -> group of the groups that are shown, of all that there are."""
        ...

    def pairs(self, groups: list[Hashable]) -> Iterable[tuple[Hashable, Hashable]]:
        """Return which of the shown groups are compared level by level."""
        ...

    def milestones(self) -> dict[str, Any]: ...


class _Training(_Grouping):
    """A training run: held-out episodes of every step are a group, those trained on another."""

    def __init__(self, run: OpenedRun) -> None:
        self._evaluations = run.curves["evaluations"]
        self._num_steps = run.settings.get("num_steps")

    def group(self, episode: ShownEpisode) -> Hashable:
        tree_set, step, _ = episode.key
        return TRAINING if tree_set == TRAINING else step

    def step(self, episode: ShownEpisode) -> int:
        return int(episode.key[1])

    def columns(self, groups: list[Hashable]) -> Mapping[str, Hashable]:
        steps = sorted(group for group in groups if isinstance(group, int))
        trained = [TRAINING] if TRAINING in groups else []
        return {self._name(group): group for group in (*steps[:1], *trained, *steps[1:][-1:])}

    def pairs(self, groups: list[Hashable]) -> Iterable[tuple[Hashable, Hashable]]:
        return combinations((group for group in groups if group != TRAINING), 2)

    def _name(self, group: Hashable) -> str:
        if not isinstance(group, int):
            return "in training"
        return f"held-out, {moment_name(group, self._evaluations, self._num_steps)}"

    def milestones(self) -> dict[str, Any]:
        return training_table(self._evaluations, self._num_steps)


class _Played(_Grouping):
    """An evaluation, whose variants are groups, or recorded episodes, which are one."""

    def __init__(self, run: OpenedRun) -> None:
        self._is_evaluation = run.kind == "evaluation"
        self._figures = run.figures

    def group(self, episode: ShownEpisode) -> Hashable:
        return episode.key[0] if self._is_evaluation else "recorded"

    def step(self, episode: ShownEpisode) -> int:
        return 0

    def columns(self, groups: list[Hashable]) -> Mapping[str, Hashable]:
        return {str(group): group for group in groups}

    def pairs(self, groups: list[Hashable]) -> Iterable[tuple[Hashable, Hashable]]:
        return permutations(groups, 2)

    def milestones(self) -> dict[str, Any]:
        return evaluation_table(self._figures)
