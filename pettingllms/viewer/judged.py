"""What `pettingllms blame` and `pettingllms crossplay` have found."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pettingllms.trust import FoundName
from pettingllms.viewer.episodes import Setting, ShownEpisode, steps_decisions
from pettingllms.viewer.lines import parse_json
from pettingllms.viewer.opened import OpenedRun, damaged

JUDGED, CROSSPLAY = "blame.json", "crossplay.json"
BLAME_FORMAT = "pettingllms-blame"
BLAME_VERSION = 1
CROSSPLAY_FORMAT = "pettingllms-crossplay"
CROSSPLAY_VERSION = 1
_OF_ANSWER = ("before", "after", "drop", "instead", "missed")

_OF_CROSSPLAY = (
    "runs", "cells", "within", "cross", "coordination", "competence", "pairs", "conventions"
)  # fmt: skip


def open_judged(path: Path) -> OpenedRun:
    """Open the folder of `pettingllms blame`.

    Raises:
        ViewerError: If it is damaged, or of another version.
    """
    file = path / JUDGED
    try:
        data = parse_json(file.read_bytes())
        if (data["format"], data["version"]) != (BLAME_FORMAT, BLAME_VERSION):
            raise ValueError(f"format {data['format']!r}, version {data['version']!r}")
        episodes = [_episode(data, one) for one in data["episodes"]]
        return OpenedRun(
            kind="blame",
            path=path,
            env_id=str(data["env_id"]),
            setting=Setting(FoundName(str(data["env_id"]), str(file)), {}, {}),
            labels=("episode",),
            facts=_facts(data),
            blame={
                "measure": data["settings"]["measure"],
                "players": data["players"],
                "episodes": [{"name": e["name"], **e["blame"]} for e in data["episodes"]],
            },
            episodes=lambda: iter(episodes),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(file, "what pettingllms blame has found", error) from error


def read_crossplay(path: Path, notices: list[str]) -> Mapping[str, Any] | None:
    """Return the figures of a cross-play in the folder of an evaluation; None if it is none.

    Args:
        path: The folder.
        notices: Gets a sentence if the figures cannot be shown.
    """
    file = path / CROSSPLAY
    if not file.is_file():
        return None
    try:
        data = parse_json(file.read_bytes())
        if (data["format"], data["version"]) != (CROSSPLAY_FORMAT, CROSSPLAY_VERSION):
            raise ValueError(f"format {data['format']!r}, version {data['version']!r}")
        return {key: data[key] for key in _OF_CROSSPLAY}
    except (OSError, ValueError, KeyError, TypeError) as error:
        notices.append(f"{CROSSPLAY}: cannot be shown ({type(error).__name__}: {error})")
        return None


def _facts(data: Mapping[str, Any]) -> list[tuple[str, str]]:
    def team(line_up: Mapping[str, str]) -> str:
        return ", ".join(f"{role}: {name}" for role, name in line_up.items())

    settings = data["settings"]
    return [
        ("Environment", str(data["env_id"])),
        ("Present policies", team(data["policies"])),
        ("The other policy", team(data["instead"]) or "none"),
        ("Replays", f"{settings['num_replays']} of every state"),
        ("What is lost", str(settings["measure"])),
        ("Seed", str(settings["seed"])),
    ]


def _episode(data: Mapping[str, Any], judged: Mapping[str, Any]) -> ShownEpisode:
    steps = judged["steps"]
    last = steps[-1]
    returns: dict[str, float] = {}
    for step in steps:
        for agent, reward in step["rewards"].items():
            returns[agent] = returns.get(agent, 0.0) + reward
    decisions = steps_decisions(steps, data["policies"])
    for decision, answer in zip(decisions, judged["blame"]["answers"], strict=True):
        (candidate,) = decision["candidates"]
        # What an answer changes of what can be expected is its advantage, by definition.
        candidate["advantage"] = -answer["drop"]["value"]
        candidate["figures"] = dict(_figures(answer))
    return ShownEpisode(
        key=(str(judged["name"]),),
        setting=Setting(FoundName(judged["id"], JUDGED), judged["kwargs"], judged["options"]),
        seed=judged["seed"],
        state_hash=str(judged["state_hash"]),
        success=bool(last["success"]),
        ending="solved" if last["success"] else "terminated" if last["ended"] else "unfinished",
        num_turns=last["turn"] + 1,
        returns=returns,
        decisions=decisions,
    )


def _figures(answer: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name in _OF_ANSWER:
        if answer[name] is not None:
            yield name, answer[name]["value"]
