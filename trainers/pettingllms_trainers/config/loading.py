"""From what is typed to a configuration: recipes, run files, flags; merged and vetted."""

from __future__ import annotations

import difflib
import re
import sys
import tomllib
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from importlib.resources import files
from pathlib import Path
from types import NoneType
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin

import click
import tomli_w
from pydantic import Field, ValidationError
from pydantic_core import ErrorDetails

from pettingllms.errors import suggestion
from pettingllms.sources import RECIPE as PREFIX
from pettingllms.sources import RUN, nearby
from pettingllms_trainers.config.algorithm import DEFAULT, Algorithm, known_parameters, section_of
from pettingllms_trainers.config.root import Config
from pettingllms_trainers.config.sections import (
    TINY,
    TINY_KEYS,
    EnvConfig,
    Section,
    env_places,
    flat_roles,
)
from pettingllms_trainers.config.vetting import vet
from pettingllms_trainers.errors import ConfigError

TABLE = "recipe"
"""Key of the table in a run file that says what is known about it."""

_FOLDER = Path(str(files("pettingllms_trainers"))) / "recipes"
_Share = Annotated[float, Field(ge=0, le=1)]


class Recorded(Section):
    """What training with a recipe gave, over several seeds on two CPU cores."""

    seeds: int = Field(ge=1)
    """Number of runs, each with a seed of its own."""
    minutes: float = Field(gt=0)
    """Wall time of the fastest run; others shared the machine."""
    cpu_minutes: float = Field(gt=0)
    """Processor time of the median run, all threads together."""
    before: tuple[_Share, _Share]
    """Held-out success of greedy play after the warm start, lowest and highest run."""
    after: tuple[_Share, _Share]
    """Held-out success of greedy play in the end, lowest and highest run."""


class Planned(Section):
    """The machine for which a recipe is made that has never run."""

    gpus: int = Field(ge=1)
    """GPUs of 80 GB, for which the dry run says that it fits."""
    start: str = Field(min_length=1)
    """Command that starts it."""


class Recipe(Section):
    """What is known about a run file: the table [recipe]. It changes nothing in a run."""

    task: str = Field(min_length=1)
    """What is learnt, or what a part of a run file is for."""
    needs: str = ""
    """What must be there before it is started; empty: nothing."""
    recorded: Recorded | None = None
    """Results of runs with it; None: no run is recorded."""
    planned: Planned | None = None
    """The machine that it needs; None: two cores."""


def recipe_names() -> list[str]:
    """The names of all recipes, parts that are laid over another one included."""
    return sorted(
        path.relative_to(_FOLDER).with_suffix("").as_posix() for path in _FOLDER.rglob("*.toml")
    )


def recipe_path(name: str) -> Path:
    """The file of a recipe.

    Raises:
        ConfigError: There is none of this name.
    """
    known = recipe_names()
    if name not in known:
        hint = suggestion(name, known) or f"; there are: {', '.join(known)}"
        raise ConfigError(f"there is no {PREFIX}{name}{hint}")
    return _FOLDER / f"{name}.toml"


def read_recipe(name: str) -> tuple[Recipe, dict[str, Any]]:
    """What is known about a recipe, and the rest of its file."""
    path = recipe_path(name)
    table = tomllib.loads(path.read_text(encoding="utf-8"))
    return recipe_of(table.pop(TABLE), PREFIX + name), table


def recipe_of(table: Any, source: str) -> Recipe:
    """The checked table [recipe] of a run file.

    Raises:
        ConfigError: A key is unknown, missing or wrong.
    """
    try:
        return Recipe.model_validate(table)
    except ValidationError as error:
        problems = "; ".join(
            f"'{'.'.join(map(str, (TABLE, *detail['loc'])))}': {detail['msg']}"
            for detail in error.errors()
        )
        raise ConfigError(f"{source}: {problems}. The table may be left out") from None


EVERY_POLICY = "every_policy"
EVERY_ROLE = "every_role"


class Layer(NamedTuple):
    """One run file, or the flags over all of them."""

    source: str
    """What messages call it."""
    table: dict[str, Any]
    """Its keys with their values, without [recipe]."""
    file: str = ""
    """``recipe:NAME``, or the absolute path of the run file; empty: it is not a file."""


