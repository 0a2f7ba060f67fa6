"""Rewards beside those of the environment: judges, functions and reward models score answers.

`Scorer` is who scores, `Ledger` retains what was paid for, `Reward` and `Rewards` ask for each
content once, and `ShapedEpisodes` adds the scores to what the environment gives.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import json
import math
import re
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, Protocol, cast

from pettingllms import TextEnv, role_of
from pettingllms.ends import End, end_of_error
from pettingllms.errors import FOREIGN, counted
from pettingllms.files import json_line, open_to_append, read_lines
from pettingllms.loops import DaemonThreads
from pettingllms.parsing import after_thinking, encodable
from pettingllms.policies import Policy, PolicyFailure, Prompt, Sampling, Usage
from pettingllms.policies.protocol import uncancelled
from pettingllms.prompts import as_observation
from pettingllms_trainers.config.sections import RewardConfig, qualified
from pettingllms_trainers.errors import BudgetSpent, ConfigError, EpisodeFailure
from pettingllms_trainers.rollout.episode import Branch, Episodes, EpisodeState


class Exchange(NamedTuple):
    """A prompt with an answer, which is scored."""

    messages: tuple[Mapping[str, str], ...]
    """The prompt, as chat messages."""
    answer: str
    """The answer's text."""


class Assessment(NamedTuple):
    """The verdict of a scorer on an answer."""

    score: float | None
    """The score, finite; None when there is none."""
    text: str = ""
    """What a judge wrote, or why there is no score."""
    dollars: float = 0.0
    """What it cost, in US dollars."""
    end: End | None = None
    """Failure of the infrastructure, in which case nothing is said of the answer; else None."""


class Scorer(Protocol):
    """Scores answers; called concurrently."""

    async def score(self, exchange: Exchange, seed: int) -> Assessment:
        """The verdict on an answer; a failure is a verdict without a score, not an exception.

        Args:
            seed: In [0, 2**31); verdicts with different seeds are independent draws.
        """
        ...


_TEXT = """\
<prompt-{fence}>
{prompt}
</prompt-{fence}>
<answer-{fence}>
{answer}
</answer-{fence}>

{task}
{form}"""
_QUESTION = "About the answer above to the prompt above: {0.question}"
_RUBRIC = "Grade the answer above to the prompt above. {0.rubric}"
_LINE = "Think briefly, then reply on a last line with {}, and nothing else on it."
_OBJECT = 'Think briefly, then reply with a JSON object {{"thoughts": ..., "{}": {}}}.'
_GRADE_OF = "N, where N is a number from 0 to 10"
_NUM_TRIES = 2
"""How often a judge is asked whose verdict cannot be read."""
_COUNTED = ("reward", "key", "score", "dollars", "seconds")
"""Keys that a line of a `Ledger` needs."""
_TEMPLATE_TOKENS = 100
"""What a chat template adds to a prompt at most."""
_YES_OR_NO = re.compile(r"(?:(?:answer|verdict): *)?(yes|no)[.!]?", re.IGNORECASE)
_GRADE = re.compile(r"grade: *(\d+(?:\.\d+)?)(?: *(?:/|out of) *10)?[.!]?", re.IGNORECASE)
_EMPHASIS = str.maketrans("", "", "*_`")


