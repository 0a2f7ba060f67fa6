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
from pettingllms_trainers.learning.groups import collect_decisions, sampled_tokens
from pettingllms_trainers.policies.fixed import FixedPolicy
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
    iteration takes the sum over the models that have something to write.

    Args:
        speeds: Model to the speed of its engine.
    """

    def __init__(self, speeds: Mapping[str, EngineSpeed]) -> None:
        self._speeds = speeds
        self._loop = asyncio.get_running_loop()
        self._running = dict.fromkeys(speeds, 0)
        self._cached = dict.fromkeys(speeds, 0.0)
        self._waiting: deque[tuple[str, int, int, asyncio.Future[None]]] = deque()
        self._ends: list[tuple[float, int, str, int, asyncio.Future[None]]] = []
        """Heap of running sequences: iteration of the end, number, model, tokens, future."""
        self._numbers = itertools.count()
        self._iterations = 0.0
        self._since_s = self._loop.time()
        """Until when `_iterations` is right; in the future while prompts are read."""
        self._timer: asyncio.TimerHandle | None = None
        self.num_asked = dict.fromkeys(speeds, 0)
        """Sequences of each model that are being written or wait."""
        self.client_s = 0.0
        """Seconds that the process that plays has computed to send requests."""
        self.busy_s = dict.fromkeys(speeds, 0.0)
        """Seconds in which each model had something to read or write."""

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
    """An engine (`Generate`) that takes the time of its servers.

    Args:
        model: Name of the base model on the servers.
        servers: Replicas; a request goes to the one with the fewest sequences.
        speed: Of the engine.
        draw: Gives the lengths of answers.
        is_concurrent: See `Generate.is_concurrent`.
    """

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
    """A state of a simulated episode."""

    episode: int
    """Number of the episode in the workload."""
    step: int
    """Decisions before it."""


def encoded(messages: Sequence[Mapping[str, str]]) -> tuple[int, ...]:
    """The tokens of a simulated prompt."""
    place, num_tokens = map(int, messages[0]["content"].split())
    return prompt_of(place, num_tokens)


class SimulatedEpisodes:
    """Plays a workload; see `Episodes`.

    A level always has the same length, whatever is answered. Rewards are random, so that algorithms
    that compare episodes or branches have something to choose by.

    Args:
        workload: Episodes, and the seconds of environments.
        workers: Free environment workers, each of which steps one environment at a time. None: the
            process that plays steps them, and does nothing else meanwhile.
    """

    def __init__(self, workload: Workload, workers: asyncio.Semaphore | None) -> None:
        self._workload, self._workers = workload, workers
        self._positions: dict[int, _Position] = {}
        self._num_branches: dict[int, int] = {}
        self._begun: dict[int, float] = {}
        self._ids = itertools.count()
        # The number of each episode's first step, counted through all episodes.
        self._first = list(itertools.accumulate(map(len, workload.episodes), initial=0))
        self._rng = random.Random(0)
        self.worked_s = 0.0
        """Seconds in which environments were stepped, added up over workers."""
        self.player_s = 0.0
        """Seconds that the process that plays has computed."""
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
        """See `Episodes.environment`; there is none, and who asks for it does not look at it."""
        return cast(TextEnv[Any], None)

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
            rewards=dict.fromkeys(itertools.chain(*self._workload.stages), 0.0),
            co_acting=() if is_over else self._co_acting(position),
        )

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


class Fleet(NamedTuple):
    """How the GPUs of a run are divided between generating and learning."""

    generate: tuple[int, ...]
    """Engines of each base model (in the order of `base_groups`), each on GPUs of its own."""
    learn: tuple[int, ...]
    """GPUs of each base model of `learning_bases` that only learn; empty: the GPUs that generate
    learn, too."""
    num_shared: int = 0
    """Processes on a GPU each (or several, with shards), which generate and then learn with all
    policies; without Ray each plays a share of the levels. 0: every base model has its own GPUs."""


def learning_bases(config: Config) -> dict[str, list[str]]:
    """Base model to its policies that are trained; none of which all policies are frozen."""
    trained = {
        group[0]: [name for name in group if not config.policies[name].frozen]
        for group in base_groups(config.models)
    }
    return {base: names for base, names in trained.items() if names}


def learning_gpus(config: Config, fleet: Fleet) -> dict[str, int]:
    """Base model to the GPUs on which it learns."""
    bases = learning_bases(config)
    if fleet.num_shared:
        return dict.fromkeys(bases, fleet.num_shared)
    if fleet.learn:
        return dict(zip(bases, fleet.learn, strict=True))
    own = zip(base_groups(config.models), fleet.generate, strict=True)
    return {group[0]: config.engine.num_shards * num for group, num in own if group[0] in bases}


class _Silent(FixedPolicy):
    """A fixed policy that answers at once: how long its server takes is not known."""

    async def answer(self, *_: Any, **__: Any) -> TokenCompletion:
        return _answer(0)


class _NoValue:
    """An updater whose V is 0 and takes no time: it costs little beside generation."""

    def values(self, prompts: Sequence[tuple[int, ...]]) -> list[float]:
        return [0.0] * len(prompts)


class _Rank(Ranks):
    """One of several simulated processes, which exchange nothing."""

    def __init__(self, rank: int, size: int) -> None:
        self.rank, self.size = rank, size


@dataclass(frozen=True, slots=True)
class Place:
    """A process that plays levels as in a run, on simulated engines and episodes."""

    servers: Mapping[str, Sequence[Server]]
    """Base model to the servers of its engines."""
    episodes: SimulatedEpisodes
    """What it plays."""
    sampler: Sampler
    """Samples its share of the levels."""

    @classmethod
    def of(cls, scene: Scene, rank: int, size: int) -> Place:
        """One of `size` processes, each of which plays a share of the levels."""
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
    silent = {
        name: _Silent(name=name, policy=cast(Any, None))
        for name, policy in config.policies.items()
        if policy.fixed
    }
    return PolicyPool(
        policies=policies, roles=environment.roles, fixed_policies=silent, ranks=ranks
    )


class PlayedSteps(NamedTuple):
    """The rollouts of successive train steps in the middle of a run."""

    begin_s: float
    """Simulated seconds at which the first of them could begin."""
    end_s: float
    """Simulated seconds at which the last of them was complete."""
    trees: Mapping[int, list[RolloutTree]]
    """Train step, from 0, to its rollouts, without episodes that were given up."""


class SimulatedRollouts:
    """Plays as `TrainingRollouts` does: the same gate, the same order, the same stragglers.

    Updates take no time here. So a train step takes as long as the engines need for its share of
    the rollouts in flight: longer updates leave them more time.

    Args:
        sampler: Plays the rollouts of a train step.
        most: `rollout.max_staleness`, at least 1.
        must_drain: Whether engines finish their requests before they get new weights.

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

    async def play(self, num_steps: int) -> PlayedSteps:
        """Play the rollouts of train steps, once as many as allowed are in flight."""
        loop, begin_s, trees = asyncio.get_running_loop(), 0.0, list[list[RolloutTree]]()
        # Until as many train steps as allowed are in flight, nothing is measured.
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
        # As `_begin` counts them: the first step is number 1.
        return PlayedSteps(begin_s, end_s, dict(enumerate(trees[self._most :], self._most + 1)))

    def _begin(self, step: int, version: int) -> None:
        pending = self._sampler.pending(step, version)
        in_flight = self._gate.rollouts(pending, self._leave_stragglers)
        self._in_flight.append(in_flight)
        self._tasks.append(asyncio.ensure_future(self._sampler.rollouts(in_flight)))

    def _leave_stragglers(self) -> None:
        if has_only_stragglers(self._in_flight, self._most):
            self._in_flight[0].cut_short()


