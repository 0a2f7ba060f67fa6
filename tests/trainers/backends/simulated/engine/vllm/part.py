"""A process of an engine: does with its card what it is told, until its pipe ends."""

import json
import sys

from vllm import Part

part = Part(int(sys.argv[1]), int(sys.argv[2]))
for line in sys.stdin:
    sys.stdout.write(json.dumps(getattr(part, line.strip())()) + "\n")
    sys.stdout.flush()
