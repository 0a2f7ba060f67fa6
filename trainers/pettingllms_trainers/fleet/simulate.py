"""A run on engines that are simulated: its own rollouts, on a clock that never waits."""

from __future__ import annotations

import asyncio
import functools
import heapq
import itertools
import math
import random
import selectors
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from statistics import fmean
from typing import Any, NamedTuple, cast

from pettingllms import TextEnv
from pettingllms_trainers.config import Config
from pettingllms_trainers.config.algorithm import StepContext
from pettingllms_trainers.config.sections import base_groups
from pettingllms_trainers.fleet.speeds import EngineSpeed, LearningSpeed
from pettingllms_trainers.fleet.workload import Workload, longest_answer
from pettingllms_trainers.policies.pool import Batcher, ModelPolicy, PolicyPool
from pettingllms_trainers.policies.protocols import Update
from pettingllms_trainers.ranks import Ranks, StopRequest
from pettingllms_trainers.rollout.candidates import FailureLog, at_once, value_at_once
from pettingllms_trainers.rollout.environments import RunEnvironment
from pettingllms_trainers.rollout.episode import Asked, Branch, EpisodeState
from pettingllms_trainers.rollout.sampler import (
    InFlightRollouts,
    Sample,
    Sampler,
    TrainingEnvironment,
    WeightGate,
    has_only_stragglers,
)
from pettingllms_trainers.runs.metrics import age_metrics
from pettingllms_trainers.types import (
    GenerateRequest,
    RequestLimits,
    RolloutTree,
    TokenCompletion,
)


class VirtualLoop(asyncio.SelectorEventLoop):
    """Runs coroutines in simulated time; `time` is in simulated seconds, from 0.

    Coroutines may await each other and `asyncio.sleep`, no sockets and no threads.

    Source:
        Discrete-event simulation: with nothing left to do at a moment the clock goes to the next
        event (Law, Simulation Modeling and Analysis, section 1.3).
    """

    def __init__(self) -> None:
        self._now_s = 0.0
        super().__init__(_Leaping(self))

    def time(self) -> float:
        """The simulated seconds since the start."""
        return self._now_s

    def leap(self, seconds: float) -> None:
        """Let time pass in which nothing else happens here: to the next event, or in a caller."""
        self._now_s += seconds


