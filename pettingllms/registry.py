"""From an id to an environment, through the entry points of installed packages; or from a source.

Built-in environments are found like all others: the entry-point group `pettingllms.envs`.
Nothing is imported before it is made, and no package's metadata is read before an id is looked up.
"""

from __future__ import annotations

import inspect
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import Any, cast

from pettingllms.arguments import check_kind, check_number, plain
from pettingllms.env import TextEnv
from pettingllms.errors import (
    EnvironmentNotLoadable,
    InvalidArgument,
    UnknownEnvironment,
    stated,
    suggestion,
)
from pettingllms.hooks import Difficulty, GameHooks
from pettingllms.plugins import ENVS, ID_RULE, Plugin, Plugins, installed, is_id, is_path
from pettingllms.sources import GRAMMAR, WORKFLOW_PREFIX, EnvSpec, absolute, is_source, nearby
from pettingllms.trust import FoundName, Name
from pettingllms.wrappers import ChecksWrapper

SOLVED_SHARE = "solved_share"
"""The argument of `make` that lets episodes begin part of the way along a solution."""
_REST = inspect.Parameter.VAR_POSITIONAL
_registered: dict[str, EnvSpec] = {}
_listeners: list[Callable[[Iterable[str]], None]] = []
_reported: Plugins | None = None
"""The announcements that listeners have heard of."""


def on_new_ids(listener: Callable[[Iterable[str]], None]) -> None:
    """Have a function called with the ids that become known from now on.

    These are ids passed to `register` and, after the first look-up, all that installed packages
    announce.
    """
    _listeners.append(listener)


