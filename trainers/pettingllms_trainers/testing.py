"""The kit for algorithms: does one keep what the training loop relies on?

```python
from pettingllms_trainers.testing import check_algorithm

check_algorithm("my_algorithm")                          # an installed one
check_algorithm("my_package.mine:MyAlgorithm", gamma=0.9)  # a class, with parameters
```
"""

from __future__ import annotations

import asyncio
import json
import math
import random
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

from pettingllms import ParseError, PromptTemplate, TextEnv, Transition
from pettingllms_trainers.config.algorithm import Algorithm, StepContext, algorithm_of
from pettingllms_trainers.learning.groups import collect_decisions, score_decisions
from pettingllms_trainers.policies.pool import Batcher, ModelPolicy, PolicyPool
from pettingllms_trainers.rollout.candidates import FailureLog, RolloutSettings, episode_specs
from pettingllms_trainers.rollout.episode import LocalEpisodes
from pettingllms_trainers.rollout.player import play_episodes
from pettingllms_trainers.types import (
    GenerateRequest,
    RequestLimits,
    RolloutTree,
    SamplingSettings,
    TokenCompletion,
)

_ROLES = ("caller", "echo")
_NUM_LEVELS = 6
_TOLERANCE = 1e-9


def check_algorithm(name: str, **parameters: Any) -> None:
    """Play a small team game with an algorithm and check what comes of it.

    Args:
        name: As in a run file: of an installed algorithm, or ``package.module:Class``.
        **parameters: Its parameters.

    Raises:
        AssertionError: It is not documented, a candidate is twice in one group, a group
            without differences has advantages, the order of episodes or candidates matters, equal
            seeds give unequal trees, or what it remembers does not survive a checkpoint.
        ValueError: There is no such algorithm, or it refuses a parameter.
    """
    algorithm: Algorithm = algorithm_of({"name": name, **parameters})
    _check_documentation(algorithm)
    context = StepContext()
    trees = played(algorithm, context)
    _check_seeds(algorithm, trees)
    _check_groups(algorithm, trees, context)
    _check_order(algorithm, trees, context)
    _check_memory(algorithm, trees, context)


def _check_documentation(algorithm: Algorithm) -> None:
    kind = type(algorithm)
    for words in ("Take it ", "Source:"):
        assert words in (kind.__doc__ or ""), f"the docstring of {kind.__name__} lacks {words!r}"
    for key, field in kind.model_fields.items():
        assert field.description or hasattr(field.annotation, "model_fields"), (
            f"{kind.__name__}.{key} has no docstring, which is its help text"
        )
    again = algorithm_of(algorithm.model_dump(mode="json"))
    assert again == algorithm, f"{algorithm} is read back from a run file as {again}"


def _check_seeds(algorithm: Algorithm, trees: Sequence[RolloutTree]) -> None:
    assert len(trees) == _NUM_LEVELS * algorithm.episodes_per_level, "every episode has a tree"
    assert trees == played(algorithm, StepContext()), "equal seeds give other trees"
    alone = played(algorithm, StepContext(), num_levels=1)
    assert trees[: len(alone)] == alone, "a level depends on what is played beside it"
    most = max(len(one.candidates) for tree in trees for one in tree.decisions)
    assert most <= algorithm.candidates_per_decision, (
        f"a decision has {most} candidates, more than candidates_per_decision = "
        f"{algorithm.candidates_per_decision}"
    )


def _check_groups(algorithm: Algorithm, trees: Sequence[RolloutTree], context: StepContext) -> None:
    found = collect_decisions(trees)
    grouped = list(algorithm.groups(found, context))
    members = [member for _, member in grouped]
    places = [(key, place) for key, member in grouped for place in member.candidates]
    compared = {place for _, place in places}
    assert compared, "nothing is compared"
    assert len(set(places)) == len(places), "a candidate is twice in one group"
    sizes = {index: len(decision.candidates) for index, (_, decision) in enumerate(found)}
    whole = {(index, own) for index, _ in compared for own in range(sizes[index])}
    assert compared == whole, "of a decision some candidates are compared, and others are not"
    assert all(math.isfinite(member.value) for member in members), "a value is not finite"
    for value in (0.0, -2.5):
        equal = algorithm.advantages([value] * 4)
        assert equal == [0.0] * 4, f"of equal values {equal} are the advantages, which should be 0"


def _check_order(algorithm: Algorithm, trees: Sequence[RolloutTree], context: StepContext) -> None:
    straight = _advantages(algorithm, trees, context)
    assert straight, "no group of a game with differing rewards teaches anything"
    _assert_close(straight, _advantages(algorithm, trees[::-1], context), "episodes")
    turned = {key: found[::-1] for key, found in straight.items()}
    _assert_close(turned, _advantages(algorithm, [*map(_turned, trees)], context), "candidates")


def _check_memory(algorithm: Algorithm, trees: Sequence[RolloutTree], context: StepContext) -> None:
    memory = algorithm.remember(trees, context)
    saved = json.loads(json.dumps(dict(memory)))
    assert saved == memory, f"{memory} is read back from a checkpoint as {saved}"
    later = [played(algorithm, StepContext(1, known)) for known in (memory, saved)]
    assert later[0] == later[1], "a resumed run plays other episodes"


