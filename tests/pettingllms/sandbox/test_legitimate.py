"""Fair programs work in every tier as they do outside, also mixed with hostile ones for long."""

import collections
import json
import os
import random
import tomllib
from pathlib import Path

import pytest

from pettingllms.sandbox import Limits, Sandbox, Status

PROGRAMS = tomllib.loads(Path(__file__).with_name("programs.toml").read_text(encoding="utf-8"))
FAIR = [(one["name"], one["code"], one.get("stdin", ""), one["stdout"]) for one in PROGRAMS["fair"]]
FAIR += [
    ("reads at once", "import sys\nprint(len(sys.stdin.read()))", "x" * 100_000, "100000\n"),
    ("ignores its input", "print(1)", "x" * 3_000_000, "1\n"),
    ("fast output", "print('x' * 300_000)", "", "x" * 300_000 + "\n"),
]


@pytest.mark.parametrize(("_", "code", "stdin", "expected"), FAIR, ids=[one[0] for one in FAIR])
def test_fair_program(jail, _, code, stdin, expected):
    result = jail.run(code, stdin)
    assert (result.status, result.stdout) == (Status.OK, expected), result
    assert result.exit_code == 0
    assert not result.truncated


def test_default_limits_are_what_they_say(jail):
    """32 threads beside the first fit into the default memory, with half of it in use."""
    code = (
        "import threading\nkept = bytearray(200 << 20)\nbarrier = threading.Barrier(33)\n"
        "for _ in range(32): threading.Thread(target=barrier.wait).start()\n"
        "barrier.wait()\nprint(len(kept))"
    )
    assert jail.run(code).stdout == f"{200 << 20}\n"


@pytest.mark.parametrize("case", PROGRAMS["end"], ids=lambda case: case["name"])
def test_how_a_program_ends(tier, case):
    if case.get("jailed") and not tier.describe()["is_jail"]:
        pytest.skip("without a server, processor time is counted in whole seconds")
    result = tier.run(case["code"], limits=Limits(**case.get("limits", {})))
    assert result.status == case["status"], result
    assert result.exit_code == case.get("exit_code", result.exit_code)
    assert result.stdout == case.get("stdout", result.stdout)
    assert len(result.stdout) == case.get("stdout_bytes", len(result.stdout))
    assert result.truncated == (result.status is Status.OUTPUT_LIMIT)
    assert all(part in result.stderr for part in case.get("stderr", []))
    # Nothing but the program itself is in a traceback.
    assert "jail" not in result.stderr
    assert "/" not in result.stderr.replace("1 / x", "")


@pytest.mark.parametrize(
    "code", ["print(", "\0", "if 1:\npass", "\udcff", "return", "'é" * 3, "(" * 5000]
)
def test_what_is_not_python(jail, code):
    result = jail.run(code)
    assert result.status in (Status.SYNTAX_ERROR, Status.MEMORY_LIMIT)
    assert result.stderr


def test_equal_programs_give_equal_output(jail):
    code = "import random\nprint(random.random(), {'a', 'b', 'c', 'd'}, hash('x'))"
    assert len({result.stdout for result in jail.run_many(code, [""] * 5)}) == 1


def test_no_output_says_where_an_object_is(jail):
    code = "def solve(n): return str(solve)\nprint(map(str, []), solve)\nraise KeyError(iter([]))"
    result = jail.run(code)
    assert result.stdout == "<map object at 0x...> <function solve at 0x...>\n"
    assert result.stderr.endswith("KeyError: <list_iterator object at 0x...>\n")
    assert jail.run(code, limits=Limits(output_bytes=20)).stdout == "<map object at 0x..."
    (call,) = jail.run_calls(code.partition("print")[0], "solve", [[1]])
    assert (call.value, call.repr) == ("<function solve at 0x...>", "'<function solve at 0x...>'")
    assert jail.run("print(' at 0x7f')").stdout == " at 0x7f\n"


