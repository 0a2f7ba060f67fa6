"""Programming problems written for this project: no download, each one certified by tests."""

from __future__ import annotations

from pettingllms_envs.code.builtin import (
    arithmetic,
    arrays,
    best_choices,
    counting,
    dynamic_programming,
    graphs,
    greedy,
    number_theory,
    procedures,
    routes,
    searching,
    simulation,
    strings,
    structures,
)
from pettingllms_envs.code.builtin.exercise import DIFFICULTIES, Exercise

EXERCISES: tuple[Exercise, ...] = (
    *arithmetic.EXERCISES,
    *strings.EXERCISES,
    *arrays.EXERCISES,
    *number_theory.EXERCISES,
    *searching.EXERCISES,
    *dynamic_programming.EXERCISES,
    *best_choices.EXERCISES,
    *greedy.EXERCISES,
    *simulation.EXERCISES,
    *procedures.EXERCISES,
    *structures.EXERCISES,
    *counting.EXERCISES,
    *graphs.EXERCISES,
    *routes.EXERCISES,
)
"""All built-in exercises, by topic."""

__all__ = ["DIFFICULTIES", "EXERCISES", "Exercise"]