def _learnt(
    config: Config, workload: Workload, played: Mapping[int, Sequence[RolloutTree]]
) -> tuple[dict[str, float], dict[str, float], dict[str, int]]:
    """What the updates learn from: decisions of trained roles with a signal, by base model.

    Returns:
        Tokens of prompts and answers (packed, a prompt once for all its candidates), those of
        answers alone, and optimizer steps; summed over epochs and the policies of the base model.
    """
    optimizer, algorithm = config.optimizer, config.algorithm.at(StepContext())
    base = {name: group[0] for group in base_groups(config.models) for name in group}
    trained = (
        decision
        for step, trees in played.items()
        for _, decision in collect_decisions(trees, functools.partial(config.trains, step=step))
        if algorithm.compares(decision.role)
    )
    tokens: defaultdict[str, float] = defaultdict(float)
    answers: defaultdict[str, float] = defaultdict(float)
    groups: defaultdict[str, float] = defaultdict(float)
    completions: defaultdict[str, float] = defaultdict(float)
    for decision in trained:
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
    return tokens, answers, steps


_NUM_ROUNDS = 2
"""Train steps that are averaged over, in multiples of those in flight."""
_TAIL = 0.1
"""The tail of rollouts begins when at most this share of the episodes is left."""


class Speeds(NamedTuple):
    """Speeds of engines and updates, by the first policy of each base model."""

    engines: Mapping[str, EngineSpeed]
    """Base model to the speed of one engine."""
    learning: Mapping[str, LearningSpeed]
    """Base model to the speed of its updates."""


