"""Which answer lost an episode, and whose policy: forks at every answer, played on many times.

An episode is the answers a_1, ..., a_T with the states s_0, ..., s_T around them. V(s) is what the
present policies can expect from a state on, over the whole episode: the chance of success, or the
team's return. It is the mean of M replays from that state, fresh ones: the recorded episode was
chosen because it failed, so its own outcome counts in no mean but as V(s_T), where nothing is left
to chance.

- The *drop* of an answer is V(s_{t-1}) - V(s_t). Drops of an episode add up to V(s_0) minus its
  outcome: the whole loss is divided among the answers.
- What is *missed* by an answer is V(s_{t-1}, a') - V(s_t), where another policy gives this one
  answer a' and the present ones play on. It is large, and the drop 0, where the present policies
  always answer like this.
- The *share* of a player (a role, or an agent of a team of one role) is its Shapley value in the
  game in which a coalition of players keeps its present policies, from s_0 on, while the other
  policy plays for all others: what is lost by keeping its policy, mean over all orders in which
  players can be replaced. Shares add up to what the other policy expects alone, minus V(s_0).

Each is a weighted sum of independent means. Its interval is made of theirs by square-and-add
(`weighted_sum`): Wilson intervals of chances, for which that is Newcombe's hybrid score interval,
and t intervals of returns. Whoever looks at the largest of T drops has chosen among T, so the
intervals of a column hold together with 95 % (Bonferroni: each has 1 - 0.05 / T).

Source:
    The continuations of VinePPO (arXiv 2410.01679, section 4); changed: they judge the answer that
    was given by the difference of the states around it, and all answers of an episode at once.
    Shapley, "A value for n-person games" (1953).
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import combinations, product
from statistics import fmean
from typing import Any, NamedTuple

from pettingllms.arguments import check_whole
from pettingllms.env import TextEnv, role_of
from pettingllms.errors import InvalidArgument, counted
from pettingllms.evaluation.episode import (
    Chats,
    has_ended,
    one_answer,
    play_on,
    prompt_of,
    remember,
)
from pettingllms.evaluation.report import figures_json, mean, share, share_difference, tokens
from pettingllms.evaluation.run_folder import play_all
from pettingllms.evaluation.statistics import (
    CONFIDENCE,
    Interval,
    mean_interval,
    weighted_sum,
    wilson_interval,
)
from pettingllms.policies import Completion, Policy, Prompt, Sampling, Usage
from pettingllms.seeding import derive_seed
from pettingllms.tables import Block, TextTable
from pettingllms.transcript import RecordTranscripts, Transcript

# Players of which shares are computed: there are two to this power coalitions.
MAX_PLAYERS = 6


async def judge(
    transcript: Transcript,
    team: Team,
    other: Team | None,
    settings: BlameSettings,
    on_progress: Callable[[Replayed], None] = lambda replayed: None,
) -> Blame:
    """Who lost an episode; see the module for what is estimated.

    Args:
        transcript: The episode; one that was not played to its end is judged by what follows.
        team: Agent -> the present policy.
        other: Agent -> the other policy; None: nobody is replaced.
        settings: How much is played again.
        on_progress: Called after every replay.

    Raises:
        InvalidArgument: If the episode has no answers.
        ReplayDivergence: If it does not play again as recorded.
        PolicyUnavailable: If a policy cannot be used any more.
        EvaluationStopped: If more replays failed than allowed.
    """
    if not transcript.steps:
        raise InvalidArgument("episode", "no answers", "an episode with at least one answer")
    plan = _Plan(moments_of(transcript), team, other, settings)
    replayed = Replayed(num_replays=len(plan.forks) * settings.num_replays)
    await play_all(
        plan.replays(),
        lambda replay: _play_on(replay, replayed),
        replayed.failures,
        "replay",
        max_concurrency=settings.max_concurrency,
        max_failures=settings.max_failures,
        after=lambda: on_progress(replayed),
    )
    means = _Means(replayed, plan, settings.measure)
    return Blame(
        measure=settings.measure,
        success=bool(transcript.steps[-1]["success"]),
        answers=_answers(transcript, means, has_other=other is not None),
        shares=_shares(plan.players, means) if plan.coalitions else {},
        coalitions=[
            CoalitionValue(kept=tuple(sorted(kept)), value=means.of(kept, CONFIDENCE))
            for kept in plan.coalitions
        ],
        num_replays=settings.num_replays,
        num_failed=replayed.failures.total(),
        usage=replayed.usage,
    )


@dataclass
class _Plan:
    """From which moments an episode is played on, and by whom."""

    moments: Sequence[ReplayPoint]
    """The moments before every answer, and the one after the last."""
    team: Team
    """The present policies."""
    other: Team | None
    """The other policies; None: nobody is replaced."""
    settings: BlameSettings
    forks: dict[Any, tuple[ReplayPoint, Team, Team]] = field(init=False)
    """Place -> moment, team, and the team that gives the first answer. Places are: the number of a
    moment, (number, "instead"), and coalitions."""

    def __post_init__(self) -> None:
        self.players = players_of(self.moments[0].env.possible_agents)
        self.known = _known(self.moments[-1])
        is_played = len(self.players) <= MAX_PLAYERS and self.other is not None
        # Shares of many players would cost more replays than all answers together.
        self.coalitions = coalitions_of(self.players) if is_played else []
        self.forks = {
            number: (moment, self.team, self.team)
            for number, moment in enumerate(self.moments)
            if number < len(self.moments) - 1 or self.known is None
        }
        if self.other is None:
            return
        for number, moment in enumerate(self.moments[:-1]):
            self.forks[number, "instead"] = (moment, self.team, self.other)
        # A coalition is played from the start: its members answer from the first turn on.
        for kept in self.coalitions[:-1]:  # that of all is what moment 0 is played on for
            mixed = self._mixed(kept)
            self.forks[kept] = (self.moments[0], mixed, mixed)

    def _mixed(self, kept: Coalition) -> Team:
        assert self.other is not None
        keeping = {agent for player in kept for agent in self.players[player]}
        return {a: self.team[a] if a in keeping else self.other[a] for a in self.team}

    def replays(self) -> Iterator[Replay]:
        """Yield all replays; one of every place in turn, so that what is played first is even."""
        for number, place in product(range(self.settings.num_replays), self.forks):
            name = ("kept", *sorted(place)) if isinstance(place, frozenset) else (str(place),)
            seed = derive_seed(self.settings.seed, "blame", *name, number)
            yield Replay(place, *self.forks[place], seed)


def _known(moment: ReplayPoint) -> ReplayEnd | None:
    """How an episode has ended; None if it has not."""
    if not has_ended(moment.env):
        return None
    is_success = moment.env.infos[moment.env.agent_selection]["success"]
    return ReplayEnd(bool(is_success), moment.earned)


class _Means:
    """The mean success or return of the replays of every place."""

    def __init__(self, replayed: Replayed, plan: _Plan, measure: str) -> None:
        self._is_share = measure == SUCCESS
        self._values = {place: self._measured(replayed.ends.get(place, [])) for place in plan.forks}
        # One end has no spread, and without spread there is no interval.
        if missing := [place for place, values in self._values.items() if len(values) < 2]:
            raise InvalidArgument(
                "replays",
                f"fewer than 2 that came to an end at {missing[0]}",
                "at least 2 of every state",
                f"Causes: {dict(replayed.failures)}.",
            )
        self._all = frozenset(plan.players)
        self._known = {} if plan.known is None else {len(plan.moments) - 1: plan.known}

    def _measured(self, ends: Sequence[ReplayEnd]) -> list[float]:
        return [float(end.success) if self._is_share else end.team_return for end in ends]

    def of(self, place: Any, confidence: float) -> Interval:
        """The mean of a place with an interval."""
        if place in self._known:
            (value,) = self._measured([self._known[place]])
            return Interval(value, value, value)
        # Where all keep their policies, the present team plays: that is moment 0.
        values = self._values[0 if place == self._all else place]
        if not self._is_share:
            return mean_interval(values, confidence)
        chance = fmean(values)
        return Interval(chance, *wilson_interval(chance, len(values), confidence))

    def sum(self, weights: Sequence[float], places: Sequence[Any], confidence: float) -> Interval:
        """A weighted sum of means; of chances it is in [-1, 1], as all sums here are."""
        found = weighted_sum(weights, [self.of(place, confidence) for place in places])
        if not self._is_share:
            return found
        return Interval(found.value, max(-1.0, found.low), min(1.0, found.high))


def _answers(transcript: Transcript, means: _Means, *, has_other: bool) -> list[JudgedAnswer]:
    steps = transcript.steps
    joint = 1 - (1 - CONFIDENCE) / len(steps)

    def minus(first: Any, second: Any) -> Interval:
        return means.sum((1, -1), (first, second), joint)

    return [
        JudgedAnswer(
            index=index,
            turn=step["turn"],
            agent=step["agent"],
            before=means.of(index, CONFIDENCE),
            after=means.of(index + 1, CONFIDENCE),
            drop=minus(index, index + 1),
            instead=means.of((index, "instead"), CONFIDENCE) if has_other else None,
            missed=minus((index, "instead"), index + 1) if has_other else None,
        )
        for index, step in enumerate(steps)
    ]


def _shares(players: Mapping[str, Any], means: _Means) -> dict[str, Interval]:
    joint = 1 - (1 - CONFIDENCE) / len(players)
    weights = {player: shapley_weights(player, tuple(players)) for player in players}
    return {player: means.sum([*own.values()], [*own], joint) for player, own in weights.items()}


class Seat(NamedTuple):
    """Who answers for an agent, and how."""

    policy: Policy
    sampling: Sampling = Sampling()
    """How its completions are drawn."""


Team = Mapping[str, Seat]
"""Agent -> who answers for it."""


class ReplayPoint(NamedTuple):
    """A moment of an episode, from which it can be played on any number of times."""

    env: TextEnv[Any]
    """Only forks of it are played."""
    chats: Chats
    """Agent -> its chat so far, with `observation_mode="delta"`."""
    earned: float
    """Return of the team so far: the sum of rewards, mean over the agents."""


class ReplayEnd(NamedTuple):
    """The outcome of an episode."""

    success: bool
    team_return: float
    """Return of the whole episode: the sum of rewards, mean over the agents."""


class Replay(NamedTuple):
    """An episode to be played on from a moment."""

    place: Hashable
    """The mean that its outcome belongs to; see `_Plan.forks`."""
    moment: ReplayPoint
    team: Team
    """Who gives all answers but the first."""
    opening: Team
    """Who gives the first answer."""
    seed: int
    """Decides what policies draw."""


@dataclass(kw_only=True)
class Replayed:
    """The outcomes of replays so far."""

    num_replays: int
    """Replays to be played in all."""
    ends: dict[Hashable, list[ReplayEnd]] = field(default_factory=dict[Hashable, list[ReplayEnd]])
    """Place -> outcomes of its finished replays."""
    failures: Counter[str] = field(default_factory=Counter[str])
    """Cause -> number of replays that failed; no mean counts them."""
    usage: Usage = field(default_factory=Usage)
    """What all answers cost, including those of failed replays."""

    @property
    def num_finished(self) -> int:
        """Replays that are over, failed ones included."""
        return sum(map(len, self.ends.values())) + self.failures.total()


def moments_of(transcript: Transcript) -> list[ReplayPoint]:
    """The moments before every answer of an episode, and the one after the last.

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
        # `moments` steps one environment on; each point needs a fork of its own.
        found.append(ReplayPoint(env.fork(), dict(chats), earned))
        if step is not None:
            remember(chats, prompt_of(env, chats, 0), step["action"])
    return found


