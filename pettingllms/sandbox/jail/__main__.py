"""Entry point of the fork server: `python -s -S -P .../jail <descriptor of its socket>`."""

import importlib
import os
import sys

if __name__ == "__main__":
    # The folder above is on the path for this one import only.
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    server = importlib.import_module("jail.server")
    del sys.path[0]
    server.main(int(sys.argv[1]))
