"""Boards that the prompts of a run do not show: its episodes are played again.

Prompts of a trained tiny model may hold a board in a form that is hard to read, and no prompt
shows where the last action led. The environment knows how to draw both, and the recorded actions
lead to the same states again.
"""

from __future__ import annotations

import math
import re
from typing import Any

from pettingllms.env import TextEnv
from pettingllms.errors import PettingLLMsError
from pettingllms.registry import make
from pettingllms.viewer.episodes import Setting, ShownEpisode
from pettingllms.viewer.runs import OpenedRun

_ROW = r"(?:[ \t]*\d+ )?(?:\S ){2,}\S[ \t]*|[#@+$*.PG_ ]{3,}"
_REWARD_TOLERANCE = 1e-9
_GRID = re.compile(rf"^(?:{_ROW})(?:\n(?:{_ROW})){{2,}}$", re.MULTILINE)


def shows_board(text: str) -> bool:
    """Return whether a text has at least three lines in a row that look like rows of a board."""
    return _GRID.search(text) is not None


class Boards:
    """Adds boards to episodes.

    Programs that models wrote are not run again: only environments whose text of a state shows a
    board are played, and of their episodes those in which no completion has a fenced block.

    Args:
        run: The run.
        max_episodes: Maximum number of episodes to play again.
    """

    def __init__(self, run: OpenedRun, max_episodes: int) -> None:
        self._run = run
        self._left = max_episodes
        self._env: TextEnv[Any] | None = None
        self._setting: Setting | None = None
        self._is_off = max_episodes == 0
        self._has_boards = False
        self._num_without = 0
        self._problem: str | None = None

    def add(self, episode: ShownEpisode) -> None:
        """Put the boards of the followed path into an episode, if they can be drawn."""
        if not self._is_off and self._left and _is_without_programs(episode):
            try:
                self._replay(episode)
            except PettingLLMsError as error:
                self._stop(f"{type(error).__name__}: {error}")
        texts = (decision["observation"] for decision in episode.decisions)
        is_drawn = episode.final_board is not None or any(map(shows_board, texts))
        self._num_without += not is_drawn and bool(episode.decisions)

    def notices(self) -> list[str]:
        """Return why episodes have no boards, as readable sentences."""
        if not self._num_without:
            return []
        count = f"{self._num_without} episodes show no board in their prompts"
        if self._problem is not None:
            return [f"{count} and could not be played again to draw them: {self._problem}."]
        if self._left == 0 and self._has_boards:
            return [f"{count} and were not played again to draw them; --replays N plays more."]
        return []

    def _stop(self, problem: str) -> None:
        self._is_off = True
        self._problem = problem.rstrip(".")

    def _replay(self, episode: ShownEpisode) -> None:
        self._left -= 1
        env = self._opened(episode)
        if env is None:
            return
        self._has_boards = True
        is_same = env.state_hash() == episode.state_hash
        boards = [str(env.render())]
        for agent, candidate in episode.actions():
            is_same = is_same and env.agent_selection == agent
            if not is_same:
                break
            env.step(candidate["text"])
            is_same = _is_equal(env.rewards[agent], candidate["reward"])
            boards.append(str(env.render()))
        if not is_same:
            self._stop(f"the episode of seed {episode.seed} went another way")
            return
        for decision, board in zip(episode.decisions, boards, strict=False):
            decision["board"] = board
        episode.final_board = boards[-1]

    def _opened(self, episode: ShownEpisode) -> TextEnv[Any] | None:
        """Return the environment at the start of an episode, or None when it has no boards."""
        setting = episode.setting or self._run.setting
        if self._env is None or setting != self._setting:
            self._env, self._setting = _made(setting), setting
        self._env.reset(seed=episode.seed, options=dict(setting.options))
        if not shows_board(str(self._env.render())):
            return None
        return self._env


def _is_equal(reward: float, recorded: Any) -> bool:
    """Return whether rewards agree; one that is not finite was recorded as a text."""
    if not isinstance(recorded, int | float):
        return not math.isfinite(reward)
    return abs(reward - recorded) < _REWARD_TOLERANCE


def _is_without_programs(episode: ShownEpisode) -> bool:
    return not any("```" in candidate["text"] for _, candidate in episode.actions())


def _made(setting: Setting) -> TextEnv[Any]:
    env: TextEnv[Any] = make(setting.env_id, checks=False, **setting.kwargs)
    env.render_mode = "ansi"
    return env
