"""The page: a template, style and scripts from `assets`, and the run in compressed blocks.

Episodes lie in blocks of about 256 kB of JSON lines, each gzipped and written as base64 into a
script element of a type no browser runs; the page opens a block when one of its episodes is shown.
No text of a run is markup in the page, and the content security policy allows exactly the
page's own script.
"""

from __future__ import annotations

import base64
import gzip
import hashlib
import html
import json
import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, partial
from importlib.resources import files
from pathlib import Path
from typing import IO, Any
from urllib.parse import quote

from pettingllms.files import whole_file
from pettingllms.tables import Block, as_html
from pettingllms.viewer.boards import Boards
from pettingllms.viewer.episodes import EpisodeIndex
from pettingllms.viewer.overview import Overview
from pettingllms.viewer.runs import OpenedRun, ViewerError, open_run
from pettingllms.viewer.summary import RunSummary

# A block is closed when its JSON lines are longer than this.
BLOCK_CHARS = 1 << 18
# Scripts of the page, in the order in which they are joined into one.
SCRIPTS = (
    "uplot/uPlot.js", "start.js", "store.js", "text.js", "board.js", "chart.js", "list.js",
    "tree.js", "tokens.js", "compare.js", "detail.js", "figures.js", "summary.js", "blame.js",
    "crossplay.js", "overview.js", "app.js", "main.js",
)  # fmt: skip


@dataclass(frozen=True, kw_only=True, slots=True)
class ViewSummary:
    """A page that was written."""

    path: Path
    num_episodes: int
    """Episodes on the page; 0 of a page that compares runs."""
    num_bytes: int
    notices: tuple[str, ...]
    """What the page cannot show, and why; the page says the same."""


def write_view(run: str | Path, target: str | Path, *, max_replays: int = 200) -> ViewSummary:
    """Write a run as one HTML page that needs nothing else; a reader sees the whole file or none.

    Args:
        run: Folder of a training run or an evaluation, a transcript, or a folder of transcripts.
        target: The page.
        max_replays: Maximum number of episodes that are played again to draw the boards that
            prompts do not show, and where siblings led; at least 0.

    Raises:
        ViewerError: The path is not a run, or the page cannot be written.
    """
    opened = open_run(Path(run))
    fill = partial(fill_view, run=opened, max_replays=max_replays)
    return _written(Path(target), fill, opened.notices)


def write_overview(runs: Sequence[Path], target: str | Path) -> ViewSummary:
    """Write one HTML page that compares several runs and links to the page `view.html` of each.

    Raises:
        ViewerError: A path is not a run, or the page cannot be written.
    """
    path = Path(target)
    # Bytes: a folder's name need not be text, nor free of what means something in an address.
    pages = [os.fsencode(os.path.relpath(run / "view.html", path.parent)) for run in runs]
    # Relative, so that the folder of runs can be moved or sent as a whole.
    links = list(map(quote, pages))
    overview = Overview([open_run(run) for run in runs], links)
    return _written(path, partial(fill_overview, overview=overview), overview.notices())


def write_parts(parts: Sequence[Block], target: Path, *, title: str) -> None:
    """Write headings, paragraphs and tables as one HTML page without scripts.

    Raises:
        ViewerError: The page cannot be written.
    """
    style = _asset("style.css")
    policy = f"default-src 'none'; style-src '{_hash(style)}'; base-uri 'none'; form-action 'none'"
    filled = {"policy": policy, "style": style, "title": html.escape(title)}
    page = _asset("parts.html").format(**filled, body=as_html(parts))
    _written(target, lambda file: file.write(page))


