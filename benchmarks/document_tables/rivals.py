"""The table of what published algorithms learn on enumerated levels."""

from __future__ import annotations

from statistics import fmean

from credit_study.intervals import holm, p_value, paired

from document_tables.markdown import caption, markdown, result

_WHOLE = "whole episodes"


def rivals() -> str:
    """Return success of tables of logits by algorithm and reward, and how far from the first."""
    data = result("rivals")
    ends = {
        (row["algorithm"], row["reward"]): [curve[-1] for curve in row["success"]]
        for row in data["rows"]
    }
    names, rewards = (list(dict.fromkeys(one)) for one in zip(*ends, strict=True))
    differences = {
        (name, reward): [
            a - b for a, b in zip(ends[name, reward], ends[_WHOLE, reward], strict=True)
        ]
        for name in names
        for reward in rewards
        if name != _WHOLE
    }
    corrected = holm([p_value(found) for found in differences.values()])
    is_real = {key: p <= 0.05 for key, p in zip(differences, corrected, strict=True)}

    def shown(name: str, reward: str) -> str:
        text = f"{100 * fmean(ends[name, reward]):.0f} %"
        if name == _WHOLE:
            return text
        found = paired(differences[name, reward])
        return f"{text}, " + (f"**{found}**" if is_real[name, reward] else found)

    names.sort(key=lambda name: name != _WHOLE)
    rows = [[name, *(shown(name, reward) for reward in rewards)] for name in names]
    note = f"\nAfter {data['budgets'][-1]:,} completions, mean over {len(data['seeds'])} seeds, "
    note += "each with levels of its own; differences to whole episodes in points, paired, with "
    note += "95 % t-intervals, one by one; in **bold** those that are left after Holm's correction "
    note += f"for all {len(differences)}.\n"
    return markdown(["algorithm", *rewards], rows) + note + caption(data)
