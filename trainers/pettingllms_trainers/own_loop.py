"""Parts for a training loop of your own: policies that sample, learn, push and save.

```python
from pettingllms_trainers import open_policies

with open_policies("recipe:plan_path") as policies:
    (answers,) = policies["planner"].sample([env], num_candidates=8, seed=0)
    policies["planner"].forward_backward([answers.group(advantages)])
    policies["planner"].optim_step(1e-3)
    policies["planner"].push()
    policies["planner"].save("trained/planner")
```
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

from pettingzoo import AECEnv

from pettingllms import TextEnv, role_of
from pettingllms.ends import End
from pettingllms.errors import InvalidArgument
from pettingllms.loops import in_thread, is_in_loop
from pettingllms.seeding import derive_seed
from pettingllms.types import Action
from pettingllms.workflows.tools import offered
from pettingllms_trainers.config import Config, RolloutConfig
from pettingllms_trainers.config.loading import RunFiles, config_of
from pettingllms_trainers.errors import ConfigError, ContextExceeded
from pettingllms_trainers.policies.pool import ModelPolicy
from pettingllms_trainers.ranks import Ranks, num_launched
from pettingllms_trainers.rollout.candidates import SampledCandidates, bounded, together
from pettingllms_trainers.rollout.environments import make_environments
from pettingllms_trainers.rollout.sampler import sampling_of
from pettingllms_trainers.types import (
    GenerateRequest,
    SamplingSettings,
    Scores,
    TokenCompletion,
    TrainingCompletion,
    TrainingGroup,
)

if TYPE_CHECKING:
    from pettingllms_trainers.backends.hf.updater import Updater
    from pettingllms_trainers.learning.loss import MicroLoss


Messages = Sequence[Mapping[str, str]]
"""A prompt: chat messages with `role` and `content`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Answers:
    """Completions of one prompt."""

    role: str
    """Role that was asked; empty where the prompt was not an environment."""
    prompt_ids: tuple[int, ...]
    """Tokens of the prompt."""
    completions: tuple[TokenCompletion, ...]
    """[K] answers; fewer where an engine could not finish some, none where `end` is set."""
    temperature: float
    """Sampling temperature."""
    end: End | None = None
    """`End.CONTEXT` where the prompt is too long for the model, so that there is no answer: end the
    episode (`TextEnv.truncate`) and choose its reward. Else None."""

    @property
    def actions(self) -> list[Action]:
        """[K] actions for `TextEnv.step`."""
        return SampledCandidates("", self.prompt_ids, list(self.completions)).actions

    def group(self, advantages: Sequence[float]) -> TrainingGroup:
        """What to learn from the answers.

        Args:
            advantages: [K] finite; every token of an answer gets that of the answer.

        Raises:
            InvalidArgument: There are more advantages than answers, or fewer.
        """
        if len(advantages) != len(self.completions):
            raise InvalidArgument(
                "advantages", f"{len(advantages)} numbers", f"{len(self.completions)}, one for "
                "each answer", "give an answer that is not to be learnt the advantage 0",
            )  # fmt: skip
        return TrainingGroup(
            role=self.role,
            prompt_ids=self.prompt_ids,
            completions=tuple(
                TrainingCompletion(one.token_ids, one.logprobs, advantage)
                for one, advantage in zip(self.completions, advantages, strict=True)
            ),
            temperature=self.temperature,
        )


