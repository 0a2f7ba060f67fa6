"""Which policy plays which role: weights behind an engine that joins requests, or fixed."""

from __future__ import annotations

import asyncio
import contextlib
import functools
import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TypeVar

from pettingllms.errors import InvalidArgument, counted
from pettingllms.loops import DaemonThreads
from pettingllms_trainers.errors import ContextExceeded
from pettingllms_trainers.policies.fixed import FixedPolicy
from pettingllms_trainers.policies.protocols import (
    CheckGrammar,
    Encode,
    EncodeAnswer,
    Generate,
    ReadCalls,
    Sync,
    TokenTexts,
    Update,
)
from pettingllms_trainers.ranks import Ranks
from pettingllms_trainers.types import (
    MIN_TEMPERATURE,
    GenerateRequest,
    RequestLimits,
    SamplingSettings,
    TokenCompletion,
    TrainingGroup,
    UpdateStats,
    ValueExample,
    ValueFit,
)


def check_sampling(sampling: SamplingSettings) -> None:
    """Raise `InvalidArgument` if a value is out of its range."""
    temperature = sampling.temperature
    rules = (
        (
            "temperature",
            temperature,
            temperature == 0 or temperature >= MIN_TEMPERATURE,
            f"0 (greedy), or {MIN_TEMPERATURE:g} or more",
        ),
        ("top_p", sampling.top_p, 0 < sampling.top_p <= 1, "above 0 and at most 1"),
        ("top_k", sampling.top_k, sampling.top_k >= 0, "0 (off) or more"),
        (
            "max_completion_tokens",
            sampling.max_completion_tokens,
            sampling.max_completion_tokens >= 1,
            "1 or more",
        ),
        ("stop", sampling.stop, all(sampling.stop), "texts that are not empty"),
    )
    for name, got, holds, allowed in rules:
        if not holds:
            raise InvalidArgument(name, got, allowed, f"change `{name}` of the sampling settings")


def check_request(request: GenerateRequest, limits: RequestLimits) -> None:
    """Raise `InvalidArgument` if the request cannot be answered by this model."""
    check_sampling(request.sampling)
    if request.num_candidates < 1:
        raise InvalidArgument(
            "num_candidates", request.num_candidates, "1 or more", "ask for at least one completion"
        )
    prompt = request.prompt_ids
    if not prompt or min(prompt) < 0 or max(prompt) >= limits.vocab_size:
        raise InvalidArgument(
            "prompt_ids",
            "no token" if not prompt else f"ids from {min(prompt)} to {max(prompt)}",
            f"one or more ids from 0 to {limits.vocab_size - 1}",
            "encode the prompt with the tokenizer of this policy",
        )
    # Refused, where an engine would cut the completion and nobody would see why.
    needed = len(prompt) + request.sampling.max_completion_tokens
    if limits.context_length is not None and needed > limits.context_length:
        raise ContextExceeded(
            "prompt_ids",
            f"{len(prompt)} prompt and up to {needed - len(prompt)} completion tokens",
            f"at most {limits.context_length} tokens together (the context of the model)",
            "shorten the observation, lower `max_completion_tokens` or take a larger context",
        )


_Prompt = tuple[int, ...]


class JoinedValues:
    """Joins prompts of concurrent coroutines into one evaluation; equal ones are evaluated once.

    Args:
        evaluate: V of distinct prompts, in their order.
    """

    def __init__(self, evaluate: Callable[[Sequence[_Prompt]], list[float]]) -> None:
        self._evaluate = evaluate
        self._prompts: dict[_Prompt, None] = {}
        self._flight: asyncio.Task[dict[_Prompt, float]] | None = None
        self.seconds = 0.0
        """Seconds of evaluations since this was last set to 0."""

    async def of(self, prompt_ids: _Prompt) -> float:
        """V of one prompt; raises what the evaluation raises."""
        self._prompts[prompt_ids] = None
        if self._flight is None:
            # A new task runs after all coroutines that are ready now: they join this flight.
            self._flight = asyncio.get_running_loop().create_task(self._fly())
        return (await asyncio.shield(self._flight))[prompt_ids]

    async def _fly(self) -> dict[_Prompt, float]:
        prompts, self._prompts, self._flight = list(self._prompts), {}, None
        started = time.perf_counter()
        values = self._evaluate(prompts)
        self.seconds += time.perf_counter() - started
        return dict(zip(prompts, values, strict=True))


