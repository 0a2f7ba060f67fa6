"""Episodes of any run in one form, and the columns by which the page lists, filters and sorts them.

JSONL files may be of runs that crashed, are still running, or were damaged: every line counts.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, cast

from pettingllms.ends import End
from pettingllms.errors import counted, data_problem
from pettingllms.files import checked_line, parse_json
from pettingllms.registry import check_kwargs
from pettingllms.trust import FoundName
from pettingllms.types import role_of

Decision = dict[str, Any]


class Setting(NamedTuple):
    """The environment of an episode."""

    env_id: FoundName
    kwargs: Mapping[str, Any]
    """Arguments of `pettingllms.make`."""
    options: Mapping[str, Any]
    """Options of `reset`."""


@dataclass(kw_only=True, slots=True)
class ShownEpisode:
    """One episode as the page shows it."""

    key: tuple[str | int, ...]
    """What identifies it within its run, in the order of the run's labels."""
    setting: Setting | None = None
    """Its environment, if that is not the one of its run."""
    seed: int
    """Seed the environment was reset with."""
    state_hash: str
    """Hash of the initial state."""
    success: bool
    ending: str
    """`solved`, `unfinished`, `failed` (the infrastructure), or another `End`."""
    cause: str | None = None
    """Why the rollout failed; None when it did not."""
    num_turns: int
    """Turns, an incomplete last one included."""
    returns: Mapping[str, Any]
    """Agent -> sum of its rewards; a string where it is not finite."""
    decisions: list[Decision] = field(default_factory=list[Decision])
    """Its decisions in the order of play, each with its candidates."""
    figures: Mapping[str, float] = field(default_factory=dict[str, float])
    """Name -> value of all other recorded numbers."""
    final_board: str | None = None
    """The last state as the environment renders it; None when it was not played again."""

    def actions(self) -> list[tuple[str, dict[str, Any]]]:
        """Agent and candidate of every action on the followed path."""
        return [(d["agent"], chosen) for d in self.decisions if (chosen := followed(d))]

    def to_json(self) -> dict[str, Any]:
        """What the page needs to show the episode."""
        return {
            "seed": str(self.seed),  # JavaScript rounds integers above 2**53
            "state_hash": self.state_hash,
            "cause": self.cause,
            "returns": dict(self.returns),
            "decisions": self.decisions,
            "figures": dict(self.figures),
            "final_board": self.final_board,
        }

    def per_role(self, key: str) -> dict[str, float | None]:
        """Role -> total of its followed actions.

        Args:
            key: `reward`: the sum of their rewards, None if one is not a number; `parse_error`: the
                number of actions that could not be read.
        """
        totals: dict[str, float | None] = {}
        for agent, candidate in self.actions():
            role = role_of(agent)
            total = totals.get(role, 0.0)
            value = candidate[key] is not None if key == "parse_error" else candidate[key]
            is_number = isinstance(value, int | float)
            totals[role] = total + value if is_number and total is not None else None
        return totals


def followed(decision: Decision) -> dict[str, Any] | None:
    """The candidate with which the episode continued, or None when it went no further."""
    chosen = decision["chosen"]
    return None if chosen is None else decision["candidates"][chosen]


def tree_episode(env_id: FoundName, line: Mapping[str, Any]) -> ShownEpisode:
    """The episode of a line of a training run's `rollouts.jsonl`.

    Raises:
        KeyError: A field is missing.
        TypeError: A field is of another kind.
        ValueError: A decision has chosen a candidate that is not there.
    """
    outcome, kwargs = line["outcome"], line["env"]
    check_kwargs(kwargs, {})
    decisions = [_decision(decision) for decision in line["decisions"]]
    if outcome is None:
        num_turns = len({decision["turn"] for decision in decisions})
        outcome = {"success": False, "num_turns": num_turns, "returns": {}}
    return ShownEpisode(
        key=(_text(line["set"]).replace("_", "-"), _whole(line["step"]), _whole(line["episode"])),
        setting=Setting(replace(env_id, text=line.get("env_id", env_id.text)), kwargs, {}),
        seed=_whole(line["env_seed"]),
        state_hash=_text(line["initial_state_hash"]),
        success=bool(outcome["success"]),
        ending=ending_of(outcome["success"], line["end"]),
        cause=None if line["cause"] is None else _text(line["cause"]),
        num_turns=_whole(outcome["num_turns"]),
        returns=_mapping(outcome["returns"]),
        decisions=decisions,
        figures=_figures(line, ("step", "episode", "env_seed")),
    )