class PolicyScorer:
    """Asks a policy, and asks again while its verdict cannot be read.

    Args:
        policy: Who is asked; its own settings say how often a request is sent again.
        config: Question or rubric, and how verdicts are drawn.
        extra: Further fields of its requests; see `Sampling.extra`.
    """

    def __init__(
        self, policy: Policy, config: RewardConfig, extra: Mapping[str, Any] | None = None
    ) -> None:
        self._policy, self._config = policy, config
        self._sampling = Sampling(
            temperature=config.temperature,
            max_completion_tokens=config.max_completion_tokens,
            extra={**(extra or {}), **(_response_format(config) if config.structured else {})},
        )

    async def score(self, exchange: Exchange, seed: int) -> Assessment:
        messages = [{"role": "user", "content": judge_prompt(self._config, exchange)}]
        dollars, text = 0.0, ""
        for number in range(_NUM_TRIES):
            # Another seed, or the judge would write the same unreadable text again.
            prompt = Prompt(messages, "judge_0", (seed + number) % 2**31)
            try:
                with uncancelled():
                    (answer,) = await self._policy.sample([prompt], 1, self._sampling)
            except PolicyFailure as error:
                dollars += self._cost(error.usage)
                return Assessment(None, str(error), dollars, _lost(error.end))
            (said,) = answer.completions
            dollars, text = dollars + self._cost(answer.usage), said.text
            # What was cut off had not come to its verdict, whatever its last line looks like.
            score = None if said.finish_reason == "length" else read_verdict(self._config, text)
            if score is not None:
                return Assessment(score, text, dollars)
        return Assessment(None, f"no verdict can be read in {text!r}", dollars)

    def _cost(self, usage: Usage) -> float:
        asked, written = self._config.dollars_per_million
        return (asked * usage.prompt_tokens + written * usage.completion_tokens) / 1e6


def judge_prompt(config: RewardConfig, exchange: Exchange) -> str:
    """What a judge reads.

    The name of the tags is of the content, so that no answer can close the one that quotes it.
    """
    prompt, answer = as_observation(exchange.messages), exchange.answer
    fence = hashlib.sha256(json.dumps([prompt, answer]).encode("ascii")).hexdigest()[:8]
    if config.question:
        task, form = _QUESTION, ("verdict", "yes or no") if config.structured else ("yes or no",)
    else:
        task, form = (
            _RUBRIC,
            ("grade", _GRADE_OF) if config.structured else (f"Grade: {_GRADE_OF}",),
        )
    asked = (_OBJECT if config.structured else _LINE).format(*form)
    return _TEXT.format(
        fence=fence, prompt=prompt, answer=answer, task=task.format(config), form=asked
    )


def most_dollars(config: RewardConfig, exchange: Exchange) -> float:
    """What a verdict may cost at most: no text has more tokens than bytes."""
    if not config.judge or not any(config.dollars_per_million):
        return 0.0
    num_read = len(judge_prompt(config, exchange).encode("utf-8", "replace")) + _TEMPLATE_TOKENS
    asked, written = config.dollars_per_million
    return _NUM_TRIES * (asked * num_read + written * config.max_completion_tokens) / 1e6


def read_verdict(config: RewardConfig, text: str) -> float | None:
    """The score in [0, 1] that a judge's text states in the form it was asked for, else None.

    After the thinking, on the last line, and alone on it: a `yes` or a number in a sentence may say
    anything.
    """
    rest = after_thinking(text)
    lines = rest.split("\n") if isinstance(rest, str) else []
    stated = [line for line in lines if line.strip()][-1:]
    if not stated:
        return None
    if config.structured:
        return _read_object(config, str(rest))
    line = stated[0].translate(_EMPHASIS).strip()
    if config.question:
        found = _YES_OR_NO.fullmatch(line)
        return float(found[1].lower() == "yes") if found else None
    found = _GRADE.fullmatch(line)
    return _score(float(found[1])) if found else None


def _score(grade: float) -> float | None:
    return grade / 10 if 0 <= grade <= 10 else None


_NUMBER = {"type": "number", "minimum": 0, "maximum": 10}


def _response_format(config: RewardConfig) -> dict[str, Any]:
    """The JSON object that a judge is asked for; thoughts come first, or they would not be any."""
    name, kind = ("verdict", {"enum": ["yes", "no"]}) if config.question else ("grade", _NUMBER)
    properties = {"thoughts": {"type": "string"}, name: kind}
    closed = {"required": list(properties), "additionalProperties": False}
    schema = {"type": "object", "properties": properties, **closed}
    named = {"name": "verdict", "strict": True, "schema": schema}
    return {"response_format": {"type": "json_schema", "json_schema": named}}


