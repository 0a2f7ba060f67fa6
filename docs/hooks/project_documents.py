"""Documents that live next to the code they describe, as parts of pages."""

from __future__ import annotations

import re
import tempfile
from pathlib import Path

from markdown_text import ROOT, fenced, folded

from pettingllms.cli.new import write_package

_LINK = re.compile(r"\[([^\]]+)\]\((?!https?:|#)[^)]+\)")
_TABLE_MARK = re.compile(r"^<!-- /?table:\w+ -->\n", re.MULTILINE)


def sandbox() -> str:
    """The document of the sandbox."""
    return _document("pettingllms/sandbox/README.md")


def sandbox_threats() -> str:
    """The document of what the sandbox defends against."""
    return _document("pettingllms/sandbox/THREATS.md")


def metrics() -> str:
    """The list of metrics."""
    return _document("trainers/METRICS.md")


def environments() -> str:
    """What is said about all environments: teams, anatomy, rewards."""
    text = _document("envs/README.md")
    return text[text.index("## Teams") :]


def benchmarks() -> str:
    """The document of the benchmarks with its tables."""
    return _document("benchmarks/README.md")


def new_package() -> str:
    """The files that `pettingllms new hidden_number` writes."""
    with tempfile.TemporaryDirectory() as folder:
        written = write_package("hidden_number", Path(folder))
        parts = [
            folded(
                path.relative_to(folder).as_posix(),
                fenced(path.read_text(encoding="utf-8"), path.suffix.strip(".")),
            )
            for path in written
            if path.stat().st_size
        ]
    return "\n".join(parts)


def _document(path: str) -> str:
    """A document without its title and without links to other files of the repository."""
    text = (ROOT / path).read_text(encoding="utf-8")
    body = text.partition("\n")[2]
    return _LINK.sub(r"\1", _TABLE_MARK.sub("", body))
