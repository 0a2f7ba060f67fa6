"""Every attack, on every tier that this machine offers, with a look at the host afterwards."""

from pathlib import Path

import pytest

from pettingllms.sandbox import Limits, Status

FOLDER = Path(__file__).parent / "attacks"
AFTERWARDS = """
import json, math, os, random, statistics, sys
print(math.pi, json.loads("[1]"), len("abc"), statistics.mean([1, 2]), "POISONED" in os.environ,
      "/poisoned" in sys.path, hasattr(__builtins__, "print_"), input())
"""
UNHARMED = "3.141592653589793 [1] 3 1.5 False False False next\n"


def read_attacks():
    for path in sorted(FOLDER.glob("*.txt")):
        for block in path.read_text().split("=== ")[1:]:
            header, _, code = block.partition("\n")
            name, _, options = header.partition("|")
            words = options.replace("|", " ").split()
            pairs = dict(word.split("=") for word in words if "=" in word)
            yield f"{path.stem}: {name.strip()}", code, pairs, "bites" in words


ATTACKS = {name: (code, pairs) for name, code, pairs, _ in read_attacks()}
BITING = {name: code for name, code, _, bites in read_attacks() if bites}


def fill_in(code, names):
    for name, value in names.items():
        code = code.replace(f"@{name}@", value)
    return code


def test_there_are_enough_attacks():
    assert len(ATTACKS) >= 50
    assert len({name.partition(":")[0] for name in ATTACKS}) >= 12


@pytest.mark.parametrize("name", ATTACKS)
def test_attack_is_held(jail, host, name):
    code, options = ATTACKS[name]
    limits = Limits(
        wall_s=float(options.get("wall", 1.5)),
        cpu_s=float(options.get("cpu", 1)),
        memory_bytes=int(options.get("memory", 128)) << 20,
        output_bytes=64 << 10,
    )
    result = jail.run(fill_in(code, host.names(jail)), stdin="some input\n", limits=limits)
    assert "ESCAPED" not in result.stdout
    assert "do-not-tell" not in result.stdout + result.stderr
    assert result.status is not Status.SANDBOX_ERROR, result.stderr
    if "expect" in options:
        assert result.status in options["expect"].split(","), result
    assert len(result.stdout) <= limits.output_bytes
    assert not any(c < " " and c not in "\t\n\r" for c in result.stdout + result.stderr)
    assert result.wall_s < limits.wall_s + 10
    host.check(jail)
    assert jail.run(AFTERWARDS, "next").stdout == UNHARMED


@pytest.mark.parametrize("name", BITING)
def test_attack_bites_without_a_jail(bare_python, host, name):
    """What a test of the jail takes for an escape does happen where there is no jail."""
    result = bare_python(fill_in(BITING[name], host.names(None)))
    assert "ESCAPED" in result.stdout, result.stderr
    host.before = host._folder_state()
    for listener in host.listeners:
        try:
            while True:
                if listener.type == 1:
                    listener.accept()[0].close()
                else:
                    listener.recv(100)
        except BlockingIOError:
            pass
