"""The picture of README and concepts: a rollout tree, and what training on such trees gave.

    python docs/front_picture.py           # write docs/assets/front.svg

The tree is played, the bars come from `benchmarks/results/credit_abstract.json`: per task one agent
and the team, each before and after its training. A test compares the file with what this writes.
"""

from __future__ import annotations

import random
import re
import sys
from pathlib import Path
from typing import NamedTuple

from svg_plot import Plot, percent, picture, text

import pettingllms
from pettingllms_trainers.learning.groups import grpo

ROOT = Path(__file__).resolve().parents[1]
PICTURE = ROOT / "docs" / "assets" / "front.svg"

sys.path.insert(0, str(ROOT / "benchmarks"))

from credit_study.teams import Bar, abstract_bars  # noqa: E402  the path comes first

_POLICIES = ("random", "greedy", "random", "oracle")
"""Who writes the K candidates of every decision."""
_LEVEL_SEED, _CHANCE_SEED = 5, 3
"""An episode of two turns in which candidates differ and the followed ones solve the task."""
_WIDTH, _HEIGHT = 960, 312
_CELL = 13
_ROW = 126
_BOX_WIDTH, _BOX_HEIGHT, _FIRST_BOX, _BOX_STEP = 104, 58, 130, 112
_PLOT = Plot(left=656, top=84, width=280, height=170)
_BAR, _GAP = 18, 3
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
.single { fill: #8c959f; } .team { fill: #0969da; } .before { opacity: .4; }
.interval { stroke: #1f2328; }
@media (prefers-color-scheme: dark) {
  .box, .cell { fill: #151b23; stroke: #3d444d; } .wall { fill: #656c76; }
  .box.followed { fill: #0c2d6b; } .left { stroke: #3d444d; }
  .followed { stroke: #4493f8; } .P, .team { fill: #4493f8; } .G { fill: #3fb950; }
  .interval { stroke: #f0f6fc; }
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
    tasks = abstract_bars()
    success = "; ".join(
        f"{task}: " + ", ".join(f"{bar.label} {percent(bar.success.value)}" for bar in bars)
        for task, bars in tasks.items()
    )
    title = (
        f"Left: a rollout tree. In turn {turn} the proposer and then the planner each answer one "
        "prompt four times in forks of the game; the best answer is followed. Right: success of "
        f"SmolLM2-135M on held-out problems. {success}."
    )
    heads = [
        (24, f"Turn {turn}: fork the game, compare the answers to one prompt"),
        (_PLOT.left - 34, "What it gives SmolLM2-135M"),
    ]
    parts = [text(x, 26, head, "title") for x, head in heads]
    parts += [_decision(row, decision) for row, decision in enumerate(last)]
    parts += [
        text(24, _HEIGHT - 8, f"After the followed answers: {ending}.", "small"),
        *_bars(tasks),
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


def _bars(tasks: dict[str, list[Bar]]) -> list[str]:
    """A group of bars per task with their intervals, and what the colours mean."""
    parts = [_PLOT.shares()]
    for place, (task, bars) in enumerate(tasks.items()):
        width = _PLOT.width / len(tasks)
        middle = _PLOT.left + width * (place + 0.5)
        left = middle - (len(bars) * (_BAR + _GAP) - _GAP) / 2
        bottom = _PLOT.y(0)
        parts.append(text(middle, bottom + 18, task, "small", "middle"))
        for number, (_, kind, success) in enumerate(bars):
            x, top = left + number * (_BAR + _GAP), _PLOT.y(success.value)
            box = f'x="{x:g}" y="{top:.1f}" width="{_BAR}" height="{bottom - top:.1f}"'
            low, high = _PLOT.y(max(0, success.low)), _PLOT.y(min(1, success.high))
            parts.append(f'<rect class="{kind}" {box}/>')
            parts.append(f'<path class="interval" d="M{x + _BAR / 2:g} {low:.1f}V{high:.1f}"/>')
    for place, (label, kind, _) in enumerate(next(iter(tasks.values()))):
        x, y = _PLOT.left - 34 + place % 2 * 174, 40 + place // 2 * 18
        parts.append(f'<rect class="{kind}" x="{x:g}" y="{y}" width="11" height="11"/>')
        parts.append(text(x + 16, y + 10, label, "small"))
    note = "held-out problems, means of seeds, 95 % intervals"
    return [*parts, text(_PLOT.left - 34, _HEIGHT - 8, note, "small")]


if __name__ == "__main__":
    PICTURE.write_text(front_picture(), encoding="utf-8")
