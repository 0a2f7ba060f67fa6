"""From an id to an environment, through the entry points of installed packages.

Built-in environments use the same door as anybody's: the entry-point group `pettingllms.envs`.
Nothing is imported before it is made.
"""

from __future__ import annotations

import importlib
import inspect
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any

from pettingllms.arguments import check_kind
from pettingllms.errors import (
    EnvironmentNotLoadable,
    InvalidArgument,
    UnknownEnvironment,
    suggestion,
)

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

    from pettingllms.env import TextEnv

GROUP = "pettingllms.envs"
"""The entry-point group in which packages announce environments."""

_REST = inspect.Parameter.VAR_POSITIONAL
_ID = re.compile(r"[a-z][a-z0-9_]*_v[0-9]+")
_registered: dict[str, EnvSpec] = {}


@dataclass(frozen=True)
class EnvSpec:
    """How an environment is made."""

    id: str
    """Versioned name, `<name>_v<number>`; a change of behaviour is a new number."""
    entry_point: str | Callable[..., TextEnv[Any]]
    """`"module:attribute"` of the class or factory, or the callable itself."""
    kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Arguments that `make` passes on."""
    package: str = ""
    """The distribution that provides it; empty when it was registered by hand."""

    def load(self) -> Callable[..., TextEnv[Any]]:
        """Import and return the class or factory.

        Raises:
            EnvironmentNotLoadable: If the import fails; the cause is chained.
        """
        if callable(self.entry_point):
            return self.entry_point
        module, _, attribute = self.entry_point.partition(":")
        try:
            return getattr(importlib.import_module(module), attribute)
        except (ImportError, AttributeError) as error:
            raise EnvironmentNotLoadable(
                f"environment {self.id!r} is announced as {self.entry_point!r}"
                f"{f' by {self.package}' if self.package else ''}, but loading it failed: {error}"
            ) from error


def register(
    id: str,
    entry_point: str | Callable[..., TextEnv[Any]],
    *,
    kwargs: Mapping[str, Any] | None = None,
) -> None:
    """Make an environment known under an id, for this process.

    Packages announce theirs in the entry-point group `pettingllms.envs` instead.

    Args:
        id: Versioned name such as `"my_game_v0"`.
        entry_point: A `TextEnv` class, a factory, or `"module:attribute"` of one.
        kwargs: Default arguments.

    Raises:
        InvalidArgument: If the id is ill-formed or taken, or the entry point is neither.
    """
    allowed = "lower-case letters, digits and _, ending in _v<number>"
    check_kind("id", id, str, allowed)
    if not _ID.fullmatch(id):
        raise InvalidArgument("id", id, allowed)
    if id in _registered or id in _announced():
        raise InvalidArgument("id", id, "an id that is not taken", "Raise the version number.")
    is_path = isinstance(entry_point, str) and re.fullmatch(r"[\w.]+:\w+", entry_point)
    if not callable(entry_point) and not is_path:
        raise InvalidArgument("entry_point", entry_point, 'a callable or "module:attribute"')
    _registered[id] = EnvSpec(id, entry_point, dict(kwargs or {}))


def registered_ids() -> tuple[str, ...]:
    """Return the ids of all installed and registered environments, sorted."""
    return tuple(sorted({*_registered, *_announced()}))


def spec(id: str) -> EnvSpec:
    """Return how an environment is made, without importing it.

    Raises:
        UnknownEnvironment: If nothing of that id is installed; suggests the nearest id.
        InvalidArgument: If the id is no text.
    """
    check_kind("id", id, str, "the id of an environment, such as 'plan_path_v0'")
    if id in _registered:
        return _registered[id]
    announced = _announced()
    if id in announced:
        point = announced[id]
        return EnvSpec(id, point.value, package=point.dist.name if point.dist else "")
    known = registered_ids()
    if not known:
        raise UnknownEnvironment(
            f"no environment {id!r}: none is installed. In a checkout, run `pip install -e .`; "
            "environments are found through the metadata of installed packages."
        )
    raise UnknownEnvironment(
        f"no environment {id!r}{suggestion(id, known)} Installed: {', '.join(known)}. "
        "Install the package that provides it, or call pettingllms.register."
    )


def make(id: str, *, checks: bool = True, **kwargs: Any) -> Any:
    """Make an environment.

    Args:
        id: One of `registered_ids()`, such as `"plan_path_v0"`.
        checks: Whether the environment is wrapped in `ChecksWrapper`, which tells wrong use of the
            API in clear words. Without it stepping is faster; the trainer does without.
        **kwargs: Arguments of the environment, documented in its class.

    Returns:
        A `TextEnv`, wrapped or raw.

    Raises:
        UnknownEnvironment: If there is no such id.
        EnvironmentNotLoadable: If its package cannot be imported.
        InvalidArgument: If the environment has no such argument, refuses its value, or needs one
            that is not given.
    """
    found = spec(id)
    arguments = {**found.kwargs, **kwargs}
    factory = found.load()
    _check_keywords(id, factory, arguments)
    env = factory(**arguments)
    env.spec = replace(found, kwargs=arguments)
    if not checks:
        return env
    from pettingllms.wrappers import (
        ChecksWrapper,
    )  # the wrappers import PettingZoo's, which is slow

    return ChecksWrapper(env)


def _check_keywords(id: str, factory: Callable[..., Any], arguments: Mapping[str, Any]) -> None:
    parameters = inspect.signature(factory).parameters
    if any(p.kind is p.VAR_KEYWORD for p in parameters.values()):
        return
    for name in arguments:
        if name not in parameters:
            raise InvalidArgument(
                f"argument of {id}", name, ", ".join(parameters) + suggestion(name, parameters)
            )
    for name, parameter in parameters.items():
        is_needed = parameter.default is parameter.empty and parameter.kind is not _REST
        if is_needed and name not in arguments:
            raise InvalidArgument(f"arguments of {id}", arguments, f"with a value for {name!r}")


@cache
def _announced() -> dict[str, EntryPoint]:
    from importlib.metadata import entry_points  # costs tens of ms; only when an id is looked up

    return {point.name: point for point in entry_points(group=GROUP)}