async def _play_on(replay: Replay, replayed: Replayed) -> None:
    env, earned = replay.moment.env.fork(), replay.moment.earned

    async def ask(number: int, prompt: Prompt) -> tuple[Completion, Usage]:
        seat = (replay.team if number else replay.opening)[prompt.agent]
        return await one_answer(seat.policy, prompt, seat.sampling)

    seed_of, chats = partial(derive_seed, replay.seed), dict(replay.moment.chats)
    async for _, _, usage in play_on(RecordTranscripts(env), chats, seed_of, ask):
        replayed.usage += usage
        earned += fmean(env.rewards.values())
    end = ReplayEnd(bool(env.infos[env.agent_selection]["success"]), earned)
    replayed.ends.setdefault(replay.place, []).append(end)


Coalition = frozenset[str]
"""Players that keep their present policies."""


def players_of(agents: Sequence[str]) -> dict[str, tuple[str, ...]]:
    """Player -> its agents: the roles of a team, or the agents of one role."""
    roles = dict.fromkeys(map(role_of, agents))
    if len(roles) == 1:
        return {agent: (agent,) for agent in agents}
    return {role: tuple(a for a in agents if role_of(a) == role) for role in roles}


def coalitions_of(players: Iterable[str]) -> list[Coalition]:
    """All coalitions of players, the empty one first and that of all last."""
    names = tuple(players)
    return [frozenset(kept) for size in range(len(names) + 1) for kept in combinations(names, size)]