class _Leaping(selectors.DefaultSelector):
    """Selects without waiting: the loop's time passes instead."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        # Never waits: what is ready now is all that can be ready at this moment.
        ready = super().select(0)
        if not ready and timeout is None:
            raise RuntimeError("the simulation stands still: all wait, and nothing is to happen")
        if not ready and timeout:
            # Nothing can happen before the loop's next timer, so that the clock may go there.
            self._loop.leap(timeout)
        return ready


Draw = Callable[[int, random.Random], int]
"""From the place of a prompt (`place_of`) and chance to the tokens of an answer."""

_LIMITS = RequestLimits(max_batch_tokens=1 << 62, context_length=None, vocab_size=1 << 31)


@functools.lru_cache(maxsize=4096)
def prompt_of(place: int, num_tokens: int) -> tuple[int, ...]:
    """A prompt of a length, at least 1, that names the place it is asked at."""
    return (place, *[0] * (num_tokens - 1))


@functools.lru_cache(maxsize=4096)
def _answer(num_tokens: int) -> TokenCompletion:
    return TokenCompletion(
        token_ids=(0,) * num_tokens, logprobs=(0.0,) * num_tokens, text="", finish_reason="stop"
    )


class Server:
    """One GPU, or several as one, with an engine for each of some models.

    All sequences advance by one token in an iteration. Models on one server take turns, so that an
    iteration is as long as those of all models that have something to write.
    """

    def __init__(self, speeds: Mapping[str, EngineSpeed]) -> None:
        self._speeds = speeds
        self._loop = asyncio.get_running_loop()
        self._running = dict.fromkeys(speeds, 0)
        self._cached = dict.fromkeys(speeds, 0.0)
        self._waiting: deque[tuple[str, int, int, asyncio.Future[None]]] = deque()
        self._ends: list[tuple[float, int, str, int, asyncio.Future[None]]] = []
        """Heap of what is written: iteration at which it ends, number, model, tokens, who waits."""
        self._numbers = itertools.count()
        self._iterations = 0.0
        self._since_s = self._loop.time()
        """Until when `_iterations` is right; in the future while prompts are read."""
        self._timer: asyncio.TimerHandle | None = None
        self.num_asked = dict.fromkeys(speeds, 0)
        """Sequences of each model that are written or wait."""
        self.client_s = 0.0
        """What the process that plays has computed to ask."""
        self.busy_s = dict.fromkeys(speeds, 0.0)
        """Time in which each model had something to write."""

    async def write(
        self, model: str, num_prompt_tokens: int, lengths: Sequence[int], *, is_read: bool = False
    ) -> None:
        """Read a prompt, unless it is read, and write completions of these lengths after it."""
        # First what is written already: the new sequences change how long an iteration takes.
        self._advance()
        speed = self._speeds[model]
        reading_s = speed.request_s + num_prompt_tokens * speed.prompt_s * (not is_read)
        # While a prompt is read nothing is written, on any sequence of the server.
        self._since_s += reading_s
        self.busy_s[model] += reading_s
        ends = [self._loop.create_future() for _ in lengths]
        self.num_asked[model] += len(lengths)
        self.client_s += speed.client_s
        for length, end in zip(lengths, ends, strict=True):
            self._waiting.append((model, num_prompt_tokens, length, end))
        self._admit()
        await asyncio.gather(*ends)

    def _admit(self) -> None:
        """Begin what waits as far as the cache has room, and set the timer."""
        while self._waiting:
            model, read, length, end = self._waiting[0]
            room = self._speeds[model].max_tokens - self._cached[model]
            # A sequence longer than the cache runs alone, or nothing would ever run.
            if self._running[model] and room < read + length:
                break
            self._waiting.popleft()
            self._running[model] += 1
            self._cached[model] += read
            # Ends are kept in iterations, not in seconds: who comes later changes only the seconds.
            entry = (self._iterations + length, next(self._numbers), model, read + length, end)
            heapq.heappush(self._ends, entry)
        if self._timer is not None:
            self._timer.cancel()
        if self._ends:
            left = self._seconds(self._ends[0][0] - self._iterations)
            self._timer = self._loop.call_at(self._since_s + left, self._finish)

    def _finish(self) -> None:
        due = self._ends[0][0]
        self._advance()
        self._iterations = max(self._iterations, due)  # rounding must not leave it behind
        self._complete()
        self._admit()

    def _complete(self) -> None:
        while self._ends and self._ends[0][0] <= self._iterations + 1e-6:
            _, _, model, num_tokens, end = heapq.heappop(self._ends)
            self._running[model] -= 1
            self._cached[model] -= num_tokens
            self.num_asked[model] -= 1
            # Whoever asked may have been cancelled with its level.
            if not end.done():
                end.set_result(None)

    def _rates(self) -> tuple[float, float]:
        """The seconds of the next iteration, and by how much each later one is longer."""
        seconds = growth = 0.0
        for model, num in self._running.items():
            if num:
                speed = self._speeds[model]
                # Models on one GPU take turns: an iteration of all is one of each.
                seconds += speed.iteration(num, self._cached[model])
                growth += speed.cache_s * num
        return seconds, growth

    def _seconds(self, num: float) -> float:
        seconds, growth = self._rates()
        return num * seconds + growth * num * (num - 1) / 2

    def _advance(self) -> None:
        """Bring the count of iterations to now, past ends that nobody had time to look at."""
        now = self._loop.time()
        while self._ends:
            end_s = self._since_s + self._seconds(self._ends[0][0] - self._iterations)
            if end_s >= now:
                break
            self._move(end_s)
            self._iterations = max(self._iterations, self._ends[0][0])  # as in `_finish`
            self._complete()
        self._move(now)

    def _move(self, moment: float) -> None:
        """Bring the count of iterations to a moment; before it nothing ends."""
        passed = moment - self._since_s
        if passed <= 0:
            return
        self._since_s = moment
        seconds, growth = self._rates()
        if not seconds:
            return
        num = passed / seconds
        # The cache grows with every token, so that later iterations are longer.
        if growth * num > 1e-3 * seconds:  # the positive root of what `_seconds` computes
            linear = seconds - growth / 2
            num = (math.sqrt(linear * linear + 2 * growth * passed) - linear) / growth
        self._iterations += num
        for model, running in self._running.items():
            self._cached[model] += num * running
            self.busy_s[model] += passed * (running > 0)


class SimulatedEngine:
    """An engine (`Generate`) that takes the time of its servers."""

    limits = _LIMITS

    def __init__(
        self,
        model: str,
        servers: Sequence[Server],
        speed: EngineSpeed,
        draw: Draw,
        *,
        is_concurrent: bool,
    ) -> None:
        self.is_concurrent = is_concurrent
        self._model, self._servers, self._speed, self._draw = model, servers, speed, draw

    def check(self, request: GenerateRequest) -> None:
        """Accept all."""

    async def generate(self, requests: Sequence[GenerateRequest]) -> list[list[TokenCompletion]]:
        if self._speed.call_s:
            await asyncio.sleep(self._speed.call_s)
        seen = set[tuple[int, ...]]()
        tasks: list[Coroutine[Any, Any, list[TokenCompletion]]] = []
        for request in requests:  # equal prompts are read once
            tasks.append(self._written(request, is_read=request.prompt_ids in seen))
            seen.add(request.prompt_ids)
        return await asyncio.gather(*tasks)

    async def _written(self, request: GenerateRequest, *, is_read: bool) -> list[TokenCompletion]:
        place, rng = request.prompt_ids[0], random.Random(request.seed)
        longest = request.sampling.max_completion_tokens
        lengths = [min(self._draw(place, rng), longest) for _ in range(request.num_candidates)]
        # As a run's client does: it knows how many requests are open, not how long they are.
        server = min(self._servers, key=lambda one: sum(one.num_asked.values()))
        await server.write(self._model, len(request.prompt_ids), lengths, is_read=is_read)
        return [_answer(length) for length in lengths]


class _Position(NamedTuple):
    episode: int
    """Of the workload."""
    step: int


def encoded(messages: Sequence[Mapping[str, str]]) -> tuple[int, ...]:
    """The tokens of a simulated prompt."""
    place, num_tokens = map(int, messages[0]["content"].split())
    return prompt_of(place, num_tokens)


class SimulatedEpisodes:
    """Plays a workload; see `Episodes`.

    A level always has the same length, whatever is answered. Rewards are random, so that algorithms
    that compare episodes or branches have something to choose by.

    Args:
        workers: Environments step while one of these is free; a step of one is not divided. None:
            the process that plays steps them, and does nothing else meanwhile.
    """

    def __init__(self, workload: Workload, workers: asyncio.Semaphore | None) -> None:
        self._workload, self._workers = workload, workers
        self._positions: dict[int, _Position] = {}
        self._num_branches: dict[int, int] = {}
        self._begun: dict[int, float] = {}
        self._ids = itertools.count()
        self._first = _starts(workload)
        self._rng = random.Random(0)
        self.worked_s = 0.0
        """Time that workers were busy, added up."""
        self.player_s = 0.0
        """What the process that plays has computed itself."""
        self.spans: list[tuple[float, float]] = []
        """Beginning and end of every episode that was started, in simulated seconds."""

    async def start(self, env_seed: int) -> tuple[int, EpisodeState]:
        id, position = next(self._ids), _Position(env_seed % len(self._workload.episodes), 0)
        self._positions[id] = position
        self._begun[id] = asyncio.get_running_loop().time()
        return id, self._state(position)

    async def branch(self, episode: int, texts: Sequence[Any]) -> tuple[Branch, ...]:
        loop = cast(VirtualLoop, asyncio.get_running_loop())
        loop.leap(self._workload.decision_s)
        self.player_s += self._workload.decision_s
        seconds = self._workload.branch_s * len(texts)
        self.worked_s += seconds
        if self._workers is None:
            loop.leap(seconds)
            self.player_s += seconds
        else:
            async with self._workers:
                await asyncio.sleep(seconds)
        self._num_branches[episode] = len(texts)
        # Drawn, as nobody knows what models will earn; they decide only who is followed.
        rewards = [self._rng.random() for _ in texts]
        return tuple(Branch(reward, reward, 0.0, None, False) for reward in rewards)

    async def follow(self, episode: int, index: int) -> EpisodeState:
        position = self._positions[episode]
        self._positions[episode] = position._replace(step=position.step + 1)
        return self._state(self._positions[episode])

    async def successors(self, episode: int) -> tuple[EpisodeState, ...]:
        position = self._positions[episode]
        after = self._state(position._replace(step=position.step + 1))
        return (after,) * self._num_branches[episode]

    async def fork(self, episode: int, index: int | None = None) -> tuple[int, EpisodeState]:
        id, position = next(self._ids), self._positions[episode]
        if index is not None:
            position = position._replace(step=position.step + 1)
        self._positions[id] = position
        return id, self._state(position)

    async def environment(self, episode: int) -> TextEnv[Any]:
        """See `Episodes.environment`; there is none."""
        raise NotImplementedError("a simulated episode has no environment")

    async def close(self, episode: int) -> None:
        self._positions.pop(episode, None)
        self._num_branches.pop(episode, None)
        if (begun := self._begun.pop(episode, None)) is not None:
            self.spans.append((begun, asyncio.get_running_loop().time()))

    def _state(self, position: _Position) -> EpisodeState:
        steps = self._workload.episodes[position.episode]
        is_over = position.step == len(steps)
        step = steps[min(position.step, len(steps) - 1)]
        # A name of its own for every state: none is met twice where answers are long.
        name = f"{position.episode} {position.step} {next(self._ids)}"
        return EpisodeState(
            agent=step.agent,
            turn=step.turn,
            messages=() if is_over else self._messages(position),
            state_hash=name,
            state_key=name,
            terminated=False,
            truncated=is_over,
            success=False,
            rewards=dict.fromkeys(self._agents, 0.0),
            co_acting=() if is_over else self._co_acting(position),
        )

    @property
    def _agents(self) -> list[str]:
        return [agent for stage in self._workload.stages for agent in stage]

    def _messages(self, position: _Position) -> tuple[dict[str, str], ...]:
        place = self._first[position.episode] + position.step
        step = self._workload.episodes[position.episode][position.step]
        return ({"role": "user", "content": f"{place} {step.num_prompt_tokens}"},)

    def _co_acting(self, position: _Position) -> tuple[Asked, ...]:
        """Who acts with the agent, where it is the first of its stage."""
        steps = self._workload.episodes[position.episode]
        first = steps[position.step]
        stage = next(one for one in self._workload.stages if first.agent in one)
        if first.agent != stage[0]:
            return ()
        found: list[Asked] = []
        for number in range(position.step + 1, len(steps)):
            step = steps[number]
            if step.turn != first.turn or step.agent not in stage:
                break
            found.append(Asked(step.agent, self._messages(position._replace(step=number))))
        return tuple(found)


def _starts(workload: Workload) -> list[int]:
    """The number of each episode's first step, counted through all episodes."""
    return list(itertools.accumulate(map(len, workload.episodes), initial=0))


