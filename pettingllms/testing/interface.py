"""Checks of the interface: PettingZoo's own tests, names, texts, seeds, other processes."""

from __future__ import annotations

import contextlib
import hashlib
import inspect
import io
import math
import os
import pickle
import random
import subprocess
import sys
import warnings
from collections.abc import Callable, Generator, Mapping
from contextlib import contextmanager
from functools import partial
from importlib.machinery import PathFinder
from importlib.resources import files
from types import ModuleType
from typing import Any, cast

import cloudpickle
import numpy as np
from pettingzoo.test import (
    api_test,  # pyright: ignore[reportUnknownVariableType]
    parallel_api_test,  # pyright: ignore[reportUnknownVariableType]
    parallel_seed_test,  # pyright: ignore[reportUnknownVariableType]
    render_test,  # pyright: ignore[reportUnknownVariableType]
    seed_test,  # pyright: ignore[reportUnknownVariableType]
)
from pettingzoo.utils import aec_to_parallel

from pettingllms.env import role_of
from pettingllms.errors import ConformanceError, told
from pettingllms.pages import ITEM, SECTIONS, sections_of
from pettingllms.testing.play import (
    HOSTILE_TEXTS,
    SEEDS,
    AnyEnv,
    always,
    episode,
    mixed_actor,
    play,
    require,
    scripted_actor,
)
from pettingllms.testing.report import ConformanceWarning, NotPromised, SkippedCheck, Subject
from pettingllms.types import is_agent
from pettingllms.wrappers import ChecksWrapper


def check_pettingzoo(subject: Subject) -> None:
    """PettingZoo's api_test and seed_test pass."""
    with _quiet():
        api_test(ChecksWrapper(subject()), num_cycles=100)
        seed_test(lambda: ChecksWrapper(subject()), num_cycles=20)


def check_parallel(subject: Subject) -> None:
    """PettingZoo's tests of the parallel API pass, if all roles act simultaneously."""
    if not subject().metadata["is_parallelizable"]:
        raise NotPromised("The roles act one after another.")
    with _quiet():
        parallel_api_test(aec_to_parallel(ChecksWrapper(subject())), num_cycles=20)
        parallel_seed_test(lambda: aec_to_parallel(ChecksWrapper(subject())), num_cycles=20)


@contextlib.contextmanager
def _quiet() -> Generator[None]:
    """Silence PettingZoo's tests: they warn that texts are not numbers, and print."""
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


def check_any_text(subject: Subject) -> None:
    """Any text is a legal action of every agent: an outcome, never an exception."""
    for text in HOSTILE_TEXTS:
        for step in episode(subject(), 1, always(text)):
            require(
                all(map(math.isfinite, step["rewards"].values())),
                f"a reward of {text!r} is not finite",
            )


def check_modes(subject: Subject) -> None:
    """Scripted policies answer with a string for every agent."""
    env = subject()
    env.reset(seed=0)
    for policy in env.scripted_policies:
        for agent in env.possible_agents:
            text = env.scripted_action(agent, policy, random.Random(0))
            is_string = isinstance(cast(Any, text), str)
            require(is_string, f"{policy!r} answers {agent!r} with {text!r}, not a string")


def check_rendering(subject: Subject) -> None:
    """PettingZoo's render_test passes: `ansi` gives a text, `rgb_array` an image."""
    subject.require_argument("render_mode")
    with _quiet():
        render_test(cast(Any, subject))


def check_determinism(subject: Subject) -> None:
    """Equal seeds give equal episodes, in one environment and in another."""
    env, other = subject(), subject()
    for seed in SEEDS:
        first = episode(env, seed)
        require(first == episode(env, seed), f"seed {seed} played twice gave two episodes")
        require(first == episode(other, seed), f"seed {seed} differs between two environments")
        env.reset(seed=seed + 1)
        play(env, mixed_actor(random.Random(seed)), num_steps=1)
        same = first == episode(env, seed)
        require(same, f"seed {seed} differs after an episode that was left before its end")
    # Without a seed the environment draws one, which must be enough to come back.
    env.reset(seed=5)
    env.reset()
    chained = env.state_hash()
    env.reset(seed=env.episode_seed)
    require(chained == env.state_hash(), "episode_seed does not reproduce an unseeded reset")


