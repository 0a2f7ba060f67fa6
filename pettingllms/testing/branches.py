"""Checks of branches: forks, snapshots, and the state as one immutable value."""

from __future__ import annotations

import pickle
import random

from pettingllms.testing.play import SEEDS, Factory, mixed_player, play, require


def check_fork(factory: Factory) -> None:
    """A fork has the same future under the same actions, and nothing shared under others."""
    for seed in SEEDS:
        env = factory()
        env.reset(seed=seed)
        player = mixed_player(random.Random(seed))
        for _ in range(seed * len(env.possible_agents) // 2):
            if not any(env.terminations.values()) and not any(env.truncations.values()):
                env.step(player(env, env.agent_selection))
        twin, stray = env.fork(), env.fork()
        before = env.state_hash()
        for info in stray.infos.values():
            info["reward_parts"].clear()
            info.clear()
        stray = twin.fork()
        play(stray, mixed_player(random.Random(99)))
        require(all(env.infos.values()), "changing the infos of a fork changed the original's")
        require(env.state_hash() == before, "stepping a fork changed the original")
        future = play(env, mixed_player(random.Random(7)))
        require(future == play(twin, mixed_player(random.Random(7))), "a fork has another future")


def check_snapshot(factory: Factory) -> None:
    """`restore` returns to the very moment of a `snapshot`, also pickled and in another object."""
    env = factory()
    env.reset(seed=4)
    env.step(mixed_player(random.Random(4))(env, env.agent_selection))
    if any(env.terminations.values()) or any(env.truncations.values()):
        env.reset(seed=4)
    snapshot = env.snapshot()
    restored = pickle.loads(pickle.dumps(snapshot))  # our own snapshot, made one line above
    future = play(env, mixed_player(random.Random(8)))
    env.restore(snapshot)
    require(future == play(env, mixed_player(random.Random(8))), "restore lost something")
    other = factory()
    other.restore(restored)
    require(future == play(other, mixed_player(random.Random(8))), "a pickled snapshot differs")


def check_state_value(factory: Factory) -> None:
    """The state is one immutable value: hashable, picklable, and JSON-able."""
    env = factory()
    env.reset(seed=6)
    state = env.state()
    hash(state)
    require(pickle.loads(pickle.dumps(state)) == state, "the state changed when pickled")
    require(env.state_hash() == env.fork().state_hash(), "equal states have different hashes")
