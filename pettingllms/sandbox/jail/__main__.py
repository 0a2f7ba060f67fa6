"""Entry point of the fork server: `python -s -S -P .../jail <descriptor of its socket>`."""

import importlib
import os
import sys

if __name__ == "__main__":
    os.environ.pop("LD_BIND_NOW")
    # Modules register what to do in a forked child: new locks, new seeds. The server has no other
    # thread that could hold a lock, and a child's seed is fixed; but touching all that in each
    # child costs a tenth of a run.
    os.register_at_fork = lambda **hooks: None  # type: ignore[assignment]
    # The folder above is on the path for this one import only.
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    server = importlib.import_module("jail.server")
    del sys.path[0]
    server.main(int(sys.argv[1]))
