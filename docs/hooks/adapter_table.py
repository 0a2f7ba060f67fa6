"""What other libraries can do with our environments, from `docs/adapters.toml`."""

from __future__ import annotations

import tomllib
from typing import Any

from markdown_text import ROOT, breakable, code, table

_WORDS = {"yes": "yes", "numbers": "with numbers only", "no": "no"}


def adapter_table() -> str:
    """A section per library."""
    text = (ROOT / "docs" / "adapters.toml").read_text(encoding="utf-8")
    return "\n".join(map(_library, tomllib.loads(text)["library"]))


def _library(library: dict[str, Any]) -> str:
    facts = [f"tested with {code(library['package'] + ' ' + library['version'])}"]
    if library["extra"]:
        command = f'pip install "pettingllms[{library["extra"]}]"'
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
