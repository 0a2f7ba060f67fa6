"""Stages: agents grouped by when they act within a turn."""

from __future__ import annotations

from collections.abc import Sequence

from pettingllms.arguments import check_kind, check_texts
from pettingllms.errors import InvalidArgument
from pettingllms.transition import is_agent


def order_of(stages: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return the agents of all stages in playing order.

    Raises:
        InvalidArgument: If there are none, or names repeat or are not those of agents; see
            `is_agent`.
    """
    allowed = "sequences of different names of the form <role>_<number>"
    check_kind("stages", stages, Sequence, allowed)
    for stage in stages:
        check_texts("stages", stage, allowed)
    order = tuple(agent for stage in stages for agent in stage)
    if not order or not all(map(is_agent, order)) or len(set(order)) != len(order):
        raise InvalidArgument("stages", stages, allowed)
    return order


def stage_openings(stages: Sequence[Sequence[str]]) -> tuple[bool, ...]:
    """Return for every agent, in playing order, whether it is the first of its stage."""
    return tuple(index == 0 for stage in stages for index in range(len(stage)))
