"""The command `pettingllms`: list environments, play, evaluate, compare, create."""

from __future__ import annotations

import os
import signal
import sys
from importlib import import_module
from typing import Any

__all__ = ["load", "main"]


def load(module: str, command: str) -> Any:
    """Import the module of a command; a signal meanwhile ends the process with one line."""

    def stop(number: int, frame: object) -> None:
        os.write(2, f"{command}: stopped before it began\n".encode())
        os._exit(128 + number)

    before = {kind: signal.signal(kind, stop) for kind in (signal.SIGTERM, signal.SIGINT)}
    try:
        return import_module(module)
    finally:
        for kind, handler in before.items():
            signal.signal(kind, handler)


def main() -> None:
    """Run the command line, and end the process as `pettingllms.cli.app.run` says."""
    try:
        # Here, not above: a traceback about click would say nothing of the extra `cli`.
        run = load("pettingllms.cli.app", "pettingllms").run
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