def evaluation_episode(
    line: Mapping[str, Any], variants: Mapping[str, Mapping[str, str]]
) -> ShownEpisode:
    """The episode of a line of an evaluation's `episodes.jsonl`.

    Raises:
        KeyError: A field is missing.
        TypeError: A field is of another kind.
    """
    variant = _text(line["variant"])
    return ShownEpisode(
        key=(variant, _whole(line["level"]), _whole(line["sample"])),
        seed=_whole(line["level_seed"]),
        state_hash=_text(line["initial_state_hash"]),
        success=bool(line["success"]),
        ending=ending_of(line["success"], line["end"]),
        num_turns=_whole(line["num_turns"]),
        returns=_mapping(line["returns"]),
        decisions=steps_decisions(line["steps"], variants.get(variant, {})),
    )


def steps_decisions(
    steps: Sequence[Mapping[str, Any]], policies: Mapping[str, str]
) -> list[Decision]:
    """The decisions of a transcript's steps: one candidate each."""
    return [_step_decision(step, policies) for step in steps]


def _step_decision(step: Mapping[str, Any], policies: Mapping[str, str]) -> Decision:
    agent = _text(step["agent"])
    parts = step["reward_parts"]
    candidate = {
        "text": _text(step["action"]),
        "num_tokens": None,
        "finish_reason": step.get("finish_reason"),
        "reward": step["rewards"][agent],
        "team": parts["team"],
        "local": parts["local"],
        "parse_error": step["parse_error"],
        "success": bool(step["success"]),
        "end": step["end"],
        "cause": step.get("cause"),
        "advantage": None,
        "figures": {},
        **{name: _text(step[name]) for name in ("reasoning", "model") if step.get(name)},
    }
    return {
        "agent": agent,
        "figures": {},
        "turn": _whole(step["turn"]),
        "policy": policies.get(agent, policies.get(role_of(agent))),
        "observation": _text(step["observation"]),
        "chosen": 0,
        "candidates": [candidate],
    }


_CANDIDATE = (
    "num_tokens", "finish_reason", "reward", "team", "local", "parse_error", "success", "end",
    "cause",
)  # fmt: skip
_DECISION = ("agent", "turn", "policy", "observation", "chosen", "candidates")


def _decision(node: Mapping[str, Any]) -> Decision:
    candidates = [_candidate(candidate) for candidate in node["candidates"]]
    chosen = node["chosen"]
    if chosen is not None and not 0 <= _whole(chosen) < len(candidates):
        raise ValueError(f"candidate {chosen} was chosen of {len(candidates)}")
    return {
        "agent": _text(node["agent"]),
        "turn": _whole(node["turn"]),
        "policy": node["policy"],
        "observation": _text(node["observation"]),
        "chosen": chosen,
        "figures": _figures(node, _DECISION),
        "candidates": candidates,
    }


def _candidate(recorded: Mapping[str, Any]) -> dict[str, Any]:
    candidate = {
        "text": _text(recorded["text"]),
        **{key: recorded[key] for key in _CANDIDATE},
        "success": bool(recorded["success"]),
        "advantage": recorded["advantage"],
        "figures": _figures(recorded, (*_CANDIDATE, "advantage")),
    }
    if "tokens" in recorded:
        candidate["tokens"] = {
            name: list(column) for name, column in _mapping(recorded["tokens"]).items()
        }
    return candidate


def _figures(recorded: Mapping[str, Any], known: tuple[str, ...]) -> dict[str, float]:
    """The numbers of a record that have no place of their own."""
    return {
        name: value
        for name, value in recorded.items()
        if name not in known and isinstance(value, int | float) and not isinstance(value, bool)
    }


def ending_of(is_solved: object, end: Any) -> str:
    """How an episode ended, in one word.

    Args:
        is_solved: Whether it is solved.
        end: Why it is over, see `End`; None while it is not.

    Raises:
        ValueError: There is no such end.
    """
    if is_solved or end is None:
        return "solved" if is_solved else "unfinished"
    found = End(end)
    return "failed" if found.kind == "infrastructure" else found


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"{value!r} instead of a text")
    return value


