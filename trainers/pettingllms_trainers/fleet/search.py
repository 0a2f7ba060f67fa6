"""Which GPUs for which role: fleets of a size, tried one by one."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

from pettingllms_trainers.config import Config
from pettingllms_trainers.config.policies import base_groups
from pettingllms_trainers.errors import ConfigError
from pettingllms_trainers.fleet.places import Fleet
from pettingllms_trainers.fleet.simulate import StepTimes

_NUM_UNITS, _FINEST = 8, 32
"""A fleet is divided into so many parts at first, which are moved between roles, and at last."""
_NUM_SIZES = 4

Trial = Callable[[Fleet], StepTimes | None]
"""Simulates a train step on a fleet; None: its memory is too small."""


class Found(NamedTuple):
    """What was tried with a number of GPUs."""

    num_gpus: int
    steps: tuple[StepTimes, ...]
    """Fastest first."""


def fastest(config: Config, num_gpus: int, trial: Trial, larger: Fleet | None = None) -> Found:
    """Try fleets of a size: shared GPUs, and splits over (generate, learn) x base model.

    Splits in eighths are tried all. Around the best one smaller parts are moved, down to a 32nd, as
    long as that is faster.

    Args:
        config: The run.
        num_gpus: All of the fleet.
        trial: Simulates; asked once for each fleet.
        larger: The best one of twice the size: its halves are where more than 8 GPUs begin.
    """
    tried: dict[Fleet, StepTimes | None] = {}

    def tries(fleets: Iterator[Fleet]) -> list[StepTimes]:
        for fleet in fleets:
            if fleet not in tried:
                tried[fleet] = trial(fleet)
        return sorted((step for step in tried.values() if step), key=lambda step: step.step_s)

    unit = max(1, num_gpus // _NUM_UNITS)
    if larger is None or num_gpus <= _NUM_UNITS:
        ordered = tries(_fleets(config, num_gpus, unit))
    else:
        ordered = tries(_halved(config, larger, num_gpus))
    while unit > max(1, num_gpus // _FINEST):
        unit //= 2
        best = None
        while ordered and ordered[0] is not best and ordered[0].fleet.learn:
            best = ordered[0]
            ordered = tries(_neighbours(best.fleet, unit, config.engine.num_shards))
    return Found(num_gpus, tuple(ordered))


def sizes(num_gpus: int) -> list[int]:
    """Return the numbers of GPUs that are looked at: all, and halves down to an eighth."""
    return [num_gpus >> k for k in range(_NUM_SIZES) if num_gpus >> k]


def check_size(num_gpus: int) -> None:
    """Raise `ConfigError` unless there is a GPU."""
    if num_gpus < 1:
        raise ConfigError(f"--gpus is {num_gpus}; at least 1 is needed")


def _fleets(config: Config, num_gpus: int, unit: int) -> Iterator[Fleet]:
    shards, num_models = config.engine.num_shards, len(base_groups(config.models))
    yield from _in_turn(config, num_gpus)
    if config.engine.has_copy:
        for parts in _divided(num_gpus // unit, 2 * num_models):
            yield from _split([part * unit for part in parts], shards)


def _in_turn(config: Config, num_gpus: int) -> Iterator[Fleet]:
    """Return the fleet whose GPUs generate and then learn: with Ray every base model has its own.

    A worker of one of several policies has a GPU for itself unless there are too few of them.
    """
    num, num_models = num_gpus // config.engine.num_shards, len(base_groups(config.models))
    if config.engine.can.is_local and num:
        is_apart = config.ray.enabled and num >= num_models
        yield Fleet((num // num_models,) * num_models, ()) if is_apart else Fleet((), (), num)


def _halved(config: Config, fleet: Fleet, num_gpus: int) -> Iterator[Fleet]:
    """Return what generates and learns in turn, and the halves of a split."""
    yield from _in_turn(config, num_gpus)
    if not fleet.learn:
        return
    shards = config.engine.num_shards
    parts = [*(number * shards // 2 for number in fleet.generate), *(n // 2 for n in fleet.learn)]
    parts[-1] += num_gpus - sum(parts)
    yield from _split(parts, shards)


def _neighbours(fleet: Fleet, unit: int, shards: int) -> Iterator[Fleet]:
    """Return the splits in which some GPUs have moved to another part."""
    parts = [*(number * shards for number in fleet.generate), *fleet.learn]
    for source, target in itertools.permutations(range(len(parts)), 2):
        moved = list(parts)
        moved[source] -= unit
        moved[target] += unit
        yield from _split(moved, shards)


def _split(parts: Sequence[int], shards: int) -> Iterator[Fleet]:
    half = len(parts) // 2
    generate = tuple(part // shards for part in parts[:half])
    if min((*generate, *parts[half:])) > 0:
        yield Fleet(generate, tuple(parts[half:]))


def _divided(total: int, num: int) -> Iterator[tuple[int, ...]]:
    """Return all ways to write a number as a sum of positive ones, in order."""
    for cuts in itertools.combinations(range(1, total), num - 1):
        ends = (0, *cuts, total)
        yield tuple(b - a for a, b in itertools.pairwise(ends))