def shapley_weights(player: str, players: Sequence[str]) -> dict[Coalition, float]:
    """Coalition -> its weight in what is lost by keeping a player's policy.

    Returns:
        All 2**n coalitions S of players that keep their policies: `|S|! (n - |S| - 1)! / n!` for
        one without the player, minus the weight of that coalition for one with the player.
    """
    n = len(players)
    weights: dict[Coalition, float] = {}
    for kept in coalitions_of(one for one in players if one != player):
        weight = math.factorial(len(kept)) * math.factorial(n - len(kept) - 1) / math.factorial(n)
        weights[kept] = weight
        weights[kept | {player}] = -weight
    return weights


# ---- what is judged: values, JSON data and tables

SUCCESS, RETURN = "success", "return"
MEASURES = (SUCCESS, RETURN)


@dataclass(frozen=True, kw_only=True, slots=True)
class BlameSettings:
    """How much is played again, and by what an episode is judged."""

    num_replays: int = 32
    """M: replays of every state, answer of the other policy and coalition; at least 2."""
    measure: str = SUCCESS
    """What is lost: `"success"`, or `"return"` of the team (mean over its agents)."""
    seed: int = 0
    """Decides what policies draw in replays."""
    max_concurrency: int = 16
    """Concurrent replays, at least 1."""
    max_failures: int = 10
    """Replays that may fail, at least 0; no mean counts them."""

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            InvalidArgument: If a value is out of its range.
        """
        num_replays = check_whole("num_replays", self.num_replays, 2)
        object.__setattr__(self, "num_replays", num_replays)
        if self.measure not in MEASURES:
            raise InvalidArgument("measure", self.measure, "one of " + ", ".join(MEASURES))


@dataclass(frozen=True, kw_only=True, slots=True)
class JudgedAnswer:
    """What one answer of an episode lost, with 95 % intervals.

    The intervals of `drop` and `missed` hold for all answers together, the others each by itself.
    """

    index: int
    """Number of the answer in the episode, from 0."""
    turn: int
    """Number of its turn, from 0."""
    agent: str
    """Who gave it."""
    before: Interval
    """V of the state in which it was given."""
    after: Interval
    """V of the state that it led to."""
    drop: Interval
    """`before` minus `after`."""
    instead: Interval | None
    """V if the other policy gives this answer; None without another policy."""
    missed: Interval | None
    """`instead` minus `after`; None without another policy."""


@dataclass(frozen=True, kw_only=True, slots=True)
class CoalitionValue:
    """V of the first state when only some players keep their present policies."""

    kept: tuple[str, ...]
    """The players that do; the other policy plays for all others."""
    value: Interval
    """V with its own 95 % interval."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Blame:
    """Who lost an episode."""

    measure: str
    """The unit of all intervals: `"success"`, or `"return"` of the team."""
    success: bool
    """Whether the recorded episode was solved."""
    answers: Sequence[JudgedAnswer]
    """One for each answer, in order."""
    shares: Mapping[str, Interval]
    """Player -> its share; 95 % intervals that hold for all players together. Empty without another
    policy, and with more than `MAX_PLAYERS` players."""
    coalitions: Sequence[CoalitionValue]
    """All coalitions of players, the empty one first; empty where `shares` is."""
    num_replays: int
    """Replays of every place, as in `BlameSettings`."""
    num_failed: int
    """Replays that failed."""
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
        return {**figures_json(self), "top": self.top.index, "is_clear": self.is_clear}