# Turns of the event loop without a request after which nobody is on the way to one. One is enough
# for episodes that keep step, a round of further levels begins some after the last answer of the
# one before; a turn takes microseconds.
_TURNS = 16


async def all_have_asked(num_asked: Callable[[], int]) -> None:
    """Wait until no coroutine that can run is about to ask; those that wait for threads may still.

    Episodes that wait for each other come to their next request after different numbers of turns of
    the event loop. Each turn may wake another one: only a few without a request mean silence.

    Args:
        num_asked: The number of requests so far.
    """
    num_known = -1
    while num_asked() > num_known:
        num_known = num_asked()
        for _ in range(_TURNS):
            await asyncio.sleep(0)


class Batcher:
    """Joins requests of concurrent coroutines into one engine call.

    The call starts once every coroutine that can run has asked, so batches are as big as they can
    be and depend on nothing but the order in which the coroutines were started. Requests that come
    while the engine computes share the next call. An engine that takes requests while it computes
    can get each in a call of its own: nobody then waits for the longest completion of others.

    Args:
        engine: Answers the requests.
        overlaps: Whether coroutines run while the engine computes. Which requests share a call then
            depends on timing.
        is_continuous: Whether each request is a call of its own; needs an engine that is
            concurrent.
    """

    def __init__(
        self, engine: Generate, *, overlaps: bool = False, is_continuous: bool = False
    ) -> None:
        self.engine = engine
        """Answers the requests."""
        self._overlaps, self._is_continuous = overlaps, is_continuous
        self._turn, self._threads = asyncio.Lock(), DaemonThreads(1)
        self._requests: list[GenerateRequest] = []
        self._flight: asyncio.Task[list[list[TokenCompletion]]] | None = None
        self._num_flights = 0
        self._busy_since_s = 0.0
        self.generate_s = 0.0
        """Seconds in which the engine worked since this was last set to 0."""
        self.num_completions = 0
        """Completions that the engine has given."""

    async def sample(self, request: GenerateRequest) -> list[TokenCompletion]:
        """The completions of one request; raises what the engine raises.

        Raises:
            InvalidArgument: The engine cannot answer it. Requests that would have shared its call
                are not affected.
        """
        self.engine.check(request)
        if self._is_continuous:
            (completions,) = await self._answered([request])
            return completions
        # Its place in the joined call is its place in the answer.
        index = len(self._requests)
        self._requests.append(request)
        if self._flight is None:
            self._flight = asyncio.get_running_loop().create_task(self._fly())
        return (await asyncio.shield(self._flight))[index]

    async def _fly(self) -> list[list[TokenCompletion]]:
        async with contextlib.nullcontext() if self.engine.is_concurrent else self._turn:
            if not self.engine.is_concurrent:
                # Whoever misses a flight once would fly apart for the whole episode.
                await all_have_asked(lambda: len(self._requests))
            requests, self._requests, self._flight = self._requests, [], None
            return await self._answered(requests)

    async def _answered(self, requests: Sequence[GenerateRequest]) -> list[list[TokenCompletion]]:
        completions = await self._timed(requests)
        if len(completions) != len(requests):
            raise RuntimeError(
                f"the engine answered {counted(len(requests), 'request')} with "
                f"{counted(len(completions), 'result')}"
            )
        self.num_completions += sum(map(len, completions))
        return completions

    async def _timed(self, requests: Sequence[GenerateRequest]) -> list[list[TokenCompletion]]:
        if not self._num_flights:
            self._busy_since_s = time.perf_counter()
        self._num_flights += 1
        try:
            return await self._generate(requests)
        finally:
            self._num_flights -= 1
            if not self._num_flights:
                self.generate_s += time.perf_counter() - self._busy_since_s

    async def _generate(self, requests: Sequence[GenerateRequest]) -> list[list[TokenCompletion]]:
        if self.engine.is_concurrent or not self._overlaps:
            return await self.engine.generate(requests)
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(
            self._threads, lambda: asyncio.run(self.engine.generate(requests))
        )


