"""A run, opened: what the page needs of it, whatever kind it is."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pettingllms.viewer.episodes import Setting, ShownEpisode
from pettingllms.viewer.errors import ViewerError


@dataclass(kw_only=True, slots=True)
class OpenedRun:
    """A run, opened; its episodes are read one by one."""

    kind: str
    """`training`, `evaluation`, `blame` or `transcripts`."""
    path: Path
    env_id: str
    """Id of its environment, for display; transcripts may be of several."""
    setting: Setting
    """In what its episodes are played, unless they say otherwise."""
    labels: tuple[str, ...]
    """What the parts of an episode's key are."""
    facts: list[tuple[str, str]]
    """Name and value of what is worth knowing about the run."""
    config: str = ""
    """The configuration as it was written."""
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Its values by dotted keys."""
    curves: dict[str, Any] = field(default_factory=dict[str, Any])
    """`metrics`: name -> steps and values; `evaluations`: variant -> steps, success, interval."""
    figures: Mapping[str, Any] | None = None
    """Variant -> figures with intervals, of a finished evaluation."""
    episodes: Callable[[], Iterator[ShownEpisode]]
    """Reads the episodes; afterwards `notices` names lines that could not be read."""
    blame: Mapping[str, Any] | None = None
    """Who lost its episodes, as `pettingllms blame` found."""
    crossplay: Mapping[str, Any] | None = None
    """How members of different runs play together, as `pettingllms crossplay` found."""
    notices: list[str] = field(default_factory=list[str])
    """What is missing on the page and why."""


def damaged(path: Path, what: str, error: Exception) -> ViewerError:
    """Return the error about a file of a run that cannot be read."""
    return ViewerError(
        f"{path} cannot be read as {what} ({type(error).__name__}: {error}). "
        "Restore the file, or name another run."
    )
