"""A plan as tables for people."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from pettingllms_trainers.config import Config, EnvConfig
from pettingllms_trainers.config.defaults import learning_rates, warm_start_rates
from pettingllms_trainers.plan import Plan
from pettingllms_trainers.plan.problems import errors_of, gib, warnings_of

__all__ = ["plan_view"]

Row = Sequence[object]


def plan_view(config: Config, plan: Plan) -> RenderableType:
    """Return the plan of a run as tables."""
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
    memory, own = plan.memory, plan.memory.policies
    yield _table(
        "Policies", "policy, roles, model, parameters, trained, sizes from", _policies(config, plan)
    )
    # What was chosen by what is trained, where the run file does not say.
    yield _table(
        "Learning", "policy, learning rate, warm start, template arguments", _learning(config)
    )
    where = "each GPU" if plan.devices.num_gpus else "this machine"
    engines = ["engines"] if config.engine.can.is_local else []
    yield _table(  # a column for each: headings stay short
        f"Memory on {where}, GiB", ["", *own, *engines], _memory(plan, has_engines=bool(engines))
    )
    yield _table(f"Memory on {where} at the peak, GiB", *_ledger(config, plan))
    host = {"while models are loaded": memory.cpu, "files of weights for engines": memory.files}
    rows = [(label, gib(size)) for label, size in host.items() if size]
    yield _table("Memory of the host, GiB", "when, number", rows)
    yield _table("A train step, at most", "what, number, how", _step(config, plan))
    if len(config.env) > 1:
        title = "Environments; figures below are the maximum over them"
        total = sum(env.weight for env in config.env) / config.rollout.num_levels
        rows = [
            (label, env.id, f"{env.weight / total:.4g}", f"{env.reward_scale:g}")
            for label, env in zip(config.env_names, config.env, strict=True)
        ]
        yield _table(title, "name, id, levels per train step, rewards times", rows)
    if config.updates.phases:
        how = "repeated" if config.updates.repeat else "then to the end of the run"
        title = f"Updates, in phases, {how}"
        yield _table(title, "phase, train steps, policies, of the roles", _phases(config))
    for label, env in zip(config.env_names, config.env, strict=True):
        if env.curriculum:
            title = f"Curriculum{f' of {label}' if label else ''}, over [env.kwargs]"
            rows = _curriculum(env)
            yield _table(title, "stage, env.curriculum.kwargs", rows)


def _policies(config: Config, plan: Plan) -> Iterator[Row]:
    for name, policy in config.policies.items():
        roles = ", ".join(role for role, assigned in config.roles.items() if assigned == name)
        shape = plan.shapes.get(name)
        if shape is None:
            yield name, roles, policy.fixed, "-", "-", "fixed, not trained"
            continue
        rank = f", LoRA rank {policy.lora.rank}" if policy.lora.rank else ""
        trained = "-" if policy.frozen else f"{shape.num_trained:,}"
        yield name, roles, policy.model + rank, f"{shape.num_parameters:,}", trained, shape.source


def _learning(config: Config) -> Iterator[Row]:
    starts = warm_start_rates(config) if config.warm_start.num_steps else {}
    rates = learning_rates(config)
    for name, policy in config.models.items():
        shown = [f"{part[name]:g}" if name in part else "-" for part in (rates, starts)]
        yield name, *shown, json.dumps(policy.chat_template_kwargs or {})


def _memory(plan: Plan, *, has_engines: bool) -> list[Row]:
    own = plan.memory.policies.values()
    *sizes, host = zip(*own, strict=True)  # the fields of `PolicyMemory`
    labels = ("weights", "gradients", "optimizer", "reference", "micro-batch")
    rows = {label: list(map(gib, row)) for label, row in zip(labels, sizes, strict=True)}
    if has_engines:
        rows["weights"].append(gib(plan.memory.engine_weights))
        rows["KV cache"] = [*[""] * len(own), gib(plan.memory.kv_cache)]
    if any(host):
        rows["on the host"] = [gib(size) if size else "" for size in host]
    return [(label, *row) for label, row in rows.items()]


def _ledger(config: Config, plan: Plan) -> tuple[list[str], list[Row]]:
    """Return who holds what at once: both sides of a GPU, and their sum beside what it has."""
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
    return ["when", "trainer", *engines, "sum"], rows


def _step(config: Config, plan: Plan) -> Iterator[Row]:
    step, algorithm = plan.step, config.algorithm
    prompts, completions = (
        " or ".join(map(str, sorted(set(column))))
        for column in zip(*plan.lengths.values(), strict=True)
    )
    refills = f", and {config.rollout.max_refills} refills" if config.rollout.max_refills else ""
    summary, _, _ = (type(algorithm).__doc__ or "").partition("\n")
    yield "algorithm", algorithm.name, summary.rstrip(".")
    yield "levels", step.num_levels, f"rollout.num_levels{refills}"
    agents = f"{step.num_turns} turns x {len(step.agents)} agents ({', '.join(step.agents)})"
    yield "decisions", step.num_decisions, agents
    how = f"{algorithm.candidates_per_decision} per decision, "
    yield "samples", step.num_samples, how + f"{algorithm.episodes_per_level} episodes per level"
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
    how = f"{plan.num_held_out // len(ways)} levels, {' and '.join(ways)}"
    yield "held-out episodes", plan.num_held_out, f"{how}, {plan.num_evaluations} times"


def _phases(config: Config) -> Iterator[Row]:
    for number, phase in enumerate(config.updates.phases, 1):
        policies, roles = ", ".join(phase.policies), ", ".join(phase.roles)
        steps = "to the end" if phase.num_steps is None else phase.num_steps
        yield number, steps, policies or "all" + (" of the roles" if roles else ""), roles or "all"


def _curriculum(env: EnvConfig) -> Iterator[Row]:
    for number, stage in enumerate(env.curriculum, 1):
        yield number, ", ".join(f"{name} = {value!r}" for name, value in stage.kwargs.items())


def _table(title: str, headings: str | Sequence[str], rows: Iterable[Row]) -> Table:
    table = Table(title=title, title_justify="left", title_style="bold")
    names = headings.split(", ") if isinstance(headings, str) else headings
    for index, name in enumerate(names):
        is_number = name in {"parameters", "trained", "number"}
        is_number |= bool(index) and title.startswith("Memory")
        # Folded, never truncated: keys and paths are there to be copied.
        table.add_column(name, justify="right" if is_number else "left", overflow="fold")
    for row in rows:
        table.add_row(*(f"{cell:,}" if isinstance(cell, int) else str(cell) for cell in row))
    return table
