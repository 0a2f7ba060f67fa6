"""Stages: agents grouped by when they act within a turn."""

from __future__ import annotations

from collections.abc import Sequence

from pettingllms.arguments import check_kind, check_texts
from pettingllms.errors import InvalidArgument
from pettingllms.transition import role_of


def order_of(stages: Sequence[Sequence[str]]) -> tuple[str, ...]:
    """Return the agents of all stages in playing order.

    Raises:
        InvalidArgument: If there are none, or names repeat or are not of the form
            `<role>_<number>` with a role of letters.
    """
    allowed = "sequences of different names of the form <role>_<number>"
    check_kind("stages", stages, Sequence, allowed)
    for stage in stages:
        check_texts("stages", stage, allowed)
    order = tuple(agent for stage in stages for agent in stage)
    well_named = all(role_of(a).isalpha() and a.rpartition("_")[2].isdecimal() for a in order)
    if not order or not well_named or len(set(order)) != len(order):
        raise InvalidArgument("stages", stages, allowed)
    return order


def stage_openings(stages: Sequence[Sequence[str]]) -> tuple[bool, ...]:
    """Return for every agent, in playing order, whether it is the first of its stage."""
    return tuple(index == 0 for stage in stages for index in range(len(stage)))