class Rollouts(NamedTuple):
    """The simulated rollouts of a train step, a mean if several are in flight.

    Base models are named by their first policy.
    """

    seconds: float
    """Time until they are complete; with several in flight, between two of these moments."""
    busy: Mapping[str, float]
    """Base model to the share of the time in which its engines had something to write."""
    tail: float
    """Share of the time in which at most a tenth of the episodes was left; 0 with several steps in
    flight."""
    level_s: tuple[float, float]
    """Median and 95th percentile of the seconds that an episode takes."""
    num_tokens: Mapping[str, int]
    """Base model to the tokens of prompts and answers that its updates read."""
    num_answer_tokens: Mapping[str, int]
    """Base model to those of answers alone."""
    num_optimizer_steps: Mapping[str, int]
    """Base model to the optimizer steps of all its policies."""
    num_completion_tokens: int
    """Sampled tokens, without those of continuations."""
    env_busy: float
    """Share of the time in which environments were stepped, a mean over workers."""
    stale: float = 0.0
    """Share of the episodes that are given up as stragglers."""
    player_s: float = 0.0
    """Seconds that the process that plays computes, as far as they are known: see `step_on`."""
    age: float = 0.0
    """Mean age of a token in updates, when it is learnt from."""


class StepTimes(NamedTuple):
    """The seconds of a train step on a fleet."""

    fleet: Fleet
    """Where it is taken."""
    rollouts: Rollouts
    update_s: Mapping[str, float]
    """Base model to the seconds of its updates; those on dedicated GPUs overlap."""
    sync_s: float
    """Seconds in which new weights go to the engines."""
    step_s: float


@dataclass(frozen=True, slots=True)
class Scene:
    """A run on a fleet."""

    config: Config
    environment: RunEnvironment
    """Its environment, whose levels are not played."""
    workload: Workload
    """The episodes that are played instead."""
    fleet: Fleet
    engines: Mapping[str, EngineSpeed]
    """Base model to the speed of one engine."""

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
            must_drain = not config.swaps_within_answers
            rollouts = SimulatedRollouts(places[0].sampler, most, must_drain=must_drain)
            played = await rollouts.play(_NUM_ROUNDS * most)
            steps = played.trees.items()
            age = fmean(age_metrics(trees, step)["rollout/mean_age"] for step, trees in steps)
        else:
            rollout = config.rollout.model_copy(update={"max_staleness": 0})
            alone = replace(self, config=config.model_copy(update={"rollout": rollout}))
            places = [Place.of(alone, rank, size) for rank in range(size)]
            found = await asyncio.gather(*(place.play() for place in places))
            end_s = asyncio.get_running_loop().time()
            played = PlayedSteps(0.0, end_s, {0: [*itertools.chain(*found)]})
            age = (1 + most) / 2 if most else 0.0  # as many steps are played at once
        return self._summary(places, played)._replace(age=age)

    def _summary(self, places: Sequence[Place], played: PlayedSteps) -> Rollouts:
        """The figures of a train step: means over those that were played."""
        config, num, end_s = self.config, len(played.trees), played.end_s
        trees = list(itertools.chain(*played.trees.values()))
        episodes = [place.episodes for place in places]
        # In flight, episodes that are still open at the end have no length yet.
        spans = [span for one in episodes for span in one.spans if num == 1 or span[1] < end_s]
        per_level = config.algorithm.at(StepContext()).episodes_per_level
        servers = [place.servers for place in places]
        tokens, answers, optimizer_steps = (
            {name: round(x / num) for name, x in table.items()}
            for table in _learnt(config, self.workload, played.trees)
        )
        decisions = [decision for tree in trees for decision in tree.decisions]
        asking_s = sum(one.client_s for one in _all(servers))
        worked_s = sum(one.worked_s for one in episodes)
        lengths = sorted(end - begin for begin, end in spans)
        return Rollouts(
            seconds=(end_s - played.begin_s) / num,
            busy=_busy(servers, end_s),
            tail=_tail([end for _, end in spans], end_s) if num == 1 else 0.0,
            level_s=(lengths[len(lengths) // 2], lengths[int(0.95 * (len(lengths) - 1))]),
            num_tokens=tokens,
            num_answer_tokens=answers,
            num_optimizer_steps=optimizer_steps,
            num_completion_tokens=sampled_tokens(decisions).total() // num,
            env_busy=worked_s / (end_s * config.num_env_workers(len(places))),
            stale=1 - len(trees) / (num * config.rollout.num_levels * per_level),
            player_s=(sum(one.player_s for one in episodes) + asking_s) / num,
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
    """The seconds of a train step: rollouts, updates and the push of new weights."""
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
    return StepTimes(fleet, rollouts, update_s, sync_s, step_s + sync_s)


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