class OpenPolicy:
    """A policy of a run file, to be sampled and trained by whoever holds it.

    It has the same engine and updater as in a run, and moves weights between them in the same way.

    Args:
        policy: Its tokenizer and engine.
        updater: Trains its weights; None for a frozen policy.
        rollout: How completions are drawn.
        runner: Runs the engine.
    """

    def __init__(
        self,
        policy: ModelPolicy,
        updater: Updater | None,
        rollout: RolloutConfig,
        runner: asyncio.Runner,
    ) -> None:
        self.name = policy.name
        self._policy, self._updater = policy, updater
        self._rollout, self._runner = rollout, runner

    def sample(
        self,
        prompts: Sequence[Messages | TextEnv[Any]],
        num_candidates: int = 1,
        *,
        seed: int,
        temperature: float | None = None,
    ) -> list[Answers]:
        """Answers to all prompts, from one call of the engine.

        A prompt that is too long for the model has none, and costs the others nothing.

        Args:
            prompts: Chat messages, or environments: what their next agents read, with the settings
                of their roles and the stop texts and limits that the environment wants.
            num_candidates: K, answers of each prompt, at least 1.
            seed: Decides all draws, together with the weights.
            temperature: At least 0; 0: greedy, which cannot be trained on. None: that of the file.

        Raises:
            InvalidArgument: An argument is out of its range.
            GenerationError: The engine cannot continue.
        """
        asked = [self._asked(prompt, temperature) for prompt in prompts]
        requests = [
            GenerateRequest(
                prompt_ids=self._policy.encode(messages),
                num_candidates=num_candidates,
                sampling=sampling,
                seed=derive_seed(seed, "own loop", index),
                tools=offered(messages),
            )
            for index, (_, messages, sampling) in enumerate(asked)
        ]
        found: list[list[TokenCompletion] | None] = []

        async def answer(request: GenerateRequest) -> list[TokenCompletion] | None:
            try:
                return await self._policy.sample(request)
            except ContextExceeded:
                return None

        async def ask() -> None:
            found.extend(await together(map(answer, requests)))

        _in_own_loop(partial(self._runner.run, ask()))
        return [
            Answers(
                role=role,
                prompt_ids=request.prompt_ids,
                completions=tuple(completions or ()),
                temperature=request.sampling.temperature,
                end=End.CONTEXT if completions is None else None,
            )
            for (role, *_), request, completions in zip(asked, requests, found, strict=True)
        ]

    def _asked(
        self, prompt: Messages | TextEnv[Any], temperature: float | None
    ) -> tuple[str, Messages, SamplingSettings]:
        if not isinstance(prompt, AECEnv):
            sampling = sampling_of(self._rollout, "", temperature)
            return "", prompt, sampling
        env = cast("TextEnv[Any]", prompt)
        agent = env.agent_selection
        sampling = sampling_of(self._rollout, role_of(agent), temperature)
        bound = bounded(sampling, env.constraints(agent))
        return role_of(agent), env.messages(agent), bound

    def demonstration(self, prompt: Messages | TextEnv[Any], text: str) -> TrainingGroup:
        """A text as an answer to imitate: of advantage 1, with log-probabilities of 0.

        Args:
            prompt: As for `sample`.
            text: What the policy should have written.
        """
        role, messages, _ = self._asked(prompt, None)
        token_ids = self._policy.encode_answer(text)
        answer = TrainingCompletion(token_ids, (0.0,) * len(token_ids), 1.0)
        prompt_ids = self._policy.encode(messages)
        return TrainingGroup(role=role, prompt_ids=prompt_ids, completions=(answer,))

    def score(self, groups: Sequence[TrainingGroup]) -> list[Scores]:
        """The log-probabilities of sampled tokens under the present weights.

        Taken before the first step they are denominators of ratios for tokens that an engine with
        weights of its own has drawn; those of a reference, from before training, serve a KL
        penalty.

        Returns:
            For each group: completion, token.
        """
        return self._trained.score(groups)

    def forward_backward(
        self,
        groups: Sequence[TrainingGroup],
        loss: MicroLoss | None = None,
        *,
        old_logprobs: Sequence[Scores] | None = None,
        reference_logprobs: Sequence[Scores] | None = None,
    ) -> dict[str, float]:
        """Add the gradient of a loss to that of earlier calls since the last `optim_step`.

        Memory is used for some tokens at a time, `optimizer.tokens_per_microbatch`. Tokens have
        weights that add up to 1 over the call (`loss.aggregation`), so that the gradient of a mean
        over several calls is theirs divided by their number.

        An engine may have given its memory to the update: call `push` before `sample`.

        Args:
            groups: At least one.
            loss: Called with `TokenStatistics` and `Targets` of [M] tokens; returns ``[]``, the sum
                over the tokens of ``targets.weights`` times the loss of a token. None: the loss of
                the run file.
            old_logprobs: Denominators of the ratios, by group as `score` returns them; None: what
                was noted at sampling.
            reference_logprobs: Of the reference policy, by group: what a `kl_coefficient` of the
                run file needs.

        Returns:
            Figures by the names of `UpdateStats`: `loss`; of the loss of the run file also
            `entropy`, `ratio_max`, `clip_fraction`, `approx_kl` and others.

        Raises:
            InvalidArgument: A group cannot be learnt from, or the reference is missing.
            UpdateError: The loss is not finite, or memory does not suffice; there is no gradient
                any more.
        """
        if not groups:
            raise InvalidArgument(
                "groups", "none", "at least one",
                "skip the call where nothing was sampled that differs",
            )  # fmt: skip
        if self._policy.sync is not None:
            self._policy.sync.release()
        return self._trained.forward_backward(
            groups, loss, old_logprobs=old_logprobs, reference_logprobs=reference_logprobs
        )

    def optim_step(self, learning_rate: float) -> float:
        """Take a step of AdamW by the gradient, and forget it; nothing happens without one.

        Args:
            learning_rate: Of this step; there is no schedule here.

        Returns:
            The norm of the gradient before it is cut to `optimizer.max_grad_norm`.

        Raises:
            UpdateError: The gradient is not finite; the weights are as they were.
        """
        return self._trained.optim_step(learning_rate)

    def push(self) -> None:
        """Let `sample` use the present weights; where the model generates itself, it does anyway.

        Raises:
            GenerationError: The engine cannot take them.
        """
        if self._policy.sync is not None:
            self._policy.sync.push()

    def save(self, directory: str | Path) -> None:
        """Write weights and tokenizer as a Hugging Face directory, made if needed: `hf:DIRECTORY`.

        An adapter is written as one of peft's.
        """
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        self._trained.save_pretrained(folder)

    def save_state(self, directory: str | Path) -> None:
        """Write weights and optimizer into a directory, made if needed, for `load_state`."""
        folder = Path(directory)
        folder.mkdir(parents=True, exist_ok=True)
        self._trained.save_state(folder)

    def load_state(self, directory: str | Path) -> None:
        """Continue exactly where `save_state` was called; then `push`.

        Raises:
            CheckpointError: The files are damaged or of another model; nothing was changed.
        """
        self._trained.load_state(Path(directory))

    @property
    def _trained(self) -> Updater:
        if self._updater is None:
            raise ConfigError(
                f"the policy {self.name!r} is frozen and cannot learn or be saved; remove frozen = "
                f"true from [policies.{self.name}]"
            )
        return self._updater

    def __repr__(self) -> str:
        """Its name."""
        return f"OpenPolicy({self.name!r})"