def check_global_rngs(subject: Subject) -> None:
    """Making and playing leave global generators, variables of the process and files untouched."""
    state, numpy_state = random.getstate(), np.random.get_state()
    variables, files = dict(os.environ), _files_here()
    episode(subject(), 3)
    changed = [n for n in {*variables, *os.environ} if variables.get(n) != os.environ.get(n)]
    require(not changed, f"environment variables were changed: {', '.join(changed)}")
    left = sorted({name for name, _ in _files_here() ^ files})
    require(not left, f"files in the working directory were written or removed: {left}")
    require(random.getstate() == state, "the state of the global `random` was changed")
    same = all(
        np.array_equal(a, b) for a, b in zip(numpy_state, np.random.get_state(), strict=True)
    )
    require(same, "numpy's global state was changed")


def _files_here() -> set[tuple[str, int]]:
    """(name, time of the last change) of what is in the working directory."""
    return {(one.name, one.stat(follow_symlinks=False).st_mtime_ns) for one in os.scandir()}


# Levels that are compared besides the episodes.
RESETS = 40

_CHILD = "from pettingllms.testing.interface import answer_parent; answer_parent()"
_ARRIVED = b"arrived\n"


def check_other_process(subject: Subject) -> None:
    """Equal seeds give equal levels and episodes in another process with another PYTHONHASHSEED."""
    maker = partial(subject.maker, **subject.kwargs)
    try:
        with _sent_by_value(type(subject()), subject.maker):
            payload = cloudpickle.dumps(maker)
    except Exception as error:  # whatever objects of strangers raise when they are pickled
        raise SkippedCheck(f"The environment cannot be sent to another process: {error}") from error
    # Sets of texts are ordered by hash(), which this variable decides.
    hash_seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    path = os.pathsep.join(filter(None, sys.path))
    process = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _CHILD],
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path},
        input=payload,
        check=False,
        capture_output=True,
    )
    message = process.stderr.decode(errors="replace")[-2000:].strip()
    # Before that word the fault is in the sending, and says nothing of the environment.
    if not process.stdout.startswith(_ARRIVED):
        raise SkippedCheck(f"The environment cannot be made in another process: {message}")
    if process.returncode:
        raise ConformanceError(f"It cannot be played in another process: {message}")
    if process.stdout.removeprefix(_ARRIVED).decode() != episodes_digest(subject()):
        raise ConformanceError(
            "Levels or episodes of equal seeds differ in a process with another PYTHONHASHSEED: "
            "they depend on `hash()`, on the order of a set, or on something outside of the seed."
        )


def answer_parent() -> None:
    """Read a pickled maker of environments from stdin and write its digest to stdout."""
    maker: Callable[[], Any] = pickle.load(sys.stdin.buffer)  # written by our parent, see above
    env = maker().unwrapped
    sys.stdout.buffer.write(_ARRIVED)
    try:
        sys.stdout.write(episodes_digest(env))
    except Exception as error:  # noqa: BLE001  a finding, whatever it is
        sys.exit(told(error))


def episodes_digest(env: AnyEnv) -> str:
    """A digest of some levels and episodes, for comparison between processes."""
    digest = hashlib.blake2b(digest_size=16)
    for seed in range(100, 100 + RESETS):
        env.reset(seed=seed)
        digest.update(env.state_hash().encode())
    for seed in SEEDS:
        for step in episode(env, seed):
            known = {name: value for name, value in step.items() if name != "info"}
            digest.update(repr(known).encode(errors="backslashreplace"))
    return digest.hexdigest()


