"""The command `pettingllms`: list environments, play, evaluate, compare, create."""

from __future__ import annotations

import os
import sys
from typing import Any

__all__ = ["main"]


def main() -> None:
    """Run the command line; ends the process with 0 (done), 1 (failed) or 2 (wrong use)."""
    try:
        # Here, not above: a traceback about click would say nothing of the extra `cli`.
        from pettingllms.cli.app import run
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        # Any other missing module is a fault of ours, or of a plug-in: it keeps its traceback.
        if package not in ("click", "rich"):
            raise
        from pettingllms.errors import MissingDependency

        missing = MissingDependency("the command `pettingllms`", package, "cli")
        sys.stderr.write(f"error: {missing}\n")
        sys.exit(2)
    for name in ("stdin", "stdout", "stderr"):
        # None: whoever has started this process has closed it.
        stream: Any = getattr(sys, name) or open(os.devnull, "r+", encoding="utf-8")  # noqa: SIM115
        # What is typed, and what models write, need not fit the encoding of a terminal.
        stream.reconfigure(errors="backslashreplace")
        setattr(sys, name, stream)
    sys.exit(run(sys.argv[1:]))
