"""What a run was: its team, ready to play on, or one side of a comparison."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any, cast

from pettingllms.errors import InvalidArgument, suggestion
from pettingllms.evaluation.episode import EpisodeResult
from pettingllms.evaluation.plan import MAIN, SWAPPED, names_of, swapped
from pettingllms.evaluation.report import Comparison, by_content, figures_json, solved_of
from pettingllms.evaluation.run_folder import RunFolder
from pettingllms.evaluation.statistics import Interval, clustered_share
from pettingllms.evaluation.training_run import TrainingRun, is_training_run
from pettingllms.files import read_lines
from pettingllms.policies import Sampling
from pettingllms.sources import RUN
from pettingllms.tables import Block, TextTable
from pettingllms.trust import Name
from pettingllms.types import flat_table

_GREEDY = "greedy"
_SCRIPTED = "scripted:"
_STEP = re.compile(r"@(\d+)$")
# Arguments of an environment that differ between ways to put one task.
_PRESENTATION = ("prompts",)
# What settings begin with that not every kind of run keeps.
_KINDS = ("sampling.", "version.", "config.")
# Parts of a configuration that other settings hold already, or that decide no result.
_ELSEWHERE = ("env", "evaluation", "output_dir", "logging")


@dataclass(frozen=True, kw_only=True, slots=True)
class Side:
    """One side of a comparison."""

    name: str
    """The text that named it, `RUN[:VARIANT][@STEP]`."""
    policies: Mapping[str, str]
    """Role -> name of the policy that played it."""
    task: Mapping[str, Any]
    """What was played, by dotted keys: the environment, its arguments and options of `reset`."""
    settings: Mapping[str, Any]
    """All other settings, by dotted keys."""
    results: Sequence[EpisodeResult] = ()
    """Its episodes; empty for a training run, whose evaluations keep none."""
    success: Interval
    """Share of solved plays, with a 95 % interval."""
    num_levels: int
    """Levels that it played."""


@dataclass(frozen=True, kw_only=True, slots=True)
class ComparedSides:
    """Two sides of a comparison, and how they compare."""

    first: Side
    second: Side
    comparison: Comparison

    def to_json(self) -> dict[str, Any]:
        """The comparison as JSON data, with who played and the settings that differ."""
        differing = differences(self.first, self.second)
        return {
            "policies": [dict(side.policies) for side in (self.first, self.second)],
            "settings": {key: list(values) for key, values in differing.items()},
            **figures_json(self.comparison),
        }

    def parts(self) -> list[Block]:
        """The same as tables."""
        names = self.first.name, self.second.name
        policies = self.first.policies, self.second.policies
        roles = dict.fromkeys([*policies[0], *policies[1]])
        played = [(role, *(own.get(role, "-") for own in policies)) for role in roles]
        parts: list[Block] = [TextTable(["who played", *names], played)]
        if differing := differences(self.first, self.second):
            rows = [(key, *map(_shown, values)) for key, values in differing.items()]
            parts.append(TextTable(["differs", *names], rows))
        return [*parts, *self.comparison.parts(*names)]


def _shown(value: Any) -> str:
    return "-" if value is None else value if isinstance(value, str) else json.dumps(value)


def open_side(name: str) -> Side:
    """The side that a text names.

    Args:
        name: ``RUN[:VARIANT][@STEP]``: an evaluation (its variant, main unless named) or a training
            run (greedy unless named; the last evaluation, or that after train step STEP).

    Raises:
        RunFolderError: If it is not a run, or is damaged.
        InvalidArgument: If it has no such variant or step, or nothing was played.
    """
    path, variant, step = name_parts(name)
    if is_training_run(path):
        return _of_training(name, TrainingRun.open(path), variant or _GREEDY, step)
    if step is not None:
        raise InvalidArgument("run", name, "@STEP after a training run only")
    return _of_evaluation(name, RunFolder.open(path), variant or MAIN)


def differences(first: Side, second: Side) -> dict[str, tuple[Any, Any]]:
    """Key -> values of the settings that differ; None where a side does not have a key.

    Settings of a kind that only one side has, such as those of training, are left out.
    """
    one, other = ({**side.task, **side.settings} for side in (first, second))
    kinds = ({p for p in _KINDS if any(k.startswith(p) for k in side)} for side in (one, other))
    # What only one kind of run records does not make two runs differ.
    alone = set.symmetric_difference(*kinds)
    return {
        key: (one.get(key), other.get(key))
        for key in dict.fromkeys([*one, *other])
        if one.get(key) != other.get(key) and not key.startswith(tuple(alone))
    }


def unlike(first: Side, second: Side) -> list[str]:
    """What makes the tasks of two sides unlike; nothing for one task."""
    return [
        key
        for key in differences(replace(first, settings={}), replace(second, settings={}))
        if not key.startswith(tuple(f"env.{name}" for name in _PRESENTATION))
    ]


def name_parts(name: str) -> tuple[str, str, int | None]:
    """Path, variant (empty when none is named) and train step of `RUN[:VARIANT][@STEP]`."""
    rest = name.removeprefix(RUN)
    # `run:greedy` may also be a variant of a folder called "run".
    if Path(re.split("[:@]", rest)[0]).exists():
        name = rest
    if Path(name).exists():
        return name, "", None
    found = _STEP.search(name)
    rest, step = (name[: found.start()], int(found[1])) if found else (name, None)
    path = rest
    # Paths may hold colons themselves: the longest part that exists is the path.
    while not Path(path).exists() and ":" in path:
        path = path.rpartition(":")[0]
    if not Path(path).exists():
        path = rest
    return path, rest[len(path) + 1 :], step


def _of_evaluation(name: str, folder: RunFolder, variant: str) -> Side:
    plan = folder.plan
    _check_variant(variant, plan.variants, folder.path)
    results = [result for result in folder.results() if result.variant == variant]
    if not results:
        raise InvalidArgument("run", name, "a run with finished episodes")
    levels = by_content(results)
    settings = {
        **flat_table({role: asdict(value) for role, value in plan.sampling.items()}, "sampling."),
        "seed": plan.seed,
        "levels": plan.num_levels,
        "samples": plan.num_samples,
        **flat_table(folder.versions, "version."),
    }
    return Side(
        name=name,
        policies=names_of(plan.variants[variant]),
        task=task_table(plan.env_id, plan.env_kwargs, plan.options),
        settings=settings,
        results=results,
        success=clustered_share(*solved_of(levels)),
        num_levels=len(levels),
    )


def _of_training(name: str, run: TrainingRun, variant: str, step: int | None) -> Side:
    lines = read_lines(run.path / "evaluations.jsonl", "step", "variants")
    known = [line["step"] for line in lines]
    if not lines or (step is not None and step not in known):
        wanted = "a finished evaluation" if step is None else f"one after train step {step}"
        there = ", ".join(map(str, known)) or "none"
        raise InvalidArgument("run", name, f"a run with {wanted}; there are those after: {there}")
    line = lines[-1] if step is None else lines[known.index(step)]
    # Scripted policies play once, before training.
    variants = {
        name: figures
        for one in lines
        for name, figures in one["variants"].items()
        if one is line or name.startswith(_SCRIPTED)
    }
    _check_variant(variant, variants, run.path)
    found, seed = variants[variant], run.levels().get("seed", 0)
    sampling = {} if variant.startswith(_SCRIPTED) else run.sampling(run.fixed_or_local())
    # All ways but this one are played greedily, whatever the temperature of training.
    if variant != "sampled":
        sampling = {role: replace(value, temperature=0.0) for role, value in sampling.items()}
    config = {key: part for key, part in run.config.items() if key not in _ELSEWHERE}
    return Side(
        name=name,
        policies=_policies(run, variant, line["step"]),
        task=task_table(run.env_id, line["env"], {}),
        settings={
            **flat_table({role: asdict(value) for role, value in sampling.items()}, "sampling."),
            **{"seed": seed, "levels": found["num_episodes"], "samples": 1},
            **flat_table(config, "config."),
        },
        success=Interval(found["success"], found["success_low"], found["success_high"]),
        num_levels=found["num_episodes"],
    )


def _policies(run: TrainingRun, variant: str, step: int) -> dict[str, str]:
    roles = cast(Mapping[str, str], run.config["roles"])
    if variant.startswith(_SCRIPTED):
        return dict.fromkeys(roles, variant.removeprefix(_SCRIPTED))
    assignment = {
        role: name if name != "hf:" else f"{roles[role]} of {run.path.name}, step {step}"
        for role, name in run.fixed_or_local().items()
    }
    return names_of(swapped(assignment)) if variant == SWAPPED else assignment


def _check_variant(variant: str, variants: Mapping[str, Any], path: Path) -> None:
    if variant not in variants:
        raise InvalidArgument(
            "variant", variant, f"{', '.join(variants)} of {path}" + suggestion(variant, variants)
        )


def task_table(
    env_id: Name, kwargs: Mapping[str, Any], options: Mapping[str, Any]
) -> dict[str, Any]:
    """What is played, by dotted keys."""
    played = flat_table(kwargs, "env.") | flat_table(options, "option.")
    return {"environment": str(env_id), **played}


@dataclass(frozen=True, kw_only=True, slots=True)
class RunTeam:
    """A team of a training run or an evaluation, and what it plays."""

    env_id: Name
    """Id of the environment, or its source."""
    env_kwargs: Mapping[str, Any]
    """Arguments of the environment on held-out levels."""
    options: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Options of `reset`."""
    policies: Mapping[str, Name]
    """Role (or agent, which comes before its role) -> name of its policy."""
    sampling: Mapping[str, Sampling]
    """Role -> how its completions are drawn."""
    levels: Mapping[str, int]
    """`seed` and number (`episodes`) of the held-out levels; either may be missing."""

    @classmethod
    def of_training(cls, run: TrainingRun, step: int | None = None) -> RunTeam:
        """What a training run has trained.

        Raises:
            InvalidArgument: If there is no checkpoint of that step.
            RunFolderError: If nothing is trained yet.
        """
        policies = run.assignment(step)
        return cls(
            env_id=run.env_id,
            env_kwargs=run.held_out_kwargs(),
            policies=policies,
            sampling=run.sampling(policies),
            levels=run.levels(),
        )

    @classmethod
    def of_evaluation(cls, folder: RunFolder, variant: str = MAIN) -> RunTeam:
        """A variant of an evaluation.

        Raises:
            InvalidArgument: If it has no such variant.
        """
        plan = folder.plan
        _check_variant(variant, plan.variants, folder.path)
        return cls(
            env_id=plan.env_id,
            env_kwargs=plan.env_kwargs,
            options=plan.options,
            policies=plan.variants[variant],
            sampling=plan.sampling,
            levels={"seed": plan.seed, "episodes": plan.num_levels},
        )
