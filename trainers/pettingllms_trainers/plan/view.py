"""What a start would refuse or will not work, and the plan of a run as tables and text."""

from __future__ import annotations

import contextlib
import json
import math
import os
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from rich.box import HEAVY_HEAD
from rich.console import Console, Group, RenderableType
from rich.table import Table
from rich.text import Text
from transformers.utils import logging as transformers_logging

from pettingllms.errors import counted
from pettingllms.tables import TextTable, terminal_table
from pettingllms_trainers.backends.build import memory_advice
from pettingllms_trainers.backends.device import computes_on_gpu, for_device
from pettingllms_trainers.backends.hf.shapes import chat_of, tokenizer_of
from pettingllms_trainers.config import Config, PolicyConfig
from pettingllms_trainers.config.loading import allowed
from pettingllms_trainers.config.root import (
    THINKING_TOKENS,
    learning_rates,
    start_advice,
    warm_start_rates,
)
from pettingllms_trainers.config.sections import base_groups
from pettingllms_trainers.errors import ConfigError
from pettingllms_trainers.plan import USABLE, Devices, Plan, make_plan
from pettingllms_trainers.ranks import Ranks, joined_ranks
from pettingllms_trainers.rollout.environments import make_environments
from pettingllms_trainers.rollout.sampler import sampling_of
from pettingllms_trainers.runs.folder import RunDirectory
from pettingllms_trainers.runs.measuring import measured
from pettingllms_trainers.runs.prompts import check_models, prompt_problems
from pettingllms_trainers.runs.trackers import check_trackers


def gib(num_bytes: float) -> str:
    """A number of bytes for people."""
    return "<0.1" if 0 < num_bytes < 0.05 * (1 << 30) else f"{num_bytes / (1 << 30):.1f}"


def errors_of(config: Config, plan: Plan) -> Iterator[str]:
    """Yield what a start would refuse, each with advice."""
    contexts = {name: shape.context_length for name, shape in plan.shapes.items()}
    yield from prompt_problems(config, contexts, plan.prompts)


def warnings_of(config: Config, plan: Plan) -> Iterator[str]:
    """Yield what will not work, each with advice."""
    yield from _memory_warnings(config, plan)
    yield from answer_warnings(config, plan.answers)
    yield from start_advice(config)
    yield from _machine_warnings(config, plan)
    most = config.rollout.max_staleness
    if most and not config.plays_beside_updates:
        yield (
            f"rollout.max_staleness = {most} saves no time here, since the model that learns also "
            "generates, or evaluates V for the rollouts: take an engine of its own (engine.kind) "
            'and another algorithm than "value", or leave the key out'
        )


def answer_warnings(config: Config, answers: Mapping[str, int | None]) -> Iterator[str]:
    """Yield which roles may not be able to finish an answer; see `answer_lengths`."""
    for role, longest in answers.items():
        name = config.policy_of(role) or ""
        limit = sampling_of(config.rollout, role).max_completion_tokens
        key = f"rollout.max_completion_tokens = {limit}"
        if (longest or 0) > limit:
            yield (
                f"answers of {role} will be truncated: those of a scripted policy have up to "
                f"{longest} tokens, and {key}. Raise it, or that of rollout.per_role.{role}"
            )
        elif limit < THINKING_TOKENS and _thinks(config.models[name]):
            yield (
                f"{role} will think, and {key} leaves little room for it: set "
                f"policies.{name}.chat_template_kwargs = {{ enable_thinking = false }}, or allow "
                f"{THINKING_TOKENS} tokens or more"
            )


def _thinks(policy: PolicyConfig) -> bool:
    """Whether a chat template can turn thinking off, and is not asked to."""
    tokenizer = tokenizer_of(policy)
    template = "" if tokenizer is None else str(tokenizer.chat_template or "")
    is_off = (policy.chat_template_kwargs or {}).get("enable_thinking") is False
    return "enable_thinking" in template and not is_off


