"""MkDocs hook: generated pages, and generated parts of written pages.

A line `<!-- generate:NAME -->` in a page is replaced by what `PARTS[NAME]` returns. Every
registered environment of this project gets a page of its own. MkDocs puts this folder on the path
while it loads the hook, which is how the imports below find their modules.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import page_parts
from config_reference import config_reference
from environment_pages import built_in_ids, environment_page, environment_table, pictures
from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files
from mkdocs.structure.pages import Page

PARTS: dict[str, Callable[[], str]] = {
    "adapters": page_parts.adapter_table,
    "algorithms": page_parts.algorithm_table,
    "benchmarks": partial(page_parts.document, "benchmarks/README.md"),
    "checks": page_parts.check_list,
    "commands": page_parts.command_reference,
    "config": config_reference,
    "environment_table": environment_table,
    "environments": page_parts.environments,
    "families": page_parts.family_table,
    "learning": partial(page_parts.document, "benchmarks/learning.md"),
    "metrics": partial(page_parts.document, "trainers/METRICS.md"),
    "new_package": page_parts.new_package,
    "paper": page_parts.paper_index,
    "sandbox": partial(page_parts.document, "pettingllms/sandbox/README.md"),
    "sandbox_threats": partial(page_parts.document, "pettingllms/sandbox/THREATS.md"),
    "speed": partial(page_parts.document, "benchmarks/speed.md"),
}
"""Name -> function that returns Markdown."""

_MARK = re.compile(r"^<!-- generate:(\w+) -->$", re.MULTILINE)
_INDEX = "environments/index.md"
_TITLE = re.compile(r"^# (.*)$", re.MULTILINE)
_WRITTEN: dict[str, str] = {}
"""Page -> its Markdown, generated parts included."""


def on_config(config: MkDocsConfig) -> MkDocsConfig:
    """Put a page per environment into the navigation, behind the overview."""
    for entry in config.nav or []:
        for section, pages in entry.items():
            if isinstance(pages, list) and _INDEX in pages:
                entry[section] = [*pages, *map(_page_path, built_in_ids())]
    return config


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the pages and pictures of the environments."""
    for env_id in built_in_ids():
        drawn = pictures(env_id)
        for name, image in drawn.items():
            files.append(File.generated(config, f"environments/{name}", content=image))
        page = environment_page(env_id, list(drawn))
        files.append(File.generated(config, _page_path(env_id), content=page))
    return files


def on_page_markdown(markdown: str, page: Page, **_: Any) -> str:
    """Replace the marks of a page by what they name."""
    text = _MARK.sub(lambda match: PARTS[match[1]](), markdown)
    _WRITTEN[page.file.src_uri] = text
    return text


def on_post_page(output: str, **_: Any) -> str:
    """Name the theme's search dialogue, which screen readers announce."""
    return output.replace('role="dialog"', 'role="dialog" aria-label="Search"')


def on_post_build(config: MkDocsConfig) -> None:
    """Write each page as Markdown beside it, and `llms.txt`, which lists them for programs."""
    lines = [f"# {config.site_name}", "", f"> {config.site_description}", ""]
    for name, text in _WRITTEN.items():
        (Path(config.site_dir) / name).write_text(text, encoding="utf-8")
        title = _TITLE.search(text)
        lines.append(f"- [{title[1] if title else name}]({name})")
    (Path(config.site_dir) / "llms.txt").write_text("\n".join(lines) + "\n", encoding="utf-8")


def _page_path(env_id: str) -> str:
    return f"environments/{env_id}.md"
