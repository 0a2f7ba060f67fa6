"""A command that ends with its parent: `python -m pettingllms_trainers.child PARENT COMMAND...`.

A launcher that is killed runs no code of its own any more; the kernel then asks its children to
end, as the launcher would have (Linux, prctl(2)).
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from collections.abc import Sequence

_PR_SET_PDEATHSIG = 1


def bound(command: Sequence[str]) -> list[str]:
    """The command of a child that gets SIGTERM when this process ends, however it ends.

    It is to be started by the main thread: the kernel means the thread that started it.
    """
    return [sys.executable, "-P", "-m", __name__, str(os.getpid()), *command]


def main(parent: str, *command: str) -> None:
    """Become the command, in the same process; end where the parent is gone already."""
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != int(parent):  # it ended before it was watched
        return
    os.execv(command[0], command)


if __name__ == "__main__":
    main(*sys.argv[1:])
