"""What only playing again can show: boards, parsed actions, and where every sibling led.

Prompts of a trained tiny model may hold a board in a form that is hard to read, and no prompt
shows where the last action led, or one that was not followed. The environment draws them: the
recorded actions lead to the same states again, and siblings are played in forks.
"""

from __future__ import annotations

import math
import re
from typing import Any

from pettingllms.env import TextEnv
from pettingllms.errors import PettingLLMsError, UntrustedName, counted
from pettingllms.registry import make
from pettingllms.sources import WORKFLOW_PREFIX
from pettingllms.transcript import play_recorded
from pettingllms.types import ParseError
from pettingllms.viewer.episodes import Decision, Setting, ShownEpisode
from pettingllms.viewer.runs import OpenedRun

_ROW = r"(?:[ \t]*\d+ )?(?:\S ){2,}\S[ \t]*|[#@+$*.PG_ ]{3,}"
_REWARD_TOLERANCE = 1e-9
# A list of all moves on a large board would fill the table of candidates.
_MAX_ACTION = 400
_GRID = re.compile(rf"^(?:{_ROW})(?:\n(?:{_ROW})){{2,}}$", re.MULTILINE)


def shows_board(text: str) -> bool:
    """Whether a text has at least three lines in a row that look like rows of a board."""
    return _GRID.search(text) is not None


class Boards:
    """Adds boards and parsed actions to episodes.

    Programs that models wrote are not run again: only environments whose text of a state shows a
    board are played, of their episodes those in which no followed completion has a fenced block,
    and of siblings those that have none.

    Args:
        run: The run.
        max_episodes: Maximum number of episodes to play again, at least 0.
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
        """Put what playing it again shows into an episode, if it can be played."""
        has_programs = any("```" in candidate["text"] for _, candidate in episode.actions())
        if not self._is_off and self._left and not has_programs:
            try:
                self._replay(episode)
            except UntrustedName:
                named = (episode.setting or self._run.setting).env_id
                self._is_off = True
                if not named.text.startswith(WORKFLOW_PREFIX):  # which has no board anyway
                    self._problem = f"a page runs installed environments, and no code like {named}"
            except PettingLLMsError as error:
                self._stop(f"{type(error).__name__}: {error}")
        texts = (decision["observation"] for decision in episode.decisions)
        is_drawn = episode.final_board is not None or any(map(shows_board, texts))
        self._num_without += not is_drawn and bool(episode.decisions)

    def notices(self) -> list[str]:
        """Why episodes have no boards, as readable sentences."""
        if not self._num_without:
            return []
        count = f"{counted(self._num_without, 'episode')} without a board in the prompts"
        if self._problem is not None:
            return [f"{count} could not be played again to draw one: {self._problem}."]
        if self._left == 0 and self._has_boards:
            return [f"Not played again to draw boards: {count}; --replays N plays more."]
        return []

    def _stop(self, problem: str) -> None:
        self._is_off = True
        # One episode that goes another way says that the environment has changed: all would.
        self._problem = problem.rstrip(".")

    def _replay(self, episode: ShownEpisode) -> None:
        # Whether it can be shown or not: each try costs a level and its steps.
        self._left -= 1
        env = self._opened(episode)
        if env is None:
            return
        self._has_boards = True
        seen: list[_Seen] = []
        is_same = env.state_hash() == episode.state_hash
        if not (is_same and all(_play(env, decision, seen) for decision in episode.decisions)):
            self._stop(f"the episode of seed {episode.seed} went another way")
            return
        # Only now: what a course that turns out to be another one shows is never shown.
        for target, found in seen:
            target.update(found)
        episode.final_board = str(env.render())

    def _opened(self, episode: ShownEpisode) -> TextEnv[Any] | None:
        """The environment at the start of an episode, or None when it has no boards."""
        setting = episode.setting or self._run.setting
        if self._env is None or setting != self._setting:
            self._env, self._setting = _made(setting), setting
        self._env.reset(seed=episode.seed, options=dict(setting.options))
        if not shows_board(str(self._env.render())):
            return None
        return self._env


_Seen = tuple[dict[str, Any], dict[str, Any]]
"""A decision or a candidate, and what playing it again shows of it."""


def _play(env: TextEnv[Any], decision: Decision, seen: list[_Seen]) -> bool:
    """Play a decision again; whether the action followed, if any, led where it was recorded to."""
    chosen = decision["chosen"]
    if env.agent_selection != decision["agent"]:
        return chosen is None
    seen.append((decision, {"board": str(env.render())}))
    known: dict[str, dict[str, Any] | None] = {}
    for position, candidate in enumerate(decision["candidates"]):
        text = candidate["text"]
        # A program would be run by playing it; and equal answers lead to the same place.
        if position != chosen and text not in known:
            known[text] = None if "```" in text else _led(env.fork(), decision, candidate)
    if chosen is not None:
        followed = decision["candidates"][chosen]
        known[followed["text"]] = led = _led(env, decision, followed)
        if led is None:
            return False
    found = ((candidate, known[candidate["text"]]) for candidate in decision["candidates"])
    seen += [(candidate, led) for candidate, led in found if led is not None]
    return True


def _led(env: TextEnv[Any], decision: Decision, candidate: dict[str, Any]) -> dict[str, Any] | None:
    """Where a candidate leads, None if not where it was recorded to; steps the env."""
    agent, text = decision["agent"], candidate["text"]
    action = env.parse(agent, text)
    play_recorded(env, text, candidate)
    # What is scaled or judged in training is recorded beside what the environment gave.
    recorded = candidate["figures"].get("env_reward", candidate["reward"])
    if not _is_equal(env.rewards[agent], recorded):
        return None
    shown = None if isinstance(action, ParseError) else _shown(action)
    return {"board": str(env.render()), "action": shown}


def _shown(action: object) -> str:
    """A parsed action as a text of limited length."""
    text = str(action)
    return text if len(text) <= _MAX_ACTION else text[: _MAX_ACTION - 4] + " ..."


def _is_equal(reward: float, recorded: Any) -> bool:
    """Whether rewards agree; one that is not finite was recorded as a text."""
    if not isinstance(recorded, int | float):
        return not math.isfinite(reward)
    return abs(reward - recorded) < _REWARD_TOLERANCE


def _made(setting: Setting) -> TextEnv[Any]:
    env: TextEnv[Any] = make(setting.env_id, checks=False, **setting.kwargs)
    env.render_mode = "ansi"
    return env
