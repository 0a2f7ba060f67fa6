"""A plan as tables for people."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pettingllms_trainers.backends.hf.local_files import tokenizer_of
from pettingllms_trainers.config import Config, EnvConfig, PolicyConfig
from pettingllms_trainers.config.defaults import learning_rates, warm_start_rates
from pettingllms_trainers.plan import Plan
from pettingllms_trainers.plan.gpus import Devices
from pettingllms_trainers.plan.memory import USABLE, gib
from pettingllms_trainers.rollout.sampler import sampling_of
from pettingllms_trainers.runs.prompts import prompt_problems

__all__ = ["answer_warnings", "errors_of", "plan_view", "warnings_of"]

_THINKING_TOKENS = 1024
"""Completions shorter than this end while a model still thinks."""


def plan_view(config: Config, plan: Plan) -> RenderableType:
    """Return the plan of a run as tables."""
    devices = plan.devices
    parts: list[RenderableType] = [
        Text(
            f"{', '.join(env.id for env in config.env)}, {config.num_steps} train steps, written "
            f"to {config.output_dir}"
        ),
        Text(f"this machine: {devices.found}; planned for: {devices.wanted}"),
        _policies(config, plan),
        _learning(config),
        _memory(config, plan),
        _peaks(config, plan),
        _step(config, plan),
    ]
    if len(config.env) > 1:
        parts.append(_environments(config))
    if config.updates.phases:
        parts.append(_phases(config))
    for label, env in zip(config.env_names, config.env, strict=True):
        if env.curriculum:
            parts.append(_curriculum(config, env, label))
    errors, warnings = list(errors_of(config, plan)), list(warnings_of(config, plan))
    parts += [Text(f"error: {problem}", style="red") for problem in errors]
    parts += [Text(f"warning: {problem}", style="yellow") for problem in warnings]
    if not errors and not warnings:
        parts.append(Text("The estimate fits.", style="green"))
    return Group(*parts)


def errors_of(config: Config, plan: Plan) -> Iterator[str]:
    """Yield what a start would refuse, each with advice."""
    contexts = {name: shape.context_length for name, shape in plan.shapes.items()}
    yield from prompt_problems(config, contexts, plan.prompts)


def warnings_of(config: Config, plan: Plan) -> Iterator[str]:
    """Yield what will not work, each with advice."""
    devices, memory = plan.devices, plan.memory
    if not plan.fits:
        where = "GPU" if devices.num_gpus else "the machine"
        yield (
            f"{gib(memory.peak)} GiB are needed at the peak; of {gib(devices.num_bytes)} GiB of "
            f"{where} a run can fill {gib(USABLE * devices.num_bytes)}. What helps: "
            f"{', '.join(_advice(config, devices))}, or more or larger GPUs"
        )
    yield from answer_warnings(config, plan.answers)
    yield from _credit_warnings(config)
    if config.engine.kind == "vllm":
        yield from _engine_warnings(config, plan)
    if config.rollout.ahead and not config.plays_beside_updates:
        yield (
            "rollout.ahead = 1 saves no time here, since the model that learns also generates, or "
            "evaluates V for the rollouts: take an engine of its own (engine.kind) and another "
            'algorithm than "value", or leave the key out'
        )
    for label, env in zip(config.env_names, config.env, strict=True):
        place = f"env.{label}.curriculum" if label else "env.curriculum"
        for number, start in enumerate(env.stage_starts, 1):
            if config.num_steps <= start > 0:
                yield (
                    f"stage {number} of {place} begins after {start} train steps and is never "
                    f"played: raise num_steps (now {config.num_steps}), or shorten earlier stages"
                )
    if config.ray.enabled and devices.num_gpus:
        wanted = config.ray.workers_per_policy * config.ray.gpus_per_worker * len(config.models)
        if wanted > devices.num_gpus:
            yield (
                f"Ray is asked for {wanted:g} GPUs and there are {devices.num_gpus}: fewer "
                "ray.workers_per_policy, or a fraction in ray.gpus_per_worker"
            )
    if config.deepspeed.stage and devices.num_gpus < 2 and config.deepspeed.offload == "none":
        yield (
            "deepspeed.stage shards nothing in one process: start one for each GPU with "
            "torchrun --nproc-per-node, set deepspeed.offload, or leave the key out"
        )


def answer_warnings(config: Config, answers: Mapping[str, int | None]) -> Iterator[str]:
    """Yield which roles may not be able to finish an answer.

    Args:
        config: The run's configuration.
        answers: Role to the tokens of its longest scripted answer, the end token included; None
            where nothing on this machine can count them.
    """
    for role, longest in answers.items():
        name = config.policy_of(role) or ""
        limit = sampling_of(config.rollout, role).max_completion_tokens
        key = f"rollout.max_completion_tokens = {limit}"
        if (longest or 0) > limit:
            yield (
                f"answers of {role} will be truncated: those of a scripted policy have up to "
                f"{longest} tokens, and {key}. Raise it, or that of rollout.per_role.{role}"
            )
        elif limit < _THINKING_TOKENS and _thinks(config.models[name]):
            yield (
                f"{role} will think, and {key} leaves little room for it: set "
                f"policies.{name}.chat_template_kwargs = {{ enable_thinking = false }}, or allow "
                f"{_THINKING_TOKENS} tokens or more"
            )


def _thinks(policy: PolicyConfig) -> bool:
    """Return whether a chat template can turn thinking off, and is not asked to."""
    tokenizer = tokenizer_of(policy)
    template = "" if tokenizer is None else str(tokenizer.chat_template or "")
    is_off = (policy.chat_template_kwargs or {}).get("enable_thinking") is False
    return "enable_thinking" in template and not is_off


def _credit_warnings(config: Config) -> Iterator[str]:
    """Yield where the reward comes too late for the credit."""
    if not config.algorithm.is_by_step:
        return
    for label, env in zip(config.env_names, config.env, strict=True):
        if env.kwargs.get("reward") == "outcome":
            yield (
                f'reward = "outcome" of {label or env.id} pays at the end of an episode alone, and '
                f"{config.algorithm.name} compares candidates by the reward of their own step: "
                "decisions before the last teach next to nothing. Compare whole episodes by what "
                'followed: algorithm.name = "reinforce", or "vine" where episodes are long'
            )


def _advice(config: Config, devices: Devices) -> Iterator[str]:
    """Yield the settings that lower the peak, those that cost least first."""
    if not config.optimizer.gradient_checkpointing:
        yield "optimizer.gradient_checkpointing = true"
    yield f"a lower optimizer.tokens_per_microbatch (now {config.optimizer.tokens_per_microbatch})"
    if config.engine.kind == "vllm" and devices.num_gpus and not config.engine.vllm.sleep:
        yield "engine.vllm.sleep = true"
    if any(not policy.frozen and not policy.has_adapter for policy in config.models.values()):
        if devices.num_gpus > 1 and config.deepspeed.stage < 3:
            yield "deepspeed.stage = 3"
        if devices.num_gpus and config.deepspeed.offload != "all":
            yield 'deepspeed.stage = 3 with deepspeed.offload = "all"'
        yield "every_policy.lora.rank = 32"


def _engine_warnings(config: Config, plan: Plan) -> Iterator[str]:
    memory = plan.memory
    if not plan.devices.num_gpus and config.engine.vllm.sleep:
        yield "engine.vllm.sleep needs a GPU"
    size = config.engine.vllm.tensor_parallel_size
    for name, other in plan.shapes.items():
        if other.num_heads % size:
            yield (
                f"engine.vllm.tensor_parallel_size = {size} does not divide the {other.num_heads} "
                f"attention heads of {config.models[name].model}: vLLM will refuse it"
            )
    if 0 < plan.devices.num_gpus < size and not config.ray.enabled:
        yield (
            f"engine.vllm.tensor_parallel_size is {size}, and there are {plan.devices.num_gpus} "
            "GPUs: an engine needs that many"
        )
    longest = max(sum(lengths) for lengths in plan.lengths.values())
    shape = max(plan.shapes.values(), key=lambda shape: shape.num_parameters)
    num_key_heads = shape.key_value_size * shape.num_heads // shape.query_size
    per_token = 2 * shape.key_value_size * shape.num_layers // min(size, num_key_heads)
    per_token *= 2 if config.engine.precision == "bfloat16" else 4
    if plan.devices.num_gpus and memory.kv_cache < per_token * longest:
        yield (
            f"the KV cache of {gib(memory.kv_cache)} GiB holds no sequence of {longest} tokens "
            f"({gib(per_token * longest)} GiB): raise engine.vllm.gpu_memory_utilization, or lower "
            "engine.vllm.max_model_len"
        )


def _policies(config: Config, plan: Plan) -> Table:
    table = _table("Policies", "policy", "roles", "model", "parameters", "trained", "sizes from")
    for name, policy in config.policies.items():
        roles = ", ".join(role for role, assigned in config.roles.items() if assigned == name)
        shape = plan.shapes.get(name)
        if shape is None:
            table.add_row(name, roles, policy.fixed, "-", "-", "fixed, not trained")
            continue
        rank = f", LoRA rank {policy.lora.rank}" if policy.lora.rank else ""
        trained = "-" if policy.frozen else f"{shape.num_trained:,}"
        total = f"{shape.num_parameters:,}"
        table.add_row(name, roles, policy.model + rank, total, trained, shape.source)
    return table


def _learning(config: Config) -> Table:
    """Return what was chosen by what is trained, where the run file does not say."""
    table = _table("Learning", "policy", "learning rate", "warm start", "template arguments")
    starts = warm_start_rates(config) if config.warm_start.num_steps else {}
    rates = learning_rates(config)
    for name, policy in config.models.items():
        kwargs = json.dumps(policy.chat_template_kwargs or {})
        shown = [f"{part[name]:g}" if name in part else "-" for part in (rates, starts)]
        table.add_row(name, *shown, kwargs)
    return table


def _memory(config: Config, plan: Plan) -> Table:
    """Return what each policy and the engines need, one column each: headings stay short."""
    memory = plan.memory
    where = "each GPU" if plan.devices.num_gpus else "this machine"
    has_engine = config.engine.kind != "vllm_server"
    names = [*memory.policies, *(["engines"] if has_engine else [])]
    table = _table(f"Memory on {where}, GiB", "", *names)
    own = list(memory.policies.values())
    rows = {
        "weights": [*(policy.weights for policy in own), memory.engine_weights],
        "gradients": [policy.gradients for policy in own],
        "optimizer": [policy.optimizer for policy in own],
        "reference": [policy.reference for policy in own],
        "micro-batch": [policy.activations for policy in own],
    }
    for label, sizes in rows.items():
        table.add_row(label, *map(gib, sizes[: len(names)]))
    if has_engine:
        table.add_row("KV cache", *[""] * len(own), gib(memory.kv_cache))
    if any(policy.cpu for policy in own):
        table.add_row("on the host", *(gib(policy.cpu) if policy.cpu else "" for policy in own))
    return table


def _peaks(config: Config, plan: Plan) -> Table:
    memory = plan.memory
    table = _table("Memory at the peak, GiB", "when", "number")
    asleep = ", engines asleep" if config.engine.vllm.sleep else ""
    rows = {
        "completions are written": memory.generating,
        f"a policy learns{asleep}": memory.updating,
        "the device has": plan.devices.num_bytes,
    }
    if memory.cpu:
        rows["on the host, while models are loaded"] = memory.cpu
    for label, size in rows.items():
        table.add_row(label, gib(size))
    return table


def _step(config: Config, plan: Plan) -> Table:
    step = plan.step
    table = _table("A train step, at most", "what", "number", "how")
    agents = f"{step.num_turns} turns x {len(step.agents)} agents ({', '.join(step.agents)})"
    rows = [
        ("levels", step.num_levels, _level_text(config)),
        ("decisions", step.num_decisions, agents),
        ("samples", step.num_samples, _samples_text(config)),
        ("prompt tokens", step.num_prompt_tokens, _prompt_text(config, plan)),
        ("completion tokens", step.num_completion_tokens, _completion_text(plan)),
    ]
    rows += [
        (f"optimizer steps of {name}", number, _minibatch_text(config))
        for name, number in step.num_optimizer_steps.items()
    ]
    if config.rollout.ahead:
        how = "rollout.ahead; one more forward pass for the importance weights"
        if config.plays_beside_updates:
            how += "; a step takes as long as the longer of rollouts and update"
        rows.append(("age of the tokens, in train steps", 1, how))
    ways = config.evaluation.ways
    how = f"{plan.num_held_out // len(ways)} levels, {' and '.join(ways)}"
    rows.append(("held-out episodes", plan.num_held_out, f"{how}, {plan.num_evaluations} times"))
    for what, number, how in rows:
        table.add_row(what, f"{number:,}", how)
    return table


def _environments(config: Config) -> Table:
    title = "Environments; figures below are the maximum over them"
    table = _table(title, "name", "id", "levels per train step", "rewards times")
    total = sum(env.weight for env in config.env)
    for label, env in zip(config.env_names, config.env, strict=True):
        levels = config.rollout.num_levels * env.weight / total
        table.add_row(label, env.id, f"{levels:.4g}", f"{env.reward_scale:g}")
    return table


def _phases(config: Config) -> Table:
    how = "repeated" if config.updates.repeat else "then to the end of the run"
    table = _table(f"Updates, in phases, {how}", "phase", "train steps", "policies", "of the roles")
    for number, phase in enumerate(config.updates.phases, 1):
        policies, roles = ", ".join(phase.policies), ", ".join(phase.roles)
        table.add_row(
            str(number),
            "to the end" if phase.num_steps is None else str(phase.num_steps),
            policies or "all" + (" of the roles" if roles else ""),
            roles or "all",
        )
    return table


def _curriculum(config: Config, env: EnvConfig, label: str) -> Table:
    of = f" of {label}" if label else ""
    title = f"Curriculum{of}, over [env.kwargs]"
    table = _table(title, "stage", "train steps", "env.curriculum.kwargs")
    starts = env.stage_starts
    ends = [*starts[1:], config.num_steps]
    for number, stage in enumerate(env.curriculum, 1):
        first, last = starts[number - 1] + 1, min(ends[number - 1], config.num_steps)
        steps = f"{first} to {last}" if first <= last else "none"
        arguments = ", ".join(f"{name} = {value!r}" for name, value in stage.kwargs.items())
        table.add_row(str(number), steps, arguments)
    return table


def _prompt_text(config: Config, plan: Plan) -> str:
    firsts = [
        f"{role} {prompt.num_tokens}{'' if prompt.is_measured else ' (bytes: no tokenizer here)'}"
        for role, prompt in plan.prompts.items()
    ]
    limits = sorted({lengths.prompt for lengths in plan.lengths.values()})
    return f"of {' or '.join(map(str, limits))} at most; in turn 1: {', '.join(firsts)}"


def _completion_text(plan: Plan) -> str:
    limits = sorted({lengths.completion for lengths in plan.lengths.values()})
    return f"of {' or '.join(map(str, limits))} at most"


def _level_text(config: Config) -> str:
    refills = config.rollout.max_refills
    more = f", and {refills} refills" if refills else ""
    return f"rollout.num_levels{more}"


def _samples_text(config: Config) -> str:
    algorithm = config.algorithm
    return (
        f"{algorithm.name}: {algorithm.candidates_per_decision} per decision, "
        f"{algorithm.episodes_per_level} episodes per level"
    )


def _minibatch_text(config: Config) -> str:
    size = config.optimizer.completions_per_minibatch or "all"
    return f"optimizer.num_epochs = {config.optimizer.num_epochs}, {size} completions in each"


def _table(title: str, *headings: str) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    for index, heading in enumerate(headings):
        is_number = heading in {"parameters", "trained", "number"} or (
            index and title.startswith("Memory")
        )
        # Folded, never truncated: keys and paths are there to be copied.
        table.add_column(heading, justify="right" if is_number else "left", overflow="fold")
    return table
