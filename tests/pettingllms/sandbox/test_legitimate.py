"""Fair programs work in every tier as they do outside."""

import json

import pytest

from pettingllms.sandbox import Limits, Sandbox, Status

PROGRAMS = {
    "sum of two": ("print(sum(map(int, input().split())))", "1 2", "3\n"),
    "reads to the end": ("import sys\nprint(sum(map(int, sys.stdin)))", "1\n2\n3", "6\n"),
    "reads at once": ("import sys\nprint(len(sys.stdin.read()))", "x" * 100_000, "100000\n"),
    "reads by open(0)": ("print(*reversed(open(0).read().split()))", "a b c", "c b a\n"),
    "reads bytes": ("import sys\nprint(sys.stdin.buffer.readline())", "ab\ncd", "b'ab\\n'\n"),
    "reads by os.read": (
        "import os\nprint(os.read(0, os.fstat(0).st_size).split())",
        "1 2",
        "[b'1', b'2']\n",
    ),
    "iterates input until EOFError": (
        "n = 0\ntry:\n    while True:\n        n += int(input())\nexcept EOFError:\n    print(n)",
        "1\n2\n3\n",
        "6\n",
    ),
    "ignores its input": ("print(1)", "x" * 3_000_000, "1\n"),
    "no line end at the end": ("print(1, end='')", "", "1"),
    "a stdout of its own": (
        "import os, sys\n"
        "class Out:\n"
        "    def __init__(self):\n        self.parts = []\n"
        "    def write(self, text):\n        self.parts.append(text)\n"
        "    def flush(self):\n"
        "        os.write(1, ''.join(self.parts).encode())\n        self.parts.clear()\n"
        "sys.stdout = Out()\nprint(42)",
        "",
        "42\n",
    ),
    "no output": ("pass", "", ""),
    "unicode": ("print(input()[::-1] + 'é')", "añ🐍", "🐍ñaé\n"),
    "fast output": (
        "import sys\nsys.stdout.write('\\n'.join(map(str, range(50000))))",
        "",
        "\n".join(map(str, range(50000))),
    ),
    "buffered output of its own": (
        "import atexit, io, os\nout = io.BytesIO()\n"
        "atexit.register(lambda: os.write(1, out.getvalue()))\nout.write(b'late')",
        "",
        "late",
    ),
    "forgotten file object": ("f = open(1, 'w')\nf.write('kept')", "", "kept"),
    "stdout redirected": (
        "import io, sys\nold, sys.stdout = sys.stdout, io.StringIO()\nprint('hidden')\n"
        "text = sys.stdout.getvalue()\nsys.stdout = old\nprint(text.upper())",
        "",
        "HIDDEN\n\n",
    ),
    "main guard": ("if __name__ == '__main__':\n    print(__name__)", "", "__main__\n"),
    "class in main": (
        "import pickle\nclass A: pass\nprint(type(pickle.loads(pickle.dumps(A()))) is A)",
        "",
        "True\n",
    ),
    "deep recursion": (
        "import sys\nsys.setrecursionlimit(10**6)\n"
        "def f(n): return n and 1 + f(n - 1)\nprint(f(50_000))",
        "",
        "50000\n",
    ),
    "deep recursion in a thread": (
        "import sys, threading\nsys.setrecursionlimit(10**6)\nthreading.stack_size(2**27)\n"
        "def f(n): return n and 1 + f(n - 1)\n"
        "t = threading.Thread(target=lambda: print(f(50_000)))\nt.start()\nt.join()",
        "",
        "50000\n",
    ),
    "recursion through C": (
        "import sys\nfrom functools import lru_cache\nsys.setrecursionlimit(10**5)\n"
        "@lru_cache(None)\ndef f(n): return n and 1 + f(n - 1)\n"
        "for n in range(0, 20_000, 200): f(n)\nprint(f(20_000))",
        "",
        "20000\n",
    ),
    "raises its stack limit": (
        "import resource\nresource.setrlimit(resource.RLIMIT_STACK, (2**27, -1))\nprint('ok')",
        "",
        "ok\n",
    ),
    "several threads": (
        "import queue, threading\nq = queue.Queue()\n"
        "ts = [threading.Thread(target=q.put, args=(i,)) for i in range(20)]\n"
        "[t.start() for t in ts]\n[t.join() for t in ts]\nprint(sum(q.queue))",
        "",
        "190\n",
    ),
    "thread that ends after main": (
        "import threading, time\n"
        "threading.Thread(target=lambda: (time.sleep(0.05), print('last'))).start()",
        "",
        "last\n",
    ),
    "thread pool": (
        "import threading\nfrom concurrent.futures import ThreadPoolExecutor\n"
        "all_are_there = threading.Barrier(12)\n"
        "with ThreadPoolExecutor(12) as pool:\n"
        "    print(sorted(pool.map(lambda n: all_are_there.wait(), range(12))))",
        "",
        f"{list(range(12))}\n",
    ),
    "standard library": (
        "import bisect, collections, datetime, decimal, fractions, hashlib, heapq, itertools\n"
        "import math, random, re, string, textwrap, time, bz2, lzma, zlib, uuid, ctypes\n"
        "import statistics\n"
        "print(decimal.Decimal(1) / 4, fractions.Fraction(1, 3), math.comb(5, 2),\n"
        "      hashlib.md5(b'').hexdigest()[:4], zlib.crc32(b'a'), datetime.date(2024, 2, 29))",
        "",
        "0.25 1/3 10 d41d 3904355907 2024-02-29\n",
    ),
    "timer signal": (
        "import signal\nsignal.signal(signal.SIGALRM, lambda *a: print('rang'))\n"
        "signal.setitimer(signal.ITIMER_REAL, 0.02)\nsignal.pause()",
        "",
        "rang\n",
    ),
    "leaves early": ("print(1)\nexit()\nprint(2)", "", "1\n"),
    "source of bytes that look like a cookie": ("# coding: latin-1\nprint('é')", "", "é\n"),
    "windows line ends": ("x = 1\r\nif x:\r\n    print(x)\r\n", "", "1\n"),
}

