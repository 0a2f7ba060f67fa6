"""From the text that names a policy to the policy."""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import cast

from pettingllms.errors import InvalidArgument, MissingDependency
from pettingllms.plugins import POLICIES, installed, load_plugin
from pettingllms.policies.protocol import Policy, PolicySettings
from pettingllms.policies.scripted import PROGRAM, NoisePolicy, ProgramPolicy, ScriptedPolicy
from pettingllms.trust import FoundName, Name

PolicyFactory = Callable[[str, PolicySettings], Policy]
"""Makes a policy from what follows `KIND:` in its name."""

_BUILT_IN = ("scripted", "openai")
_NAMED: Mapping[str, type[NoisePolicy | ProgramPolicy]] = {
    "noise": NoisePolicy,
    PROGRAM: ProgramPolicy,
}


def load_policy(name: Name, settings: PolicySettings | None = None) -> Policy:
    """The policy of a name.

    Args:
        name: `NAME` or `scripted:NAME` (a scripted policy of the environment), `noise` (random
            characters), `program` (the environment's `fixed_program`), `openai:MODEL@URL` (an
            OpenAI-compatible server; without `@URL` that of OPENAI_BASE_URL, or OpenAI's), or
            `KIND:ARGUMENT` of an installed kind.
        settings: How models are reached.

    Raises:
        UntrustedName: If a file names a server, or what is not on this machine, and is not trusted.
        InvalidArgument: If the name is ill-formed or of an unknown kind.
        MissingDependency: If the kind needs an extra that is not installed.
        EnvironmentNotLoadable: If the package that announces the kind cannot be imported.
    """
    settings = settings or PolicySettings()
    if isinstance(name, FoundName):
        would = "send prompts to a server, or fetch a model"
        found, name = name, name.vouched("policy", is_harmless=stays_here(name.text), would=would)
        settings = replace(settings, is_local=not found.is_trusted)
    kind, colon, argument = name.partition(":")
    if not colon:
        kind, argument = "scripted", name
    if not kind or not argument:
        raise InvalidArgument(
            "policy",
            name,
            "oracle, noise, program, openai:MODEL@URL, hf:PATH or another KIND:ARGUMENT",
        )
    if not colon and name in _NAMED:
        return _NAMED[name]()
    if kind == "scripted":
        return ScriptedPolicy(argument)
    if kind == "openai":
        return _endpoint(argument, settings)
    try:
        factory = cast(PolicyFactory, load_plugin(POLICIES, kind, "kind of policy", _BUILT_IN))
    except InvalidArgument as error:
        if kind not in ("hf", "run"):
            raise
        raise MissingDependency(f"the policy {name!r}", "pettingllms-trainers", "") from error
    return factory(argument, settings)


def stays_here(name: str) -> bool:
    """Whether a policy needs this machine only: scripted, in a folder, or of no kind."""
    kind, colon, argument = name.partition(":")
    if not colon or kind == "scripted":
        return True
    if kind == "openai":
        return False
    # Options follow a question mark, the first or the last one, as a kind has it.
    # A folder on this machine cannot send anything out; a name that is not a folder may be fetched.
    folders = {argument.partition("?")[0], argument.rpartition("?")[0] or argument}
    return kind not in installed(POLICIES).usable or all(map(os.path.isdir, folders))


@asynccontextmanager
async def loaded_policies(
    names: Iterable[Name], settings: PolicySettings | None = None
) -> AsyncGenerator[dict[str, Policy]]:
    """Load policies, each once, and close them at the end; yield name -> policy.

    Args:
        names: See `load_policy`.
        settings: How models are reached.

    Raises:
        UntrustedName: If a file names a server, or what is not on this machine, and is not trusted.
        InvalidArgument: If a name is ill-formed or of an unknown kind.
        MissingDependency: If a kind needs an extra that is not installed.
        PolicyUnavailable: If a policy cannot be used at all.
    """
    async with AsyncExitStack() as stack:
        policies: dict[str, Policy] = {}
        for name in dict.fromkeys(names):
            # One policy for all its roles: limits of rates and connections are those of the server.
            if str(name) not in policies:
                policies[str(name)] = load_policy(name, settings)
                stack.push_async_callback(policies[str(name)].aclose)
        yield policies


def _endpoint(argument: str, settings: PolicySettings) -> Policy:
    try:
        from pettingllms.policies.endpoint import EndpointPolicy
    except ModuleNotFoundError as error:
        if error.name not in ("openai", "aiolimiter"):
            raise
        raise MissingDependency("a policy of the kind 'openai'", error.name, "cli") from error
    return EndpointPolicy.of(argument, settings)