def _read_object(config: RewardConfig, text: str) -> float | None:
    try:
        found = json.loads(text)
    except (ValueError, RecursionError):
        return None
    name = "verdict" if config.question else "grade"
    value = cast("dict[str, Any]", found).get(name) if isinstance(found, dict) else None
    if config.question:
        return {"yes": 1.0, "no": 0.0}.get(value) if isinstance(value, str) else None
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return _score(value)


AnswerFunction = Callable[[Sequence[Mapping[str, str]], str], float]
"""``(messages, answer) -> score``; safe to call from several threads."""


_NUM_THREADS = 16
"""Calls of a function at the same time, at most: such functions mostly wait for servers."""


class FunctionScorer:
    """Scores answers by a function, in a thread; what it raises is a verdict without a score."""

    def __init__(self, function: AnswerFunction) -> None:
        self._function, self._threads = function, DaemonThreads(_NUM_THREADS)

    async def score(self, exchange: Exchange, seed: int) -> Assessment:
        messages = [dict(message) for message in exchange.messages]
        try:
            loop = asyncio.get_running_loop()
            call = loop.run_in_executor(self._threads, self._function, messages, exchange.answer)
            score = float(await call)
        except FOREIGN as error:
            end = _lost(end_of_error(error))
            return Assessment(None, f"{type(error).__name__}: {error}", end=end)
        if not math.isfinite(score):
            return Assessment(None, f"the score is {score}; allowed: a finite number")
        return Assessment(score)


def _lost(end: End) -> End | None:
    """An end if it is nobody's doing: the same answer may be judged when it is asked again."""
    return end if end.kind == "infrastructure" else None


class Spent(NamedTuple):
    """What the verdicts on a reward have taken, in earlier parts of a resumed run too."""

    num_verdicts: int = 0
    """Verdicts, those without a score included."""
    dollars: float = 0.0
    """Their cost in US dollars."""
    seconds: float = 0.0
    """Sum of their wall times, also of verdicts that were asked for at the same time."""


class Ledger:
    """The verdicts on one reward, in a JSON-lines file, and what they took.

    Verdicts are found again by content, those without a score too, except where the infrastructure
    failed. In a resumed run the train steps after the checkpoint are played again: equal answers
    get the verdicts that they had, even where a judge would now say something else.

    Args:
        path: The file; None keeps nothing beyond this process.
        name: Name of the reward in the run file.
        config: The reward, with its budget.
        num_shares: Processes that share the budget.
    """

    def __init__(
        self, path: Path | None, name: str, config: RewardConfig, num_shares: int = 1
    ) -> None:
        self._path, self._name, self._config = path, name, config
        self._num_shares = num_shares
        self._scores: dict[str, float | None] = {}
        self.spent = Spent()
        """What all verdicts have taken so far."""
        self._reserved, self._num_asked = 0.0, 0
        self._freed = asyncio.Condition()
        for line in read_lines(path, *_COUNTED) if path else ():
            if line["reward"] == name:
                self._count(line)

    def find(self, key: str) -> Assessment | None:
        """The score of an earlier verdict, as a verdict; None: there was none."""
        return Assessment(self._scores[key]) if key in self._scores else None

    def add(self, key: str, exchange: Exchange, verdict: Assessment, seconds: float) -> None:
        """Write down a verdict."""
        line = {
            "reward": self._name,
            "key": key,
            "score": verdict.score,
            "end": verdict.end,
            "dollars": verdict.dollars,
            "seconds": round(seconds, 4),
            "answer": exchange.answer,
            "verdict": verdict.text,
        }
        self._count(line)
        if self._path:
            with open_to_append(self._path) as file:
                file.write(json_line(line))

    @contextlib.asynccontextmanager
    async def reserved(self, dollars: float) -> AsyncIterator[None]:
        """Set aside what a verdict may cost, while it is asked for.

        Waits while others have set aside what is left: most cost less than they may.

        Raises:
            BudgetSpent: There is no money or time left for it.
        """
        async with self._freed:
            await self._freed.wait_for(lambda: self._fits(dollars) or not self._num_asked)
            self._check_budget(dollars)
            self._reserved += dollars
            self._num_asked += 1
        try:
            yield
        finally:
            async with self._freed:
                self._reserved -= dollars
                self._num_asked -= 1
                self._freed.notify_all()

    def _fits(self, dollars: float) -> bool:
        limit = self._config.max_dollars / self._num_shares
        return not limit or self.spent.dollars + self._reserved + dollars <= limit

    def _check_budget(self, dollars: float) -> None:
        if not self._fits(dollars):
            taken = f"{self.spent.dollars:.4g} dollars (the next may cost {dollars:.2g})"
            self._refuse("dollars", taken)
        limit = self._config.max_seconds / self._num_shares
        if limit and self.spent.seconds >= limit:
            self._refuse("seconds", f"{self.spent.seconds:.4g} seconds")

    def _refuse(self, unit: str, taken: str) -> NoReturn:
        limit = getattr(self._config, f"max_{unit}") / self._num_shares
        raise BudgetSpent(
            f"rewards.{self._name} has taken {taken} for "
            f"{counted(self.spent.num_verdicts, 'verdict')}, and max_{unit} = {limit:g}. Raise "
            f"rewards.{self._name}.max_{unit} and resume the run: "
            "verdicts are kept"
        )

    def _count(self, line: Mapping[str, Any]) -> None:
        if line.get("end") is None:
            self._scores[line["key"]] = line["score"]
        self.spent = Spent(
            self.spent.num_verdicts + 1,
            self.spent.dollars + line["dollars"],
            self.spent.seconds + line["seconds"],
        )