IMPORTING_LATE = {
    "asyncio": (
        "import asyncio\nasync def main():\n    await asyncio.sleep(0.01)\n"
        "    print(await asyncio.to_thread(lambda: 7))\nasyncio.run(main())",
        "7\n",
    ),
    "modules that are not loaded beforehand": (
        "import colorsys, csv, graphlib, html, ipaddress, logging, unittest, xml.dom\nprint('ok')",
        "ok\n",
    ),
    "logging": ("import logging\nlogging.warning('careful')\nprint('done')", "done\n"),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_fair_program(jail, name):
    code, stdin, expected = PROGRAMS[name]
    result = jail.run(code, stdin)
    assert (result.status, result.stdout) == (Status.OK, expected), result
    assert result.exit_code == 0
    assert not result.truncated


@pytest.mark.parametrize("name", IMPORTING_LATE)
def test_fair_program_that_imports_late(jail, name):
    code, expected = IMPORTING_LATE[name]
    result = jail.run(code)
    assert (result.status, result.stdout) == (Status.OK, expected), result


def test_default_limits_are_what_they_say(jail):
    """32 threads beside the first fit into the default memory, with half of it in use."""
    code = (
        "import threading\nkept = bytearray(200 << 20)\nbarrier = threading.Barrier(33)\n"
        "for _ in range(32): threading.Thread(target=barrier.wait).start()\n"
        "barrier.wait()\nprint(len(kept))"
    )
    assert jail.run(code).stdout == f"{200 << 20}\n"


@pytest.mark.parametrize("code", [0, 1, 3, 120, 255])
def test_exit_codes(jail, code):
    result = jail.run(f"import sys\nsys.exit({code})")
    assert result.exit_code == code
    assert result.status is (Status.OK if code == 0 else Status.ERROR)


def test_exit_with_a_text(jail):
    result = jail.run("raise SystemExit('no luck')")
    assert (result.status, result.exit_code, result.stderr) == (Status.ERROR, 1, "no luck\n")


def test_traceback_shows_the_program_and_only_it(jail):
    result = jail.run("def f(x):\n    return 1 / x\nprint('before')\nf(0)\n")
    assert result.status is Status.ERROR
    assert result.stdout == "before\n"
    assert 'File "program.py", line 2, in f\n    return 1 / x' in result.stderr
    assert result.stderr.endswith("ZeroDivisionError: division by zero\n")
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
