"""Checks of the interface: PettingZoo's own tests, names, spaces, texts, modes."""

from __future__ import annotations

import contextlib
import copy
import io
import math
import random
import warnings
from collections.abc import Generator
from typing import Any, cast

from pettingzoo.test import (
    api_test,  # pyright: ignore[reportUnknownVariableType]
    parallel_api_test,  # pyright: ignore[reportUnknownVariableType]
    seed_test,  # pyright: ignore[reportUnknownVariableType]
)
from pettingzoo.utils import aec_to_parallel

from pettingllms.testing.play import HOSTILE_TEXTS, mixed_actor, play, require
from pettingllms.testing.report import NotPromised
from pettingllms.testing.subject import Subject
from pettingllms.types import is_agent
from pettingllms.wrappers import ChecksWrapper


def check_pettingzoo(subject: Subject) -> None:
    """PettingZoo's api_test and seed_test pass."""
    with _quiet():
        api_test(ChecksWrapper(subject()), num_cycles=100)
        seed_test(lambda: ChecksWrapper(subject()), num_cycles=20)


def check_parallel(subject: Subject) -> None:
    """PettingZoo's parallel_api_test passes, if all roles act simultaneously."""
    if not subject().metadata["is_parallelizable"]:
        raise NotPromised("The roles act one after another.")
    with _quiet():
        parallel_api_test(aec_to_parallel(ChecksWrapper(subject())), num_cycles=20)


@contextlib.contextmanager
def _quiet() -> Generator[None]:
    """Silence PettingZoo's tests: they warn that texts are no numbers, and print."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        warnings.simplefilter("ignore", UserWarning)
        yield


def check_names_and_spaces(subject: Subject) -> None:
    """Agents are named <role>_<number>; all share one space, which contains any text."""
    env = subject()
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
        require(is_agent(agent), f"agent {agent!r} is not named <role>_<number>")


def check_arguments(subject: Subject) -> None:
    """Arguments and options stay as they were given: an environment copies what it changes."""
    passed: dict[str, Any] = {name: subject.kwargs[name] for name in subject.given}
    if "prompts" in subject.parameters:
        passed.setdefault("prompts", dict(subject().prompts))
    options = {"an option that no game knows": [1, 2]}
    before = {**copy.deepcopy({**passed, "options": options}), **subject.given}
    env = subject(**passed)
    env.reset(seed=0, options=options)
    play(env, mixed_actor(random.Random(0)))
    after = {**passed, "options": options}
    changed = [name for name, value in before.items() if after[name] != value]
    require(not changed, f"The environment changed what it was given as {', '.join(changed)}.")


def check_any_text(subject: Subject) -> None:
    """Any text is a legal action of every agent: an outcome, never an exception."""
    for text in HOSTILE_TEXTS:
        env = subject()
        env.reset(seed=1)
        for step in play(env, lambda _env, _agent, text=text: text):
            require(
                all(map(math.isfinite, step["rewards"].values())),
                f"a reward of {text!r} is not finite",
            )


def check_modes(subject: Subject) -> None:
    """Scripted policies answer texts for every agent; `ansi` rendering gives a text."""
    env = subject()
    env.reset(seed=0)
    for policy in env.scripted_policies:
        for agent in env.possible_agents:
            text = env.scripted_action(agent, policy, random.Random(0))
            require(isinstance(cast(Any, text), str), f"{policy!r} answers no text for {agent!r}")
    env.render_mode = "ansi"
    require(isinstance(env.render(), str), "ansi rendering gives no text")
