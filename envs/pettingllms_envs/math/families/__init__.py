"""Families of generated mathematical questions with exact answers."""

from __future__ import annotations

from pettingllms_envs.math.families import (
    algebra,
    arithmetic,
    combinatorics,
    geometry,
    number_theory,
    sequences,
)
from pettingllms_envs.math.families.calculation import Calculation
from pettingllms_envs.math.families.family import MAX_DIFFICULTY, MIN_DIFFICULTY, Family, Params

FAMILIES: tuple[Family, ...] = (
    *arithmetic.FAMILIES,
    *number_theory.FAMILIES,
    *combinatorics.FAMILIES,
    *algebra.FAMILIES,
    *sequences.FAMILIES,
    *geometry.FAMILIES,
)
"""All families, by topic."""

__all__ = ["FAMILIES", "MAX_DIFFICULTY", "MIN_DIFFICULTY", "Calculation", "Family", "Params"]