def layer_of(table: Mapping[str, Any], source: str, file: str = "") -> Layer:
    """A table of keys as a layer, without [recipe].

    Raises:
        ConfigError: [recipe] is wrong.
    """
    if TABLE in table:
        recipe_of(table[TABLE], source)
    own = {
        key: flat_roles(value) if key == "roles" else value
        for key, value in table.items()
        if key != TABLE
    }
    return Layer(source, own, file)


def read_layer(name: str | Path) -> Layer:
    """The content of a run file: a TOML file, ``recipe:NAME`` of the package, or that of a run.

    The folder of a run, also as ``run:FOLDER``, stands for its configuration, with that folder as
    `output_dir`, wherever it is now.

    Raises:
        ConfigError: There is no such file, or it is not TOML.
    """
    source = str(name).removeprefix(RUN)
    is_recipe = source.startswith(PREFIX)
    path = recipe_path(source.removeprefix(PREFIX)) if is_recipe else Path(source)
    if (path / "config.toml").is_file():
        layer = read_layer(path / "config.toml")
        return layer._replace(table={**layer.table, "output_dir": source})
    try:
        with path.open("rb") as file:
            found = source if is_recipe else str(path.absolute())
            return layer_of(tomllib.load(file), source, found)
    except FileNotFoundError:
        raise ConfigError(f"no run file at {path}{nearby(path)}") from None
    except IsADirectoryError:
        raise ConfigError(f"{path} holds no run: it has no config.toml") from None
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the run file {path} cannot be read: {error}") from error
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the run file {path} is not TOML: {error}") from error


def merge_layers(layers: Sequence[Layer]) -> dict[str, Any]:
    """One table: tables are merged key by key, of other values the last one counts.

    A policy has the keys of ``[every_policy]`` where it has none of its own, in whichever file they
    are; a policy that only ``[roles]`` names consists of them. A fixed policy takes none. A file
    that names another algorithm than those before it keeps the parameters that both have; one that
    names another model than "tiny" leaves out the sizes that they give for that.

    Raises:
        ConfigError: `every_policy` is not a table, or `every_role` not a name.
    """
    table: dict[str, Any] = {}
    for layer in layers:
        policy = layer.table.get(EVERY_ROLE)
        if policy is not None:
            if not isinstance(policy, str):
                raise ConfigError(f"{layer.source}: {EVERY_ROLE} is {policy!r}; name a policy")
            if not _table(table, "roles"):
                raise ConfigError(
                    f"{layer.source}: {EVERY_ROLE} = {policy!r} would change nothing: it is for "
                    "[roles] of the files before this one. Name the policy in [roles]"
                )
            table["roles"] = dict.fromkeys(_table(table, "roles"), policy)
        own = dict(layer.table)
        if "algorithm" in table and "algorithm" in own:
            table["algorithm"] = _of_algorithm(table["algorithm"], own["algorithm"])
        if isinstance(table.get("env"), list) and "env" in own:
            own["env"] = _with_envs(table["env"], own["env"], layer.source)
        table = _merged(table, own)
    table.pop(EVERY_ROLE, None)
    if EVERY_POLICY in table:
        _spread(table, layers)
    for name, policy in _table(table, "policies").items():
        if isinstance(policy, dict) and policy.get("model", TINY) != TINY:
            table["policies"][name] = _without_sizes(layers, name, policy)
    return table


def _without_sizes(layers: Sequence[Layer], name: str, policy: dict[str, Any]) -> dict[str, Any]:
    """A policy without the sizes of a tiny model that another file than that of its model has."""
    source, _ = origin_of(layers, ["policies", name, "model"])
    return {
        key: value
        for key, value in policy.items()
        if key not in TINY_KEYS or origin_of(layers, ["policies", name, key])[0] == source
    }


def origin_of(layers: Sequence[Layer], location: Sequence[str]) -> tuple[str, list[str]]:
    """Which files a key comes from, and its name there.

    Args:
        location: Path of the key in the merged table.

    Returns:
        The last file that has the key, or all files when none has it.
    """
    names = [list(location)] if location else []
    if len(location) > 2 and location[0] == "policies":
        names.append([EVERY_POLICY, *location[2:]])
    # From the last file on: the value that counts is the one that is at fault.
    for name in names:
        for layer in reversed(layers):
            if _has(layer.table, name):
                return layer.source, name
    return " + ".join(layer.source for layer in layers), list(location)


