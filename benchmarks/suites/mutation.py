"""Changes the core modules one operator at a time, and counts the changes that tests notice.

    python benchmarks/suites/mutation.py [--only loss] [--resume]

`mutation.toml` lists the modules, the tests of each, and the changes that no test can notice, with
the reason. Each mutant is tested in a process of its own, forked after the slow imports, in a copy
of the working tree. It counts as killed if a test fails, or if the tests take ten times as long.
The result is written after every mutant; `--resume` goes on where the last run of the same sources
ended. Nothing is timed.

Source: operators and their application are those of Cosmic Ray.
"""

from __future__ import annotations

import ast
import compileall
import contextlib
import importlib
import json
import math
import multiprocessing
import os
import py_compile
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Sequence, Set
from hashlib import blake2b
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from cosmic_ray.mutating import mutate_code
from cosmic_ray.plugins import get_operator
from measuring import REPOSITORY, frame, parser_of, write

DECLARATIONS = Path(__file__).with_suffix(".toml")
# One of each kind: the others of a kind are killed by the same tests.
_BINARY = ("Add_Sub", "Sub_Add", "Mul_Div", "Div_Mul", "FloorDiv_Mul", "Mod_Add", "Pow_Mul")
_COMPARISON = (
    *("Lt_LtE", "LtE_Lt", "Gt_GtE", "GtE_Gt"),
    *("Eq_NotEq", "NotEq_Eq", "Is_IsNot", "IsNot_Is"),
)
OPERATORS = (
    *(f"ReplaceBinaryOperator_{name}" for name in _BINARY),
    *(f"ReplaceComparisonOperator_{name}" for name in _COMPARISON),
    "ReplaceUnaryOperator_Delete_Not",
    "ReplaceUnaryOperator_Delete_USub",
    "AddNot",
    "ReplaceTrueWithFalse",
    "ReplaceFalseWithTrue",
    "ReplaceAndWithOr",
    "ReplaceOrWithAnd",
    "ReplaceBreakWithContinue",
    "ReplaceContinueWithBreak",
    "NumberReplacer",
    "ZeroIterationForLoop",
)
_PRELOADED = (
    *("torch", "numpy", "pettingzoo", "pydantic.json_schema", "pydantic.types", "rich.progress"),
    *("hypothesis.strategies", "hypothesis.internal.conjecture.engine", "pytest"),
)
"""What most tests load."""
_MAX_WALL_S = 300
_MAX_DATA_BYTES = 6 << 30


_GUARDS = ("strict", "frozen", "kw_only", "slots")
"""Arguments that turn a mistake in the code itself into an error: whether they are set is no
behaviour of code without that mistake, so that no mutant changes them."""


class Change(NamedTuple):
    """The lines in which a mutant differs from its module, without indentation."""

    was: str
    """The lines of the module, as one text."""
    now: str
    """The lines of the mutant."""


class Mutant(NamedTuple):
    """A module with one operator replaced."""

    operator: str
    """Name of the mutation operator."""
    line: int
    """Number of the first changed line, from 1."""
    change: Change
    code: str


class Module(NamedTuple):
    """A module to mutate, as `mutation.toml` has it."""

    path: str
    """Its file, relative to the repository."""
    tests: Sequence[str]
    """Files of its tests."""
    equivalent: Sequence[dict[str, str]] = ()
    """Mutants that behave as the module does: `was`, `now`, `why`."""

    @property
    def digest(self) -> str:
        """What outcomes depend on: the module, its tests and this suite."""
        texts = [(REPOSITORY / path).read_bytes() for path in (self.path, *self.tests, __file__)]
        return blake2b(b"\0".join(texts), digest_size=8).hexdigest()


def mutants_of(source: str) -> list[Mutant]:
    """The mutants of a module that compile, each once, in the order of the operators."""
    found: list[Mutant] = []
    seen = {_meaning(source)}
    for name in OPERATORS:
        operator = get_operator(f"core/{name}")()
        for occurrence in count():
            code = mutate_code(source, operator, occurrence)
            if code is None:
                break
            with contextlib.suppress(SyntaxError):
                meaning = _meaning(code)
                if meaning not in seen:
                    seen.add(meaning)
                    found.append(_mutant(name, source, code))
    return found