class Fleet(NamedTuple):
    """Which GPUs do what."""

    generate: tuple[int, ...]
    """Engines for each base model (`base_groups`), each on GPUs of its own."""
    learn: tuple[int, ...]
    """GPUs that do nothing but learn, for each of them; none: those that generate learn, too."""
    num_shared: int = 0
    """Processes on a GPU each (or several, with shards), which generate and then learn with all
    policies; without Ray each plays a share of the levels. 0: every base model has its own GPUs."""


def learning_gpus(config: Config, fleet: Fleet) -> dict[str, int]:
    """Base model -> the GPUs on which it learns."""
    names = [group[0] for group in base_groups(config.models)]
    if fleet.num_shared:
        return dict.fromkeys(names, fleet.num_shared)
    own = fleet.learn or [config.engine.num_shards * num for num in fleet.generate]
    return dict(zip(names, own, strict=True))


class _NoValue:
    """What rollouts ask of an updater: V, which costs little beside what is written."""

    def values(self, prompts: Sequence[tuple[int, ...]]) -> list[float]:
        return [0.0] * len(prompts)


class _Rank(Ranks):
    """One of several simulated processes, which keeps what it has played to itself."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size


@dataclass(frozen=True, slots=True)
class Place:
    """A process that plays: levels as in a run, on simulated engines and episodes."""

    servers: Mapping[str, Sequence[Server]]
    """Base model to its engines."""
    episodes: SimulatedEpisodes
    sampler: Sampler

    @classmethod
    def of(cls, scene: Scene, rank: int, size: int) -> Place:
        """The place of one of several processes, each of which plays a share of the levels."""
        config, env = scene.config, scene.environment
        servers = _servers(scene)
        uses_ray = config.ray.enabled and config.ray.num_env_workers
        has_workers = config.rollout.env_threads or uses_ray
        workers = asyncio.Semaphore(config.num_env_workers(1)) if has_workers else None
        episodes = SimulatedEpisodes(scene.workload, workers)
        played = TrainingEnvironment(
            name=env.name,
            config=env.config,
            roles=env.roles,
            episodes=[episodes] * len(env.training),
        )
        pool = _pool(scene, servers, _Rank(rank, size))
        return cls(servers, episodes, Sampler([played], pool, config, FailureLog(), StopRequest()))

    async def play(self) -> list[RolloutTree]:
        """Play this process's share of a train step, which has the engines to itself."""
        alone = InFlightRollouts(self.sampler.pending(0, 0), at_once, value_at_once)
        alone.comes_next.set()
        return (await self.sampler.rollouts(alone)).trees


