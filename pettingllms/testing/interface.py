"""Checks of the interface: PettingZoo's own tests, names, spaces, texts, observations."""

from __future__ import annotations

import contextlib
import io
import math
import random
import warnings
from typing import Any, cast

from pettingzoo.test import (
    api_test,  # pyright: ignore[reportUnknownVariableType]
    parallel_api_test,  # pyright: ignore[reportUnknownVariableType]
    seed_test,  # pyright: ignore[reportUnknownVariableType]
)
from pettingzoo.utils import aec_to_parallel

from pettingllms.env import role_of
from pettingllms.testing.play import HOSTILE_TEXTS, Factory, mixed_player, play, require
from pettingllms.wrappers import ChecksWrapper


def check_pettingzoo(factory: Factory) -> None:
    """PettingZoo's api_test, seed_test and (for simultaneous roles) parallel_api_test pass."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        # The tests warn that spaces and observations are not numeric; ours are texts.
        warnings.simplefilter("ignore", UserWarning)
        api_test(ChecksWrapper(factory()), num_cycles=100)
        seed_test(lambda: ChecksWrapper(factory()), num_cycles=20)
        if factory().metadata["is_parallelizable"]:
            parallel_api_test(aec_to_parallel(ChecksWrapper(factory())), num_cycles=20)


def check_names_and_spaces(factory: Factory) -> None:
    """Agents are named <role>_<number>; all share one space, which contains any text."""
    env = factory()
    env.reset(seed=0)
    agents = env.possible_agents
    spaces = {id(s(a)) for s in (env.observation_space, env.action_space) for a in agents}
    require(len(spaces) == 1, "agents have different space objects; one is needed for all")
    space = env.action_space(agents[0])
    require(all(space.contains(t) for t in HOSTILE_TEXTS), "the space does not contain any text")
    space.seed(0)
    for _ in range(20):
        require(space.contains(space.sample()), "a sampled text is not in the space")
    for agent in agents:
        require(role_of(agent).isalpha(), f"agent {agent!r} is not named <role>_<number>")


def check_any_text(factory: Factory) -> None:
    """Any text is a legal action of every agent: an outcome, never an exception."""
    for text in HOSTILE_TEXTS:
        env = factory()
        env.reset(seed=1)
        for step in play(env, lambda _env, _agent, text=text: text):
            require(
                all(map(math.isfinite, step["rewards"].values())),
                f"a reward of {text!r} is not finite",
            )


def check_observe(factory: Factory) -> None:
    """`observe` and `messages` have no side effects, agree, and work at any time."""
    env = factory()
    env.reset(seed=2)
    rng = random.Random(2)
    player = mixed_player(rng)
    for _ in range(6 * len(env.possible_agents)):
        before, rewards = env.state_hash(), dict(env.rewards)
        for agent in env.possible_agents:
            observation = env.observe(agent)
            joined = "\n\n".join(m["content"] for m in env.messages(agent))
            require(observation == env.observe(agent), "observe twice gave two observations")
            require(observation == joined, "messages and observation differ")
            inside = env.observation_space(agent).contains(observation)
            require(inside, "an observation is outside of the observation space")
        require(before == env.state_hash(), "observe changed the state")
        require(rewards == env.rewards, "observe changed the rewards")
        agent = env.agent_selection
        if env.terminations[agent] or env.truncations[agent]:
            return
        env.step(player(env, agent))


def check_modes(factory: Factory) -> None:
    """Reference policies answer texts for every agent; `ansi` rendering gives a text."""
    env = factory()
    env.reset(seed=0)
    for policy in env.reference_policies:
        for agent in env.possible_agents:
            text = env.reference_action(agent, policy, random.Random(0))
            require(isinstance(cast(Any, text), str), f"{policy!r} answers no text for {agent!r}")
    env.render_mode = "ansi"
    require(isinstance(env.render(), str), "ansi rendering gives no text")
