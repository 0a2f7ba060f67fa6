"""Families of generated mathematical questions with exact answers."""

from __future__ import annotations

from pettingllms_envs.math.families.algebra import ALGEBRA, GEOMETRY, SEQUENCES
from pettingllms_envs.math.families.family import (
    MAX_DIFFICULTY,
    MIN_DIFFICULTY,
    Calculation,
    Family,
    Params,
)
from pettingllms_envs.math.families.numbers import ARITHMETIC, COMBINATORICS, NUMBER_THEORY

FAMILIES: tuple[Family, ...] = (
    *ARITHMETIC,
    *NUMBER_THEORY,
    *COMBINATORICS,
    *ALGEBRA,
    *SEQUENCES,
    *GEOMETRY,
)
"""All families, by topic."""

__all__ = ["FAMILIES", "MAX_DIFFICULTY", "MIN_DIFFICULTY", "Calculation", "Family", "Params"]
