"""What the parent, the fork server and its children say to each other, and in which form.

Nothing here needs Linux: games that offer programs to agents are made on every system.
"""

from __future__ import annotations

import struct
from typing import NamedTuple

JOB = struct.Struct("=QQddQQIIB")
RESULT = struct.Struct("=QiddQBB")
NUMBER = struct.Struct("=Q")
DESCRIPTOR = struct.Struct("=i")
SETTING_UP, LOCKED, RUNNING, BAD_SYNTAX, NO_MEMORY = range(5)
"""Stages of a child. It writes the stage into a page that is unmapped before the program runs."""
OUT_OF_TIME, OUT_OF_CPU = 1, 2
"""Why the server killed a child."""


class Job(NamedTuple):
    """A run and its limits, as they travel from the parent; see `Limits`."""

    number: int
    """Number of the run, never used twice by a server."""
    program_bytes: int
    """Length of the program's source."""
    wall_s: float
    cpu_s: float
    memory_bytes: int
    output_bytes: int
    open_files: int
    """Descriptors that the program may have open."""
    threads: int
    """Threads that the program may have besides the first."""
    calls_function: int
    """1 if a function of the program is called, else 0."""
