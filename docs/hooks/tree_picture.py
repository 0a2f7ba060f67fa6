"""A rollout tree, played now and drawn as SVG. Colours follow the page, light or dark."""

from __future__ import annotations

import random
import re
from html import escape
from typing import Any, NamedTuple

import pettingllms
from pettingllms_trainers.learning.groups import grpo

_POLICIES = ("random", "greedy", "random", "oracle")
"""Who writes the K candidates of every decision."""
_LEVEL_SEED, _CHANCE_SEED = 5, 3
"""An episode of two turns in which candidates differ and the followed ones solve the task."""
_WIDTH, _ROW = 400, 132
_BOX_WIDTH, _BOX_HEIGHT, _BOX_TOP = 92, 56, 48


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


def tree_picture() -> str:
    """The picture as inline SVG, with a text for those who cannot see it."""
    decisions, ending = rollout()
    height = _ROW * len(decisions) + 34
    parts = [_decision(row, decision) for row, decision in enumerate(decisions)]
    last = decisions[-1]
    parts.append(_state(_ROW * len(decisions), ending))
    title = (
        f"A rollout tree: {len(decisions)} decisions of {len(last.texts)} candidates each; the "
        "candidate with the highest reward is followed."
    )
    return (
        f'<svg class="tree" viewBox="0 0 {_WIDTH} {height}" role="img" '
        f'aria-label="{escape(title)}">{"".join(parts)}</svg>\n'
    )


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
        for fork, text in zip(forks, texts, strict=True):
            fork.step(text)
        rewards = [fork.rewards[agent] for fork in forks]
        chosen = rewards.index(max(rewards))
        found = (texts, rewards, grpo(rewards), chosen)
        decisions.append(Decision(agent, env.turn, env.render(), *found))
        env = forks[chosen]
        agent = env.agent_selection
    return decisions, "solved" if env.infos[agent]["success"] else "not solved"


def _decision(row: int, decision: Decision) -> str:
    top = row * _ROW
    below = top + _ROW
    parts = [_state(top, f"turn {decision.turn + 1}, {decision.agent}")]
    for index in range(len(decision.texts)):
        x = _centre(index, len(decision.texts))
        kind = "followed" if index == decision.chosen else "left"
        parts.append(_line(_WIDTH / 2, top + 20, x, top + _BOX_TOP, kind))
        if index == decision.chosen:
            parts.append(_line(x, top + _BOX_TOP + _BOX_HEIGHT, _WIDTH / 2, below + 8, kind))
        parts.append(_box(decision, index, x, top + _BOX_TOP, kind))
    return "".join(parts)


def _centre(index: int, count: int) -> float:
    return _WIDTH * (index + 0.5) / count


def _state(top: float, label: str) -> str:
    x, y = _WIDTH / 2, top + 14
    return (
        f'<circle class="state" cx="{x:g}" cy="{y:g}" r="6"/>'
        f'<text class="label" x="{x + 12:g}" y="{y + 4:g}">{escape(label)}</text>'
    )


def _line(x: float, y: float, to_x: float, to_y: float, kind: str) -> str:
    middle = (y + to_y) / 2
    return (
        f'<path class="{kind}" d="M{x:g} {y:g} C{x:g} {middle:g} {to_x:g} {middle:g} '
        f'{to_x:g} {to_y:g}"/>'
    )


def _box(decision: Decision, index: int, x: float, y: float, kind: str) -> str:
    lines: list[tuple[str, Any]] = [
        ("action", decision.moves(index)),
        ("figure", f"reward {decision.rewards[index]:+.2f}"),
        ("figure", f"adv. {decision.advantages[index]:+.2f}"),
    ]
    texts = "".join(
        f'<text class="{style}" x="{x:g}" y="{y + 17 + 15 * number:g}">{escape(line)}</text>'
        for number, (style, line) in enumerate(lines)
    )
    return (
        f'<rect class="{kind}" x="{x - _BOX_WIDTH / 2:g}" y="{y:g}" width="{_BOX_WIDTH}" '
        f'height="{_BOX_HEIGHT}" rx="5"/>{texts}'
    )