def content_key(config: RewardConfig, exchange: Exchange, number: int) -> str:
    """32 hexadecimal digits of all that decides a verdict.

    Args:
        config: Who is asked what. Weights and budgets do not matter.
        number: Which verdict on it, from 0.
    """
    names = ("judge", "question", "rubric", "structured", "function", "model", "temperature")
    asked = [getattr(config, name) for name in names]
    content = [*asked, [dict(one) for one in exchange.messages], exchange.answer, number]
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:32]


AGAIN = " again"
"""Ends the name of a second score of the same answer."""


class ExtraReward(NamedTuple):
    """What an answer earns beside the environment's reward."""

    reward: float
    """Weighted sum of its scores."""
    scores: Mapping[str, float]
    """Name of a reward to its score; with `AGAIN` at the end, to a second score of the answer."""


_NOTHING = ExtraReward(0.0, {})


class Reward:
    """One reward of a run: scores answers, each content once.

    Args:
        name: Its name in the run file.
        config: Its table of the run file.
        scorer: Gives the verdicts.
        ledger: Keeps them.
    """

    def __init__(self, name: str, config: RewardConfig, scorer: Scorer, ledger: Ledger) -> None:
        self.name, self.config, self.ledger = name, config, ledger
        self._scorer = scorer
        self._asked: dict[str, asyncio.Task[Assessment]] = {}

    async def scores(self, exchange: Exchange) -> list[float]:
        """One score of an answer, or two.

        Which answers are judged twice depends on their content alone.

        Raises:
            BudgetSpent: There is no money or time left for it.
            EpisodeFailure: Nobody could be asked.
        """
        # By content, not by a draw: a resumed run judges the same answers twice.
        first = content_key(self.config, exchange, 0)
        is_twice = int(first[:8], 16) < self.config.judged_twice * 2**32
        keys = [first, content_key(self.config, exchange, 1)] if is_twice else [first]
        found = await asyncio.gather(*(self._score(key, exchange) for key in keys))
        for one in found:
            if one.end is not None:
                kind = f"rewards.{self.name} has no score"
                raise EpisodeFailure(f"{kind}: {one.text}", one.end, kind)
        scores = [one.score for one in found if one.score is not None]
        # What cannot be judged is an outcome: left out, it would be what a policy can write.
        return scores if found[0].score is not None else [self.config.on_failure]

    async def tried(self, exchange: Exchange) -> str:
        """Why a first answer has no score; empty when it has one, or a judge was not clear."""
        verdict = await self._score(content_key(self.config, exchange, 0), exchange)
        is_unclear = verdict.end is None and bool(self.config.judge)
        return "" if verdict.score is not None or is_unclear else verdict.text

    async def _score(self, key: str, exchange: Exchange) -> Assessment:
        """A verdict; equal answers that wait share one request."""
        if (known := self.ledger.find(key)) is not None:
            return known
        if key not in self._asked:
            self._asked[key] = asyncio.ensure_future(self._ask(key, exchange))
        # Shielded: others may wait for the same verdict when one who asked is cancelled.
        return await asyncio.shield(self._asked[key])

    async def _ask(self, key: str, exchange: Exchange) -> Assessment:
        try:
            async with self.ledger.reserved(most_dollars(self.config, exchange)):
                started = time.perf_counter()
                verdict = await self._scorer.score(exchange, int(key[-7:], 16))
                self.ledger.add(key, exchange, verdict, time.perf_counter() - started)
            return verdict
        finally:
            del self._asked[key]


