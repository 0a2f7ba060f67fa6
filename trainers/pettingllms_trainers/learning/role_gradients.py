"""Whether the roles of a shared policy agree: their gradients compared, from inner products."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean

from pettingllms_trainers.types import RoleGradient

__all__ = ["Products", "role_figures"]

Products = Mapping[tuple[str, str], float]
"""Inner products of the gradients of all pairs of roles of an optimizer step, in both orders; the
gradients of roles add up to that of the mini-batch."""


def role_figures(steps: Sequence[Products]) -> tuple[RoleGradient, ...]:
    """Return the figures of each role over the optimizer steps of an update.

    Args:
        steps: Of each optimizer step; a role that has no samples in a step is not in it.
    """
    roles = dict.fromkeys(role for products in steps for role, _ in products)
    return tuple(_figures(role, roles, steps) for role in roles)


def _figures(role: str, roles: Mapping[str, None], steps: Sequence[Products]) -> RoleGradient:
    own = [products for products in steps if (role, role) in products]
    with_whole = math.fsum(p[role, other] for p in own for other in roles if (role, other) in p)
    whole = math.fsum(value for products in steps for value in products.values())
    return RoleGradient(
        role=role,
        norm=fmean(math.sqrt(products[role, role]) for products in own),
        share=with_whole / whole if whole > 0 else 0.0,
        cosines={other: c for other in roles if (c := _cosine(role, other, own)) is not None},
    )


def _cosine(role: str, other: str, steps: Sequence[Products]) -> float | None:
    """Return the mean over the steps in which both have a gradient; None without any."""
    found = [
        products[role, other] / math.sqrt(products[role, role] * products[other, other])
        for products in steps
        if other != role and products.get((other, other), 0.0) * products[role, role] > 0
    ]
    return fmean(found) if found else None
