"""Tables of what is said about episodes and teams: blame and cross-play."""

from __future__ import annotations

from document_tables.markdown import caption, markdown, result

_PARTS = {"drops": "drops", "missed": "what is missed", "shares": "shares"}


def blame() -> str:
    """Return how often a planted fault is found, and how often intervals hold."""
    data = result("blame")
    rows = [
        [
            name,
            f"{case['answers']:g}",
            str(case["replays"]),
            _percent(case["right"]),
            _percent(case["single"]),
            *[_held(case["hold"].get(part)) for part in _PARTS],
        ]
        for name, case in data["cases"].items()
    ]
    head = ["faults planted in", "answers", "M", "largest drop is the fault's"]
    head += ["an interval of 95 % holds"]
    head += [f"joint intervals hold: {what}" for what in _PARTS.values()]
    return markdown(head, rows) + caption(data)


def _percent(figure: dict[str, float]) -> str:
    low, value, high = (f"{100 * figure[end]:.1f}" for end in ("low", "value", "high"))
    return f"{value} % ({low} to {high})"


def _held(figures: dict[str, dict[str, float]] | None) -> str:
    return "-" if figures is None else _percent(figures["jointly"])
