"""What a metric is: its documentation and, where a table computes it, how."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from pettingllms_trainers.types import Shown

SubjectT = TypeVar("SubjectT")


@dataclass(frozen=True, slots=True)
class Metric(Generic[SubjectT]):
    """A metric, apart from its name."""

    doc: str
    """What it means."""
    of: Callable[[SubjectT], float] | None = None
    """How it is computed from the subject of its table; None when it is measured elsewhere."""
    shown: Shown | None = None
    """How it appears in the progress view; None: not at all."""


AnyMetric = Metric[Any]
"""A metric of whatever subject."""