def test_numpy_and_sympy():
    pytest.importorskip("sympy")
    code = (
        "import numpy as np, sympy\nfrom sympy.abc import x\n"
        "print(sympy.solve(x**2 - 2, x), np.linalg.inv(np.eye(2)).trace(), np.random.rand())\n"
        "import sympy.physics.units\n"
    )
    with Sandbox(flavour="science", workers=1) as sandbox:
        first, second = sandbox.run_many(code, ["", ""], Limits(wall_s=30))
        assert first.status is Status.OK, first
        assert first.stdout.startswith("[-sqrt(2), sqrt(2)] 2.0 0.")
        assert first.stdout == second.stdout
        result = sandbox.run("import pytest")
        assert "ModuleNotFoundError" in result.stderr


def test_samples_of_a_contest(any_jail, shared_data):
    """Public solutions of real problems pass their own tests."""
    num_right = num_all = 0
    with open(shared_data("code_contests_sample.jsonl")) as file:
        for _, line in zip(range(10), file, strict=False):
            problem = json.loads(line)
            solution = problem["solutions"]["solution"][0]
            tests = problem["public_tests"]
            results = any_jail.run_many(solution, tests["input"])
            for result, expected in zip(results, tests["output"], strict=True):
                num_all += 1
                num_right += result.is_ok and result.stdout.split() == expected.split()
    assert num_all >= 10
    assert num_right >= 0.8 * num_all


@pytest.mark.parametrize("name", ["nothing", "os\t/", "json\n", "a\0b", "\ud800", "", "_lzma.x"])
def test_modules_that_are_not_there(jail, name):
    code = f"import importlib\nimportlib.import_module({name!r})"
    result = jail.run(code)
    assert result.status is Status.ERROR
    assert "ModuleNotFoundError" in result.stderr or "ValueError" in result.stderr


HASTY = Limits(wall_s=0.25, cpu_s=1, memory_bytes=64 << 20, output_bytes=20_000)
PATIENT = Limits(wall_s=30, cpu_s=10, memory_bytes=64 << 20, output_bytes=20_000)
BATCH, NUM_RUNS = 20, 500


KINDS = PROGRAMS["soak"]


def children(pid):
    return [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def host(sandbox):
    """What could grow: memory and descriptors of the servers and of this process."""
    servers = [one for pid in sandbox.describe()["server_pids"] for one in (pid, *children(pid))]
    rss = [int(Path(f"/proc/{pid}/statm").read_text().split()[1]) for pid in servers]
    descriptors = [len(os.listdir(f"/proc/{pid}/fd")) for pid in servers]
    return servers, rss, descriptors, len(os.listdir("/proc/self/fd"))


@pytest.mark.nightly
@pytest.mark.slow
def test_soak(any_jail):
    rng, wrong = random.Random(7), collections.Counter()
    with Sandbox(isolation=any_jail.describe()["isolation"], workers=4) as sandbox:
        sandbox.run_many("import csv\nprint(1)", [""] * 100, PATIENT)
        _, rss, descriptors, own = host(sandbox)
        for _ in range(NUM_RUNS // BATCH):
            (kind,) = rng.choices(KINDS, [kind["weight"] for kind in KINDS])
            numbers = [rng.randrange(10**9) for _ in range(BATCH)]
            limits = HASTY if "hasty" in kind else PATIENT
            results = sandbox.run_many(kind["code"], map(str, numbers), limits)
            for number, result in zip(numbers, results, strict=True):
                is_wrong = kind["status"] == Status.OK and result.stdout != f"{2 * number}\n"
                if is_wrong or result.status != kind["status"]:
                    wrong[kind["code"], result.status] += 1
        assert not wrong
        assert sandbox.describe()["num_restarts"] == 0
        servers, rss_after, descriptors_after, own_after = host(sandbox)
        assert not [one for pid in servers for one in children(pid) if one not in servers]
    assert descriptors_after == descriptors
    assert own_after <= own
    # 4 MiB, in pages.
    bound = (4 << 20) // os.sysconf("SC_PAGE_SIZE")
    assert all(now < then + bound for now, then in zip(rss_after, rss, strict=True))
    assert not any(Path(folder, "soaked").exists() for folder in ("/tmp", "/var/tmp", "/dev/shm"))
