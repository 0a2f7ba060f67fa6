"""The picture of README and concepts: a rollout tree, and what training on such trees gave.

    python docs/front_picture.py           # write docs/assets/front.svg

The tree is played, the curves come from `benchmarks/results/learning_plan_path.json`. A test
compares the file with what this writes.
"""

from __future__ import annotations

import json
import random
import re
from pathlib import Path
from typing import NamedTuple

from svg_plot import percent, picture, text

import pettingllms
from pettingllms_trainers.learning.groups import grpo

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "assets" / "front.svg"
RESULT = ROOT / "benchmarks" / "results" / "learning_plan_path.json"

_POLICIES = ("random", "greedy", "random", "oracle")
"""Who writes the K candidates of every decision."""
_LEVEL_SEED, _CHANCE_SEED = 5, 3
"""An episode of two turns in which candidates differ and the followed ones solve the task."""
_WIDTH, _HEIGHT = 960, 312
_CELL = 13
_ROW = 126
_BOX_WIDTH, _BOX_HEIGHT, _FIRST_BOX, _BOX_STEP = 104, 58, 130, 112
_PLOT_LEFT, _PLOT_TOP, _PLOT_WIDTH, _PLOT_HEIGHT = 656, 62, 270, 196
_STYLE = """
.title { font-size: 14px; font-weight: 600; }
.moves { font: 14px ui-monospace, Menlo, Consolas, monospace; }
.box, .wall, .cell { fill: #f6f8fa; stroke: #c5cbd3; }
.wall { fill: #8c959f; stroke: none; }
.cell { stroke: #d8dde3; stroke-width: .6; }
.P { fill: #0969da; } .G { fill: #1a7f37; }
.left { fill: none; stroke: #c5cbd3; }
.followed { fill: none; stroke: #0969da; stroke-width: 2.4; }
.box.followed { fill: #ddf4ff; }
.seed { fill: none; stroke: #54aeff; stroke-width: 1.4; opacity: .7; }
.first { fill: none; stroke: #0969da; stroke-width: 3; }
@media (prefers-color-scheme: dark) {
  .box, .cell { fill: #151b23; stroke: #3d444d; } .wall { fill: #656c76; }
  .box.followed { fill: #0c2d6b; } .left { stroke: #3d444d; }
  .followed, .first { stroke: #4493f8; } .P { fill: #4493f8; } .G { fill: #3fb950; }
}
"""


class Decision(NamedTuple):
    """One group: K candidates of one agent in one state."""

    agent: str
    turn: int
    board: str
    texts: list[str]
    rewards: list[float]
    advantages: list[float]
    chosen: int

    def moves(self, index: int) -> str:
        """The moves of a candidate, as letters."""
        return "".join(re.findall(r"[UDLR]", self.texts[index])) or "(no moves)"


def front_picture() -> str:
    """The picture as SVG, with a text for those who cannot see it."""
    decisions, ending = rollout()
    # Two decisions of one turn say it all; four would be too small to read.
    last = decisions[-2:]
    turn = last[0].turn + 1
    runs = json.loads(RESULT.read_text(encoding="utf-8"))["runs"]
    curves = [run["greedy_curve"] for run in runs]
    title = (
        f"Left: a rollout tree. In turn {turn} the proposer and then the planner each answer one "
        "prompt four times in forks of the game; the best answer is followed. Right: success on "
        f"held-out levels rises from {percent(curves[0][0][1])} to {percent(curves[0][-1][1])}."
    )
    heads = [
        (24, f"Turn {turn}: fork the game, compare the answers to one prompt"),
        (_PLOT_LEFT - 34, "After make train"),
    ]
    parts = [text(x, 26, head, "title") for x, head in heads]
    parts += [_decision(row, decision) for row, decision in enumerate(last)]
    parts += [
        text(24, _HEIGHT - 8, f"After the followed answers: {ending}.", "small"),
        _plot(curves),
    ]
    return picture(_WIDTH, _HEIGHT, title, _STYLE, parts)


def rollout() -> tuple[list[Decision], str]:
    """The decisions of an episode and how it ended."""
    env = pettingllms.make(
        "plan_path_v0",
        checks=False,
        team="proposer-planner",
        size=6,
        moves_per_turn=4,
        min_moves=7,
        render_mode="ansi",
    )
    env.reset(seed=_LEVEL_SEED)
    # Played, not drawn by hand: rewards and advantages are those of the trainer.
    rng = random.Random(_CHANCE_SEED)
    decisions: list[Decision] = []
    agent = env.agent_selection
    while not (env.terminations[agent] or env.truncations[agent]):
        texts = [env.scripted_action(agent, policy, rng) for policy in _POLICIES]
        # All candidates answer the same prompt in the same state.
        forks = [env.fork() for _ in texts]
        for fork, answer in zip(forks, texts, strict=True):
            fork.step(answer)
        rewards = [fork.rewards[agent] for fork in forks]
        chosen = rewards.index(max(rewards))
        found = (texts, rewards, grpo(rewards), chosen)
        decisions.append(Decision(agent, env.turn, env.render(), *found))
        env = forks[chosen]
        agent = env.agent_selection
    return decisions, "solved" if env.infos[agent]["success"] else "not solved"


