"""From the text that names a policy to the policy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from pettingllms.errors import (
    EnvironmentNotLoadable,
    InvalidArgument,
    MissingDependency,
    suggestion,
)
from pettingllms.policies.protocol import Policy, PolicySettings
from pettingllms.policies.scripted import NoisePolicy, ScriptedPolicy

GROUP = "pettingllms.policies"
"""The entry-point group in which packages announce kinds of policies. The name is the kind, the
value a `PolicyFactory`."""

PolicyFactory = Callable[[str, PolicySettings], Policy]
"""Makes a policy from what follows `KIND:` in its name."""

_BUILT_IN = ("scripted", "openai")


def load_policy(name: str, settings: PolicySettings | None = None) -> Policy:
    """Return the policy of a name.

    Args:
        name: `NAME` or `scripted:NAME` (a scripted policy of the environment), `noise` (random
            characters), `openai:MODEL@URL` (an OpenAI-compatible server; without `@URL` that of
            OPENAI_BASE_URL, or OpenAI's), or `KIND:ARGUMENT` of an installed kind.
        settings: How models are reached.

    Raises:
        InvalidArgument: If the name is ill-formed or of an unknown kind.
        MissingDependency: If the kind needs an extra that is not installed.
        EnvironmentNotLoadable: If the package that announces the kind cannot be imported.
    """
    settings = settings or PolicySettings()
    kind, colon, argument = name.partition(":")
    if not colon:
        kind, argument = "scripted", name
    if not kind or not argument:
        raise InvalidArgument(
            "policy", name, "oracle, noise, openai:MODEL@URL, hf:PATH or another KIND:ARGUMENT"
        )
    if not colon and name == "noise":
        return NoisePolicy()
    if kind == "scripted":
        return ScriptedPolicy(argument)
    if kind == "reference":
        raise InvalidArgument("kind of policy", kind, f"its new name: scripted:{argument}")
    if kind == "openai":
        return _endpoint(argument, settings)
    return _announced(name, kind)(argument, settings)


def _endpoint(argument: str, settings: PolicySettings) -> Policy:
    try:
        from pettingllms.policies.endpoint import EndpointPolicy
    except ModuleNotFoundError as error:
        if error.name not in ("openai", "aiolimiter"):
            raise
        raise MissingDependency("a policy of the kind 'openai'", error.name, "cli") from error
    return EndpointPolicy.of(argument, settings)


def _announced(name: str, kind: str) -> PolicyFactory:
    from importlib.metadata import entry_points  # costs tens of ms

    points = {point.name: point for point in entry_points(group=GROUP)}
    if kind in points:
        try:
            return cast(PolicyFactory, points[kind].load())
        except (ImportError, AttributeError) as error:
            raise EnvironmentNotLoadable(
                f"policies {kind!r} are announced as {points[kind].value!r}, but loading that "
                f"failed: {error}"
            ) from error
    if kind in ("hf", "run"):
        raise MissingDependency(f"the policy {name!r}", "pettingllms-trainers", "train")
    known: tuple[Any, ...] = (*_BUILT_IN, *points)
    raise InvalidArgument("kind of policy", kind, ", ".join(known) + suggestion(kind, known))