_PartT = TypeVar("_PartT")
_ResultT = TypeVar("_ResultT")


@dataclass(frozen=True, kw_only=True)
class ModelPolicy:
    """A policy with weights: its tokenizer, engine and updater."""

    name: str
    """Name in the run file."""
    encode: Encode
    """Chat messages to prompt tokens."""
    encode_answer: EncodeAnswer
    """The text of a demonstrated answer to tokens."""
    batcher: Batcher
    """Joins the requests to its engine; adapters of one base share it."""
    updater: Update | None
    """Trains its weights; None for a frozen policy."""
    sync: Sync | None = None
    """Moves its weights to the engine; None when the engine has no copy of them."""
    token_texts: TokenTexts | None = None
    """Tokens to texts, for records of rollouts; None: they hold no tokens."""
    check_grammar: CheckGrammar | None = None
    """Refuses forms that cannot be enforced; None when its decoding is not guided."""
    read_calls: ReadCalls | None = None
    """Rewrites calls of tools in the model's own format; None when it has none of its own."""
    adapter: str | None = None
    """Its adapter on the engine; see `GenerateRequest.adapter`."""

    async def sample(self, request: GenerateRequest) -> list[TokenCompletion]:
        """Its completions of one request, with calls rewritten; see `Batcher.sample`."""
        if self.adapter is not None:
            request = replace(request, adapter=self.adapter)
        completions = await self.batcher.sample(request)
        if self.read_calls is None:
            return completions
        return [replace(one, text=self.read_calls(request, one)) for one in completions]

    def enforced(self, grammar: str) -> str:
        """The form that is enforced on its answers where one is wanted; empty: none.

        Raises:
            InvalidArgument: It cannot be enforced.
        """
        if self.check_grammar is None or not grammar:
            return ""
        self.check_grammar(grammar)
        return grammar

    @functools.cached_property
    def values(self) -> JoinedValues:
        """V of its prompts, evaluated by the updater."""
        assert self.updater is not None, f"{self.name} is frozen and has no V"
        return JoinedValues(self.updater.values)


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicyPool:
    """Which policy plays which role; roles that name one policy share it."""

    policies: Mapping[str, ModelPolicy]
    """Policies with weights by name."""
    roles: Mapping[str, str]
    """Role to the name of a policy."""
    fixed_policies: Mapping[str, FixedPolicy] = field(default_factory=dict[str, FixedPolicy])
    """Policies without weights by name."""
    ranks: Ranks = field(default_factory=Ranks)
    """The processes that play and train with these policies together."""
    computes_elsewhere: bool = False
    """Whether each policy has processes of its own, so that all can compute at the same time."""

    def for_role(self, role: str) -> ModelPolicy | FixedPolicy:
        """The policy of a role."""
        name = self.roles[role]
        return self.fixed_policies[name] if name in self.fixed_policies else self.policies[name]

    def in_env(self, env: str, roles: Mapping[str, str]) -> PolicyPool:
        """The pool with the roles of an environment.

        Args:
            env: Its name among several; empty for the only one, whose roles are those of the pool.
            roles: Role, as the environment has it, to the name of a policy.
        """
        return replace(self, roles=roles) if env else self

    def updaters(self) -> dict[str, Update]:
        """The trainable policies by name."""
        return {
            name: policy.updater
            for name, policy in self.policies.items()
            if policy.updater is not None
        }

    def update(
        self,
        data: Mapping[str, Sequence[TrainingGroup]],
        is_updated: Callable[[str], bool] = lambda _: True,
    ) -> dict[str, UpdateStats]:
        """Train policies on their groups of one step, those of one base together.

        Args:
            is_updated: Whether the step updates a policy; the others are left as they are.
        """
        # Policies without groups are asked too: they report that they were skipped.
        updaters = {name: own for name, own in self.updaters().items() if is_updated(name)}
        teams: dict[object, list[str]] = {}
        for name, updater in updaters.items():
            teams.setdefault(updater.base, []).append(name)

        def learn(first: str, names: Sequence[str]) -> list[UpdateStats]:
            updates = [(updaters[name], data.get(name, [])) for name in names]
            return updaters[first].update_together(updates)

        found = self._each(learn, {names[0]: names for names in teams.values()})
        names = itertools.chain(*teams.values())
        stats = dict(zip(names, itertools.chain(*found.values()), strict=True))
        return {name: stats[name] for name in updaters}

    def fit_values(self, examples: Mapping[str, Sequence[ValueExample]]) -> dict[str, ValueFit]:
        """Fit V of every trainable policy to its examples of one step; see `Update.fit_values`."""
        return self._each(
            lambda name, updater: updater.fit_values(examples.get(name, [])), self.updaters()
        )

    def take_value_s(self) -> float:
        """The wall time in which V was evaluated during rollouts since the last call."""
        joined = [p.values for p in self.policies.values() if p.updater is not None]
        seconds = sum(values.seconds for values in joined)
        for values in joined:
            values.seconds = 0.0
        return seconds

    def release_engines(self) -> None:
        """Let engines free what an update may need."""
        self._each(lambda _, sync: sync.release(), self._syncs())

    def push_weights(self) -> None:
        """Give all engines that have a copy of the weights the present ones."""
        self._each(lambda _, sync: sync.push(), self._syncs())

    def _syncs(self) -> dict[str, Sync]:
        """The different syncs, by the name of a policy: an engine may serve several policies."""
        # By the object: pushing twice would transfer the same weights twice.
        names = {p.sync: name for name, p in self.policies.items() if p.sync is not None}
        return {name: sync for sync, name in names.items()}

    def _each(
        self, call: Callable[[str, _PartT], _ResultT], parts: Mapping[str, _PartT]
    ) -> dict[str, _ResultT]:
        """What a call gives for each policy; all at once where that costs nobody time."""
        # In one process threads would take turns on the same cores and change the order.
        if not (self.computes_elsewhere and parts):
            return {name: call(name, part) for name, part in parts.items()}
        threads = DaemonThreads(len(parts))
        return dict(zip(parts, threads.map(call, parts, parts.values()), strict=True))

    @property
    def num_completions(self) -> int:
        """Completions that all engines have written."""
        return sum(batcher.num_completions for batcher in self._batchers())

    def take_generate_s(self) -> float:
        """The wall time spent in the engines since the last call."""
        seconds = sum(batcher.generate_s for batcher in self._batchers())
        for batcher in self._batchers():
            batcher.generate_s = 0.0
        return seconds

    def _batchers(self) -> list[Batcher]:
        """Each of them once: adapters of a base share theirs."""
        return list(dict.fromkeys(policy.batcher for policy in self.policies.values()))

    def swapped(self) -> PolicyPool | None:
        """A pool in which every role is played by the next role's policy.

        Fixed policies keep their roles: swapping shows how far the trained ones have specialised.
        None when one policy plays all other roles: then there is nothing to swap.
        """
        roles = {role: name for role, name in self.roles.items() if name in self.policies}
        # One policy in all roles would play itself again.
        names = list(roles.values())
        if len(set(names)) < 2:
            return None
        moved = dict(zip(roles, [*names[1:], names[0]], strict=True))
        return replace(self, roles={**self.roles, **moved})
