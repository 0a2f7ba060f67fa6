"""Coroutines that run at once, none of which outlives a failure of another."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable
from typing import Any, TypeVar

ResultT = TypeVar("ResultT")


async def together(plays: Iterable[Coroutine[Any, Any, ResultT]]) -> list[ResultT]:
    """Return the results of all, in order; the first error ends the others."""
    tasks = [asyncio.ensure_future(play) for play in plays]
    # Not a TaskGroup: it would wrap the error, and callers know errors by their type.
    try:
        return await asyncio.gather(*tasks)
    finally:
        for task in tasks:
            task.cancel()