def _advantages(
    algorithm: Algorithm, trees: Sequence[RolloutTree], context: StepContext
) -> dict[Any, list[float]]:
    scored = score_decisions(trees, algorithm, None, context).decisions
    return {one.key: [c.advantage or 0.0 for c in one.candidates] for one in scored}


def _turned(tree: RolloutTree) -> RolloutTree:
    """A tree with the candidates of every decision in reverse order."""
    decisions = (
        replace(
            decision,
            candidates=decision.candidates[::-1],
            chosen=len(decision.candidates) - 1 - (decision.chosen or 0),
        )
        for decision in tree.decisions
    )
    return replace(tree, decisions=tuple(decisions))


def _assert_close(first: Mapping[Any, Sequence[float]], second: Any, of: str) -> None:
    assert first.keys() == second.keys(), f"the order of {of} decides what is compared"
    for key, values in first.items():
        for value, other in zip(values, second[key], strict=True):
            assert math.isclose(value, other, rel_tol=_TOLERANCE, abs_tol=_TOLERANCE), (
                f"the order of {of} changes an advantage of {tuple(key)}: {value} and {other}"
            )


def played(
    algorithm: Algorithm,
    context: StepContext,
    num_levels: int = _NUM_LEVELS,
    max_turns: int = 3,
) -> list[RolloutTree]:
    """Play the kit's game, in which two agents add digits by turns, with random digits.

    Args:
        algorithm: Which decisions are played, and how often.
        context: Train step and memory; equal ones play equal trees.
        num_levels: Levels, from 0 on.
        max_turns: Turns of an episode, each with two decisions.
    """
    num = algorithm.episodes_per_level
    settings = RolloutSettings(
        sampling=dict.fromkeys(_ROLES, SamplingSettings()),
        branching_roles=tuple(filter(algorithm.branches, _ROLES)),
    )
    specs = episode_specs(
        seed=0, step=context.step, first_level=0, num_levels=num_levels, num_trajectories=num
    )
    policy = ModelPolicy(
        name="policy",
        encode=lambda messages: tuple("".join(one["content"] for one in messages).encode()),
        encode_answer=lambda text: tuple(text.encode()),
        batcher=Batcher(_Digits()),
        updater=_Ends(),  # pyright: ignore[reportArgumentType]  (only its values are asked for)
    )
    pool = PolicyPool(policies={"policy": policy}, roles=dict.fromkeys(_ROLES, "policy"))
    return asyncio.run(
        play_episodes(
            LocalEpisodes(_Sums(max_turns)),
            pool,
            specs,
            settings,
            algorithm.strategy(context),
            FailureLog(),
        )
    )


class _Ends:
    """A V that says of a prompt what its last character is worth."""

    def values(self, prompts: Sequence[tuple[int, ...]]) -> list[float]:
        return [prompt[-1] / 10 for prompt in prompts]


class _Digits:
    """An engine that writes digits; which, is decided by the seed alone."""

    is_concurrent = False
    limits = RequestLimits(max_batch_tokens=1 << 30, context_length=None, vocab_size=1 << 30)

    def check(self, request: GenerateRequest) -> None:
        pass

    async def generate(self, requests: Sequence[GenerateRequest]) -> list[list[TokenCompletion]]:
        return [self._answers(request) for request in requests]

    def _answers(self, request: GenerateRequest) -> list[TokenCompletion]:
        rng = random.Random(request.seed)
        texts = [rng.choice("01234") for _ in range(request.num_candidates)]
        return [
            TokenCompletion(token_ids=(ord(t),), logprobs=(-1.0,), text=t, finish_reason="stop")
            for t in texts
        ]


class _Sum(NamedTuple):
    goal: int
    total: int = 0


class _Sums(TextEnv[_Sum]):
    """Two agents add digits by turns; the team is paid for coming nearer to a goal."""

    prompt_fields: ClassVar = {"goal": "what to reach", "total": "the sum so far"}
    default_prompts: ClassVar = {role: PromptTemplate("", "{goal} {total}") for role in _ROLES}

    def __init__(self, max_turns: int) -> None:
        super().__init__(stages=(("caller_0",), ("echo_0",)), max_turns=max_turns)
        self._goal = 2 * max_turns

    def _generate(self, rng: random.Random, options: Any) -> _Sum:
        return _Sum(self._goal + rng.randrange(6))

    def _fields(self, state: _Sum, agent: str, turn: int) -> dict[str, Any]:
        return state._asdict()

    def _parse(self, state: _Sum, agent: str, text: str) -> int | ParseError:
        return int(text) if text.isdecimal() else ParseError("not a digit")

    def _act(self, state: _Sum, agent: str, action: Any) -> Transition:
        after = state._replace(total=state.total + action)
        nearer = abs(state.goal - state.total) - abs(state.goal - after.total)
        is_solved = after.total == state.goal
        return Transition(after, float(nearer), -action / 8, is_solved, is_solved)

    def _ansi(self, state: _Sum) -> str:
        return repr(state)

    def _scripted(self, state: _Sum, agent: str, policy: str, rng: random.Random) -> str:
        return "1"
