"""The check that levels and episodes are the same in another process."""

from __future__ import annotations

import hashlib
import os
import pickle
import random
import subprocess
import sys
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from importlib.machinery import PathFinder
from types import ModuleType
from typing import Any

import cloudpickle

from pettingllms.errors import ConformanceError
from pettingllms.testing.play import SEEDS, AnyEnv, mixed_actor, play
from pettingllms.testing.report import SkippedCheck
from pettingllms.testing.subject import Subject

RESETS = 40
"""Levels that are compared besides the episodes."""

_CHILD = "from pettingllms.testing.processes import answer_parent; answer_parent()"
_ARRIVED = b"arrived\n"


def check_other_process(subject: Subject) -> None:
    """Equal seeds give equal levels and episodes in another process with another PYTHONHASHSEED."""
    maker = partial(subject.maker, **subject.kwargs)
    try:
        with _sent_by_value(type(subject()), subject.maker):
            payload = cloudpickle.dumps(maker)
    except Exception as error:  # whatever objects of strangers raise when they are pickled
        raise SkippedCheck(f"The environment cannot be sent to another process: {error}") from error
    hash_seed = "2" if os.environ.get("PYTHONHASHSEED") == "1" else "1"
    path = os.pathsep.join(filter(None, sys.path))
    process = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", _CHILD],
        env={**os.environ, "PYTHONHASHSEED": hash_seed, "PYTHONPATH": path},
        input=payload,
        check=False,
        capture_output=True,
    )
    message = process.stderr.decode(errors="replace")[-2000:]
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
    sys.stdout.write(episodes_digest(env))


def episodes_digest(env: AnyEnv) -> str:
    """Return a digest of some levels and episodes, for comparison between processes."""
    digest = hashlib.blake2b(digest_size=16)
    for seed in range(100, 100 + RESETS):
        env.reset(seed=seed)
        digest.update(env.state_hash().encode())
    for seed in SEEDS:
        env.reset(seed=seed)
        for step in play(env, mixed_actor(random.Random(seed))):
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