def register(
    id: str,
    entry_point: str | Callable[..., Any],
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
    check_kind("id", id, str, ID_RULE)
    if not is_id(id):
        raise InvalidArgument("id", id, ID_RULE)
    # Refused rather than replaced: an id means one environment, in every log and checkpoint.
    if id in _registered or id in _announced():
        raise InvalidArgument("id", id, "an id that is not taken", "Raise the version number.")
    if not callable(entry_point) and not (isinstance(entry_point, str) and is_path(entry_point)):
        raise InvalidArgument("entry_point", entry_point, 'a callable or "module:attribute"')
    _registered[id] = EnvSpec(id, entry_point, dict(kwargs or {}))
    for listener in _listeners:
        listener((id,))


def registered_ids() -> tuple[str, ...]:
    """The ids of all installed and registered environments, sorted.

    Announcements that cannot be used are left out; `refused_ids` has them.
    """
    return tuple(sorted({*_registered, *_announced()}))


def refused_ids() -> Mapping[str, str]:
    """The announced ids that cannot be used, with the reasons.

    They are ill-formed, announced by several packages, or announced as something else than
    `module:attribute`.
    """
    return installed(ENVS).refused


def spec(id: Name) -> EnvSpec:
    """How an environment is made, without importing it.

    Args:
        id: An id, or a source (see `pettingllms.sources`), of which the answer has the absolute
            form.

    Raises:
        UntrustedName: If a file names a source, and is not trusted.
        UnknownEnvironment: If nothing of that id is installed; suggests the nearest id.
        EnvironmentNotLoadable: If the id is announced in a way that cannot be used, for example by
            two packages.
        InvalidArgument: If the id is not a text, or an ill-formed source.
    """
    if isinstance(id, FoundName):
        would = "import and run code from that place"
        id = id.vouched("environment", is_harmless=is_announced(id.text), would=would)
    check_kind("id", id, str, "the id of an environment, such as 'plan_path_v0'")
    if is_source(id):
        return _of_source(recorded_id(id))
    found = _registered.get(id) or _announced().get(id)
    if found is not None:
        return found
    # Only here, when somebody asks for the id, does a broken announcement raise.
    if id in refused_ids():
        raise EnvironmentNotLoadable(f"environment {id!r} cannot be used: {refused_ids()[id]}")
    known = registered_ids()
    if not known:
        raise UnknownEnvironment(
            f"no environment {id!r}: none is installed. In a checkout, run `pip install -e .`; "
            "environments are found through the metadata of installed packages."
        )
    near = suggestion(id, known)
    if "/" in id and not near:
        what = "environment, but a" if os.path.exists(id) else "environment,"
        raise UnknownEnvironment(f"no {what} file or folder: {id!r}{nearby(id)}")
    raise UnknownEnvironment(
        f"no environment {id!r}{near or '.'} Installed: {', '.join(known)}. "
        "Install the package that provides it, call pettingllms.register, or name its place: "
        f"{GRAMMAR}."
    )


def is_announced(id: str) -> bool:
    """Whether a name leads to what an installed package announces, or to nothing at all."""
    return not is_source(id) or _kind_of(id) is not None


def recorded_id(id: str) -> str:
    """A name that means the same in every working directory; see `sources.absolute`."""
    # A module of the working directory may be called like a kind of sources, and is none.
    return id if is_announced(id) else absolute(id)


def _kind_of(source: str) -> Plugin | None:
    """The plug-in of a source's kind; None of one that is named by its place."""
    return installed(ENVS).usable.get(f"{source.partition(':')[0]}:")


def _of_source(source: str) -> EnvSpec:
    kind = _kind_of(source)
    if kind is not None:
        return EnvSpec(source, kind.value, {"source": source}, kind.package)
    if not source.startswith(WORKFLOW_PREFIX):
        return EnvSpec(source, source)
    arguments = {"workflow": source.removeprefix(WORKFLOW_PREFIX)}
    return EnvSpec(source, "pettingllms.workflows:WorkflowEnv", arguments)


def _announced() -> Mapping[str, EnvSpec]:
    global _reported
    found = installed(ENVS)
    specs = {
        id: EnvSpec(id, plugin.value, package=plugin.package)
        for id, plugin in found.usable.items()
        if is_id(id)
    }
    # Listeners (the registries of Gymnasium and PettingZoo) hear of announcements once, at the
    # first look-up, so that importing stays free of metadata scans.
    if found is not _reported:
        _reported = found
        for listener in _listeners:
            listener(specs)
    return specs


def make(id: Name, *, checks: bool = True, **kwargs: Any) -> TextEnv[Any]:
    """Make an environment.

    Args:
        id: One of `registered_ids()`, such as `"plan_path_v0"`, or where the environment is:
            `"module:Class"`, `"file.py"` or `"workflow:module:name"`, see `pettingllms.sources`;
            or `"reasoning_gym:NAME"`, a task of reasoning-gym, and other sources of packages.
        checks: Whether the environment is wrapped in `ChecksWrapper`, which refuses wrong use of
            the API with clear errors. Stepping is faster without it; the trainer uses raw ones.
        **kwargs: Arguments of the environment, documented in its class. `difficulty` stands for
            those that make it easy or hard, by number from 0 on or by name: `difficulty=3`,
            `difficulty="hard"`; arguments given with it override it. See `pettingllms.hooks`.
            `solved_share=0.5`, for training: episodes begin halfway along the solution by the
            scripted policy `oracle`, at the start of a turn; where it takes one turn only, prompts
            show the first half of its answers, worked out where that is known. `split="all"`: the
            levels of all splits, as `split=None`, which no run file can say.

    Returns:
        A `TextEnv`, wrapped or raw.

    Raises:
        UntrustedName: If a file names a source, or data to be fetched, and is not trusted.
        UnknownEnvironment: If there is no such id.
        EnvironmentNotLoadable: If its package cannot be imported, or provides no environment.
        InvalidArgument: If the environment has no such argument, refuses its value, or needs one
            that is not given.
    """
    found = spec(id)
    factory = found.load()
    # Before the call: what a source names may be anything that can be called.
    if is_source(found.id) and not found.package and not _is_environment(factory):
        raise EnvironmentNotLoadable(
            f"environment {found.id!r} is {factory!r}; allowed: a class derived from "
            "pettingllms.TextEnv. A function that returns one has to be announced as an entry "
            "point, or passed to pettingllms.register"
        )
    if isinstance(id, FoundName):
        _check_data(id, factory, kwargs)
    id = found.id
    difficulties: Difficulty = getattr(factory, "difficulties", GameHooks.difficulties)
    arguments = _resolved(id, difficulties, {**found.kwargs, **kwargs})
    own = {name: value for name, value in arguments.items() if name != SOLVED_SHARE}
    _check_keywords(id, factory, own)
    # Files of most formats have no None.
    if own.get("split") == "all":
        own["split"] = None
    made = f"environment {id!r}{found.origin} cannot be made with the arguments {own}"
    with stated(EnvironmentNotLoadable, made):
        env = factory(**own)
    if not isinstance(env, TextEnv):
        raise EnvironmentNotLoadable(
            f"environment {id!r}{found.origin} is made by {found.entry_point!r}, which returned "
            f"a {type(env).__name__}; allowed: a pettingllms.TextEnv"
        )
    # Recorded with the environment: replays and other processes make it again from this.
    env.spec = replace(found, kwargs=arguments)
    env.difficulty = difficulties.of(own, _defaults(factory)) if difficulties else None
    if SOLVED_SHARE in arguments:
        env.solved_share = _checked_share(id, env, arguments[SOLVED_SHARE])
    # The wrapper has all that a `TextEnv` has, though it is none: editors shall know it as one.
    return cast("TextEnv[Any]", ChecksWrapper(env)) if checks else env


def _is_environment(factory: Callable[..., Any]) -> bool:
    return isinstance(factory, type) and issubclass(factory, TextEnv)


def _check_data(id: FoundName, factory: Callable[..., Any], kwargs: Mapping[str, Any]) -> None:
    """Check that a file names no data of a hub, which looking at the file would fetch."""
    for argument in getattr(factory, "fetched_arguments", ()):
        value = kwargs.get(argument)
        if isinstance(value, str):
            is_here = "/" not in value or os.path.exists(value)
            FoundName(value, id.file, id.is_trusted).vouched(
                f"data ({argument} of {id})", is_harmless=is_here, would="be fetched from a hub"
            )


def check_kwargs(kwargs: object, options: object) -> None:
    """Raise `TypeError` unless what a file has as arguments of `make` and `reset` can be passed."""
    if not isinstance(kwargs, Mapping) or not isinstance(options, Mapping):
        raise TypeError(f"arguments {kwargs!r} and options {options!r} must be tables")
    if {"id", "checks"} & {*cast("Mapping[str, Any]", kwargs)}:
        raise TypeError("no environment has arguments 'id' and 'checks'")


def _checked_share(id: str, env: TextEnv[Any], share: object) -> float:
    value = check_number(SOLVED_SHARE, share, 0)
    if value >= 1:
        raise InvalidArgument(SOLVED_SHARE, share, "at least 0 and less than 1")
    if "oracle" not in env.scripted_policies:
        hint = f"{id} has no scripted policy oracle that could solve its levels."
        raise InvalidArgument(SOLVED_SHARE, share, "nothing", hint)
    return value


def _resolved(id: str, difficulties: Difficulty, given: Mapping[str, Any]) -> dict[str, Any]:
    """Arguments with the attributes of a difficulty, if one is asked for, in its place."""
    arguments = {name: plain(value) for name, value in given.items()}
    difficulty = arguments.pop("difficulty", None)
    if difficulty is None:
        return arguments
    return {**difficulties.attributes[difficulties.number(id, difficulty)], **arguments}


def _defaults(factory: Callable[..., Any]) -> dict[str, Any]:
    parameters = inspect.signature(factory).parameters.values()
    return {p.name: p.default for p in parameters if p.default is not p.empty}


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
