"""Checks of what agents must not read: choices of the same moment, and what others alone know."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import NamedTuple

from pettingllms.errors import ConformanceError
from pettingllms.testing.play import (
    SEEDS,
    AnyEnv,
    has_ended,
    mixed_actor,
    moments,
    require,
    scripted_actor,
)
from pettingllms.testing.report import NotPromised
from pettingllms.testing.subject import Subject

PRIVATE_SEEDS = range(12)
"""Seeds of the levels on which private texts are followed."""
MIN_PRIVATE_CHARS = 3
"""Shorter texts stand in every prompt by chance."""
MIN_LEAKS = 3
"""Different texts that must have been seen elsewhere: one alone may be an example of the prompt."""
_BETWEEN_ITEMS = re.compile(r"\s*[,;\n]\s*")


def check_same_moment(subject: Subject) -> None:
    """Agents that act at the same moment read nothing of each other's choices of that moment."""
    env = subject()
    if all(len(stage) == 1 for stage in env.stages):
        raise NotPromised("No two agents act at the same moment.")
    for seed in SEEDS:
        env.reset(seed=seed)
        rng = random.Random(seed)
        actor = mixed_actor(rng)
        for agent in moments(env):
            others = env.acting()[1:]
            seen = {other: env.observe(other) for other in others}
            scripted = [env.scripted_action(agent, name, rng) for name in env.scripted_policies]
            for text in dict.fromkeys(["", *scripted]) if others else ():
                fork = env.fork()
                fork.step(text)
                changed = [o for o in others if not has_ended(fork) and fork.observe(o) != seen[o]]
                require(
                    not changed,
                    f"Seed {seed}, turn {env.turn}: {', '.join(changed)} reads what {agent} has "
                    "just chosen, and they choose at the same time.",
                )
            env.step(actor(env, agent))


class _Item(NamedTuple):
    owner: str
    field: str
    place: int
    """Place of the text among those of the field."""


def check_private(subject: Subject) -> None:
    """What a private field shows its reader, no one else reads before the reader has written it.

    `private_fields` of the environment names the fields. Their values, cut at commas, semicolons
    and ends of lines, are looked for in the prompts of all others, at every moment of episodes in
    which their reader has not yet written them. One that a prompt shows in most episodes, whatever
    the level, leaks; a few may be there by chance.
    """
    env = subject()
    if not env.private_fields:
        raise NotPromised("The environment declares no private_fields.")
    looked: dict[tuple[_Item, str], int] = defaultdict(int)
    leaked: dict[tuple[_Item, str], list[str]] = defaultdict(list)
    for seed in PRIVATE_SEEDS:
        for item, reader, text, is_read in _followed(env, seed):
            looked[item, reader] += 1
            leaked[item, reader] += [text] * is_read
    for (item, reader), texts in leaked.items():
        if 2 * len(texts) > looked[item, reader] and len(set(texts)) >= MIN_LEAKS:
            raise ConformanceError(
                f"{reader} reads {texts[0]!r} of the field {item.field!r}, which {item.owner} "
                "alone knows and has not written, and the like at "
                f"{len(texts)} of {looked[item, reader]} moments."
            )


def _followed(env: AnyEnv, seed: int) -> Iterator[tuple[_Item, str, str, bool]]:
    """Yield (private text, another reader, its words, whether they are read) of one episode."""
    env.reset(seed=seed)
    rng = random.Random(seed)
    actor = scripted_actor("oracle", rng) if seed % 2 else mixed_actor(rng)
    written: dict[str, str] = defaultdict(str)
    for agent in moments(env):
        prompts = {other: env.observe(other) for other in env.possible_agents}
        for item, text in _private(env):
            if _holds(written[item.owner], text):
                continue
            for reader, prompt in prompts.items():
                if reader != item.owner:
                    yield item, reader, text, _holds(prompt, text)
        said = actor(env, agent)
        written[agent] += said + "\n"
        env.step(said)


def _private(env: AnyEnv) -> Iterator[tuple[_Item, str]]:
    for owner in env.possible_agents:
        fields = env.fields(owner)
        for field in env.private_fields:
            for index, text in enumerate(_BETWEEN_ITEMS.split(str(fields[field]))):
                if len(text) >= MIN_PRIVATE_CHARS:
                    yield _Item(owner, field, index), text


def _holds(text: str, part: str) -> bool:
    return re.search(rf"(?<!\w){re.escape(part)}(?!\w)", text) is not None