def _servers(scene: Scene) -> dict[str, list[Server]]:
    fleet, engines = scene.fleet, scene.engines
    if fleet.num_shared:
        # Shared GPUs hold an engine of every model, which take turns on each of them.
        shared = [Server(engines) for _ in range(fleet.num_shared // scene.num_players)]
        return dict.fromkeys(engines, shared)
    return {
        name: [Server({name: speed}) for _ in range(num)]
        for (name, speed), num in zip(engines.items(), fleet.generate, strict=True)
    }


def _pool(scene: Scene, servers: Mapping[str, Sequence[Server]], ranks: Ranks) -> PolicyPool:
    config, environment, workload = scene.config, scene.environment, scene.workload
    steps = [step for episode in workload.episodes for step in episode]
    longest = {
        agent: longest_answer(config, environment, agent)
        for agent in dict.fromkeys(step.agent for step in steps)
    }

    def draw(place: int, rng: random.Random) -> int:
        return workload.length(steps[place], longest[steps[place].agent], rng)

    policies: dict[str, ModelPolicy] = {}
    for group in base_groups(config.models):
        base, speed = group[0], scene.engines[group[0]]
        for name in group:
            # Adapters of one base are written by its engine, in the same iterations.
            engine = SimulatedEngine(
                base, servers[base], speed, draw, is_concurrent=config.is_continuous
            )
            policies[name] = ModelPolicy(
                name=name,
                encode=encoded,
                encode_answer=lambda _: (),
                batcher=Batcher(engine, is_continuous=config.is_continuous),
                updater=cast(Update, _NoValue()),
            )
    return PolicyPool(policies=policies, roles=environment.roles, ranks=ranks)


class Flown(NamedTuple):
    """Train steps in the middle of a run."""

    begin_s: float
    end_s: float
    trees: list[list[RolloutTree]]
    """By train step, without episodes that were given up."""


class Flights:
    """Plays as `TrainingRollouts` does: the same gate, the same order, the same stragglers.

    Updates take no time here. So a train step takes as long as engines need for its part of what is
    in flight: longer updates leave them more time.

    Args:
        most: `rollout.max_staleness`, at least 1.
        must_drain: Whether engines finish what they write before they get new weights.

    Source:
        A closed system whose customers think for no time: its throughput, and that of the policies,
        bound the one of both from above (Lazowska et al., Quantitative System Performance, 1984,
        section 5.2).
    """

    def __init__(self, sampler: Sampler, most: int, *, must_drain: bool) -> None:
        self._sampler, self._most, self._must_drain = sampler, most, must_drain
        self._gate = WeightGate()
        self._in_flight: list[InFlightRollouts] = []
        self._tasks: list[asyncio.Task[Sample]] = []

    async def fly(self, num_steps: int) -> Flown:
        """Take some train steps after the first ones, in which what is in flight grows."""
        loop, begin_s, trees = asyncio.get_running_loop(), 0.0, list[list[RolloutTree]]()
        # The first steps fill what is in flight, and are not measured.
        for step in range(self._most + num_steps):
            if step == self._most:
                begin_s = loop.time()
            first = len(self._in_flight) + step
            for later in range(first, step + self._most):
                self._begin(later + 1, step)
            await self._gate.settled()
            self._gate.open(step)
            self._leave_stragglers()
            found = await self._tasks.pop(0)
            self._in_flight.pop(0)
            await self._gate.close(must_drain=self._must_drain)
            trees.append(found.trees)
        end_s = loop.time()
        # Steps that nobody learns from any more: the run goes on, the simulation does not.
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        return Flown(begin_s, end_s, trees[self._most :])

    def _begin(self, step: int, version: int) -> None:
        pending = self._sampler.pending(step, version)
        in_flight = self._gate.rollouts(pending, self._leave_stragglers)
        self._in_flight.append(in_flight)
        self._tasks.append(asyncio.ensure_future(self._sampler.rollouts(in_flight)))

    def _leave_stragglers(self) -> None:
        if has_only_stragglers(self._in_flight, self._most):
            self._in_flight[0].cut_short()


class _Learnt(NamedTuple):
    """What the updates of each base model learn from, all its policies together."""

    tokens: dict[str, float]
    """That are read; packed, a prompt once for all its candidates, padded once for each."""
    answers: dict[str, float]
    """Those of them that were written."""
    steps: dict[str, int]
    """Optimizer steps."""

    @classmethod
    def of(cls, config: Config, workload: Workload, trees: Sequence[RolloutTree]) -> _Learnt:
        """What decisions with a signal give."""
        optimizer = config.optimizer
        base = {name: group[0] for group in base_groups(config.models) for name in group}
        tokens: defaultdict[str, float] = defaultdict(float)
        answers: defaultdict[str, float] = defaultdict(float)
        groups: defaultdict[str, float] = defaultdict(float)
        completions: defaultdict[str, float] = defaultdict(float)
        for decision in (decision for tree in trees for decision in tree.decisions):
            num, policy = len(decision.candidates), decision.policy
            used = workload.share_used(decision.key.agent, num)
            written = sum(len(one.completion.token_ids) for one in decision.candidates)
            read = (1 if optimizer.packing else num) * len(decision.prompt_ids) + written
            tokens[base[policy]] += optimizer.num_epochs * used * read
            answers[base[policy]] += optimizer.num_epochs * used * written
            groups[policy] += used
            completions[policy] += used * num
        steps: Counter[str] = Counter()
        for name, num in completions.items():
            num_steps = optimizer.num_minibatches(round(num), round(groups[name]))
            steps[base[name]] += optimizer.num_epochs * num_steps
        return cls(tokens, answers, steps)


_NUM_ROUNDS = 2
"""So many times what is in flight is averaged over."""
_TAIL = 0.1
"""The tail of rollouts begins when so few of the episodes are left."""


class Speeds(NamedTuple):
    """What each base model takes."""

    engines: Mapping[str, EngineSpeed]
    """By the first policy of the base model, as in all that follows."""
    learning: Mapping[str, LearningSpeed]


class Rollouts(NamedTuple):
    """Rollouts of a train step; with `rollout.max_staleness` above 1 of several in flight."""

    seconds: float
    """Until they are complete; in flight, between those of two train steps."""
    busy: Mapping[str, float]
    """Base model to the share of this time in which its engines had something to write."""
    tail: float
    """Share of the time in which at most a tenth of the episodes was left; 0 where others fly."""
    level_s: tuple[float, float]
    """Median and 95th percentile of an episode, from its beginning to its end."""
    num_tokens: Mapping[str, int]
    """Base model to what is read and written once for the update, by all its policies."""
    num_answer_tokens: Mapping[str, int]
    """Base model to what of that is written."""
    num_optimizer_steps: Mapping[str, int]
    """Base model to the optimizer steps of all its policies."""
    num_completion_tokens: int
    env_busy: float
    """Share of the time in which environments' workers were busy, all of them together."""
    stale: float = 0.0
    """Share of the episodes that are given up as stragglers."""
    player_s: float = 0.0
    """What the process that plays computes itself, as far as it is known: see `step_on`."""
    age: float = 0.0
    """Updates between the first token of an answer and the update that learns from it, a mean."""


class StepTimes(NamedTuple):
    """A train step on a fleet."""

    fleet: Fleet
    rollouts: Rollouts
    update_s: Mapping[str, float]
    """Base model to its update; updates of dedicated GPUs overlap."""
    sync_s: float
    step_s: float
    is_ahead: bool
    """Whether rollouts and updates overlap, one train step apart."""


@dataclass(frozen=True, slots=True)
class Scene:
    """A run on a fleet."""

    config: Config
    environment: RunEnvironment
    workload: Workload
    """What stands for the environment."""
    fleet: Fleet
    engines: Mapping[str, EngineSpeed]
    """What engines take, by base model."""

    @property
    def num_players(self) -> int:
        """The processes that play levels: one with Ray or dedicated GPUs."""
        return 1 if self.config.ray.enabled else max(self.fleet.num_shared, 1)

    async def play(self) -> Rollouts:
        """Play a train step, or several that are in flight."""
        config, most, size = self.config, self.config.rollout.max_staleness, self.num_players
        if most > 1 and config.plays_beside_updates and self.fleet.learn:
            places = [Place.of(self, 0, 1)]
            places[0].sampler.num_levels_used = config.rollout.num_levels  # of train step 0
            # Several steps in flight: rollouts go on while policies learn on GPUs of their own.
            flights = Flights(places[0].sampler, most, must_drain=not config.swaps_within_answers)
            flown = await flights.fly(_NUM_ROUNDS * most)
            steps = enumerate(flown.trees, most + 1)
            age = fmean(age_metrics(trees, step)["rollout/mean_age"] for step, trees in steps)
        else:
            rollout = config.rollout.model_copy(update={"max_staleness": 0})
            alone = replace(self, config=config.model_copy(update={"rollout": rollout}))
            places = [Place.of(alone, rank, size) for rank in range(size)]
            found = await asyncio.gather(*(place.play() for place in places))
            end_s = asyncio.get_running_loop().time()
            flown = Flown(0.0, end_s, [[*itertools.chain(*found)]])
            age = (1 + most) / 2 if most else 0.0  # as many steps are played at once
        return self._seen(places, flown)._replace(age=age)

    def _seen(self, places: Sequence[Place], flown: Flown) -> Rollouts:
        """What was seen: of a train step what the steps have on average."""
        config, num, end_s = self.config, len(flown.trees), flown.end_s
        trees = list(itertools.chain(*flown.trees))
        episodes = [place.episodes for place in places]
        # In flight, episodes that are still open at the end have no length yet.
        spans = [span for one in episodes for span in one.spans if num == 1 or span[1] < end_s]
        per_level = config.algorithm.at(StepContext()).episodes_per_level
        servers = [place.servers for place in places]
        learnt = _Learnt.of(config, self.workload, trees)
        asking_s = sum(one.client_s for one in _all(servers))
        return Rollouts(
            (end_s - flown.begin_s) / num,
            _busy(servers, end_s),
            _tail([end for _, end in spans], end_s) if num == 1 else 0.0,
            _percentiles([end - begin for begin, end in spans]),
            {name: round(x / num) for name, x in learnt.tokens.items()},
            {name: round(x / num) for name, x in learnt.answers.items()},
            {name: round(x / num) for name, x in learnt.steps.items()},
            sum(
                len(one.completion.token_ids)
                for tree in trees
                for decision in tree.decisions
                for one in decision.candidates
            )
            // num,
            sum(one.worked_s for one in episodes) / (end_s * config.num_env_workers(len(places))),
            1 - len(trees) / (num * config.rollout.num_levels * per_level),
            (sum(one.player_s for one in episodes) + asking_s) / num,
        )


def rollouts_on(
    config: Config,
    environment: RunEnvironment,
    workload: Workload,
    fleet: Fleet,
    engines: Mapping[str, EngineSpeed],
) -> Rollouts:
    """Play the rollouts of a train step; see `Scene`."""
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(Scene(config, environment, workload, fleet, engines).play())


def step_on(config: Config, rollouts: Rollouts, fleet: Fleet, speeds: Speeds) -> StepTimes:
    """A train step: rollouts, updates and the way of new weights to the engines."""
    gpus = learning_gpus(config, fleet)
    update_s = {
        name: speeds.learning[name].update_s(
            rollouts.num_optimizer_steps.get(name, 0),
            rollouts.num_tokens.get(name, 0) / num,
            rollouts.num_answer_tokens.get(name, 0) / num,
        )
        for name, num in gpus.items()
    }
    sync_s = max(speeds.learning[name].sync_s for name in gpus)
    is_ahead = config.plays_beside_updates and bool(fleet.learn)
    # On shared GPUs policies learn one after another, on their own all at the same time.
    learn_s = sum(update_s.values()) if fleet.num_shared else max(update_s.values())
    # A process that plays and learns does both at half the speed where they meet.
    met_s = rollouts.player_s * min(1.0, learn_s / rollouts.seconds)
    beside_s = max(rollouts.seconds + met_s, learn_s + rollouts.player_s)
    step_s = beside_s if is_ahead else rollouts.seconds + learn_s
    return StepTimes(fleet, rollouts, update_s, sync_s, step_s + sync_s, is_ahead)


def _all(servers: Sequence[Mapping[str, Sequence[Server]]]) -> Iterable[Server]:
    return dict.fromkeys(one for of_rank in servers for own in of_rank.values() for one in own)


def _busy(servers: Sequence[Mapping[str, Sequence[Server]]], seconds: float) -> dict[str, float]:
    shares: defaultdict[str, list[float]] = defaultdict(list)
    for of_rank in servers:
        for name, own in of_rank.items():
            shares[name] += [server.busy_s[name] / seconds for server in own]
    return {name: sum(own) / len(own) for name, own in shares.items()}


def _tail(ends: Sequence[float], seconds: float) -> float:
    ordered = sorted(ends)
    return 1 - ordered[-1 - int(_TAIL * len(ordered))] / seconds


def _percentiles(values: Sequence[float]) -> tuple[float, float]:
    ordered = sorted(values)
    return ordered[len(ordered) // 2], ordered[int(0.95 * (len(ordered) - 1))]
