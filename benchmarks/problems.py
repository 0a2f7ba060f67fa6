"""Makes the packaged problems of `configs/problems.toml`: word problems and small programs.

    python benchmarks/problems.py                  # into the package; the same bytes every time

No problem is in training and in test: templates under `held_out` are in the test only, and of
the others the test has other numbers. Programs run in the sandbox.
"""

from __future__ import annotations

import gzip
import json
import random
import re
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

from pettingllms.sandbox import Limits, default_sandbox
from pettingllms.seeding import derive_seed

ROOT = Path(__file__).resolve().parents[1]
FOLDER = ROOT / "envs/pettingllms_envs/datasets/packaged"

_RUN_ALL = """\
import contextlib, io, json, sys
programs, inputs = json.loads(sys.stdin.read())
def printed(program, given):
    sys.stdin, out = io.StringIO(given), io.StringIO()
    with contextlib.suppress(Exception), contextlib.redirect_stdout(out):
        exec(program, {})
    return out.getvalue()
found = [[printed(program, given) for given in inputs] for program in programs]
print(json.dumps(found))
"""
_WORDS = ("cat", "Tree", "lamp", "stone", "River", "apple", "green", "Zebra", "music", "letter")
_INPUTS: dict[str, Callable[[random.Random], str]] = {
    "two": lambda rng: _numbers(rng, 2),
    "three": lambda rng: _numbers(rng, 3),
    "number": lambda rng: str(rng.randint(0, 20)),
    "count": lambda rng: str(rng.randint(2, 6)),
    "word": lambda rng: rng.choice(_WORDS) + rng.choice(["", *_WORDS]),
    "list": lambda rng: _numbers(rng, rng.randint(2, 5)),
    "words": lambda rng: " ".join(rng.choices(_WORDS, k=rng.randint(2, 5))),
}
"""Reader of a family -> draws an input, small: a tester works the output out in its head."""


def _numbers(rng: random.Random, count: int) -> str:
    return " ".join(str(rng.randint(0, 9)) for _ in range(count))


def run_all(programs: Sequence[str], inputs: Sequence[str]) -> list[list[str]]:
    """What every program prints for every input."""
    result = default_sandbox().run(_RUN_ALL, json.dumps([programs, inputs]), Limits(cpu_s=60))
    return json.loads(result.stdout)


