"""One program in this very process, with resource limits and nothing else (tier `unsafe`).

`python -s -S -P .../jail/plain.py <limits as JSON> <program> <stage> <result or -1>`
"""

import importlib
import json
import os
import resource
import sys


def _set_limits(limits: dict[str, int]) -> None:
    for name, value in limits.items():
        kind = getattr(resource, name)
        _, hard = resource.getrlimit(kind)
        value = value if hard == resource.RLIM_INFINITY else min(value, hard)
        resource.setrlimit(kind, (value, value))


def main(limits: str, source_file: str, stage_file: str, result_file: str) -> None:
    """Set the limits, report the stage, and run the program to its end."""
    sys.path.insert(0, os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
    program = importlib.import_module("jail.program")
    sys.path.pop(0)
    source, stage, result = int(source_file), int(stage_file), int(result_file)
    text = program.read_whole(source, os.fstat(source).st_size)
    os.close(source)
    _set_limits(json.loads(limits))
    program.prepare()
    os.write(stage, b"locked ")
    code = program.compile_source(text)
    os.write(stage, b"no syntax" if code is None else b"running")
    os.close(stage)
    if code is None:
        os._exit(1)
    if result >= 0 and result != program.RESULT:
        os.dup2(result, program.RESULT)
        os.close(result)
    program.execute(code, calls_function=result >= 0)


if __name__ == "__main__":
    main(*sys.argv[1:])