def _meaning(code: str) -> str:
    """A canonical form of code: equal for texts that behave alike by their form."""
    tree = ast.parse(code.replace("not not ", ""))
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            node.keywords = [word for word in node.keywords if word.arg not in _GUARDS]
        # A lone `*` in a signature is taken for a product, and a `/` in its place compiles.
        if isinstance(node, ast.arguments):
            node.args = [*node.posonlyargs, *node.args, *node.kwonlyargs]
            node.defaults = [*node.defaults, *filter(None, node.kw_defaults)]
            node.posonlyargs, node.kwonlyargs, node.kw_defaults = [], [], []
    return ast.dump(tree)


def _mutant(operator: str, source: str, code: str) -> Mutant:
    lines, changed = source.split("\n"), code.split("\n")
    # No operator adds or removes lines.
    differing = [at for at, pair in enumerate(zip(lines, changed, strict=True)) if len({*pair}) > 1]
    was, now = (
        " ".join(" ".join(text[differing[0] : differing[-1] + 1]).split())
        for text in (lines, changed)
    )
    return Mutant(operator, differing[0] + 1, Change(was, now), code)


class Outcome(NamedTuple):
    """How tests ended."""

    passed: bool
    """Whether all tests passed."""
    cpu_s: float
    """CPU seconds of their process."""


class Job(NamedTuple):
    """Tests to run in a copy of the tree, in which a module is changed."""

    path: str
    """The module, relative to the tree."""
    code: str
    """Its source for these tests."""
    tests: Sequence[str]
    """Files of tests."""
    max_cpu_s: float
    """CPU seconds after which they count as failed."""


_copy = Path()
"""The copy of the tree that belongs to this worker."""


def _begin(copies: Any) -> None:
    global _copy
    _copy = copies.get()


def tested(job: Job) -> Outcome:
    """Run the tests with the code of a job in place of the module."""
    target = _copy / job.path
    original = target.read_bytes()
    target.write_text(job.code, encoding="utf-8")
    try:
        return _run(job.tests, job.max_cpu_s)
    finally:
        target.write_bytes(original)


def _run(tests: Sequence[str], max_cpu_s: float) -> Outcome:
    child = os.fork()
    if child:
        _, status, usage = os.wait4(child, 0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # what the tests started
        return Outcome(status == 0, usage.ru_utime + usage.ru_stime)
    os.setsid()
    signal.alarm(_MAX_WALL_S)
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(max_cpu_s),) * 2)
    resource.setrlimit(resource.RLIMIT_DATA, (_MAX_DATA_BYTES,) * 2)
    nothing = os.open(os.devnull, os.O_RDWR)
    for stream in range(3):
        os.dup2(nothing, stream)
    os.chdir(_copy)
    sys.path[:0] = [str(_copy / folder) for folder in ("", "envs", "trainers")]
    os.environ["PYTHONPATH"] = os.pathsep.join(sys.path[:3])
    import pytest

    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    options = ["-x", "-q", "--tb=no", "-p", "_hypothesis_pytestplugin"]
    options += ["--hypothesis-profile=mutation"]
    # Hypothesis is loaded already, so that pytest cannot rewrite the assertions of its plugin.
    options += ["-W", "ignore::pytest.PytestAssertRewriteWarning"]
    os._exit(pytest.main([*options, *tests]))


def _expect_failures() -> None:
    """Draw the same examples for every mutant, and make no failing one small or remember it."""
    from hypothesis import HealthCheck, Phase, settings

    settings.register_profile(
        "mutation",
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
        derandomize=True,
        database=None,
        phases=[Phase.explicit, Phase.generate],
    )


def _copy_tree(folder: Path) -> Path:
    """Copy what git does not ignore, compiled so that only changed content is compiled again."""
    command = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    listed = subprocess.run(command, cwd=REPOSITORY, capture_output=True, check=True).stdout
    for name in filter(None, listed.decode().split("\0")):
        source, target = REPOSITORY / name, folder / name
        if source.exists():
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(source, target, follow_symlinks=False)
    checked = py_compile.PycInvalidationMode.CHECKED_HASH
    for package in ("pettingllms", "envs", "trainers"):
        compileall.compile_dir(folder / package, quiet=1, invalidation_mode=checked)
    return folder