def _spread(table: dict[str, Any], layers: Sequence[Layer]) -> None:
    """Give the keys of `every_policy` to all policies."""
    common = table.pop(EVERY_POLICY)
    if not isinstance(common, dict):
        source, _ = origin_of(layers, [EVERY_POLICY])
        raise ConfigError(f"{source}: {EVERY_POLICY} is {common!r}; write a table [{EVERY_POLICY}]")
    used = [name for name in _table(table, "roles").values() if isinstance(name, str)]
    own = table.setdefault("policies", {})
    if isinstance(own, dict):
        table["policies"] = {
            name: _merged(common, values)
            if isinstance(values, dict) and "fixed" not in values
            else values
            for name, values in ({name: {} for name in used} | own).items()
        }


def _merged(below: Mapping[str, Any], above: Mapping[str, Any]) -> dict[str, Any]:
    both = dict(below)
    for key, value in above.items():
        old = both.get(key)
        if isinstance(value, dict):
            value = _merged(old if isinstance(old, dict) else {}, value)
        both[key] = value
    return both


def _of_algorithm(below: Any, above: Any) -> Any:
    """What stays of an algorithm when a later file may name another one: what that has too.

    The rest were parameters of the former. What the later file says itself must be its own.
    """
    if not (isinstance(below, dict) and isinstance(above, dict)) or "name" not in above:
        return below
    if above["name"] == below.get("name", DEFAULT):
        return below
    # A recipe laid over another one changes the algorithm, not the number of candidates.
    own = known_parameters(above["name"])
    return {key: value for key, value in below.items() if key in own}


def _with_envs(below: list[Any], above: Any, source: str) -> Any:
    """The environments of two files: a table over a list changes those that it names."""
    if not isinstance(above, dict):
        return above
    if not below or not all(isinstance(one, dict) for one in below):
        return below  # which is refused
    if len(below) == 1:
        return [_merged(below[0], above)]
    # Of several environments a bare key would be ambiguous, and none is guessed.
    places = env_places(below)
    changed = list(below)
    for key, value in above.items():
        if key not in places or not isinstance(value, dict):
            raise ConfigError(
                f"{source}: 'env.{key}' could be that of any environment; name one of them: "
                f"{', '.join(f'env.{name}.{key}' for name in places)}"
            )
        changed[places[key]] = _merged(below[places[key]], value)
    return changed