FORMAT = "pettingllms-blame"
VERSION = 1
FILE = "blame.json"


class JudgedEpisode(NamedTuple):
    """An episode and who lost it."""

    name: str
    """What reports call it, such as `level 3, sample 0`."""
    transcript: Transcript
    blame: Blame


@dataclass(frozen=True, kw_only=True, slots=True)
class PlayerBlame:
    """What one player (a role, or an agent of a team of one role) lost over all episodes."""

    num_top: int
    """Episodes whose largest drop is that of the player's answer, with an interval above 0."""
    drop: Interval
    """Sum of the drops of its answers in an episode: mean over episodes, 95 % interval."""
    share: Interval | None
    """Its share: mean over episodes, 95 % interval. None without another policy."""


@dataclass(frozen=True, kw_only=True, slots=True)
class BlameReport:
    """The results of `pettingllms blame`."""

    env_id: str
    """Id of the environment, or its source."""
    policies: Mapping[str, str]
    """Role -> name of its present policy."""
    instead: Mapping[str, str]
    """Role -> name of the other policy; empty without one."""
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
        replays = counted(self.settings.num_replays, "replay")
        text = f"Current policies: {played}. {replays} of every state."
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
        parts.append(f"Left out: {counted(blame.num_failed, 'replay')} that failed.")
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
    found = f"No single answer clearly lost it; the largest drop is that of {where}."
    if sure := [str(answer.index + 1) for answer in blame.answers if answer.drop.low > 0]:
        found += f" Clearly above 0, but smaller: {', '.join(sure)}."
    # What is mostly lost from the start has little to drop, whoever is to blame.
    if blame.measure == SUCCESS and start.value < 0.5:
        found += (
            f" The current policies solve this level in {share(start)} of plays anyway: look at "
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
