"""Parts of pages, made from where their facts are: classes, commands, tables, other documents."""

from __future__ import annotations

import inspect
import json
import re
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from markdown_text import ROOT, breakable, code, fenced, folded, table

from pettingllms.cli.app import cli
from pettingllms.cli.new import write_package
from pettingllms.testing import CHECKS, promise_of
from pettingllms_trainers.config import Algorithm, Config
from pettingllms_trainers.config.algorithm import DEFAULT, algorithm_class, algorithm_names

_WORDS = {"yes": "yes", "numbers": "with numbers only", "no": "no"}


def adapter_table() -> str:
    """A section per library."""
    text = (ROOT / "docs" / "adapters.toml").read_text(encoding="utf-8")
    return "\n".join(map(_library, tomllib.loads(text)["library"]))


def _library(library: dict[str, Any]) -> str:
    facts = [f"tested with {code(library['package'] + ' ' + library['version'])}"]
    if library["extra"]:
        command = f'pip install ".[{library["extra"]}]"'
        facts.append(f"install with {code(command)}")
    if library["adapter"]:
        facts.append(f"adapter {code(library['adapter'])}")
    line = "; ".join(facts)
    rows = [
        [
            row["what"],
            _WORDS[row["works"]],
            row.get("note", ""),
            breakable(row["test"]) if "test" in row else "",
        ]
        for row in library["capabilities"]
    ]
    head = ["what", "works", "note", f"shown by, in {library['tests']}"]
    parts = [f"## {library['name']}", f"{line[0].upper()}{line[1:]}."]
    if "script" in library:
        script = ROOT / "examples" / "adapters" / library["script"]
        text = script.read_text(encoding="utf-8")
        parts += [f"`{script.relative_to(ROOT)}`:", f"```python\n{text}```"]
    return "\n\n".join([*parts, table(head, rows), ""])


def algorithm_table() -> str:
    """A table of all algorithms, and a section with source and parameters of each."""
    kinds = {name: algorithm_class(name) for name in algorithm_names()}
    rows = [[f"[{code(name)}](#{name})", *_what_and_when(kind)] for name, kind in kinds.items()]
    overview = table(["name", "what it does", "when to take it"], rows)
    return "\n".join([overview, *(_of_algorithm(name, kind) for name, kind in kinds.items())])


def _what_and_when(kind: type[Algorithm]) -> list[str]:
    """The first two paragraphs of a docstring: what it does, and when to take it."""
    what, when, *_ = inspect.getdoc(kind).split("\n\n")
    return [" ".join(what.split()), " ".join(when.split())]


def _of_algorithm(name: str, kind: type[Algorithm]) -> str:
    source = re.search(r"Source:\n(.*)", inspect.getdoc(kind), re.DOTALL)
    text = " ".join(source.group(1).split()) if source else ""
    keys = ", ".join(code(key) for key in kind.model_fields if key != "name")
    return f"## {name} {{ #{name} }}\n\n{text}\n\nParameters: {keys}.\n"


def check_list() -> str:
    """A table of all checks in the order in which they run."""
    rows = [[code(check.__name__.removeprefix("check_")), promise_of(check)] for check in CHECKS]
    return table(["check", "promise"], rows)


def command_reference() -> str:
    """A section per command."""
    return "\n".join(
        f"## `{context.command_path}`\n\n{fenced(context.get_help())}"
        for context in _commands(
            click.Context(cli, info_name="pettingllms", **cli.context_settings)
        )
    )


def _commands(context: click.Context) -> Iterator[click.Context]:
    # As wide as a terminal, so that the help looks as it does there.
    context.max_content_width = context.terminal_width = 78
    yield context
    group = context.command
    if isinstance(group, click.Group):
        for name in group.list_commands(context):
            command = group.get_command(context, name)
            assert command is not None, name
            inner = click.Context(command, info_name=name, parent=context)
            yield from _commands(inner)


_HEADS = {
    "shared": "Prompts are shared and packed",
    "plain": "Trained without sharing or packing",
    "refused": "Refused at the start",
    "not built": "Not checked",
}


def family_table() -> str:
    """A section per outcome."""
    found = json.loads((ROOT / "docs" / "model_families.json").read_text(encoding="utf-8"))
    parts = [f"Checked with transformers {found['transformers']}."]
    for outcome, head in _HEADS.items():
        families = {f: r for f, r in found["families"].items() if r["outcome"] == outcome}
        parts.append(f"## {head}: {len(families)} families")
        if outcome == "shared":
            parts.append(", ".join(map(code, families)))
        else:
            rows = [[code(family), result["why"]] for family, result in families.items()]
            parts.append(table(["family", "why"], rows))
    return "\n\n".join(parts)


def paper_index() -> str:
    """A table per part of the paper, and its hyper-parameters next to our defaults."""
    index = tomllib.loads((ROOT / "docs" / "paper.toml").read_text(encoding="utf-8"))
    rows = [
        [entry["what"], entry["paper"], code(entry["key"]), code(default_of(entry["key"]))]
        for entry in index["setting"]
    ]
    settings = table(["what", "paper", "key", "our default"], rows)
    return "\n".join([*map(_part, index["part"]), "## Hyper-parameters\n", settings])


def default_of(key: str) -> Any:
    """The default of a key of the run file, such as `algorithm.num_candidates`."""
    *sections, name = key.split(".")
    model: Any = Config
    for section in sections:
        model = model.model_fields[section].annotation
    # Its keys depend on the name; the table shows those of the default.
    if model is Algorithm:
        model = algorithm_class(DEFAULT)
    return model.model_fields[name].default


def _part(part: dict[str, Any]) -> str:
    rows = [[row["what"], _places(row["code"]), _places(row["tests"])] for row in part["rows"]]
    return f"## {part['title']}\n\n{part['intro']}\n\n" + table(["what", "code", "shown by"], rows)


def _places(places: list[str]) -> str:
    return "<br>".join(map(breakable, places))


_LINK = re.compile(r"\[([^\]]+)\]\((?!https?:|#)[^)]+\)")
_TABLE_MARK = re.compile(r"^<!-- /?table:\w+ -->\n", re.MULTILINE)


def environments() -> str:
    """What is said about all environments: teams, anatomy, rewards."""
    # The table at its head is the one of the index, with links.
    text = document("envs/README.md")
    return text[text.index("## Teams") :]


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


def document(path: str) -> str:
    """A document without its title and without links to other files of the repository."""
    text = (ROOT / path).read_text(encoding="utf-8")
    # The page has a title, and its links would lead out of the site.
    body = text.partition("\n")[2]
    return _LINK.sub(r"\1", _TABLE_MARK.sub("", body))