class Rewards:
    """All rewards of a run.

    Args:
        rewards: In the order of the run file; may be none.
    """

    def __init__(self, rewards: Sequence[Reward] = ()) -> None:
        self.rewards = tuple(rewards)
        """The rewards."""

    async def tried(self, exchanges: Mapping[str, Exchange]) -> None:
        """Ask every reward once, before anything else is spent.

        Raises:
            ConfigError: A reward has no score for the answer.
            BudgetSpent: There is no money or time left for it.
        """
        for one in self.rewards:
            role = next((role for role in exchanges if one.config.weight_of(role)), None)
            failure = "" if role is None else await one.tried(exchanges[role])
            if failure:
                raise ConfigError(
                    f"rewards.{one.name} has no score for a first answer of {role}: {failure}"
                )

    async def judge(self, role: str, exchange: Exchange) -> ExtraReward:
        """What an answer earns beside the environment's reward.

        Args:
            role: Who gave it; `ENV.ROLE` in a run of several environments.

        Raises:
            BudgetSpent: There is no money or time left for it.
            EpisodeFailure: Nobody could be asked.
        """
        asked = [one for one in self.rewards if one.config.weight_of(role)]
        found = await asyncio.gather(*(one.scores(exchange) for one in asked))
        total, scores = 0.0, dict[str, float]()
        for one, values in zip(asked, found, strict=True):
            total += one.config.weight_of(role) * values[0]
            scores |= dict(zip((one.name, one.name + AGAIN), values, strict=False))
        return ExtraReward(total, scores)


class _ShapedBranch(NamedTuple):
    """What is added to the rewards of a branch."""

    agent: str
    """Who gave the answer."""
    extra: float
    """Added to the reward of this agent."""
    cut: float
    """Added to the rewards of all agents."""
    end: End | None
    """Why the episode is over after the branch; None while it is not."""


Fits = Callable[[str, Sequence[Mapping[str, str]]], bool]
"""Whether an agent's model can read some messages, and write the longest answer to them."""


