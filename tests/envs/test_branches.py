"""Branches of an episode share one immutable state value and nothing else, in every environment."""

import random
from collections import Counter

import pytest

import pettingllms
from pettingllms.testing.play import mixed_actor, moments
from pettingllms.types import CopyOnRead, mutable_parts

IDS = pettingllms.registered_ids()


def played(env_id, num_steps, seed=2):
    env = pettingllms.make(env_id, checks=False, max_turns=6)
    env.reset(seed=seed)
    player = mixed_actor(random.Random(seed))
    for _ in range(num_steps):
        if env.acting():
            env.step(player(env, env.agent_selection))
    return env


def ruin(value):
    """Change everything that can be changed, at any depth."""
    parts = list(value.values()) if isinstance(value, dict) else list(value)
    for part in parts:
        if isinstance(part, dict | list):
            ruin(part)
    if isinstance(value, dict):
        value.update(dict.fromkeys(value, "ruined"))
    else:
        value.append("ruined")


def seen(env):
    """Return everything that callers can see, step by step, to the end."""
    player = mixed_actor(random.Random(5))
    steps = []
    while env.acting():
        env.step(player(env, env.agent_selection))
        steps.append(repr((env.infos, env.rewards, env.terminations, env.last(), env.state_hash())))
    return steps


@pytest.mark.parametrize("env_id", IDS)
def test_what_is_changed_in_one_branch_shows_in_no_other(env_id):
    expected = seen(played(env_id, 3))
    env = played(env_id, 3)
    twin, snapshot = env.fork(), env.snapshot()
    stray = env.fork()
    ruin(stray.infos)
    ruin(stray.rewards)
    ruin(stray.agents)
    assert seen(twin) == expected
    for step in range(2):
        stray = env.fork()
        if step and stray.acting():
            stray.step("")
        ruin(env.infos)
        env.restore(snapshot)
        ruin(stray.infos)
    assert seen(env) == expected
    # caches that a game keeps beyond an episode are not changed either
    assert seen(played(env_id, 3)) == expected


def test_changeable_parts_of_states_are_found():
    class WithDict(tuple):
        pass

    state = WithDict((1, "a"))
    assert list(mutable_parts(state, "state")) == []
    state.table = {}
    assert list(mutable_parts((state, [1]), "state")) == ["state[0].table: dict", "state[1]: list"]


def test_a_sealed_object_gives_copies_only():
    sealed = CopyOnRead([1])
    sealed.opened().append(2)
    assert sealed.opened() == [1]
    assert list(mutable_parts((sealed,), "state")) == []


def shares_met(env_id, worded, num_levels, num_episodes=4):
    """Return shares of decisions after the first that others of the level took: by key, by hash."""
    env = pettingllms.make(env_id, checks=False).unwrapped
    keys, hashes = Counter(), Counter()
    for seed in range(num_levels):
        for episode in range(num_episodes):
            env.reset(seed=seed)
            rng = random.Random(100 * seed + episode)
            for number, agent in enumerate(moments(env)):
                if number:
                    keys[seed, env.state_key()] += 1
                    hashes[seed, env.state_hash()] += 1
                policy = rng.choice(env.scripted_policies)
                env.step(worded(env.scripted_action(agent, policy, rng), rng))
    return [
        sum(count for count in counts.values() if count > 1) / counts.total()
        for counts in (keys, hashes)
    ]


def commented(text, rng):
    return text.replace("```python\n", f"```python\n# draft {rng.randrange(10**9)}\n")


def shouted(text, rng):
    return "".join(rng.choice((one.lower(), one.upper())) for one in text)


@pytest.mark.parametrize(("env_id", "worded"), [("code_v0", commented), ("search_v0", shouted)])
def test_episodes_meet_in_what_counts_and_not_in_their_texts(env_id, worded):
    by_key, by_hash = shares_met(env_id, worded, 4 if env_id == "code_v0" else 20)
    assert by_key > 0.3
    assert by_hash < 0.05
