"""Fixed policies: scripted ones and endpoints, which answer by text and are never trained."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from pettingllms import TextEnv
from pettingllms import policies as core
from pettingllms.policies.protocol import uncancelled
from pettingllms_trainers.config import Config
from pettingllms_trainers.types import SamplingSettings, TokenCompletion

# Seeds of prompts are smaller than this.
_NUM_SEEDS = 2**31


@dataclass(frozen=True, kw_only=True, slots=True)
class FixedPolicy:
    """A policy of `pettingllms.policies` that plays roles of a run."""

    name: str
    """Name in the run file."""
    policy: core.Policy
    """Gives the answers."""
    template_kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Arguments of the chat template, sent with each request of a model; empty: none are sent."""

    async def answer(
        self,
        messages: Sequence[Mapping[str, str]],
        agent: str,
        env: TextEnv[Any],
        sampling: SamplingSettings,
        seed: int,
    ) -> TokenCompletion:
        """One answer as a completion without tokens.

        Args:
            agent: Who is asked, ``<role>_<n>``.
            env: The environment at this moment, for policies that look at its state.
            sampling: How to draw, where the policy can.
            seed: Decides what is drawn, where the policy honours seeds.

        Raises:
            PolicyFailure: The prompt could not be answered.
        """
        wanted = core.Sampling(
            temperature=sampling.temperature,
            max_completion_tokens=sampling.max_completion_tokens,
            stop=sampling.stop,
            extra={"chat_template_kwargs": self.template_kwargs} if self.template_kwargs else {},
        )
        prompt = core.Prompt(messages, agent, seed % _NUM_SEEDS, env)
        # One prompt: episodes ask when they come to it, and policies join requests themselves.
        with uncancelled():
            (answer,) = await self.policy.sample([prompt], 1, wanted)
        written = answer.completions[0]
        reason = "length" if written.finish_reason == "length" else "stop"
        return TokenCompletion(token_ids=(), logprobs=(), text=written.text, finish_reason=reason)


@contextlib.contextmanager
def open_fixed_policies(
    config: Config, played: Mapping[str, Sequence[TextEnv[Any]]]
) -> Generator[tuple[asyncio.Runner, dict[str, FixedPolicy]]]:
    """Yield the event loop of a run and its fixed policies by name, and close them at the end.

    Args:
        played: Policy to the environments in which it plays a role.

    Raises:
        PettingLLMsError: A policy cannot be loaded or reached, or cannot play this environment.
    """
    fixed_policies: dict[str, FixedPolicy] = {}
    runner = asyncio.Runner()
    try:
        for name, policy in config.policies.items():
            if policy.fixed:
                requests = policy.requests.model_dump(exclude={"api_key_env"})
                variable = policy.requests.api_key_env
                keys = {core.ANY_HOST: variable} if variable else {}
                settings = core.PolicySettings(**requests, api_keys=keys)
                loaded = core.load_policy(policy.fixed, settings)
                fixed_policies[name] = FixedPolicy(
                    name=name,
                    policy=loaded,
                    template_kwargs=policy.chat_template_kwargs or {},
                )
        anywhere = [env for envs in played.values() for env in envs][:1]  # a judge plays nowhere
        for name, fixed in fixed_policies.items():
            for env in played.get(name, anywhere):
                runner.run(fixed.policy.check(env))
        yield runner, fixed_policies
    finally:
        # Else an environment hangs in it, beside an update, and keeps it from being closed.
        if not runner.get_loop().is_running():
            with runner:
                for fixed in fixed_policies.values():
                    runner.run(fixed.policy.aclose())
