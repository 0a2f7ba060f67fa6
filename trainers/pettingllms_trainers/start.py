"""`pettingllms-train`: a signal is answered while modules load, too, which takes seconds."""

import os
import signal


def _stop(number: int, frame: object) -> None:
    os.write(2, b"pettingllms-train: stopped before it began\n")
    os._exit(128 + number)


def main() -> int:
    """Run the command line; see `pettingllms_trainers.cli.main`."""
    before = {kind: signal.signal(kind, _stop) for kind in (signal.SIGTERM, signal.SIGINT)}
    from pettingllms_trainers import cli

    for kind, handler in before.items():
        signal.signal(kind, handler)
    return cli.main()
