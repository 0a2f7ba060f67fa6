"""All rules across sections, in the order in which they are asked.

A rule is a function of the tables that raises `ValueError` for the first two keys that exclude each
other, and says what to change. Sections check by themselves what concerns them alone.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pettingllms_trainers.config.data import ConfigData
from pettingllms_trainers.config.rules.players import ABOUT_NAMES, ABOUT_PHASES
from pettingllms_trainers.config.rules.sections import ABOUT_SECTIONS

Rule = Callable[[ConfigData], None]

BEFORE_DEFAULTS: Sequence[Rule] = ABOUT_NAMES
"""What defaults rely on."""

AFTER_DEFAULTS: Sequence[Rule] = (*ABOUT_PHASES, *ABOUT_SECTIONS)
"""What is asked of the values that a run has in the end."""
