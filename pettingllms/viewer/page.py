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
import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.resources import files
from pathlib import Path
from typing import IO, Any

from pettingllms.viewer.boards import Boards
from pettingllms.viewer.errors import ViewerError
from pettingllms.viewer.index import EpisodeIndex
from pettingllms.viewer.runs import OpenedRun, open_run

BLOCK_CHARS = 1 << 18
"""A block is closed when its JSON lines are longer than this."""
SCRIPTS = (
    "start.js",
    "store.js",
    "text.js",
    "board.js",
    "chart.js",
    "list.js",
    "tree.js",
    "detail.js",
    "figures.js",
    "app.js",
)
"""Scripts of the page, in the order in which they are joined into one."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ViewSummary:
    """What was written."""

    path: Path
    num_episodes: int
    num_bytes: int
    notices: tuple[str, ...]
    """What the page cannot show, and why; the page says the same."""


def write_view(run: str | Path, target: str | Path, *, max_replays: int = 200) -> ViewSummary:
    """Write a run as one HTML page that needs nothing else; a reader sees the whole file or none.

    Args:
        run: Folder of a training run or an evaluation, a transcript, or a folder of transcripts.
        target: The page.
        max_replays: Maximum number of episodes that are played again to draw the boards that
            prompts do not show; at least 0.

    Raises:
        ViewerError: The path is no run, or the page cannot be written.
    """
    opened = open_run(Path(run))
    path = Path(target)
    # Written next to the target and renamed: a crash leaves the old page or the new one.
    partial = path.with_name(f".{path.name}.partial")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with partial.open("w", encoding="utf-8") as file:
            try:
                num_episodes = _write(file, opened, Boards(opened, max_replays))
            except BaseException:
                partial.unlink()
                raise
        os.replace(partial, path)
    except OSError as error:
        raise ViewerError(
            f"the page {path} cannot be written ({error}). Name another file (--out)."
        ) from error
    return ViewSummary(
        path=path,
        num_episodes=num_episodes,
        num_bytes=path.stat().st_size,
        notices=tuple(opened.notices),
    )


def _write(file: IO[str], run: OpenedRun, boards: Boards) -> int:
    script = "(() => {\n" + "\n".join(map(_asset, SCRIPTS)) + "\n})();\n"
    style = _asset("style.css")
    head, _, tail = _asset("page.html").partition("<!-- data -->")
    # Model text is shown in this page. Only our own script and style may act, by hash; nothing is
    # fetched, and no form can send anything out.
    policy = (
        f"default-src 'none'; script-src '{_hash(script)}'; style-src '{_hash(style)}'; "
        "img-src data:; base-uri 'none'; form-action 'none'"
    )
    file.write(head.replace("{policy}", policy).replace("{style}", style))
    # Episodes stream to disk block by block, so that runs larger than memory can be viewed; the
    # index comes last because only then is it complete.
    index = EpisodeIndex(run.labels)
    for number, block in enumerate(_blocks(run, boards, index)):
        _write_block(file, f"block-{number}", block)
    run.notices += boards.notices()
    _write_block(file, "curves", json.dumps(run.curves))
    _write_block(file, "index", json.dumps(index.to_json()))
    _write_block(file, "head", json.dumps(_head(run, len(index))))
    file.write(tail.replace("{script}", script))
    return len(index)


def _blocks(run: OpenedRun, boards: Boards, index: EpisodeIndex) -> Iterator[str]:
    lines: list[str] = []
    num_chars = 0
    for episode in run.episodes():
        boards.add(episode)
        index.add(episode, is_first_of_block=not lines)
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


def _write_block(file: IO[str], name: str, text: str) -> None:
    # JSON text is ASCII: lone surrogates of model text stay escaped until JSON.parse.
    packed = gzip.compress(text.encode("ascii"), compresslevel=6, mtime=0)
    content = base64.b64encode(packed).decode("ascii")
    file.write(f'<script type="application/octet-stream" id="{name}">{content}</script>\n')


def _asset(name: str) -> str:
    return (files("pettingllms.viewer") / "assets" / name).read_text(encoding="utf-8")


def _hash(text: str) -> str:
    digest = hashlib.sha256(text.encode("utf-8")).digest()
    return "sha256-" + base64.b64encode(digest).decode("ascii")
