"""What counts of a state: how often episodes meet in it, and where agents read more than it."""

from __future__ import annotations

import json
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import takewhile
from typing import Any, NamedTuple

from pettingllms.hooks import GameHooks
from pettingllms.parsing import one_line
from pettingllms.testing.degenerate import LEVEL_SEEDS
from pettingllms.testing.play import AnyEnv, moments
from pettingllms.testing.report import Measured, NotPromised, SkippedCheck
from pettingllms.testing.subject import Subject
from pettingllms.types import role_of

EPISODES = 4
"""Episodes of each level."""
SHOWN_BEFORE, SHOWN_CHARS = 20, 60
"""Characters of a prompt that a report shows: before the first difference, and in all."""


class _Visit(NamedTuple):
    role: str
    prompt: str
    counts: Any
    """What counts of the state, as JSON data."""


def check_state_key(subject: Subject) -> Measured:
    """Measured, not demanded: what agents read is decided by what counts of the state.

    Several episodes of each level are played by a mixture of the scripted policies. `met again` is
    the share of decisions after the first whose `state_key` another episode of the level reached,
    too: what credit by state averages over. `reads more than the key` is, by role, the share of
    those that come to a state after another episode and read another prompt there than it did: a
    policy may know something that the average does not. Of each such role the report shows what
    counts of one such state, and where the two prompts begin to differ.
    """
    env = subject()
    if type(env)._key_json is GameHooks._key_json:
        raise NotPromised("No `_key_json`: nothing but the whole state counts.")
    if not env.scripted_policies:
        raise SkippedCheck("There is no scripted policy to play with.")
    num_decisions, num_met = 0, 0
    shares: dict[str, list[bool]] = defaultdict(list)
    examples: dict[str, str] = {}
    for seed in LEVEL_SEEDS:
        paths = [_path(env, seed, episode) for episode in range(EPISODES)]
        num_in = Counter(key for path in paths for key in path)
        num_decisions += num_in.total()
        num_met += sum(num for num in num_in.values() if num > 1)
        for first, later in _meetings(paths):
            reads_more = later.prompt != first.prompt
            shares[later.role].append(reads_more)
            if reads_more:
                examples.setdefault(later.role, f"Seed {seed}, {_apart(first, later)}")
    figures = {"states met again": num_met / max(num_decisions, 1)}
    for role, found in sorted(shares.items()):
        figures[f"{role} reads more than the key"] = sum(found) / len(found)
    return Measured(figures, "\n".join(examples[role] for role in sorted(examples)))


def _meetings(paths: Sequence[Mapping[str, _Visit]]) -> Iterator[tuple[_Visit, _Visit]]:
    """Yield the first visit of a state with each later one, which is of another episode."""
    first: dict[str, _Visit] = {}
    for key, visit in (item for path in paths for item in path.items()):
        if key in first:
            yield first[key], visit
        first.setdefault(key, visit)


def _apart(one: _Visit, other: _Visit) -> str:
    pairs = zip(one.prompt, other.prompt, strict=False)
    num_alike = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    start = max(0, num_alike - SHOWN_BEFORE)
    first, second = (visit.prompt[start:][:SHOWN_CHARS] for visit in (one, other))
    key = one_line(json.dumps(one.counts, ensure_ascii=False), SHOWN_CHARS)
    return f"key {key}: {one.role} reads {first!r} or {second!r}."


def _path(env: AnyEnv, seed: int, episode: int) -> dict[str, _Visit]:
    """Return key -> visit, of the decisions after the first of one episode."""
    rng = random.Random(EPISODES * seed + episode)
    env.reset(seed=seed)
    found: dict[str, _Visit] = {}
    for number, agent in enumerate(moments(env)):
        if number:
            counts = env._key_json(env.state())
            found[env.state_key()] = _Visit(role_of(agent), str(env.observe(agent)), counts)
        env.step(env.scripted_action(agent, rng.choice(env.scripted_policies), rng))
    return found
