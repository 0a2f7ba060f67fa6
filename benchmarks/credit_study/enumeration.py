"""All decisions of a small level, by the public API of environments alone.

Legend: N decisions (nodes) of a level, A answers, rows of the table of a policy: distinct prompts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np

import pettingllms
from pettingllms import TextEnv

Answers = Callable[[TextEnv[Any]], Sequence[str]]
"""The environment before a decision -> the A texts that the acting agent chooses from."""


@dataclass(frozen=True, slots=True)
class Node:
    """A decision: who acts, what is read, and what every answer leads to."""

    agent: str
    turn: int
    row: int
    """Of the prompt."""
    prompt: tuple[Mapping[str, str], ...]
    """As chat messages."""
    rewards: np.ndarray
    """``[A]`` of the acting agent."""
    team: np.ndarray
    """``[A]`` team part of these."""
    children: np.ndarray
    """``[A]`` next decisions; -1 where the episode ends."""
    success: np.ndarray
    """``[A]`` 1 where the answer solves the task."""
    key: str
    """Equal for decisions of which the same counts; see `TextEnv.state_key`."""


class Prompts:
    """Rows of a tabular policy, shared by levels: equal prompts have one row."""

    def __init__(self) -> None:
        self._rows: dict[str, int] = {}

    def __len__(self) -> int:
        return len(self._rows)

    def row(self, messages: Sequence[Mapping[str, str]]) -> int:
        """The row of a prompt; a new one for one that was not seen before."""
        return self._rows.setdefault(text_of(messages), len(self._rows))


def text_of(messages: Sequence[Mapping[str, str]]) -> str:
    """What tells a prompt from others."""
    return "\0".join(message["content"] for message in messages)


@dataclass(frozen=True, slots=True)
class Level:
    """All decisions of a level; children come after their parents, and the root first."""

    texts: tuple[str, ...]
    """The A answers."""
    agents: tuple[str, ...]
    nodes: tuple[Node, ...] = field(repr=False)


def enumerate_level(
    env_id: str, seed: int, answers: Answers, prompts: Prompts, /, **kwargs: Any
) -> Level:
    """All decisions that can be reached on the level of a seed.

    Args:
        env_id: Id of the environment.
        seed: Of the level.
        answers: What can be answered; the same texts for all decisions.
        prompts: Gets the prompts.
        **kwargs: Arguments of the environment.
    """
    env: TextEnv[Any] = pettingllms.make(env_id, checks=False, **kwargs)
    env.reset(seed=seed)
    texts = tuple(answers(env))
    # Breadth first: what an answer leads to is known by number before it is visited itself. All
    # decisions of a turn and place are met before any later one, so children follow their parents.
    index: dict[tuple[str, str, int], int] = {_key(env): 0}
    waiting: list[TextEnv[Any]] = [env]
    nodes: list[Node] = []
    while len(nodes) < len(waiting):
        current = waiting[len(nodes)]
        agent = current.agent_selection
        size = len(texts)
        rewards, team, success = np.zeros(size), np.zeros(size), np.zeros(size)
        children = np.full(size, -1)
        for number, text in enumerate(texts):
            fork = current.fork()
            fork.step(text)
            rewards[number] = fork.rewards[agent]
            team[number] = fork.infos[agent]["reward_parts"]["team"]
            success[number] = float(fork.infos[agent]["success"])
            if not (fork.terminations[agent] or fork.truncations[agent]):
                child = index.setdefault(_key(fork), len(waiting))
                if child == len(waiting):
                    waiting.append(fork)
                children[number] = child
        messages = tuple(current.messages(agent))
        row = prompts.row(messages)
        key = current.state_key()
        nodes.append(
            Node(agent, current.turn, row, messages, rewards, team, children, success, key)
        )
        waiting[len(nodes) - 1] = env  # let the visited one go
    return Level(texts, tuple(env.possible_agents), tuple(nodes))


def with_bonus(level: Level, bonus: Callable[[int, int], float]) -> Level:
    """A level in which the acting agent is paid something beside what it was.

    Args:
        level: All its decisions.
        bonus: (decision, answer), both by number, to what is added where the episode goes on.
    """
    paid = [
        [bonus(number, answer) if child >= 0 else 0.0 for answer, child in enumerate(node.children)]
        for number, node in enumerate(level.nodes)
    ]
    nodes = [
        replace(node, rewards=node.rewards + np.array(extra))
        for node, extra in zip(level.nodes, paid, strict=True)
    ]
    return replace(level, nodes=tuple(nodes))


def _key(env: TextEnv[Any]) -> tuple[str, str, int]:
    return env.state_hash(), env.agent_selection, env.turn