@contextlib.contextmanager
def open_policies(
    source: Config | Mapping[str, Any] | RunFiles, *, trust: bool = False, **changes: Any
) -> Generator[dict[str, OpenPolicy]]:
    """Load the models of a run file and start their engines, without its loop.

    Args:
        source: A run file, such as ``recipe:plan_path`` or a path, several ones of which later
            ones count, or what one would contain. What is about the loop has no effect:
            `[algorithm]`, `[warm_start]`, `[evaluation]`, `num_steps` and others.
        trust: Whether run files may name code and servers; see `pettingllms.trust`.
        **changes: Keys of the run file, over it.

    Yields:
        Role to policy; roles that share a policy have the same one. Fixed policies are left out.

    Raises:
        PettingLLMsError: Bad input, or a model cannot be loaded, or an engine not be started.
    """
    config = config_of(source, changes, trust=trust)
    _check(config)
    environments = make_environments(config)
    # Imported here: transformers takes seconds, and bad input that needs no tokenizer comes first.
    from pettingllms_trainers.backends.build import build_policies, build_pool
    from pettingllms_trainers.backends.device import computes_on_gpu, for_device
    from pettingllms_trainers.runs.prompts import checked_prompts, with_cpu_cache

    prompts = checked_prompts(config, environments)
    on_gpu = computes_on_gpu(config, 1)
    config, _ = for_device(config, Ranks(), on_gpu=on_gpu)
    if not on_gpu:
        config = with_cpu_cache(config, prompts)
    models = build_policies(config)
    pool = build_pool(config, models)
    pool.push_weights()
    runner = asyncio.Runner()
    opened = {
        name: OpenPolicy(policy, models[name].updater, config.rollout, runner)
        for name, policy in pool.policies.items()
    }
    try:
        yield {role: opened[name] for role, name in config.roles.items() if name in opened}
    finally:
        _in_own_loop(runner.close)


def _in_own_loop(call: Callable[[], None]) -> None:
    """Call what uses an event loop of its own; a cell of a notebook runs in another one."""
    if is_in_loop():
        in_thread(call)
    else:
        call()


def _check(config: Config) -> None:
    """Refuse what spreads a policy over several processes."""
    if num_launched() > 1 or config.ray.enabled or config.is_sharded:
        raise ConfigError(
            "a loop of your own is one process, whose engines may be vLLM's: start one, without a "
            "launcher, ray.enabled, deepspeed.stage and fsdp.enabled; `train` spreads over several"
        )
