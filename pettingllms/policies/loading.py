"""From the text that names a policy to the policy; those without a model are defined here."""

from __future__ import annotations

import os
import random
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import replace
from typing import Any, cast

from pettingllms.env import TextEnv
from pettingllms.errors import InvalidArgument, MissingDependency, stated, suggestion
from pettingllms.plugins import POLICIES, installed, load_plugin
from pettingllms.policies.protocol import (
    Answer,
    Completion,
    Policy,
    PolicySettings,
    PolicyUnavailable,
    Prompt,
    Sampling,
)
from pettingllms.trust import FoundName, Name
from pettingllms.types import role_of

PROGRAM = "program"
"""Name of the policy whose tool agent hands in the environment's `fixed_program`."""
_PRINTABLE = "".join(map(chr, range(32, 127))) + "\n"
_MAX_NOISE = 64


class _LocalPolicy:
    """A policy that answers at once and costs nothing; prompts must carry their environment."""

    async def check(self, env: TextEnv[Any]) -> None:
        """Refuse an environment in which it cannot play."""

    async def sample(self, prompts: Sequence[Prompt], n: int, sampling: Sampling) -> list[Answer]:
        """One answer of n completions per prompt; `sampling` has no effect."""
        texts = [self._texts(prompt, n) for prompt in prompts]
        return [Answer(tuple(Completion(text, "stop") for text in some)) for some in texts]

    async def aclose(self) -> None:
        """Nothing to release."""

    def _texts(self, prompt: Prompt, n: int) -> list[str]:
        raise NotImplementedError


class NoisePolicy(_LocalPolicy):
    """Answers 0 to 64 random printable characters: the floor that any model should beat."""

    def _texts(self, prompt: Prompt, n: int) -> list[str]:
        rng = random.Random(prompt.seed)
        lengths = [rng.randrange(_MAX_NOISE + 1) for _ in range(n)]
        return ["".join(rng.choices(_PRINTABLE, k=length)) for length in lengths]


class ScriptedPolicy(_LocalPolicy):
    """Answers what one of the environment's scripted policies would.

    Args:
        name: One of the environment's `scripted_policies`, such as `"oracle"`.
    """

    def __init__(self, name: str) -> None:
        self.name = name

    async def check(self, env: TextEnv[Any]) -> None:
        """Refuse an environment that has no such policy, and name those that it has."""
        known = env.scripted_policies
        if self.name not in known:
            raise InvalidArgument(
                "policy",
                self.name,
                "the environment's scripted policies ("
                + (", ".join(known) or "it has none")
                + "), noise, program, openai:MODEL@URL, hf:PATH, run:RUN"
                + suggestion(self.name, (*known, "noise")),
            )

    def _texts(self, prompt: Prompt, n: int) -> list[str]:
        env, rng = _env_of(prompt), random.Random(prompt.seed)
        return [env.scripted_action(prompt.agent, self.name, rng) for _ in range(n)]


class ProgramPolicy(_LocalPolicy):
    """The fixed program: the baseline of games with a tool agent.

    The tool agent hands in the environment's `fixed_program`, the same on every level, and others
    take over what is proposed.
    """

    async def check(self, env: TextEnv[Any]) -> None:
        """Refuse an environment without a fixed program."""
        if not has_program(env):
            allowed = "a policy other than the fixed program"
            hint = "It needs a game that has one, and a tool agent that writes programs."
            raise InvalidArgument("policy", PROGRAM, allowed, hint)

    def _texts(self, prompt: Prompt, n: int) -> list[str]:
        return [program_action(_env_of(prompt), prompt.agent)] * n


def has_program(env: TextEnv[Any]) -> bool:
    """Whether the policy `program` can play an environment."""
    roles = {role_of(agent) for agent in env.possible_agents}
    return bool(env.fixed_program) and "tool" in roles and getattr(env, "tool", "") == "python"


def program_action(env: TextEnv[Any], agent: str) -> str:
    """What the policy `program` answers for an agent."""
    if role_of(agent) == "tool":
        return f"```python\n{env.fixed_program}```"
    return f"#### {env.fields(agent)['proposal']}"


def _env_of(prompt: Prompt) -> TextEnv[Any]:
    if prompt.env is None:
        raise InvalidArgument(
            "prompt.env", None, "the environment", "Scripted policies look at its state."
        )
    return prompt.env


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
        PolicyUnavailable: If what it announces makes no policy.
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
            "oracle, noise, program, openai:MODEL@URL, hf:PATH, run:RUN or another KIND:ARGUMENT",
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
    with stated(PolicyUnavailable, f"{name} cannot be made"):
        policy = factory(argument, settings)
        if missing := [one for one in ("check", "sample", "aclose") if not hasattr(policy, one)]:
            raise TypeError(f"{policy!r} is no Policy: it has no {', '.join(missing)}")
    return policy


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
