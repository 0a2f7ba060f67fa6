"""Forks of a recorded episode, played on to the end by policies."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping
from dataclasses import dataclass, field
from statistics import fmean
from typing import Any, NamedTuple

from pettingllms.env import TextEnv
from pettingllms.errors import InvalidArgument
from pettingllms.evaluation.asking import Chats, one_answer, prompt_of, remember
from pettingllms.evaluation.runner import EvaluationStopped
from pettingllms.loops import work_off
from pettingllms.policies import Policy, PolicyUnavailable, Sampling, Usage, acted
from pettingllms.seeding import derive_seed
from pettingllms.transcript import Transcript

_logger = logging.getLogger(__name__)


class Seat(NamedTuple):
    """Who answers for an agent, and how."""

    policy: Policy
    sampling: Sampling = Sampling()


Team = Mapping[str, Seat]
"""Agent -> who answers for it."""


class ReplayPoint(NamedTuple):
    """A moment of an episode, from which it can be played on any number of times."""

    env: TextEnv[Any]
    """Only forks of it are played."""
    chats: Chats
    """What was said before."""
    earned: float
    """Rewards so far: their sum, mean over the agents."""


class ReplayEnd(NamedTuple):
    """The end of an episode."""

    success: bool
    team_return: float
    """Rewards of the whole episode: their sum, mean over the agents."""


class Replay(NamedTuple):
    """A moment that is to be played on."""

    place: Hashable
    """What it is for."""
    moment: ReplayPoint
    team: Team
    opening: Team
    """Who gives the first answer."""
    seed: int


@dataclass(kw_only=True)
class Replayed:
    """What has come of replays."""

    num_replays: int
    """Those that are to be played."""
    ends: dict[Hashable, list[ReplayEnd]] = field(default_factory=dict[Hashable, list[ReplayEnd]])
    """Place -> ends of its replays."""
    failures: Counter[str] = field(default_factory=Counter[str])
    """Cause -> replays that came to no end; they are left out."""
    usage: Usage = field(default_factory=Usage)
    """What all answers cost, those of failed replays too."""

    @property
    def num_finished(self) -> int:
        """Replays that are over, one way or the other."""
        return sum(map(len, self.ends.values())) + self.failures.total()


def moments_of(transcript: Transcript) -> list[ReplayPoint]:
    """Return the moments before every answer of an episode, and the one after the last.

    Raises:
        ReplayDivergence: If the episode does not play again as recorded.
    """
    chats: Chats = {}
    earned = 0.0
    found: list[ReplayPoint] = []
    ahead = (*transcript.steps, None)
    for env, step in zip(transcript.moments(), ahead, strict=True):
        if found:
            earned += fmean(env.rewards.values())
        found.append(ReplayPoint(env.fork(), dict(chats), earned))
        if step is not None:
            remember(chats, prompt_of(env, chats, 0), step["action"])
    return found


async def play_replays(
    replays: Iterator[Replay],
    replayed: Replayed,
    *,
    max_concurrency: int,
    max_failures: int,
    on_progress: Callable[[Replayed], None] = lambda replayed: None,
) -> None:
    """Play moments on to their ends, several at a time.

    Args:
        replays: What is played.
        replayed: Gets what comes of it.
        max_concurrency: Replays at the same time, at least 1.
        max_failures: Replays that may fail, at least 0; they are left out.
        on_progress: Called after every replay.

    Raises:
        PolicyUnavailable: If a policy cannot be used any more.
        EvaluationStopped: If more replays failed than allowed.
        InvalidArgument: If a limit is out of its range.
    """
    if max_concurrency < 1:
        raise InvalidArgument("max_concurrency", max_concurrency, "an integer of at least 1")

    async def one(replay: Replay) -> None:
        try:
            end = await _play_on(replay, replayed)
        except PolicyUnavailable:
            raise
        except Exception as error:  # noqa: BLE001  the rollout boundary
            _count(replayed, error, max_failures)
        else:
            replayed.ends.setdefault(replay.place, []).append(end)
        on_progress(replayed)

    await work_off(replays, one, max_concurrency)


async def _play_on(replay: Replay, replayed: Replayed) -> ReplayEnd:
    env, chats, earned = replay.moment.env.fork(), dict(replay.moment.chats), replay.moment.earned
    team, number = replay.opening, 0
    agent = env.agent_selection
    while not (env.terminations[agent] or env.truncations[agent]):
        prompt = prompt_of(env, chats, derive_seed(replay.seed, number))
        completion, usage = await one_answer(team[agent].policy, prompt, team[agent].sampling)
        replayed.usage += usage
        env.step(acted(completion, usage))
        remember(chats, prompt, completion.text)
        earned += fmean(env.rewards.values())
        team, number = replay.team, number + 1
        agent = env.agent_selection
    return ReplayEnd(bool(env.infos[agent]["success"]), earned)


def _count(replayed: Replayed, error: Exception, max_failures: int) -> None:
    cause = f"{type(error).__name__}: {error}"
    if cause not in replayed.failures:
        _logger.info("a replay failed", exc_info=error)
    replayed.failures[cause] += 1
    num_failed = replayed.failures.total()
    if num_failed > max_failures:
        raise EvaluationStopped(
            f"{num_failed} replays failed, more than the {max_failures} allowed (--max-failures). "
            f"Most frequent cause: {replayed.failures.most_common(1)[0][0]}"
        ) from error