@contextlib.contextmanager
def _workers(number: int) -> Iterator[Any]:
    """Start processes that have what tests load, each with its own copy of the tree."""
    os.environ["OMP_NUM_THREADS"] = "1"
    for name in _PRELOADED:
        importlib.import_module(name)
    _expect_failures()
    sys.dont_write_bytecode = True
    context = multiprocessing.get_context("fork")
    with tempfile.TemporaryDirectory() as folder:
        copies = context.SimpleQueue()
        for index in range(number):
            copies.put(_copy_tree(Path(folder) / str(index)))
        with context.Pool(number, initializer=_begin, initargs=(copies,)) as pool:
            yield pool


def _measure(module: Module, entry: dict[str, Any], pool: Any) -> Iterator[dict[str, Any]]:
    """Yield the figures of a module after each mutant; `entry` holds those that are known."""
    source = (REPOSITORY / module.path).read_text(encoding="utf-8")
    mutants = mutants_of(source)
    declared = {Change(item["was"], item["now"]) for item in module.equivalent}
    if stale := declared - {mutant.change for mutant in mutants}:
        raise SystemExit(f"{DECLARATIONS.name} declares mutants that {module.path} lacks: {stale}")
    if entry.get("digest") != module.digest:
        entry = {"digest": module.digest, "outcomes": ""}
    outcomes: str = entry["outcomes"]
    unchanged = pool.apply(tested, (Job(module.path, source, module.tests, _MAX_WALL_S),))
    if not unchanged.passed:
        raise SystemExit(f"the tests of {module.path} fail without any change: {module.tests}")
    max_cpu_s = 5 + 10 * unchanged.cpu_s
    jobs = [Job(module.path, mutant.code, module.tests, max_cpu_s) for mutant in mutants]
    for outcome in pool.imap(tested, jobs[len(outcomes) :]):
        outcomes += "s" if outcome.passed else "k"
        yield _figures(module, mutants, outcomes, declared)
    yield _figures(module, mutants, outcomes, declared)


def _figures(
    module: Module, mutants: Sequence[Mutant], outcomes: str, declared: Set[Change]
) -> dict[str, Any]:
    known = [(mutant, outcome == "k") for mutant, outcome in zip(mutants, outcomes, strict=False)]
    proper = [(mutant, killed) for mutant, killed in known if mutant.change not in declared]
    return {
        "digest": module.digest,
        "tests": module.tests,
        "num_mutants": len(mutants),
        "outcomes": outcomes,
        "num_equivalent": len(known) - len(proper),
        "num_killed": sum(killed for _, killed in proper),
        "survivors": [_described(mutant) for mutant, killed in proper if not killed],
        "wrongly_declared": [
            _described(mutant) for mutant, killed in known if killed and mutant.change in declared
        ],
    }


def _described(mutant: Mutant) -> dict[str, Any]:
    return {"operator": mutant.operator, "line": mutant.line, **mutant.change._asdict()}


def main() -> None:
    """Test all mutants, and write the JSON result after each."""
    parser = parser_of("mutation", __doc__)
    parser.add_argument("--only", default="", help="part of the paths of modules to mutate")
    parser.add_argument("--resume", action="store_true", help="keep outcomes of the same sources")
    parser.add_argument("--workers", type=int, default=os.cpu_count())
    options = parser.parse_args()
    declared = tomllib.loads(DECLARATIONS.read_text(encoding="utf-8"))["module"]
    modules = [Module(**entry) for entry in declared]
    known = json.loads(options.output.read_text())["modules"] if options.output.exists() else {}
    result = frame("mutation", [0]) | {"modules": known}
    with _workers(options.workers) as pool:
        for module in modules:
            if options.only not in module.path:
                continue
            entry = known.get(module.path, {}) if options.resume else {}
            for figures in _measure(module, entry, pool):
                known[module.path] = figures
                result["modules"] = {
                    one.path: known[one.path] for one in modules if one.path in known
                }
                write(result, options.output)
                _progress(module, figures)
            print()
            for survivor in figures["survivors"]:
                print("  survived: {line}: {was}  ->  {now}".format(**survivor))
            for mutant in figures["wrongly_declared"]:
                print("  killed, though declared equivalent: {line}: {now}".format(**mutant))


def _progress(module: Module, figures: dict[str, Any]) -> None:
    done, num = len(figures["outcomes"]), figures["num_mutants"]
    survived = len(figures["survivors"])
    print(f"\r{module.path}: {done} of {num} mutants, {survived} survived", end="", flush=True)


if __name__ == "__main__":
    main()
