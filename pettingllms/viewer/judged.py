"""The folder of `pettingllms blame`: episodes whose answers are judged."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from pettingllms.viewer.episodes import Setting, ShownEpisode, steps_decisions
from pettingllms.viewer.errors import ViewerError
from pettingllms.viewer.lines import parse_json
from pettingllms.viewer.opened import OpenedRun, damaged

JUDGED = "blame.json"
BLAME_FORMAT = "pettingllms-blame"
BLAME_VERSION = 1
_OF_ANSWER = ("before", "after", "drop", "instead", "missed")


def open_judged(path: Path) -> OpenedRun:
    """Open the folder of `pettingllms blame`.

    Raises:
        ViewerError: If it is damaged, or of another version.
    """
    file = path / JUDGED
    try:
        data = parse_json(file.read_bytes())
        if (data["format"], data["version"]) != (BLAME_FORMAT, BLAME_VERSION):
            raise ViewerError(
                f"{file} has format {data['format']!r}, version {data['version']!r}; this viewer "
                f"reads {BLAME_FORMAT!r}, version {BLAME_VERSION}."
            )
        episodes = [_episode(data, one) for one in data["episodes"]]
        return OpenedRun(
            kind="blame",
            path=path,
            env_id=str(data["env_id"]),
            setting=Setting(str(data["env_id"]), {}, {}),
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
        setting=Setting(str(judged["id"]), judged["kwargs"], judged["options"]),
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