class ShapedEpisodes:
    """Wraps `Episodes` with the rewards and the limits of training.

    All rewards, and their team and local parts, are multiplied by `env.reward_scale`. The scores of
    an answer are added to the local part of the acting agent, as a judge reads one answer.

    After an answer that makes a next prompt too long for its model, the episode is over, as after
    one that the environment could not carry out: both cost the team `rollout.cut_reward`. This
    holds for all branches, not only for the one that is followed.

    Args:
        episodes: The episodes that are wrapped.
        rewards: Score the answers.
        scale: Factor of the environment's rewards, at least 0.
        env: Name of the environment in a run of several; else empty.
        cut_reward: Added to all rewards where an episode is cut off.
        fits: Whether a prompt fits the model of an agent.
    """

    def __init__(
        self,
        episodes: Episodes,
        rewards: Rewards,
        scale: float = 1,
        env: str = "",
        cut_reward: float = 0.0,
        fits: Fits = lambda agent, messages: True,
    ) -> None:
        self._episodes, self._scale = episodes, scale
        self._rewards, self._env = rewards, env
        self._cut_reward, self._fits = cut_reward, fits
        self._states: dict[int, EpisodeState] = {}
        self._branches: dict[int, list[_ShapedBranch]] = {}

    async def start(self, env_seed: int) -> tuple[int, EpisodeState]:
        episode, state = await self._episodes.start(env_seed)
        return episode, self._now(episode, self._shaped(state))

    async def branch(self, episode: int, texts: Sequence[str]) -> tuple[Branch, ...]:
        state = self._states[episode]
        role = qualified(self._env, role_of(state.agent))
        if not self._rewards.rewards:
            below, extras = await self._episodes.branch(episode, texts), [_NOTHING] * len(texts)
        else:  # both at once: a judge may take as long as the environment
            # Servers of fixed policies may send what nobody could tokenise or send on.
            exchanges = [Exchange(state.messages, encodable(str(text))) for text in texts]
            below, extras = await asyncio.gather(
                self._episodes.branch(episode, texts),
                asyncio.gather(*(self._rewards.judge(role, one) for one in exchanges)),
            )
        found = [self._of(*pair, state.agent) for pair in zip(below, extras, strict=True)]
        self._branches[episode] = found
        return tuple(map(self._with_reward, below, extras, found))

    async def follow(self, episode: int, index: int) -> EpisodeState:
        branch = self._branches.pop(episode)[index]
        state = await self._episodes.follow(episode, index)
        return self._now(episode, self._shaped(state, branch))

    async def successors(self, episode: int) -> tuple[EpisodeState, ...]:
        states = await self._episodes.successors(episode)
        return tuple(map(self._shaped, states, self._branches[episode]))

    async def fork(self, episode: int, index: int | None = None) -> tuple[int, EpisodeState]:
        copy, state = await self._episodes.fork(episode, index)
        if index is None:
            return copy, self._now(copy, self._states[episode])
        return copy, self._now(copy, self._shaped(state, self._branches[episode][index]))

    async def environment(self, episode: int) -> TextEnv[Any]:
        return await self._episodes.environment(episode)

    async def close(self, episode: int) -> None:
        self._states.pop(episode, None)
        self._branches.pop(episode, None)
        await self._episodes.close(episode)

    def _now(self, episode: int, state: EpisodeState) -> EpisodeState:
        self._states[episode] = state
        return state

    def _of(self, branch: Branch, extra: ExtraReward, agent: str) -> _ShapedBranch:
        end = branch.end
        if end is None and not all(self._fits(*asked) for asked in branch.asked):
            end = End.CONTEXT
        cut = self._cut_reward if end in _CUT_OFF else 0.0
        return _ShapedBranch(agent, extra.reward, cut, end)

    def _shaped(self, state: EpisodeState, branch: _ShapedBranch | None = None) -> EpisodeState:
        cut = 0.0 if branch is None else branch.cut
        rewards = {agent: reward * self._scale + cut for agent, reward in state.rewards.items()}
        if branch is None:
            return replace(state, rewards=rewards)
        rewards[branch.agent] += branch.extra
        if branch.end is state.end:
            return replace(state, rewards=rewards)
        over = replace(state, truncated=True, end=branch.end, messages=(), co_acting=())
        return replace(over, rewards=rewards)

    def _with_reward(self, branch: Branch, extra: ExtraReward, shaped: _ShapedBranch) -> Branch:
        reward = branch.reward * self._scale + extra.reward + shaped.cut
        return branch._replace(
            env_reward=None if reward == branch.reward else branch.reward,
            reward=reward,
            team=branch.team * self._scale + shaped.cut,
            local=branch.local * self._scale + extra.reward,
            judged=extra.scores,
            end=shaped.end,
        )


_CUT_OFF = (End.CODE, End.CONTEXT, End.TIME)