def fill_view(
    file: IO[str], *, run: OpenedRun, max_replays: int, version: str | None = None
) -> int:
    """Write the page of a run into a file; return its number of episodes.

    Args:
        file: Where to.
        run: The run.
        max_replays: As for `write_view`.
        version: Of a page that is served: it asks for `version` beside itself and takes over what
            is new when that has changed.
    """
    page, boards = _Page(file, is_live=version is not None), Boards(run, max_replays)
    # Episodes stream to disk block by block, so that runs larger than memory can be viewed; the
    # index and the summary come last because only then are they complete.
    index, summary = EpisodeIndex(run.labels), RunSummary(run)
    for number, block in enumerate(_blocks(run, boards, index, summary)):
        page.add(f"block-{number}", block)
    run.notices += boards.notices()
    page.add("curves", json.dumps(run.curves))
    page.add("summary", json.dumps(summary.to_json()))
    page.add("index", json.dumps(index.to_json()))
    page.close(_head(run, len(index)) | {"version": version})
    return len(index)


def fill_overview(file: IO[str], *, overview: Overview, version: str | None = None) -> int:
    """Write the page of several runs into a file; see `fill_view`. It has no episodes."""
    page = _Page(file, is_live=version is not None)
    page.add("runs", json.dumps(overview.to_json()))
    page.close({**overview.head(), "version": version})
    return 0


def _written(
    path: Path, fill: Callable[[IO[str]], int], notices: Sequence[str] = ()
) -> ViewSummary:
    """Let a page be filled next to its place and move it there: the old page or the new one."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        # A page can be made again: it need not survive a power cut.
        with whole_file(path, is_durable=False) as file:
            num_episodes = fill(file)
    except OSError as error:
        raise ViewerError(
            f"the page {path} cannot be written ({error}). Name another file."
        ) from error
    size = path.stat().st_size
    return ViewSummary(path=path, num_episodes=num_episodes, num_bytes=size, notices=tuple(notices))


class _Page:
    """Writes a page: begins it at once, then takes blocks of data, the head last."""

    def __init__(self, file: IO[str], *, is_live: bool) -> None:
        style, script = _asset("uplot/uPlot.css") + _asset("style.css"), _script()
        start, _, self._end = _asset("page.html").partition("<!-- data -->")
        # Model text is shown in this page. Only our own script and style may act, by hash; nothing
        # is fetched but newer data of a page that is served, and no form can send anything out.
        policy = (
            f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
            "img-src data:; base-uri 'none'; form-action 'none'"
        ) + ("; connect-src 'self'" if is_live else "")
        self._file = file
        file.write(start.replace("{policy}", policy).replace("{style}", style))

    def add(self, name: str, text: str) -> None:
        # JSON text is ASCII: lone surrogates of model text stay escaped until JSON.parse.
        # Without the time of day, so that equal runs give equal pages.
        packed = gzip.compress(text.encode("ascii"), compresslevel=6, mtime=0)
        content = base64.b64encode(packed).decode("ascii")
        self._file.write(
            f'<script type="application/octet-stream" id="{name}">{content}</script>\n'
        )

    def close(self, head: dict[str, Any]) -> None:
        self.add("head", json.dumps(head))
        self._file.write(self._end.replace("{script}", _script()))


def _blocks(
    run: OpenedRun, boards: Boards, index: EpisodeIndex, summary: RunSummary
) -> Iterator[str]:
    lines: list[str] = []
    num_chars = 0
    for episode in run.episodes():
        boards.add(episode)
        index.add(episode, is_first_of_block=not lines)
        summary.add(episode)
        # After the boards: they are written into the decisions.
        lines.append(json.dumps(episode.to_json()))
        num_chars += len(lines[-1])
        if num_chars > BLOCK_CHARS:
            yield "\n".join(lines)
            lines, num_chars = [], 0
    if lines:
        yield "\n".join(lines)


def _head(run: OpenedRun, num_episodes: int) -> dict[str, Any]:
    return {
        "kind": run.kind,
        "name": run.path.resolve().name,
        "env_id": run.env_id,
        "facts": run.facts,
        "config": run.config,
        "figures": run.figures,
        "notices": run.notices,
        "num_episodes": num_episodes,
    }


def _script() -> str:
    # One function around all: what scripts define is out of reach for anything else.
    return "(() => {\n" + "\n".join(map(_asset, SCRIPTS)) + "\n})();\n"


@cache
def _asset(name: str) -> str:
    return (files("pettingllms.viewer") / "assets" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return "sha256-" + base64.b64encode(digest).decode("ascii")