def _decision(row: int, decision: Decision) -> str:
    """What an agent sees, its candidates, and the lines between them."""
    top = 44 + row * _ROW
    board_width = _CELL * len(decision.board.splitlines()[0])
    parts = [_board(decision.board, 24, top + 18), text(24, top + 10, decision.agent, "")]
    middle, start = top + 18 + board_width / 2, 24 + board_width
    for index in range(len(decision.texts)):
        kind = "followed" if index == decision.chosen else "left"
        x = _FIRST_BOX + index * _BOX_STEP
        rail = top + 8 if index else middle
        bend = f"C{start + 14} {rail:g} {start + 14} {rail:g} {x + 10:g} {rail:g}"
        end = f"L{x + _BOX_WIDTH / 2:g} {rail:g} L{x + _BOX_WIDTH / 2:g} {top + 26}"
        parts.append(
            f'<path class="{kind}" d="M{start} {middle:g} {bend} {end if index else ""}"/>'
        )
        parts.append(_candidate(decision, index, x, top + 26))
    # What is followed is drawn last, above the other lines.
    return "".join(sorted(parts, key=lambda part: "followed" in part))


def _candidate(decision: Decision, index: int, x: float, top: float) -> str:
    kind = "box followed" if index == decision.chosen else "box"
    middle = x + _BOX_WIDTH / 2
    lines = (
        (decision.moves(index), "moves"),
        (f"reward {decision.rewards[index]:+.2f}", "small"),
        (f"advantage {decision.advantages[index]:+.1f}", "small"),
    )
    texts = "".join(
        text(middle, top + 18 + 16 * number, line, style, "middle")
        for number, (line, style) in enumerate(lines)
    )
    box = f'x="{x:g}" y="{top:g}" width="{_BOX_WIDTH}" height="{_BOX_HEIGHT}" rx="5"'
    return f'<rect class="{kind}" {box}/>{texts}'


def _board(board: str, left: float, top: float) -> str:
    """A board as squares: walls grey, the player and the goal as discs."""
    parts: list[str] = []
    for row, line in enumerate(board.splitlines()):
        for column, mark in enumerate(line):
            x, y = left + column * _CELL, top + row * _CELL
            kind = "wall" if mark == "#" else "cell"
            parts.append(f'<rect class="{kind}" x="{x}" y="{y}" width="{_CELL}" height="{_CELL}"/>')
            if mark in "PG":
                disc = f'cx="{x + _CELL / 2}" cy="{y + _CELL / 2}" r="{_CELL / 2 - 2}"'
                parts.append(f'<circle class="{mark}" {disc}/>')
    return "".join(parts)


def _plot(curves: list[list[list[float]]]) -> str:
    """Success over train steps, a line per seed, the first one bold."""
    last_step = curves[0][-1][0]

    def at(step: float, share: float) -> tuple[float, float]:
        x = _PLOT_LEFT + _PLOT_WIDTH * step / last_step
        return x, _PLOT_TOP + _PLOT_HEIGHT * (1 - share)

    def line(curve: list[list[float]], kind: str) -> str:
        points = " ".join("{:.1f},{:.1f}".format(*at(*point)) for point in curve)
        return f'<polyline class="{kind}" points="{points}"/>'

    (left, bottom), (right, top) = at(0, 0), at(last_step, 1)
    axis = f'<path class="axis" d="M{left} {top} V{bottom} H{right}"/>'
    ticks = [
        *(text(left - 8, at(0, share)[1] + 4, percent(share), "small", "end")
          for share in (0, 0.5, 1)),
        *(text(at(step, 0)[0], bottom + 18, f"{step:g}", "small", "middle")
          for step in (0, last_step)),
        text((left + right) / 2, bottom + 36, "train steps", "small", "middle"),
        text((left + right) / 2, top - 14, f"held-out success, {len(curves)} seeds",
              "small", "middle"),
    ]  # fmt: skip
    start, end = curves[0][0], curves[0][-1]
    labels = [
        text(at(*start)[0] + 8, at(*start)[1] + 16, percent(start[1]), "title"),
        text(at(*end)[0] - 4, at(*end)[1] + 22, percent(end[1]), "title", "end"),
    ]
    lines = [line(curve, "seed") for curve in curves[1:]] + [line(curves[0], "first")]
    return "".join([axis, *ticks, *lines, *labels])


if __name__ == "__main__":
    PICTURE.write_text(front_picture(), encoding="utf-8")
