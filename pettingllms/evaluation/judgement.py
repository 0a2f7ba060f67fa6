"""What is judged of an episode: values, JSON data and tables. `blame` says what they mean."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from pettingllms.env import role_of
from pettingllms.errors import InvalidArgument
from pettingllms.evaluation.presentation import mean, share, share_difference, tokens
from pettingllms.evaluation.report import figures_json
from pettingllms.evaluation.statistics import Interval, mean_interval
from pettingllms.policies import Usage
from pettingllms.tables import Block, TextTable
from pettingllms.transcript import Transcript

SUCCESS, RETURN = "success", "return"
MEASURES = (SUCCESS, RETURN)


@dataclass(frozen=True, kw_only=True, slots=True)
class BlameSettings:
    """How much is played again, and what counts."""

    num_replays: int = 32
    """M: replays of every state, answer of the other policy and coalition; at least 2."""
    measure: str = SUCCESS
    """What is lost: `"success"`, or `"return"` of the team (mean over its agents)."""
    seed: int = 0
    """Decides what policies draw in replays."""
    max_concurrency: int = 16
    """Concurrent replays, at least 1."""
    max_failures: int = 10
    """Replays that may fail; they are left out."""

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            InvalidArgument: If a value is out of its range.
        """
        if isinstance(self.num_replays, bool) or self.num_replays < 2:
            raise InvalidArgument("num_replays", self.num_replays, "an integer of at least 2")
        if self.measure not in MEASURES:
            raise InvalidArgument("measure", self.measure, "one of " + ", ".join(MEASURES))


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgedAnswer:
    """One answer of an episode; 95 % intervals."""

    index: int
    """Its place among the answers, from 0."""
    turn: int
    agent: str
    before: Interval
    """V of the state in which it was given."""
    after: Interval
    """V of the state that it led to."""
    drop: Interval
    """Before minus after; holds for all answers together."""
    instead: Interval | None
    """What is expected if the other policy gives this answer; None without such a policy."""
    missed: Interval | None
    """Instead minus after; holds for all answers together."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CoalitionValue:
    """What is expected of the level when only some players keep their policies."""

    kept: tuple[str, ...]
    """Players that keep them; the other policy plays for all others."""
    value: Interval


@dataclass(frozen=True, kw_only=True, slots=True)
class Blame:
    """Who lost an episode."""

    measure: str
    success: bool
    """Whether the recorded episode was solved."""
    answers: Sequence[JudgedAnswer]
    shares: Mapping[str, Interval]
    """Player -> its share; holds for all players together. Empty without another policy."""
    coalitions: Sequence[CoalitionValue]
    num_replays: int
    num_failed: int
    """Replays that came to no end."""
    usage: Usage
    """What the answers in replays cost."""

    @property
    def top(self) -> JudgedAnswer:
        """The answer with the largest drop; of equal ones the first."""
        return max(self.answers, key=lambda answer: answer.drop.value)

    @property
    def is_clear(self) -> bool:
        """Whether the largest drop is surely above 0."""
        return self.top.drop.low > 0

    def drop_of(self, player: str) -> float:
        """The sum of the drops of a role's, or an agent's, answers."""
        own = (a.drop.value for a in self.answers if player in (a.agent, role_of(a.agent)))
        return math.fsum(own)

    def to_json(self) -> dict[str, Any]:
        """The judgement as JSON data; intervals are objects, infinite ends null."""
        return {
            **figures_json(self),
            "top": self.top.index,
            "is_clear": self.is_clear,
        }


FORMAT = "pettingllms-blame"
VERSION = 1
FILE = "blame.json"


class JudgedEpisode(NamedTuple):
    """An episode and who lost it."""

    name: str
    transcript: Transcript
    blame: Blame


@dataclass(frozen=True, kw_only=True, slots=True)
class PlayerBlame:
    """What one role (or agent) lost over all episodes."""

    num_top: int
    """Episodes in which the largest drop is its answer's, and surely above 0."""
    drop: Interval
    """Sum of the drops of its answers; mean over episodes, with its 95 % interval."""
    share: Interval | None
    """Its share; mean over episodes, with its 95 % interval. None without another policy."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BlameReport:
    """All that `pettingllms blame` has found."""

    env_id: str
    policies: Mapping[str, str]
    """Role -> present policy."""
    instead: Mapping[str, str]
    """Role -> the other policy; empty without one."""
    settings: BlameSettings
    episodes: Sequence[JudgedEpisode]

    def players(self) -> dict[str, PlayerBlame]:
        """Player -> what it lost over all episodes."""
        blames = [episode.blame for episode in self.episodes]
        names = dict.fromkeys(n for blame in blames for n in (*_acting(blame), *blame.shares))
        return {name: _player(name, blames) for name in names}

    def to_json(self) -> dict[str, Any]:
        """Everything as JSON data; intervals are objects, infinite ends null."""
        return {
            "format": FORMAT,
            "version": VERSION,
            "env_id": self.env_id,
            "policies": dict(self.policies),
            "instead": dict(self.instead),
            "settings": asdict(self.settings),
            "players": figures_json(self.players()),
            "episodes": [
                {
                    "name": name,
                    **transcript.header(),
                    "blame": {**blame.to_json(), "verdict": verdict(blame)},
                    "steps": transcript.steps,
                }
                for name, transcript, blame in self.episodes
            ],
        }

    def parts(self) -> list[Block]:
        """Everything as headings, paragraphs and tables."""
        parts: list[Block] = [f"# Blame in {self.env_id}", self._setting()]
        for episode in self.episodes:
            parts += _episode_parts(episode)
        if len(self.episodes) > 1:
            parts += ["## All episodes", _players_table(self)]
        usage = sum((episode.blame.usage for episode in self.episodes), Usage())
        return [*parts, f"Tokens of replays: {tokens(usage)}."] if usage.num_requests else parts

    def _setting(self) -> str:
        played = ", ".join(f"{role}: {name}" for role, name in self.policies.items())
        text = f"Present policies: {played}. {self.settings.num_replays} replays of every state."
        if self.instead:
            instead = ", ".join(f"{role}: {name}" for role, name in self.instead.items())
            text += f" The other policy: {instead}."
        return text


def _acting(blame: Blame) -> list[str]:
    """The roles of those that answered; the agents where they have one role."""
    agents = [answer.agent for answer in blame.answers]
    roles = list(dict.fromkeys(map(role_of, agents)))
    return roles if len(roles) > 1 else list(dict.fromkeys(agents))


def _player(name: str, blames: Sequence[Blame]) -> PlayerBlame:
    shares = [blame.shares[name].value for blame in blames if name in blame.shares]
    return PlayerBlame(
        num_top=sum(
            blame.is_clear and name in (blame.top.agent, role_of(blame.top.agent))
            for blame in blames
        ),
        drop=mean_interval([blame.drop_of(name) for blame in blames]),
        share=mean_interval(shares) if shares else None,
    )


def _episode_parts(episode: JudgedEpisode) -> list[Block]:
    blame = episode.blame
    what = "success" if blame.measure == SUCCESS else "return"
    head = ["answer", "turn", "agent", f"{what} before", "after", "drop [95 %, jointly]"]
    if blame.answers[0].missed is not None:
        head.append("missed [95 %, jointly]")
    rows = [_row(answer, blame) for answer in blame.answers]
    parts: list[Block] = [f"## {episode.name}", verdict(blame), TextTable(head, rows)]
    if blame.num_failed:
        parts.append(f"{blame.num_failed} replays failed and are left out.")
    if blame.shares:
        shares = [(name, _change(value, blame)) for name, value in blame.shares.items()]
        parts.append(TextTable(["player", "share of the loss [95 %, jointly]"], shares))
        values = [
            (", ".join(one.kept) or "none", _level(one.value, blame)) for one in blame.coalitions
        ]
        parts.append(TextTable(["who keeps its policy", f"{what} of the level [95 %]"], values))
    return parts


def verdict(blame: Blame) -> str:
    """In one or two sentences who lost an episode."""
    top, start = blame.top, blame.answers[0].before
    where = f"answer {top.index + 1}, by {top.agent} in turn {top.turn + 1}"
    if blame.is_clear:
        return f"Lost by {where}: {_change(top.drop, blame)}."
    found = f"No single answer surely lost it; the largest drop is that of {where}."
    if sure := [str(answer.index + 1) for answer in blame.answers if answer.drop.low > 0]:
        found += f" Surely above 0, but smaller: {', '.join(sure)}."
    # What is mostly lost from the start has little to drop, whoever is to blame.
    if blame.measure == SUCCESS and start.value < 0.5:
        found += (
            f" The present policies solve this level in {share(start)} of plays anyway: look at "
            "what was missed, and at the shares."
        )
    return found


def _row(answer: JudgedAnswer, blame: Blame) -> list[str]:
    row = [str(answer.index + 1), str(answer.turn + 1), answer.agent]
    row += [_level(answer.before, blame), _level(answer.after, blame), _change(answer.drop, blame)]
    return row if answer.missed is None else [*row, _change(answer.missed, blame)]


def _level(value: Interval, blame: Blame) -> str:
    return share(value) if blame.measure == SUCCESS else mean(value)


def _change(value: Interval, blame: Blame) -> str:
    return share_difference(value) if blame.measure == SUCCESS else mean(value, sign="+")


def _players_table(report: BlameReport) -> TextTable:
    blame = report.episodes[0].blame
    rows = [
        [
            name,
            f"{one.num_top} of {len(report.episodes)}",
            _change(one.drop, blame),
            "-" if one.share is None else _change(one.share, blame),
        ]
        for name, one in report.players().items()
    ]
    head = ["player", "clear largest drop", "sum of drops [95 %]", "share of the loss [95 %]"]
    return TextTable(head, rows)