def _table(table: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = table.get(key)
    return value if isinstance(value, dict) else {}


def _has(table: Any, location: Sequence[str]) -> bool:
    for key in location:
        if isinstance(table, list):
            return True  # lists are not merged: a part comes from where the list does
        if not isinstance(table, dict) or key not in table:
            return False
        table = table[key]
    return True


def flag_table(flags: Sequence[str], known: Mapping[str, Any]) -> dict[str, Any]:
    """What flags set, as the table of a run file; whether it is allowed is checked later.

    Args:
        flags: Such as ``["--optimizer.learning-rate", "3e-4", "--logging.no-tensorboard"]``. A list
            takes several values; a switch takes none, or ``true`` or ``false``.
        known: Merged table of the run files: names in it may have dashes.

    Raises:
        ConfigError: A flag lacks its value or has too many, or an argument belongs to no flag.
    """
    # Only a table is made here: types and rules are checked once, with those of files.
    table: dict[str, Any] = {}
    waiting = list(flags)
    while waiting:
        flag = waiting.pop(0)
        if not flag.startswith("--"):
            raise ConfigError(f"the argument {flag!r} belongs to no flag; flags begin with --")
        name, equals, value = flag.removeprefix("--").partition("=")
        values = [value] if equals else []
        while not equals and waiting and not waiting[0].startswith("--"):
            values.append(waiting.pop(0))
        *path, key = _path(name, known)
        kind = annotation_of([*path, key])
        # A switch is turned off by its name with `no-`, as elsewhere on command lines.
        positive = key.removeprefix("no_")
        if kind is None and not values and annotation_of([*path, positive]) is bool:
            key, kind, values = positive, bool, ["false"]
        target = table
        for part in path:
            target = target.setdefault(part, {})
            if not isinstance(target, dict):
                raise ConfigError(f"the flag {flag} needs a table [{'.'.join(path)}]")
        target[key] = _value(flag, values, kind)
    return table


def annotation_of(path: Sequence[str]) -> Any:
    """The type of a key, `Any` in an open table; None for what is not a key."""
    if list(path) == [EVERY_ROLE]:
        return str
    parts = iter(["policies", "NAME", *path[1:]] if path[:1] == [EVERY_POLICY] else path)
    kind: Any = Config
    for part in parts:
        if kind is Any:
            return Any
        if get_origin(kind) is dict:
            kind = get_args(kind)[1]
            continue
        if get_origin(kind) is tuple and part.isdecimal():
            kind = get_args(kind)[0]
            continue
        if kind == Config.model_fields["env"].annotation:
            (kind, _) = get_args(kind)
            if part not in kind.model_fields:
                continue  # the name of an environment
        if kind is Algorithm:
            # Which one it is, is known when all files and flags are.
            kind = Algorithm if part == "name" else section_of(part)
        if isinstance(kind, type) and issubclass(kind, Section) and part in kind.model_fields:
            kind = kind.model_fields[part].annotation
        else:
            return None
    return kind


def _path(name: str, known: Any) -> list[str]:
    """The parts of a flag's name, dashes replaced where a run file has no such name."""
    path: list[str] = []
    for part in name.split("."):
        table = known if isinstance(known, Mapping) else {}
        path.append(part if part in table else part.replace("-", "_"))
        known = table.get(path[-1])
    return path


def _value(flag: str, values: Sequence[str], kind: Any) -> Any:
    if len(values) == 1 and values[0] in _words(kind):
        return values[0]
    if (items := _items(kind)) is not None:
        # A list as TOML has it, or words: `--stop END` needs no quotes.
        is_text = items is str and not "".join(values).startswith("[")
        found = [value if is_text else _toml(value) for value in values]
        return found[0] if len(found) == 1 and isinstance(found[0], list | dict) else found
    if not values and kind in (bool, None):
        return True  # of an unknown key: whoever checks the table says so
    if not values:
        raise ConfigError(f"the flag {flag} needs a value")
    if len(values) > 1 and kind not in (None, Any):
        raise ConfigError(f"the flag {flag} takes one value; it has {' '.join(values)}")
    # Text is never read as TOML: a name such as 1e5 or true stays what was typed.
    if kind is str:
        return values[0]
    found = [_toml(value) for value in values]
    return found if len(found) > 1 else found[0]


def _kinds(kind: Any) -> list[Any]:
    """The alternatives of a type, without None."""
    is_union = get_origin(kind) not in (None, tuple, dict, Literal)
    return [part for part in (get_args(kind) if is_union else [kind]) if part is not NoneType]


def _words(kind: Any) -> list[Any]:
    """The strings that a type allows."""
    return [word for part in _kinds(kind) if get_origin(part) is Literal for word in get_args(part)]


def _items(kind: Any) -> Any:
    """The type of the entries of a list; None for what is not a list."""
    lists = [get_args(part) for part in _kinds(kind) if get_origin(part) is tuple]
    return getattr(lists[0][0], "__origin__", lists[0][0]) if lists else None


def _toml(text: str) -> Any:
    """A value as TOML has it; anything else stays a string."""
    try:
        # In a table of its own line: more keys may not follow the value, nor a comment.
        found = tomllib.loads(f"table = {{ value = {text} }}")
    except tomllib.TOMLDecodeError:
        return text
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"the value {text[:40]}... of a flag cannot be read: {error}") from error
    is_value = list(found) == ["table"] and list(found["table"]) == ["value"]
    return found["table"]["value"] if is_value else text


def help_text(config: Config, names: str) -> str:
    """The explanation of every key, with its value after reading some run files."""
    formatter = click.HelpFormatter(width=100)
    formatter.write_usage("pettingllms-train", f"{names} [--SECTION.KEY VALUE ...]")
    formatter.write_paragraph()
    formatter.write_text("Keys of a run file, and their values after reading these.")
    for title, doc, rows in _sections(config, ""):
        with formatter.section(f"[{title}] {doc}" if title else doc):
            formatter.write_dl(rows, col_max=44)
    return formatter.getvalue()