def _memory_warnings(config: Config, plan: Plan) -> Iterator[str]:
    devices, memory = plan.devices, plan.memory
    if not plan.fits:
        where = "GPU" if devices.num_gpus else "the machine"
        yield (
            f"{gib(memory.peak)} GiB are needed at the peak; of {gib(devices.num_bytes)} GiB of "
            f"{where} a run can fill {gib(USABLE * devices.num_bytes)}. What helps: "
            f"{', '.join(_advice(config, devices))}, or more or larger GPUs"
        )
    if not config.engine.can.reserves_memory or not devices.num_gpus:
        return
    longest = max(sum(lengths) for lengths in plan.lengths.values())
    shape = max(plan.shapes.values(), key=lambda shape: shape.num_parameters)
    num_key_heads = shape.key_value_size * shape.num_heads // shape.query_size
    parts = min(config.engine.num_shards, num_key_heads)
    per_token = config.engine.number_bytes * (shape.cache_size // parts)
    if memory.kv_cache < per_token * longest:
        sized = config.engine.vllm.kv_cache_bytes
        key = "kv_cache_bytes" if sized else "gpu_memory_utilization"
        yield (
            f"the KV cache of {gib(memory.kv_cache)} GiB holds no sequence of {longest} tokens "
            f"({gib(per_token * longest)} GiB): raise engine.vllm.{key}, or lower "
            "engine.vllm.max_model_len"
        )


def _advice(config: Config, devices: Devices) -> Iterator[str]:
    """Yield the settings that lower the peak, those that cost least first."""
    if not config.optimizer.gradient_checkpointing:
        yield "optimizer.gradient_checkpointing = true"
    yield f"a lower optimizer.tokens_per_microbatch (now {config.optimizer.tokens_per_microbatch})"
    yield from memory_advice(config, devices.num_gpus)


def _machine_warnings(config: Config, plan: Plan) -> Iterator[str]:
    number, size = plan.devices.num_gpus, config.engine.num_shards
    if not number and config.engine.sleeps:
        yield "engine.vllm.sleep needs a GPU"
    for name, shape in plan.shapes.items():
        if shape.num_heads % size:
            yield (
                f"engine.vllm.tensor_parallel_size = {size} does not divide the "
                f"{shape.num_heads} attention heads of {config.models[name].model}: vLLM will "
                "refuse it"
            )
    if 0 < number < size and not config.ray.enabled:
        yield (
            f"engine.vllm.tensor_parallel_size is {size}, and the run has "
            f"{counted(number, 'GPU')}: an engine needs that many"
        )
    if number < plan.devices.num_wanted:
        fewer = [f"set {settings}" for settings in allowed(config, _fewer_gpus(config, number))]
        yield (
            f"Ray is asked for {counted(plan.devices.num_wanted, 'GPU')}, and {number} can be "
            f"used: {', or '.join([*fewer, 'take more GPUs'])}"
        )
    if config.is_sharded and number < 2 and config.deepspeed.offload == "none":
        key = "fsdp.enabled" if config.fsdp.enabled else "deepspeed.stage"
        advice = [
            "start one for each GPU with torchrun --nproc-per-node",
            *(f"set {one}" for one in allowed(config, [['deepspeed.offload = "optimizer"']])),
            "leave the key out",
        ]
        yield f"{key} shards nothing in one process: {', or '.join(advice)}"


def _fewer_gpus(config: Config, number: int) -> Iterator[Sequence[str]]:
    """Yield settings with which Ray asks for at most a number of GPUs."""
    num_bases = len(base_groups(config.models))
    if workers := int(number / (num_bases * config.ray.gpus_per_worker)):
        yield [f"ray.workers_per_policy = {workers}"]
    # Workers of several bases share a GPU, and none is on two of them.
    share = math.floor(100 / -(-num_bases // number)) / 100 if number else 0
    if share < config.ray.gpus_per_worker:
        yield ["ray.workers_per_policy = 1", f"ray.gpus_per_worker = {share:g}"]


Row = Sequence[object]


def plan_view(config: Config, plan: Plan) -> RenderableType:
    """The plan of a run as tables."""
    names = ", ".join(env.id for env in config.env)
    text = f"{names}, {config.num_steps} train steps, written to {config.output_dir}"
    machine = f"this machine: {plan.devices.found}; planned for: {plan.devices.wanted}"
    parts: list[RenderableType] = [Text(text), Text(machine), *_tables(config, plan)]
    errors, warnings = list(errors_of(config, plan)), list(warnings_of(config, plan))
    parts += [Text(f"error: {problem}", style="red") for problem in errors]
    parts += [Text(f"warning: {problem}", style="yellow") for problem in warnings]
    if not errors and not warnings:
        parts.append(Text("The estimate fits.", style="green"))
    return Group(*parts)


def _tables(config: Config, plan: Plan) -> Iterator[Table]:
    where = "each GPU" if plan.devices.num_gpus else "this machine"
    # What was chosen by what is trained is shown, too: the run file does not say it.
    columns = {name: _policy(config, plan, name) for name in config.policies}
    labels = dict.fromkeys(label for column in columns.values() for label in column)
    rows = [(label, *(column.get(label, "-") for column in columns.values())) for label in labels]
    yield _table(f"Policies; memory on {where} in GiB", ["", *columns], rows)
    yield _table(f"Memory on {where} at the peak, GiB", *_ledger(config, plan))
    most = "A train step, at most" + " in any of the environments" * (len(config.env) > 1)
    yield _table(most, "what, number, how", _step(config, plan))


def _policy(config: Config, plan: Plan, name: str) -> dict[str, object]:
    """A column of the table of policies."""
    policy, shape = config.policies[name], plan.shapes.get(name)
    roles = ", ".join(role for role, assigned in config.roles.items() if assigned == name)
    if shape is None:
        return {"roles": roles, "model": policy.fixed, "trained": "fixed"}
    rates = {"learning rate": learning_rates(config)}
    rates |= {"warm start": warm_start_rates(config)} if config.warm_start.num_steps else {}
    chat = chat_of(policy)
    *sizes, host = plan.memory.policies[name]
    parts = ("weights", "gradients", "optimizer", "reference", "micro-batch")
    return {
        "roles": roles,
        "model": policy.model + (f", LoRA rank {policy.lora.rank}" if policy.lora.rank else ""),
        "parameters": shape.num_parameters,
        "sizes from": shape.source,
        "trained": "-" if policy.frozen else shape.num_trained,
        **{label: f"{table[name]:g}" for label, table in rates.items() if name in table},
        "template arguments": json.dumps(policy.chat_template_kwargs or {}),
        "calls of tools": (chat.tool_parser if chat else policy.tool_parser) or "as Hermes",
        **dict(zip(parts, map(gib, sizes), strict=True)),
        **({"on the host": gib(host)} if host else {}),
    }


def _ledger(config: Config, plan: Plan) -> tuple[list[str], list[Row]]:
    """Who holds what at once: both sides of a GPU, and their sum beside what it has."""
    memory = plan.memory
    asleep = ", engines asleep" if config.engine.sleeps else ""
    phases = {
        "completions are written": memory.generating,
        f"a policy learns{asleep}": memory.updating,
    }
    if config.engine.has_copy:
        phases["weights go to the engines"] = memory.handing_over
    engines = [f"engine of {name}" for name in memory.generating.engines]
    rows: list[Row] = [
        (label, *map(gib, (phase.trainer, *phase.engines.values(), phase.total)))
        for label, phase in phases.items()
    ]
    rows.append(("there is", *[""] * (1 + len(engines)), gib(plan.devices.num_bytes)))
    host = {"host, while models are loaded": memory.cpu, "files of weights": memory.files}
    rows += [(label, *[""] * (1 + len(engines)), gib(size)) for label, size in host.items() if size]
    return ["when", "trainer", *engines, "sum"], rows


def _step(config: Config, plan: Plan) -> Iterator[Row]:
    step, algorithm = plan.step, config.algorithm
    prompts, completions = (
        " or ".join(map(str, sorted(set(column))))
        for column in zip(*plan.lengths.values(), strict=True)
    )
    most = config.rollout.max_refills
    refills = f", and {counted(most, 'refill')}" if most else ""
    summary, _, _ = (type(algorithm).__doc__ or "").partition("\n")
    yield "algorithm", algorithm.name, summary.rstrip(".")
    yield "levels", step.num_levels, f"rollout.num_levels{refills}"
    agents = f"{counted(step.num_turns, 'turn')} x {counted(len(step.agents), 'agent')} "
    agents += f"({', '.join(step.agents)})"
    yield "decisions", step.num_decisions, agents
    episodes = counted(algorithm.episodes_per_level, "episode")
    how = f"{algorithm.candidates_per_decision} per decision, {episodes} per level"
    how += f"; {step.num_continued:,} in continuations" * (step.num_continued > 0)
    yield "samples", step.num_samples, how
    firsts = ", ".join(
        f"{role} {prompt.num_tokens}{'' if prompt.is_measured else ' (bytes: no tokenizer here)'}"
        for role, prompt in plan.prompts.items()
    )
    for name, reward in config.rewards.items():
        source = reward.judge or reward.function or reward.model
        number = round(step.num_samples * (1 + reward.judged_twice))
        how = (
            f"rewards.{name}, by {source}; equal answers share one, roles without weight have none"
        )
        yield "verdicts", number, how
    yield "prompt tokens", step.num_prompt_tokens, f"of {prompts} at most; in turn 1: {firsts}"
    yield "completion tokens", step.num_completion_tokens, f"of {completions} at most"
    size = config.optimizer.completions_per_minibatch or "all"
    how = f"optimizer.num_epochs = {config.optimizer.num_epochs}, {size} completions in each"
    for name, number in step.num_optimizer_steps.items():
        yield f"optimizer steps of {name}", number, how
    if most := config.rollout.max_staleness:
        how = "rollout.max_staleness; one more forward pass for the importance weights"
        if config.plays_beside_updates:
            how += "; a step takes as long as the longer of rollouts and update"
        yield "age of the tokens, in train steps", f"up to {most}", how
    ways = config.evaluation.ways
    how = f"{counted(plan.num_held_out // len(ways), 'level')}, {' and '.join(ways)}"
    yield "held-out episodes", plan.num_held_out, f"{how}; {counted(plan.num_evaluations, 'time')}"


def _table(title: str, headings: str | Sequence[str], rows: Iterable[Row]) -> Table:
    names = headings.split(", ") if isinstance(headings, str) else headings
    is_memory = title.startswith("Memory")
    right = [i for i, name in enumerate(names) if name == "number" or (i and is_memory)]
    cells = [[f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row] for row in rows]
    table = TextTable(names, cells, title, right)
    return terminal_table(table, box=HEAVY_HEAD, pad_edge=True, title_style="bold")


def show_plan(
    config: Config,
    *,
    is_resumed: bool = False,
    num_gpus: int | None = None,
    gpu_gib: float | None = None,
    measures: bool = False,
) -> int:
    """Show the plan of a run.

    Args:
        is_resumed: Whether the run would continue what is in its output directory.
        num_gpus: GPUs to plan for; None for what the run would use here.
        gpu_gib: Memory of each GPU in GiB; None for that of the GPUs here, 80 without any.
        measures: Whether a train step and an evaluation are played here to estimate the time.

    Returns:
        Exit code: that of a start which is refused, where the run would not start.

    Raises:
        PettingLLMsError: Bad input.
    """
    is_size = gpu_gib is None or 0 < gpu_gib < math.inf
    if (num_gpus is not None and num_gpus < 1) or not is_size:
        raise ConfigError(f"--gpus is {num_gpus} and --gpu-memory {gpu_gib}; both must be positive")
    transformers_logging.disable_progress_bar()
    check_trackers(config.logging)
    environments = make_environments(config)
    files = RunDirectory(Path(config.output_dir))
    files.check(config, is_resumed=is_resumed)
    check_models(config)
    # Of the processes that torchrun has started; those that measure see their own GPU only.
    console = Console(quiet=os.environ.get("RANK", "0") != "0")
    with joined_ranks() if measures else contextlib.nullcontext(Ranks()) as ranks:
        on_gpu = num_gpus is not None or computes_on_gpu(config, ranks.size)
        config, chosen = for_device(files.settled(config), ranks, on_gpu=on_gpu)
        if chosen:
            console.print(chosen, highlight=False, soft_wrap=True)
        plan = make_plan(config, environments, num_gpus=num_gpus, gpu_gib=gpu_gib)
        console.print(plan_view(config, plan))
        if any(errors_of(config, plan)):
            return 2
        if measures:
            text = _time_text(config, plan, *measured(config, environments, ranks))
            console.print(text, soft_wrap=True)
    return 0


def _time_text(config: Config, plan: Plan, step_s: float, evaluation_s: float) -> str:
    total = config.num_steps * step_s + plan.num_evaluations * evaluation_s
    return (
        f"Measured here, with untrained policies: a train step takes {step_s:.1f} s, an "
        f"evaluation {evaluation_s:.1f} s. {counted(config.num_steps, 'train step')} and "
        f"{counted(plan.num_evaluations, 'evaluation')} take about "
        f"{timedelta(seconds=round(total))}"
        + (", besides the warm start." if config.warm_start.num_steps else ".")
    )
