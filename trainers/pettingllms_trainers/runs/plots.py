"""The learning curve of a run as a picture."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pettingllms_trainers.runs.evaluate import is_scripted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

_CURVES = {"greedy": "#1b6ca8", "sampled": "#d1495b"}
_LINES = ("--", ":", "-.")


def learning_curve(evaluations: Sequence[Mapping[str, Any]], title: str) -> Figure:
    """Draw held-out success over train steps, with 95 % intervals, and scripted policies as lines.

    Args:
        evaluations: Lines of evaluations.jsonl, oldest first.
        title: Heading of the picture.
    """
    from matplotlib.figure import Figure  # half a second, which only this needs

    figure = Figure(figsize=(7, 4.2), layout="constrained")
    axes = figure.add_subplot()
    for name, colour in _CURVES.items():
        points = [
            (line["step"], line["variants"][name])
            for line in evaluations
            if name in line["variants"]
        ]
        if not points:
            continue
        steps = [step for step, _ in points]
        axes.plot(
            steps,
            [100 * figures["success"] for _, figures in points],
            color=colour,
            marker="o",
            markersize=3,
            label=f"team, {name}",
        )
        axes.fill_between(
            steps,
            [100 * figures["success_low"] for _, figures in points],
            [100 * figures["success_high"] for _, figures in points],
            color=colour,
            alpha=0.15,
            linewidth=0,
        )
    scripted = filter(is_scripted, evaluations[0]["variants"])
    for index, name in enumerate(scripted):
        axes.axhline(
            100 * evaluations[0]["variants"][name]["success"],
            color="#666666",
            linestyle=_LINES[index % len(_LINES)],
            linewidth=1,
            label=f"scripted policy: {name.partition(':')[2]}",
        )
    axes.set_xlabel("train step")
    axes.set_ylabel("held-out success (%)")
    axes.set_ylim(-2, 102)
    axes.set_title(title)
    axes.grid(alpha=0.25)
    axes.legend(loc="lower right", fontsize="small")
    return figure