@contextmanager
def _sent_by_value(kind: type, maker: Callable[..., Any]) -> Generator[None]:
    """Pickle by value what comes from modules that another process cannot import, such as tests."""
    names = {*(base.__module__ for base in kind.__mro__), getattr(maker, "__module__", None)}
    modules = [sys.modules[name] for name in names if name in sys.modules]
    chosen = [module for module in modules if not _is_importable(module)]
    for module in chosen:
        cloudpickle.register_pickle_by_value(module)
    try:
        yield
    finally:
        for module in chosen:
            cloudpickle.unregister_pickle_by_value(module)


def _is_importable(module: ModuleType) -> bool:
    if module.__name__ in sys.builtin_module_names or module.__name__ == "__main__":
        return True  # cloudpickle sends what is defined in `__main__` by value anyhow
    path, parts = list(sys.path), module.__name__.split(".")
    for end in range(1, len(parts) + 1):
        found = PathFinder.find_spec(".".join(parts[:end]), path)
        if found is None:
            return False
        path = list(found.submodule_search_locations or ())
    return True


# Sections that no two environments have in the same words.
_PROSE = ("Task", "Agents and roles", "Observation", "Action", "Reward", "Source")
_COMMON_INFO = {"reward_parts", "parse_error", "success", "turn", "difficulty"}


def check_page(subject: Subject) -> None:
    """The class docstring has all sections and says what the environment does."""
    env = subject()
    if not sections_of(inspect.getdoc(type(env)) or ""):
        raise NotPromised(f"The docstring of {type(env).__name__} has no sections; see SECTIONS.")
    check_documentation(env)


def check_documentation(env: AnyEnv) -> None:
    """Prove that the class docstring says what the environment does.

    Args:
        env: A raw environment. Its class docstring must have the headings of `SECTIONS`; list every
            info key and every argument as "- `name`: ..."; and name every role of the team.

    Raises:
        ConformanceError: If something is missing, unknown or untrue.

    Warns:
        ConformanceWarning: If some prose is still that of the template of `pettingllms new`.
    """
    sections = sections_of(inspect.getdoc(type(env)) or "")
    require(
        tuple(sections) == SECTIONS,
        f"the docstring of {type(env).__name__} has the sections {tuple(sections)}; "
        f"it needs {SECTIONS}, each as a line `## <name>`",
    )
    for role in dict.fromkeys(map(role_of, env.possible_agents)):
        is_there = role in sections["Agents and roles"]
        require(is_there, f"the role {role!r} is not described in 'Agents and roles'")
    documented, actual = set(ITEM.findall(sections["Arguments"])), _arguments(env)
    require(
        documented == actual,
        "the documented arguments differ from the real ones: only documented "
        f"{sorted(documented - actual)}, only real {sorted(actual - documented)}",
    )
    undocumented = _info_keys(env) - set(ITEM.findall(sections["Info keys"]))
    require(not undocumented, f"info keys that the docstring does not list: {undocumented}")
    if left := _of_template(sections):
        warnings.warn(
            f"the docstring of {type(env).__name__} still has the template's text under "
            f"{', '.join(left)}; say there what this environment does",
            ConformanceWarning,
            stacklevel=2,
        )


def _of_template(sections: Mapping[str, str]) -> list[str]:
    """The headings whose prose is that of the game that `pettingllms new` writes."""
    path = files("pettingllms") / "cli" / "template" / "my_game.py.tmpl"
    of_class = path.read_text(encoding="utf-8").partition("(TextEnv[State]):")[2]
    given = sections_of(of_class.split('"""')[1])
    return [name for name in _PROSE if sections[name].split() == given[name].split()]


def _arguments(env: AnyEnv) -> set[str]:
    parameters = inspect.signature(cast(Any, type(env))).parameters.values()
    return {p.name for p in parameters if p.kind is not p.VAR_KEYWORD}


def _info_keys(env: AnyEnv) -> set[str]:
    keys: set[str] = set()
    rng = random.Random(0)
    actors = [mixed_actor(rng), *(scripted_actor(p, rng) for p in env.scripted_policies)]
    for seed, actor in enumerate(actors):
        for step in episode(env, seed, actor):
            keys |= set(step["info"])
    return keys - _COMMON_INFO
