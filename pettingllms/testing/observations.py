"""Checks of observations: no side effects, the present state, and nothing that is private."""

from __future__ import annotations

import random
import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any, NamedTuple

from pettingllms.errors import ConformanceError
from pettingllms.testing.play import (
    SEEDS,
    Actor,
    AnyEnv,
    always,
    episode,
    has_ended,
    mixed_actor,
    moments,
    require,
    scripted_actor,
)
from pettingllms.testing.report import NotPromised, Subject


def check_observe(subject: Subject) -> None:
    """`observe` and `messages` change nothing, agree, and work at any time."""
    env = subject()
    env.reset(seed=2)
    actor = mixed_actor(random.Random(2))
    for _ in range(6 * len(env.possible_agents)):
        before, rewards = env.state_hash(), dict(env.rewards)
        for agent in env.possible_agents:
            observation = env.observe(agent)
            joined = "\n\n".join(m["content"] for m in env.messages(agent))
            require(observation == env.observe(agent), "observe twice gave two observations.")
            require(observation == joined, "messages and observation differ.")
            inside = env.observation_space(agent).contains(observation)
            require(inside, "An observation is outside of the observation space.")
        require(before == env.state_hash(), "observe changed the state.")
        require(rewards == env.rewards, "observe changed the rewards.")
        if has_ended(env):
            return
        env.step(actor(env, env.agent_selection))


def check_watching(subject: Subject) -> None:
    """An episode is the same whether or not it is watched: looking has no side effects."""
    env = subject()
    for seed in SEEDS:
        unwatched = _outcomes(env, seed, mixed_actor(random.Random(seed)))
        actor = mixed_actor(random.Random(seed))
        watched = _outcomes(env, seed, lambda env, agent, actor=actor: _look(env, agent, actor))
        require(
            unwatched == watched,
            f"Seed {seed}: the same actions had other results after observe, messages, last, "
            "state_hash, ansi rendering and scripted_action were called.",
        )


def check_reading(subject: Subject) -> None:
    """What every agent reads depends on the level and on what was done before."""
    env = subject()
    shows_seed = env.metadata.get("seed_shows", True)
    by_moment: dict[tuple[str, int], list[str]] = {}
    for seed in range(20, 32):
        for step in episode(env, seed):
            moment = (step["agent"], step["info"]["turn"])
            by_moment.setdefault(moment, []).append(step["observation"])
    for agent in env.possible_agents:
        # Who seldom has the floor may be seen but once at every moment.
        readings = [s for (reader, _), s in by_moment.items() if reader == agent and len(s) > 1]
        require(
            not readings or not shows_seed or max(len(set(seen)) for seen in readings) > 1,
            f"{agent} reads the same in every episode: its prompt does not depend on the state.",
        )
    num_pairs, num_different = _compare_branches(subject)
    if not num_pairs:
        raise NotPromised("No agent reads anything after an action has changed the state.")
    require(
        num_different > 0,
        f"In {num_pairs} pairs of branches with different states, every agent reads the same in "
        "both: prompts do not depend on the state.",
    )


def _compare_branches(subject: Subject) -> tuple[int, int]:
    """The pairs of branches with different states, and those that agents can distinguish."""
    num_pairs = num_different = 0
    for seed in SEEDS:
        env = subject()
        env.reset(seed=seed)
        actor = mixed_actor(random.Random(seed))
        while not has_ended(env):
            one, other = env.fork(), env.fork()
            _pass_stage(one, mixed_actor(random.Random(seed)))
            _pass_stage(other, always(""))
            readers = one.acting()
            if readers and readers == other.acting() and one.state_hash() != other.state_hash():
                num_pairs += 1
                num_different += any(one.observe(a) != other.observe(a) for a in readers)
            env.step(actor(env, env.agent_selection))
    return num_pairs, num_different


def _pass_stage(env: AnyEnv, actor: Actor) -> None:
    for _ in env.acting():
        if not has_ended(env):
            env.step(actor(env, env.agent_selection))


def _look(env: AnyEnv, agent: str, actor: Actor) -> str:
    """Call everything that must change nothing, then answer."""
    for other in env.possible_agents:
        env.observe(other)
        env.messages(other)
        for policy in env.scripted_policies:
            env.scripted_action(other, policy, random.Random(0))
    env.last()
    env.acting()
    env.state_hash()
    env.render_mode = "ansi"
    env.render()
    return actor(env, agent)


def _outcomes(env: AnyEnv, seed: int, actor: Actor) -> list[dict[str, Any]]:
    """What the actions of an episode did, without a look at observations or hashes."""
    env.reset(seed=seed)
    outcomes: list[dict[str, Any]] = []
    while not has_ended(env) and len(outcomes) < 10_000:
        agent = env.agent_selection
        env.step(actor(env, agent))
        outcomes.append({"agent": agent, "rewards": dict(env.rewards), "info": env.infos[agent]})
    return [*outcomes, {"final": env.state_hash()}]


# Seeds of the levels on which private texts are followed.
PRIVATE_SEEDS = range(12)
# Shorter texts stand in every prompt by chance.
MIN_PRIVATE_CHARS = 3
# Different texts that must have been seen elsewhere: one alone may be an example of the prompt.
MIN_LEAKS = 3
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
        # A word may stand in a prompt by chance; most moments and several words are no chance.
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