def _whole(value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise TypeError(f"{value!r} instead of an integer")
    return value


def _mapping(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise TypeError(f"{value!r} instead of an object")
    return cast(dict[str, Any], value)


Value = TypeVar("Value")


class LineFile:
    """Reads a JSONL file to its end; lines that cannot be read are counted, never passed over.

    Args:
        path: The file; one that is missing has no lines.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._unreadable: list[tuple[int, str]] = []
        self._is_cut_off = False

    def read(self, convert: Callable[[Any], Value]) -> Iterator[Value]:
        """Yield the converted lines in order.

        Args:
            convert: Converts the JSON value of a line; a KeyError, TypeError,
                AttributeError or ValueError of it says that the line is not what it should be.
        """
        # A live page reads the same file again and again.
        self._unreadable, self._is_cut_off = [], False
        if not self.path.exists():
            return
        with self.path.open("rb") as file:
            for number, line in enumerate(file, 1):
                try:
                    yield convert(parse_json(checked_line(line)))
                except (KeyError, TypeError, AttributeError, ValueError) as error:
                    # The last line of an unfinished run may be incomplete: nothing is damaged.
                    if line.endswith(b"\n"):
                        self._unreadable.append((number, data_problem(error)))
                    else:
                        self._is_cut_off = True

    def notices(self) -> list[str]:
        """What the last reading could not show, as readable sentences."""
        found: list[str] = []
        if self._is_cut_off:
            found.append(
                f"{self.path.name}: 1 line is truncated at the end of the file (the run was "
                "interrupted, or is still running); it is not shown."
            )
        if self._unreadable:
            number, reason = self._unreadable[0]
            lines = counted(len(self._unreadable), "line")
            found.append(
                f"{self.path.name}: {lines} could not be read and cannot be shown; the first is "
                f"line {number} ({reason})."
            )
        return found


# Of rewards in the index, which the page loads as a whole; episodes keep every digit.
_DIGITS = 6


class EpisodeIndex:
    """The episodes of a page as columns, by which it lists, filters and sorts them.

    Args:
        labels: Names of the parts of an episode's key.
    """

    def __init__(self, labels: tuple[str, ...]) -> None:
        self._labels = labels
        self._keys: list[list[str | int]] = [[] for _ in labels]
        self._block_starts: list[int] = []
        self._endings: list[str] = []
        self._num_turns: list[int] = []
        self._returns: dict[str, list[Any]] = {}
        self._rewards: dict[str, list[Any]] = {}
        self._errors: dict[str, list[Any]] = {}

    def __len__(self) -> int:
        return len(self._endings)

    def add(self, episode: ShownEpisode, *, is_first_of_block: bool) -> None:
        """Append an episode."""
        position = len(self)
        if is_first_of_block:
            self._block_starts.append(position)
        for column, part in zip(self._keys, episode.key, strict=True):
            column.append(part)
        self._endings.append(episode.ending)
        self._num_turns.append(episode.num_turns)
        _append(self._returns, episode.returns, position)
        _append(self._rewards, episode.per_role("reward"), position)
        _append(self._errors, episode.per_role("parse_error"), position)

    def to_json(self) -> dict[str, Any]:
        """The columns; those of agents and roles have null where an episode has none."""
        return {
            "labels": self._labels,
            "keys": self._keys,
            "block_starts": self._block_starts,
            "endings": self._endings,
            "num_turns": self._num_turns,
            "returns": _padded(self._returns, len(self)),
            "rewards": _padded(self._rewards, len(self)),
            "errors": _padded(self._errors, len(self)),
        }


def _append(columns: dict[str, list[Any]], values: Any, position: int) -> None:
    for name, value in values.items():
        column = columns.setdefault(name, [])
        # Who first appears late has null before; columns are padded only when they grow.
        column += [None] * (position - len(column))
        column.append(round(value, _DIGITS) if isinstance(value, float) else value)


def _padded(columns: dict[str, list[Any]], length: int) -> dict[str, list[Any]]:
    return {name: column + [None] * (length - len(column)) for name, column in columns.items()}