def _sections(section: Section, path: str) -> Iterator[tuple[str, str, list[tuple[str, str]]]]:
    rows: list[tuple[str, str]] = []
    inner: list[tuple[str, Section]] = []
    for name, field in type(section).model_fields.items():
        value = getattr(section, name)
        if isinstance(value, Section):
            inner.append((f"{path}{name}", value))
        elif isinstance(value, dict) and any(isinstance(v, Section) for v in value.values()):
            inner += [(f"{path}{name}.{key}", v) for key, v in value.items()]
        elif isinstance(section, Config) and name == "env":
            labels = section.env_names
            inner += [
                (f"env.{label}".rstrip("."), env)
                for label, env in zip(labels, section.env, strict=True)
            ]
        else:
            text = " ".join((field.description or "").split())
            shown = " ".join(map(str, value)) if isinstance(value, tuple) else value
            rows.append((f"--{path}{name}".replace("_", "-"), f"{text} [{shown}]"))
    doc = " ".join((section.__doc__ or "").split()).rstrip(".")
    yield path.rstrip("."), doc, rows
    for place, value in inner:
        yield from _sections(value, f"{place}.")


RunFiles = str | Path | Sequence[str | Path]
"""One run file or several: paths of TOML files, or ``recipe:NAME``; later ones count."""


def load_config(
    files: RunFiles,
    flags: Sequence[str] = (),
    *,
    trust: bool = False,
    known: Collection[str] = (),
    is_read: bool = False,
) -> Config:
    """The configuration of one or more run files with flags over them.

    Args:
        files: The last file that has a key counts.
        flags: Command-line flags such as `["--optimizer.learning-rate", "3e-4"]`. `--help`
            prints the help with the values of the files and exits.
        trust: Whether the files may name code and servers; see `pettingllms.trust`.
        known: Names of code and servers that they may name in any case.
        is_read: Whether the configuration is only read, and nothing that it names is used.

    Raises:
        UntrustedName: A file names code or a server, and is not trusted.
        ConfigError: A file is missing or not TOML, or a key or value in it or of a flag is wrong.
        SystemExit: After `--help`.
    """
    layers = _layers(files, trust=trust, known=known, is_read=is_read)
    if {"-h", "--help"} & set(flags):
        names = " ".join(layer.source for layer in layers)
        sys.stdout.write(help_text(validate(layers), names))
        raise SystemExit(0)
    if flags:
        table = flag_table(flags, merge_layers(layers))
        layers.append(layer_of(table, "the command line"))
    return validate(layers)


def config_of(
    source: Config | Mapping[str, Any] | RunFiles,
    changes: Mapping[str, Any],
    *,
    trust: bool = False,
) -> Config:
    """The configuration of run files, or of what one would contain, with changes over it.

    Raises:
        UntrustedName: A file names code or a server, and is not trusted.
        ConfigError: As for `load_config`.
    """
    if isinstance(source, Config):
        source = source.model_dump(mode="json", exclude_none=True)
    if isinstance(source, Mapping):
        layers = [layer_of(source, "the configuration")]
    else:
        layers = _layers(source, trust=trust)
    if changes:
        layers.append(layer_of(changes, "the arguments"))
    return validate(layers)


def allowed(config: Config, advice: Iterable[Sequence[str]]) -> Iterator[str]:
    """Yield the advice that a run may take, whatever else its file says, and that changes it.

    Args:
        advice: Settings that belong together, each as a line of TOML.
    """
    for lines in advice:
        try:
            advised = config_of(config, tomllib.loads("\n".join(lines)))
        except ConfigError:
            continue
        if advised != config:
            yield " with ".join(lines)


