"""Policies, and which policy plays which role."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import TypeVar

from pettingllms_trainers.policies.batcher import Batcher
from pettingllms_trainers.policies.fixed import FixedPolicy
from pettingllms_trainers.policies.protocols import (
    CheckGrammar,
    Encode,
    EncodeAnswer,
    Sync,
    TokenTexts,
    Update,
)
from pettingllms_trainers.policies.values import JoinedValues
from pettingllms_trainers.ranks import Ranks
from pettingllms_trainers.types import TrainingGroup, UpdateStats, ValueExample, ValueFit

__all__ = ["ModelPolicy", "PolicyPool"]

_PartT = TypeVar("_PartT")
_ResultT = TypeVar("_ResultT")


@dataclass(frozen=True, kw_only=True)
class ModelPolicy:
    """One set of weights: how it reads, writes and learns."""

    name: str
    """Name in the run file."""
    encode: Encode
    """Its tokenizer's chat template."""
    encode_answer: EncodeAnswer
    """The same tokenizer, for answers that are demonstrated."""
    batcher: Batcher
    """Its engine, behind the joining of requests."""
    updater: Update | None
    """None for a frozen policy."""
    sync: Sync | None = None
    """None when the engine generates with the updater's own weights."""
    token_texts: TokenTexts | None = None
    """The same tokenizer, for people who look at tokens; None: they see none."""
    check_grammar: CheckGrammar | None = None
    """None when its decoding is not guided."""

    def enforced(self, grammar: str) -> str:
        """Return the form that its answers are given where one is wanted; empty: none.

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
        """Return the policy of a role."""
        name = self.roles[role]
        return self.fixed_policies[name] if name in self.fixed_policies else self.policies[name]

    def in_env(self, env: str, roles: Mapping[str, str]) -> PolicyPool:
        """Return the pool with the roles of an environment.

        Args:
            env: Its name among several; empty for the only one, whose roles are those of the pool.
            roles: Role, as the environment has it, to the name of a policy.
        """
        return replace(self, roles=roles) if env else self

    def updaters(self) -> dict[str, Update]:
        """Return the trainable policies by name."""
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
        """Train policies on their groups of one step; see `Update.update`.

        Args:
            data: Groups by policy.
            is_updated: Whether the step updates a policy; the others are left as they are.
        """
        updaters = {name: own for name, own in self.updaters().items() if is_updated(name)}
        return self._each(lambda name, updater: updater.update(data.get(name, [])), updaters)

    def fit_values(self, examples: Mapping[str, Sequence[ValueExample]]) -> dict[str, ValueFit]:
        """Fit V of every trainable policy to its examples of one step; see `Update.fit_values`."""
        return self._each(
            lambda name, updater: updater.fit_values(examples.get(name, [])), self.updaters()
        )

    def take_value_s(self) -> float:
        """Return the wall time in which V was evaluated during rollouts since the last call."""
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
        """Return each of them once: an engine may serve several policies."""
        names = {p.sync: name for name, p in self.policies.items() if p.sync is not None}
        return {name: sync for sync, name in names.items()}

    def _each(
        self, call: Callable[[str, _PartT], _ResultT], parts: Mapping[str, _PartT]
    ) -> dict[str, _ResultT]:
        """Return what a call gives for each policy; all at once where that costs nobody time."""
        if not (self.computes_elsewhere and parts):
            return {name: call(name, part) for name, part in parts.items()}
        with ThreadPoolExecutor(len(parts)) as threads:
            return dict(zip(parts, threads.map(call, parts, parts.values()), strict=True))

    @property
    def num_completions(self) -> int:
        """Completions that all engines have written."""
        return sum(policy.batcher.num_completions for policy in self.policies.values())

    def take_generate_s(self) -> float:
        """Return the wall time spent in the engines since the last call."""
        seconds = sum(policy.batcher.generate_s for policy in self.policies.values())
        for policy in self.policies.values():
            policy.batcher.generate_s = 0.0
        return seconds

    def swapped(self) -> PolicyPool | None:
        """Return a pool in which every role is played by the next role's policy.

        Fixed policies keep their roles: swapping shows how far the trained ones have specialised.
        None when one policy plays all other roles: then there is nothing to swap.
        """
        roles = {role: name for role, name in self.roles.items() if name in self.policies}
        names = list(roles.values())
        if len(set(names)) < 2:
            return None
        moved = dict(zip(roles, [*names[1:], names[0]], strict=True))
        return replace(self, roles={**self.roles, **moved})
