"""The part of a configuration that says what is played: environments, their stages, their share."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import Field, field_validator

from pettingllms.registry import recorded_id
from pettingllms.sources import short_name
from pettingllms_trainers.config.section import Section

_NAME = re.compile(r"\w+")
_VERSION = re.compile(r"_v\d+$")


class StageConfig(Section):
    """Levels of one kind, such as one difficulty, of which a curriculum has several.

    The warm start plays the first stage; held-out evaluation does not follow the stages.
    """

    kwargs: dict[str, Any] = Field(default={})
    """Arguments of the environment that differ from [env.kwargs] in the stage."""


class EnvEvaluationConfig(Section):
    """What differs for one environment in held-out evaluation."""

    kwargs: dict[str, Any] = Field(default={})
    """Arguments of the environment, over [evaluation.kwargs]."""
    num_episodes: int | None = Field(default=None, ge=1)
    """Levels of its held-out set."""
    scripted: tuple[str, ...] | None = None
    """Scripted policies that play its held-out levels."""


class EnvConfig(Section):
    """An environment that is played: one table [env], or several tables [[env]]."""

    id: str
    """Id of an installed environment, such as plan_path_v0; or where it is: package.module:Class or
    game.py:Class, a workflow workflow:package.module:name or workflow:team.py:name. Modules and
    files are looked for in the working directory too. Arguments of a function that returns a
    workflow are [env.kwargs.arguments]."""
    name: str = ""
    """What roles, metrics and reports of a run of several environments call it; empty: the id
    without its version, or the last name of a place. No effect in a run of one environment."""
    weight: float = Field(default=1.0, gt=0)
    """Share of the levels of a train step, in proportion to the other environments."""
    reward_scale: float = Field(default=1.0, ge=0)
    """Factor of the environment's rewards in training; evaluation shows them as they are. It has an
    effect where a reward's size counts: algorithm.norm = "none", softmax branch_choice, the
    algorithm value, and beside [rewards]; 0: those alone."""
    kwargs: dict[str, Any] = Field(default={})
    """Arguments of the environment; flags may add to them: --env.kwargs.size 8."""
    curriculum: tuple[StageConfig, ...] = ()
    """Stages that levels are drawn from, by p (1 - p) of their success p so far; none: [env.kwargs]
    throughout. The warm start plays the first stage; held-out evaluation plays [evaluation.kwargs]
    over [env.kwargs]."""
    curriculum_floor: float = Field(default=0.2, gt=0, le=1)
    """Part of the levels that all stages get alike, whatever their success; 1: all of them."""
    curriculum_decay: float = Field(default=0.9, ge=0, le=1)
    """Weight of earlier episodes in the success of a stage, per train step; 1: all count alike."""
    evaluation: EnvEvaluationConfig = EnvEvaluationConfig()

    @field_validator("id")
    @classmethod
    def _is_found_again(cls, id: str) -> str:
        """What the run records means the same in every working directory."""
        return recorded_id(id)

    @property
    def stage_kwargs(self) -> tuple[dict[str, Any], ...]:
        """Arguments of the training environment in every stage; one without a curriculum."""
        if not self.curriculum:
            return (self.kwargs,)
        return tuple({**self.kwargs, **stage.kwargs} for stage in self.curriculum)

    @property
    def label(self) -> str:
        """Its name among several environments."""
        return self.name or _label(self.id)


def env_list(value: Any) -> Any:
    """Return a list of environments: a single table is a list of one."""
    if value == []:
        raise ValueError("env is an empty list; write a table [env], or several tables [[env]]")
    return [value] if isinstance(value, Mapping | EnvConfig) else value


def check_names(environments: Sequence[EnvConfig]) -> None:
    """Raise `ValueError` unless several environments have different names that can be keys."""
    if len(environments) < 2:
        return
    for label, count in Counter(env.label for env in environments).items():
        if count > 1:
            raise ValueError(
                f"{count} environments have the name {label!r}: give each one its own, such as "
                f'name = "{label}_2"'
            )
        if not _NAME.fullmatch(label):
            raise ValueError(
                f"an environment has the name {label!r}; allowed are letters, digits and _, since "
                f"it is part of roles and metrics. Give it another: name = "
                f'"{re.sub(r"[^0-9A-Za-z]+", "_", label)}"'
            )


def env_places(tables: Sequence[Any]) -> dict[str, int]:
    """Return name to position of some tables [[env]], as far as they have names."""
    found: dict[str, int] = {}
    for index, table in enumerate(tables):
        if isinstance(table, Mapping) and (name := table.get("name") or table.get("id")):
            found[table.get("name") or _label(str(name))] = index
    return found


def _label(id: str) -> str:
    return _VERSION.sub("", short_name(id))
