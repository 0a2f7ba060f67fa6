"""Which families of language models can be trained, from `docs/model_families.json`."""

from __future__ import annotations

import json

from markdown_text import ROOT, code, table

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
