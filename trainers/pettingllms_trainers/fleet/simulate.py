"""A run on engines that are simulated: its own rollouts, on a clock that never waits."""

from __future__ import annotations

import asyncio
import functools
import heapq
import itertools
import math
import random
import selectors
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import fmean
from typing import Any, NamedTuple, cast

from pettingllms import TextEnv
from pettingllms_trainers.config import Config
from pettingllms_trainers.config.algorithm import StepContext
from pettingllms_trainers.config.sections import base_groups, reads_prompts
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
from pettingllms_trainers.rollout.sampler import InFlightRollouts, Sampler, TrainingEnvironment
from pettingllms_trainers.types import (
    GenerateRequest,
    RequestLimits,
    RolloutTree,
    SamplingSettings,
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
        self.now_s = 0.0
        super().__init__(_Leaping(self))

    def time(self) -> float:
        """The simulated seconds since the start."""
        return self.now_s


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
            self._loop.now_s += timeout
        return ready


Draw = Callable[[int, random.Random], int]
"""From the place of a prompt (`prompt_of`) and chance to the tokens of an answer."""


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
        self.num_asked = 0
        """Sequences that are being written or wait."""
        self.busy_s = dict.fromkeys(speeds, 0.0)
        """Seconds in which each model had something to read or write."""

    async def write(self, model: str, num_prompt_tokens: int, lengths: Sequence[int]) -> None:
        """Read a prompt, and write completions of these lengths after it."""
        # First what is written already: the new sequences change how long an iteration takes.
        self._advance()
        # While a prompt is read nothing is written, on any sequence of the server.
        reading_s = num_prompt_tokens * self._speeds[model].prompt_s
        self._since_s += reading_s
        self.busy_s[model] += reading_s
        ends = [self._loop.create_future() for _ in lengths]
        self.num_asked += len(lengths)
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
            num, (seconds, growth) = self._ends[0][0] - self._iterations, self._rates()
            left_s = num * seconds + growth * num * (num - 1) / 2
            self._timer = self._loop.call_at(self._since_s + left_s, self._finish)

    def _finish(self) -> None:
        self._advance()
        self._iterations = max(self._iterations, self._ends[0][0])  # rounding leaves it behind
        while self._ends and self._ends[0][0] <= self._iterations + 1e-6:
            _, _, model, num_tokens, end = heapq.heappop(self._ends)
            self._running[model] -= 1
            self._cached[model] -= num_tokens
            self.num_asked -= 1
            end.set_result(None)
        self._admit()

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

    def _advance(self) -> None:
        """Bring the count of iterations to now; nothing has ended since it was right."""
        passed = self._loop.time() - self._since_s
        if passed <= 0:
            return
        self._since_s += passed
        seconds, growth = self._rates()
        if not seconds:
            return
        num = passed / seconds
        # The cache grows with every token, so that later iterations are longer.
        if growth * num > 1e-3 * seconds:  # the positive root of what `_admit` computes
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
        draw: Gives the lengths of answers.
        is_concurrent: See `Generate.is_concurrent`.
    """

    limits = RequestLimits(max_batch_tokens=1 << 62, context_length=None, vocab_size=1 << 31)

    def __init__(
        self, model: str, servers: Sequence[Server], draw: Draw, *, is_concurrent: bool
    ) -> None:
        self.is_concurrent = is_concurrent
        self._model, self._servers, self._draw = model, servers, draw

    def check(self, request: GenerateRequest) -> None:
        """Accept all."""

    async def generate(self, requests: Sequence[GenerateRequest]) -> list[list[TokenCompletion]]:
        return await asyncio.gather(*map(self._written, requests))

    async def _written(self, request: GenerateRequest) -> list[TokenCompletion]:
        place, rng = request.prompt_ids[0], random.Random(request.seed)
        longest = request.sampling.max_completion_tokens
        lengths = [min(self._draw(place, rng), longest) for _ in range(request.num_candidates)]
        # As a run's client does: it knows how many requests are open, not how long they are.
        server = min(self._servers, key=lambda one: one.num_asked)
        await server.write(self._model, len(request.prompt_ids), lengths)
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


@dataclass(frozen=True, kw_only=True, slots=True)
class SimulatedFixed(FixedPolicy):
    """A fixed policy that takes the time of its model, or none."""

    draw: Draw
    """Gives the lengths of answers."""
    token_s: float
    """Seconds of a token; 0: it answers at once, as scripts do."""
    slots: asyncio.Semaphore
    """As many requests as may be open."""
    spent_s: list[float]
    """Gets the seconds of each answer."""

    async def answer(
        self,
        messages: Sequence[Mapping[str, str]],
        agent: str,
        env: TextEnv[Any],
        sampling: SamplingSettings,
        seed: int,
    ) -> TokenCompletion:
        """See `FixedPolicy.answer`."""
        place, rng = encoded(messages)[0], random.Random(seed)
        seconds = self.token_s * min(self.draw(place, rng), sampling.max_completion_tokens)
        async with self.slots:
            await asyncio.sleep(seconds)
        self.spent_s.append(seconds)
        return _answer(0)


class SimulatedEpisodes:
    """Plays a workload; see `Episodes`.

    A level always has the same length, whatever is answered. Rewards are random, so that algorithms
    that compare episodes or branches have something to choose by.

    Args:
        workload: Episodes, and the seconds of environments.
        num_workers: Environments that can be stepped at the same time.
    """

    def __init__(self, workload: Workload, num_workers: int) -> None:
        self._workload, self._workers = workload, asyncio.Semaphore(num_workers)
        self._positions: dict[int, _Position] = {}
        self._num_branches: dict[int, int] = {}
        self._started = set[int]()
        self._ids = itertools.count()
        # The number of each episode's first step, counted through all episodes.
        self._first = list(itertools.accumulate(map(len, workload.episodes), initial=0))
        self._rng = random.Random(0)
        self.worked_s = 0.0
        """Seconds in which environments were stepped, added up over workers."""
        self.ends: list[float] = []
        """End of every episode that was started, in simulated seconds."""

    async def start(self, env_seed: int) -> tuple[int, EpisodeState]:
        id, position = next(self._ids), _Position(env_seed % len(self._workload.episodes), 0)
        self._positions[id] = position
        self._started.add(id)
        return id, self._state(position)

    async def branch(self, episode: int, texts: Sequence[Any]) -> tuple[Branch, ...]:
        seconds = self._workload.branch_s * len(texts)
        self.worked_s += seconds
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
        if episode in self._started:
            self._started.remove(episode)
            self.ends.append(asyncio.get_running_loop().time())

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


class _NoValue:
    """An updater whose V is 0 and takes no time: it costs little beside generation."""

    def values(self, prompts: Sequence[tuple[int, ...]]) -> list[float]:
        return [0.0] * len(prompts)


class Speeds(NamedTuple):
    """Speeds of engines and updates, by the first policy of each base model."""

    engines: Mapping[str, EngineSpeed]
    """Base model to the speed of one engine."""
    learning: Mapping[str, LearningSpeed]
    """Base model to the speed of its updates."""


class Rollouts(NamedTuple):
    """The simulated rollouts of a train step, a mean if several are in flight."""

    seconds: float
    """Time until they are complete."""
    busy: Mapping[str, float]
    """Base model, by its first policy, to the share of the time in which its engines had something
    to write; fixed policy with a model to the share in which its requests were open."""
    tail: float
    """Share of the time in which at most a tenth of the episodes was left."""
    num_tokens: Mapping[str, float]
    """Base model to the tokens of prompts and answers that its updates read."""
    num_completion_tokens: float
    """Sampled tokens, without those of continuations."""
    env_busy: float
    """Share of the time in which environments were stepped, a mean over workers."""


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


def is_ahead(config: Config, fleet: Fleet) -> bool:
    """Whether rollouts of later train steps are played while policies learn."""
    return config.plays_beside_updates and bool(fleet.learn)


@dataclass(frozen=True, slots=True)
class _Player:
    """A process that plays levels as in a run, on simulated engines and episodes."""

    servers: Mapping[str, Sequence[Server]]
    """Base model to the servers of its engines."""
    fixed: Mapping[str, SimulatedFixed]
    episodes: SimulatedEpisodes
    sampler: Sampler

    async def play(self) -> list[RolloutTree]:
        """Play this process's share of the levels."""
        alone = InFlightRollouts(self.sampler.pending(0, 0), at_once, value_at_once)
        alone.comes_next.set()
        return (await self.sampler.rollouts(alone)).trees


def _player(
    config: Config,
    environment: RunEnvironment,
    workload: Workload,
    servers: Mapping[str, Sequence[Server]],
    ranks: Ranks,
) -> _Player:
    steps = [step for episode in workload.episodes for step in episode]
    longest = {
        agent: longest_answer(config, environment, agent)
        for agent in dict.fromkeys(step.agent for step in steps)
    }

    def draw(place: int, rng: random.Random) -> int:
        return workload.length(steps[place], longest[steps[place].agent], rng)

    policies: dict[str, ModelPolicy] = {}
    for base, *others in base_groups(config.models):
        # Adapters of one base are written by its engine, in the same iterations.
        engine = SimulatedEngine(base, servers[base], draw, is_concurrent=config.is_continuous)
        for name in (base, *others):
            policies[name] = ModelPolicy(
                name=name,
                encode=encoded,
                encode_answer=lambda _: (),
                batcher=Batcher(engine, is_continuous=config.is_continuous),
                updater=cast(Update, _NoValue()),
            )
    fixed = {
        name: SimulatedFixed(
            name=name,
            policy=cast(Any, None),
            draw=draw,
            token_s=workload.fixed_token_s * (reads_prompts(policy) and policy.fixed != "noise"),
            slots=asyncio.Semaphore(policy.requests.max_concurrency),
            spent_s=[],
        )
        for name, policy in config.policies.items()
        if policy.fixed
    }
    pool = PolicyPool(policies=policies, roles=environment.roles, fixed_policies=fixed, ranks=ranks)
    episodes = SimulatedEpisodes(workload, config.num_env_workers(1))
    played = TrainingEnvironment(
        name=environment.name,
        config=environment.config,
        roles=environment.roles,
        episodes=[episodes] * len(environment.training),
    )
    sampler = Sampler([played], pool, config, FailureLog(), StopRequest())
    return _Player(servers, fixed, episodes, sampler)


async def _played(
    config: Config,
    environment: RunEnvironment,
    workload: Workload,
    fleet: Fleet,
    engines: Mapping[str, EngineSpeed],
) -> Rollouts:
    # Levels of all train steps in flight are begun at once: engines write for all of them, and
    # nobody waits for the stragglers of one.
    num_steps = max(config.rollout.max_staleness, 1) if is_ahead(config, fleet) else 1
    levels = {"max_staleness": 0, "num_levels": num_steps * config.rollout.num_levels}
    config = config.model_copy(update={"rollout": config.rollout.model_copy(update=levels)})
    # One process plays with Ray or dedicated GPUs.
    size = 1 if config.ray.enabled else max(fleet.num_shared, 1)
    players = [
        _player(config, environment, workload, _servers(fleet, engines, size), Ranks(rank, size))
        for rank in range(size)
    ]
    trees = [*itertools.chain(*await asyncio.gather(*(player.play() for player in players)))]
    end_s = asyncio.get_running_loop().time()
    ends = sorted(end for player in players for end in player.episodes.ends)
    decisions = [decision for tree in trees for decision in tree.decisions]
    worked_s = sum(player.episodes.worked_s for player in players)
    return Rollouts(
        seconds=end_s / num_steps,
        busy=_busy(config, players, end_s),
        tail=1 - ends[-1 - int(_TAIL * len(ends))] / end_s,
        num_tokens={n: x / num_steps for n, x in _num_learnt(config, workload, trees).items()},
        num_completion_tokens=sampled_tokens(decisions).total() / num_steps,
        env_busy=worked_s / (end_s * config.num_env_workers(size)),
    )


def _servers(
    fleet: Fleet, engines: Mapping[str, EngineSpeed], num_players: int
) -> dict[str, list[Server]]:
    if fleet.num_shared:
        # Shared GPUs hold an engine of every model, which take turns on each of them.
        shared = [Server(engines) for _ in range(fleet.num_shared // num_players)]
        return dict.fromkeys(engines, shared)
    return {
        name: [Server({name: speed}) for _ in range(num)]
        for (name, speed), num in zip(engines.items(), fleet.generate, strict=True)
    }


def _busy(config: Config, players: Sequence[_Player], end_s: float) -> dict[str, float]:
    shares = {
        name: fmean(one.busy_s[name] for player in players for one in player.servers[name])
        for name in players[0].servers
    }
    for name, fixed in players[0].fixed.items():
        if fixed.token_s:
            spent_s = fmean(sum(player.fixed[name].spent_s) for player in players)
            shares[name] = spent_s / config.policies[name].requests.max_concurrency
    return {name: share / end_s for name, share in shares.items()}


def _num_learnt(
    config: Config, workload: Workload, trees: Sequence[RolloutTree]
) -> dict[str, float]:
    """Base model to the tokens of prompts and answers that its updates read, over all epochs.

    Packed, a prompt is read once for all its candidates.
    """
    optimizer, algorithm = config.optimizer, config.algorithm.at(StepContext())
    base = {name: group[0] for group in base_groups(config.models) for name in group}
    tokens = dict.fromkeys(learning_bases(config), 0.0)
    for _, decision in collect_decisions(trees, functools.partial(config.trains, step=0)):
        if algorithm.compares(decision.role):
            copies = 1 if optimizer.packing else len(decision.candidates)
            read = copies * len(decision.prompt_ids)
            read += sum(len(one.completion.token_ids) for one in decision.candidates)
            share = optimizer.num_epochs * workload.used[decision.key.agent]
            tokens[base[decision.policy]] += share * read
    return tokens


_TAIL = 0.1
"""The tail of rollouts begins when at most this share of the episodes is left."""


def rollouts_on(
    config: Config,
    environment: RunEnvironment,
    workload: Workload,
    fleet: Fleet,
    engines: Mapping[str, EngineSpeed],
) -> Rollouts:
    """Play the rollouts of a train step, or those of all train steps that are in flight.

    Args:
        environment: Its levels are not played, but the episodes of the workload.
        engines: Base model to the speed of one engine.
    """
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(_played(config, environment, workload, fleet, engines))


def step_on(config: Config, rollouts: Rollouts, fleet: Fleet, speeds: Speeds) -> StepTimes:
    """The seconds of a train step: rollouts, updates and the push of new weights."""
    gpus = learning_gpus(config, fleet)
    update_s = {
        name: rollouts.num_tokens[name] * speeds.learning[name].token_s / num
        for name, num in gpus.items()
    }
    sync_s = max(speeds.learning[name].sync_s for name in gpus)
    # On shared GPUs policies learn one after another, on their own all at the same time.
    learn_s = sum(update_s.values()) if fleet.num_shared else max(update_s.values())
    parts = rollouts.seconds, learn_s
    step_s = max(parts) if is_ahead(config, fleet) else sum(parts)
    return StepTimes(fleet, rollouts, update_s, sync_s, step_s + sync_s)