def validate(layers: Sequence[Layer]) -> Config:
    """The configuration that some run files describe together.

    Raises:
        ConfigError: A key is unknown, a value is wrong, or two values contradict each other.
    """
    table = merge_layers(layers)
    # So that the saved configuration says which files it was made of.
    if any(layer.file for layer in layers):
        table["sources"] = [name for layer in layers for name in _sources_of(layer)]
    try:
        return Config.model_validate(table)
    except ValidationError as error:
        # By file: who mixes recipes has to know which of them to edit.
        problems: dict[str, list[str]] = {}
        for detail in error.errors():
            place = [str(part) for part in detail["loc"]]
            if place[:1] == ["env"] and isinstance(table.get("env"), dict) and len(place) > 1:
                del place[1]  # the only environment is not a list in the file
            source, location = origin_of(layers, place)
            found = problems.setdefault(source, [])
            problem = _problem(detail, location)
            if problem not in found:
                found.append(problem)
        messages = [f"{source}: {'; '.join(found)}" for source, found in problems.items()]
        raise ConfigError("; ".join(messages)) from None


def dump_config(config: Config) -> str:
    """The resolved configuration as the text of a run file; it loads back equal."""
    return tomli_w.dumps(config.model_dump(mode="json", exclude_none=True))


def _sources_of(layer: Layer) -> Sequence[str]:
    """What a layer was read from; the configuration of a run knows that itself."""
    # The saved configuration of a run is not a source: it names those it was made of.
    known = layer.table.get("sources")
    return known if isinstance(known, list | tuple) else [layer.file] if layer.file else []


def _layers(
    files: RunFiles, *, trust: bool, known: Collection[str] = (), is_read: bool = False
) -> list[Layer]:
    names = [files] if isinstance(files, str | Path) else files
    layers = [read_layer(name) for name in names]
    # Before they are merged: that looks up algorithms.
    for layer in layers:
        if not layer.file.startswith(PREFIX):  # recipes are of this package
            vet(layer.table, layer.source, trust=trust, known=known, is_read=is_read)
    return layers


_OF_TRL = {
    "lr": "optimizer.learning_rate",
    "beta": "loss.kl_coefficient",
    "epsilon": "loss.clip_low",
    "num_generations": "algorithm.num_candidates",
    "num_iterations": "optimizer.num_epochs",
    "max_completion_length": "rollout.max_completion_tokens",
}
"""What keys of TRL's GRPOConfig are called here, where that is not nearly the same."""


def _problem(detail: ErrorDetails, location: Sequence[str]) -> str:
    key = ".".join(location)
    quoted = ""
    if isinstance(detail["input"], dict):
        # An open table in an open table: in TOML the dot of an unquoted name makes one.
        above = [get_origin(annotation_of(location[:end])) for end in (-1, -2)]
        quoted = '; a name with a dot is quoted, "ENV.ROLE"' * (dict in above)
    if detail["type"] == "extra_forbidden":
        *section, name = location
        if name in _OF_TRL:
            return f"unknown key {key!r}; here it is {_OF_TRL[name]!r}"
        known = _known_keys(section)
        # A misspelt key would leave a default in force, unnoticed, for the whole run.
        near = difflib.get_close_matches(name, known, n=1)
        elsewhere = [name] * (name in Config.model_fields)
        for part, field in Config.model_fields.items():
            path = [part, *["NAME"] * (get_origin(field.annotation) is dict), name]
            elsewhere += [".".join(path)] * (annotation_of(path) not in (None, EnvConfig))
        if near and not elsewhere:
            return f"unknown key {key!r}; did you mean {'.'.join([*section, *near])!r}?"
        hint = f"there is {' or '.join(map(repr, elsewhere))}; " if elsewhere else ""
        return f"unknown key {key!r}; {hint}known here: {', '.join(known)}{quoted}"
    if detail["type"] == "missing":
        return f"the key {key!r} is missing"
    if detail["type"] == "value_error":
        said, name = detail["msg"].removeprefix("Value error, "), location[-1] if location else ""
        # A section knows the name of its key, and not where it is itself.
        return (
            f"{key}{said.removeprefix(name)}" if re.match(rf"{re.escape(name)}[ .]", said) else said
        )
    return f"{key!r} is {detail['input']!r}: {detail['msg'][0].lower()}{detail['msg'][1:]}{quoted}"


def _known_keys(location: Sequence[str]) -> list[str]:
    """The keys of the section at a location; keys of a table of sections count as one."""
    if not location:
        return [*Config.model_fields, EVERY_POLICY, EVERY_ROLE]
    kind = annotation_of(location)
    if get_origin(kind) is tuple:
        (kind, *_) = get_args(kind)
    return list(kind.model_fields)
