"""Every key of a run file proves itself: a run with another value is another run, or is refused.

Keys that are marked as cosmetic are neither. A new key is asked about from the day it is there.
"""

import copy
import json
import tomllib
from functools import cache
from pathlib import Path
from types import NoneType, UnionType
from typing import Literal, get_args, get_origin

import pytest

from pettingllms.files import read_lines
from pettingllms_trainers import train
from pettingllms_trainers.backends.hf.attention import use_layouts
from pettingllms_trainers.config import Algorithm, Config
from pettingllms_trainers.config.algorithm import algorithm_class, algorithm_names
from pettingllms_trainers.config.sections import COSMETIC, Section
from pettingllms_trainers.errors import ConfigError
from pettingllms_trainers.runs.metrics import is_timing

DATA = tomllib.loads(Path(__file__).with_name("keys.toml").read_text())
RESULTS = ("evaluations.jsonl", "rollouts.jsonl", "eval.json", "config.json")
FUNCTIONS = """
def once(messages, answer): return answer.count("U")
def twice(messages, answer): return 2 * answer.count("U")
"""


def keys_of(model, path="", algorithm="at_grpo"):
    """Yield the name and the field of every key that is not cosmetic."""
    for name, field in model.model_fields.items():
        kinds = [k for k in (field.annotation, *get_args(field.annotation)) if isinstance(k, type)]
        inner = next((kind for kind in kinds if issubclass(kind, Section)), None)
        if COSMETIC in field.metadata:
            continue
        if inner is None:
            yield f"{path}{name}", field
        else:
            kind = algorithm_class(algorithm) if inner is Algorithm else inner
            yield from keys_of(kind, f"{path}{name}.")


def other_value(key, field, now):
    """Another value than the one that the key has now."""
    if key in DATA["value"]:
        return DATA["value"][key]
    kinds = get_args(field.annotation) if isinstance(field.annotation, UnionType) else ()
    kind = next((kind for kind in kinds if kind is not NoneType), field.annotation)
    if kind is bool:
        return not now
    if get_origin(kind) is Literal:
        return next(value for value in get_args(kind) if value != now)
    return (now or 0) + 1 if kind is int else now / 2 if now else 0.5


def merged(below, above):
    table = dict(below)
    for key, value in above.items():
        old = table.get(key)
        both = isinstance(value, dict) and isinstance(old, dict)
        table[key] = merged(old, value) if both else value
    return table


def place_of(key):
    """The names of tables on the way to a key, its own last."""
    first, *rest = DATA["at"].get(key, key).split(".")
    if first == "policies" and key not in DATA["at"]:
        return ["every_policy", *rest]
    if first == "rewards":
        return [first, "brief", *rest]
    if key.startswith("rollout.per_role."):
        return ["rollout", "per_role", "tool", *rest[1:]]
    return [first, *rest]


def table_of(key, field, below):
    """The run file below, with another value of the key."""
    *path, name = place_of(key)
    table = inner = copy.deepcopy(below)
    for part in path:
        inner = inner.setdefault(part, {})
    value = other_value(key, field, inner.get(name, field.default))
    inner[name] = merged(inner.get(name, {}), value) if isinstance(value, dict) else value
    return table


def needed_by(key):
    """What else has to be in the file for a key to count."""
    first, dot, _ = key.partition(".")
    found = DATA["with"].get(key, DATA["with"].get(first + dot, {}))
    return DATA["tables"][found] if isinstance(found, str) else found


@pytest.fixture(scope="module")
def result(tmp_path_factory):
    functions = tmp_path_factory.mktemp("functions") / "scores_of_keys.py"
    functions.write_text(FUNCTIONS)

    @cache
    def of(text):
        table = json.loads(text.replace("HERE.py", str(functions)))
        run = train(table, trust=True, output_dir=str(tmp_path_factory.mktemp("keys") / "run"))
        metrics = read_lines(run.directory / "metrics.jsonl")
        files = [path for path in run.directory.rglob("*") if "checkpoints" not in path.parts]
        found = {
            str(path.relative_to(run.directory)): path.read_bytes()
            for path in files
            if path.name in RESULTS or path.suffix == ".safetensors"
        }
        return [{k: v for k, v in line.items() if not is_timing(k)} for line in metrics], found

    with pytest.MonkeyPatch.context() as patch:
        # A sixth of the time of such a run, and nothing that a key changes.
        check = "pettingllms_trainers.backends.hf.policy.check_model"
        patch.setattr(check, lambda loaded, *_: use_layouts(loaded.model))
        yield lambda table: of(json.dumps(table))


def differ(one, other):
    # Not compared where it is asserted: pytest would print all weights.
    return one != other


def prove(result, key, field, below):
    """Fail where another value of a key changes nothing and nobody says so."""
    alone = table_of(key, field, below)
    try:
        assert differ(result(alone), result(below)), f"{key} is silent"
    except ConfigError as error:
        if "would change nothing" not in str(error) and not needed_by(key):
            raise
    if needed := needed_by(key):
        table = merged(below, needed)
        assert differ(result(table_of(key, field, table)), result(table)), f"{key} is silent"


KEYS = {key: field for key, field in keys_of(Config) if key not in DATA["elsewhere"]}


@pytest.mark.parametrize("key", KEYS)
def test_another_value_is_another_run_or_is_refused(key, result):
    prove(result, key, KEYS[key], DATA["base"])


@pytest.mark.nightly
@pytest.mark.parametrize("name", [name for name in algorithm_names() if name != "at_grpo"])
def test_the_parameters_of_every_algorithm_do(name, result):
    # With the scale of a batch, baselines that differ by a factor are the same.
    norm = {"norm": "none"} if "norm" in algorithm_class(name).model_fields else {}
    below = merged(DATA["base"], {"algorithm": {"name": name, **norm}})
    for key, field in keys_of(algorithm_class(name), "algorithm."):
        if key not in ("algorithm.name", "algorithm.branching_roles"):
            prove(result, key, field, below)