def _templates(table: dict[str, Any], split: str) -> list[tuple[str, Any]]:
    """Name and template; those of the test alone are as many as the others together."""
    known = [(f"known-{i}", one) for i, one in enumerate(table["train"])]
    new = [(f"new-{i}", one) for i, one in enumerate(table["held_out"])]
    return known + new * (len(known) // len(new)) if split == "test" else known


def word_problems(table: dict[str, Any], split: str, number: int) -> Iterator[dict[str, Any]]:
    """Questions and answers; the solution is the formula.

    Args:
        table: Templates, names and ranges.
        split: `train` or `test`.
        number: How many.
    """
    rng, rows = random.Random(split), dict[str, tuple[str, str]]()
    templates = _templates(table, split)
    while len(rows) < number:
        name, (question, formula) = rng.choice(templates)
        values = {key: rng.randint(*bounds) for key, bounds in table["ranges"].items()}
        used = (values[key] for key in sorted(set(re.findall(r"{(\w)}", formula))))
        is_for_test = derive_seed(0, *used) % 4 == 0
        if is_for_test == (split == "test"):
            question = question.format(n=rng.choice(table["names"]), **values)
            rows[question] = name, formula.format(**values)
    printed = run_all([f"print({formula})" for _, formula in rows.values()], [""])
    for index, (question, (name, formula)) in enumerate(rows.items()):
        answer = printed[index][0].strip()
        # Nobody has less than nothing left.
        if int(answer) > 0:
            row = {"id": f"{name}-{split}{index}", "question": question, "answer": answer}
            yield {**row, "solution": formula}


def small_programs(table: dict[str, Any], split: str, number: int) -> Iterator[dict[str, Any]]:
    """Problems in the layout of CodeContests, whose hidden tests fail every wrong program.

    No output is that of more than half of the hidden tests, rounded up: such a problem is left out.

    Args:
        table: Readers and families.
        split: `train` or `test`.
        number: How many of a family at most.
    """
    for name, (reader, statement, right, wrong) in dict(_templates(table, split)).items():
        sentence, line, *more = table["readers"][reader]
        rng, seen = random.Random(f"{split} {name}"), set[str]()
        for _ in range(40 * number):
            x, y = rng.sample(table["letters"], 2)
            values = {"k": rng.randint(2, 9), "m": rng.randint(1, 4), "j": rng.randint(2, 5)}
            first = next(key for key in re.findall(r"{(\w)}", statement) if key != "y")
            place = values[first] if first in values else table["letters"].index(x) + 1
            text = sentence + statement.format(x=x, y=y, **values)
            is_for_test = place % 4 == 0 or name.startswith("new")
            if text in seen or len(seen) == number or is_for_test != (split == "test"):
                continue
            seen.add(text)
            bodies = [f"print({one.format(x=x, y=y, **values)})\n" for one in (right, *wrong)]
            programs = [f"{line}\n{body}" for body in bodies]
            programs += [f"{line}\n{one}\n{bodies[0]}" for one in more]
            near = [{**values, key: value + 1} for key, value in values.items()]
            near = [right.format(x=x, y=y, **one) for one in near]
            near += [
                right.format(x=x.upper(), y=y, **values),
                right.format(x=x, y=y.upper(), **values),
            ]
            near = [f"{line}\nprint({one})\n" for one in near]
            inputs = list(dict.fromkeys(_INPUTS[reader](rng) for _ in range(60)))
            row = {"name": f"{name}-{split}{len(seen)}", **_tested(text, programs, near, inputs)}
            outputs = Counter(row["private_tests"]["output"])
            if max(outputs.values()) <= (outputs.total() + 1) // 2:
                yield row


def _tested(
    text: str, programs: Sequence[str], near: Sequence[str], inputs: Sequence[str]
) -> dict[str, Any]:
    """The rest of a row: an example that shows no mistake, and tests that show every one.

    Args:
        text: The statement.
        programs: The right one, and wrong ones that testers are paid to expose.
        near: What the right one is with another number or letter.
        inputs: Those that tests are chosen from.
    """
    right, *others = run_all([*programs, *near], inputs)
    failed = [[i for i, output in enumerate(all) if output != right[i]] for all in others]
    wrong = dict(zip(programs[1:], failed, strict=False))
    shown = min(range(len(inputs)), key=lambda i: sum(i in one for one in wrong.values()))
    hidden: list[int] = []
    for exposing in [range(len(inputs))] * 6 + failed:
        is_exposed = len(hidden) >= 6 and not set(exposing).isdisjoint(hidden)
        # An output that is rare so far: what is printed without a look at the input passes little.
        given = Counter(right[i] for i in (shown, *hidden))
        unused = [i for i in exposing if i not in (shown, *hidden)]
        hidden += [] if is_exposed else sorted(unused, key=lambda i: given[right[i]])[:1]

    def tests(chosen: Sequence[int]) -> dict[str, list[str]]:
        return {"input": [f"{inputs[i]}\n" for i in chosen], "output": [right[i] for i in chosen]}

    bad = [program for program, one in wrong.items() if one]
    return {
        "description": f"{text}\nExample: {inputs[shown]} -> {right[shown].strip()}",
        "public_tests": tests([shown]),
        "private_tests": tests(hidden),
        "solutions": {"language": [3], "solution": [programs[0]]},
        "incorrect_solutions": {"language": [3] * len(bad), "solution": bad},
        "time_limit": {"seconds": 0.5},
    }


def main() -> None:
    table = tomllib.loads((ROOT / "benchmarks/configs/problems.toml").read_text(encoding="utf-8"))
    sizes = {"train": (2000, 12), "test": (600, 8)}
    for split, (num_words, num_programs) in sizes.items():
        rows = {
            "word_problems": word_problems(table["words"], split, num_words),
            "small_programs": small_programs(table["programs"], split, num_programs),
        }
        for name, found in rows.items():
            text = "".join(json.dumps(row) + "\n" for row in found)
            # No time in the file: equal problems are equal bytes.
            packed = gzip.compress(text.encode(), mtime=0)
            (FOLDER / f"{name}_{split}.jsonl.gz").write_bytes(packed)
            print(f"{name}_{split}: {text.count(chr(10))} problems, {len(packed)} bytes")


if __name__ == "__main__":
    main()
