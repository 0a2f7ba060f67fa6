"""Arguments that several commands share, and how their texts are read."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, fields
from datetime import datetime
from functools import reduce
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

import click
from click.core import ParameterSource
from click.shell_completion import CompletionItem

from pettingllms.env import TextEnv
from pettingllms.errors import InvalidArgument, suggestion
from pettingllms.files import parse_json
from pettingllms.policies import PolicySettings, Sampling
from pettingllms.registry import registered_ids
from pettingllms.sources import run_directory, short_name
from pettingllms.trust import Name

if TYPE_CHECKING:  # evaluations cost a tenth of a second, which `list` and `--help` do not need
    from pettingllms.evaluation.plan import Price
    from pettingllms.evaluation.training_run import TrainingRun

Command = TypeVar("Command", bound=Callable[..., Any])

# A role has no colon, slash or dot: `openai:m@http://h/v1?x=y` and `hf:runs/a=b` are policies.
_ROLE_AND_REST = re.compile(r"([^\W\d_][\w-]*)=(.+)", re.DOTALL)
_SAMPLING = tuple(field.name for field in fields(Sampling))


def repeated(*names: str, metavar: str, help: str) -> Callable[[Command], Command]:
    """An option that may be given several times."""
    return click.option(*names, multiple=True, metavar=metavar, help=help)


def given(context: click.Context, name: str) -> bool:
    """Whether an option was typed: a default is not a wish."""
    return context.get_parameter_source(name) is ParameterSource.COMMANDLINE


def refuse_given(context: click.Context, what: str, *names: str) -> None:
    """Refuse parameters that do not apply.

    Args:
        context: Of the command.
        what: What they do not apply to.
        names: Theirs, as the command's function has them.

    Raises:
        UsageError: One of them was typed.
    """
    found = [
        param.opts[-1] if isinstance(param, click.Option) else param.human_readable_name
        for param in context.command.params
        if param.name in names and given(context, param.name)
    ]
    if found:
        raise click.UsageError(f"{what} takes no {', '.join(found)}; leave it out")


def number(
    *names: str, default: int | None = None, least: int = 1, help: str
) -> Callable[[Command], Command]:
    """An option that is a whole number of at least `least`."""
    shows = default is not None
    return click.option(
        *names, type=click.IntRange(min=least), default=default, show_default=shows, help=help
    )


class RunPath(click.Path):
    """The type of an argument that is a run (`FOLDER`, `run:FOLDER`) or a recording (a file)."""

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        """The path of a value."""
        return super().convert(str(run_directory(value)), param, ctx)


def path(
    *names: str, metavar: str = "FOLDER", help: str, required: bool = False
) -> Callable[[Command], Command]:
    """An option that names a folder, or, with the metavar `FILE`, a file."""
    kind = click.Path(dir_okay=metavar != "FILE", path_type=Path)
    return click.option(*names, type=kind, metavar=metavar, help=help, required=required)


def parent(what: str) -> Callable[[Command], Command]:
    """The option `--in`: the folder in which a new folder is made."""
    return click.option(
        "--in",
        "parent",
        type=click.Path(file_okay=False, path_type=Path),
        default=Path(),
        metavar="FOLDER",
        help=f"Where {what} is made.  [default: here]",
    )


def flag(*names: str, help: str) -> Callable[[Command], Command]:
    """An option without a value."""
    return click.option(*names, is_flag=True, help=help)


def together(*options: Callable[[Command], Command]) -> Callable[[Command], Command]:
    """Options that several commands share, in the order of their help."""
    # Decorators apply from the bottom up, and help lists options from the top down.
    return lambda command: reduce(lambda made, option: option(made), reversed(options), command)


env_option = repeated(
    "-e",
    "--env",
    "env_values",
    metavar="KEY=VALUE",
    help="Argument of the environment, such as size=6; a value is JSON or a plain string.",
)
reset_option = repeated(
    "-o",
    "--option",
    "option_values",
    metavar="KEY=VALUE",
    help="Option of reset, in the same form.",
)
policy_option = repeated(
    "-p",
    "--policy",
    "policy_values",
    metavar="[ROLE=]POLICY",
    help="Who plays a role (or all): oracle or another scripted policy of the environment, "
    "noise, program, openai:MODEL@URL, hf:PATH, run:RUN?policy=NAME.",
)
price_option = repeated(
    "--price",
    "price_values",
    metavar="[ROLE=]IN,OUT[,CACHED]",
    help="US dollars per million prompt tokens, completion tokens and, if they have a price of "
    "their own, cached prompt tokens. Hidden reasoning counts as completion.",
)
sampling_option = repeated(
    "-s",
    "--sampling",
    "sampling_values",
    metavar="[ROLE.]KEY=VALUE",
    help="How completions are drawn: " + ", ".join(_SAMPLING[:-1]) + ", or extra.KEY for further "
    "fields of the request body.",
)
json_option = click.option("--json", "output", flag_value="json", help="Print JSON.")
trust_option = flag(
    "--trust",
    help="Import and run the code that the named files and folders name, and send requests to the "
    "servers in them. Only for files that you trust.",
)
environment_option = click.option(
    "--environment", metavar="NAME", help="Which environment, if a training run has several."
)
seed_option = click.option(
    "--seed", type=int, default=0, show_default=True, help="Seed of levels and random choices."
)
_DEFAULT = PolicySettings()
policy_settings_options = together(
    number(
        "--concurrency",
        default=_DEFAULT.max_concurrency,
        help="Concurrent episodes, and concurrent requests to one policy.",
    ),
    number(
        "--retries",
        default=_DEFAULT.max_retries,
        least=0,
        help="Retries of a request, with growing waits.",
    ),
    click.option(
        "--timeout-s",
        type=click.FloatRange(min=0, min_open=True),
        default=_DEFAULT.timeout_s,
        show_default=True,
        help="Maximum wait for a whole answer, in seconds.",
    ),
    click.option("--requests-per-minute", type=float, help="Maximum per policy."),
    click.option("--tokens-per-minute", type=float, help="Maximum per policy."),
    repeated(
        "--api-key-env",
        "api_key_values",
        metavar="HOST=VARIABLE",
        help="Environment variable that holds the key of a server. OPENAI_API_KEY goes to OpenAI "
        "and to the server of OPENAI_BASE_URL only.",
    ),
    trust_option,
)
"""How models are reached; read by `policy_settings`."""


def max_failures_option(what: str, default: int) -> Callable[[Command], Command]:
    """The option `--max-failures`: `what` may fail before the command stops."""
    help = f"{what} that may fail before it stops."
    return number("--max-failures", default=default, least=0, help=help)


def policy_settings(values: Mapping[str, Any]) -> PolicySettings:
    """The settings that the options of `policy_settings_options` name."""
    return PolicySettings(
        max_concurrency=values["concurrency"],
        max_retries=values["retries"],
        timeout_s=values["timeout_s"],
        requests_per_minute=values["requests_per_minute"],
        tokens_per_minute=values["tokens_per_minute"],
        api_keys=read_api_keys(values["api_key_values"]),
        trust=values["trust"],
    )


def read_api_keys(values: Iterable[str]) -> dict[str, str]:
    """Host -> environment variable of texts HOST=VARIABLE.

    Raises:
        InvalidArgument: If a text is ill-formed, or a host is named twice.
    """
    found: dict[str, str] = {}
    for text in values:
        host, _, variable = text.partition("=")
        if not (host.strip("*") and variable.isidentifier()) or host in found:
            raise InvalidArgument("--api-key-env", text, "HOST=VARIABLE, every host once")
        found[host] = variable
    return found


def read_pairs(values: Iterable[str], what: str) -> dict[str, Any]:
    """KEY=VALUE texts as a mapping; values are JSON, or texts where they are not.

    Raises:
        InvalidArgument: If a text has no `=`, or a key is given twice.
    """
    pairs: dict[str, Any] = {}
    for text in values:
        key, equals, value = text.partition("=")
        if not equals or not key or key in pairs:
            raise InvalidArgument(what, text, "KEY=VALUE, every key once")
        pairs[key] = _value(value)
    return pairs


class _Asked(Mapping[str, Any]):
    """Options of `reset`; keeps as `names` those that an environment asks for."""

    def __init__(self, values: Mapping[str, Any]) -> None:
        self._values, self.names = values, set[str]()

    def __getitem__(self, name: str) -> Any:
        self.names.add(name)
        return self._values[name]

    def __iter__(self) -> Iterator[str]:
        # Whoever goes through all of them may use any.
        self.names.update(self._values)
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)


def read_reset(values: Iterable[str], env: TextEnv[Any]) -> dict[str, Any]:
    """The options of `reset`, KEY=VALUE; the environment is reset to see which it reads.

    Raises:
        InvalidArgument: If a text is ill-formed, or the environment reads no such option.
    """
    pairs = read_pairs(values, "--option")
    if not pairs:
        return pairs
    asked = _Asked(pairs)
    env.reset(seed=0, options=asked)
    # PettingZoo has environments ignore what they do not know; a person who typed it must be told.
    for name in pairs.keys() - asked.names:
        of_env = inspect.signature(type(env)).parameters
        near = suggestion(name, asked.names) or suggestion(name, of_env)
        known = ", ".join(sorted(asked.names)) or "none: this environment reads no option"
        hint = f"Arguments of the environment are for --env{near}"
        raise InvalidArgument("--option", name, known, hint)
    return pairs


def role_named(text: str) -> str | None:
    """The role of `ROLE=POLICY`; None of a policy for all roles."""
    match = _ROLE_AND_REST.fullmatch(text)
    return match[1] if match else None


def read_policies(values: Iterable[str], roles: Sequence[str]) -> dict[str, str]:
    """Role -> policy of texts `ROLE=POLICY` or `POLICY` (for all roles not named).

    Raises:
        InvalidArgument: If a role is unknown or given twice.
    """
    named: dict[str, str] = {}
    for_all: str | None = None
    for text in values:
        match = _ROLE_AND_REST.fullmatch(text)
        if match is None:
            if for_all is not None:
                raise InvalidArgument("--policy", text, "one policy without a role, at most")
            for_all = text
            continue
        role, policy = match.groups()
        if role not in roles or role in named:
            raise InvalidArgument(
                "--policy",
                text,
                "ROLE=POLICY, every role once, of " + ", ".join(roles) + suggestion(role, roles),
            )
        named[role] = policy
    defaults = {} if for_all is None else dict.fromkeys(roles, for_all)
    return {role: policy for role in roles if (policy := named.get(role, defaults.get(role)))}


def read_sampling(
    values: Iterable[str], roles: Sequence[str], base: Mapping[str, Sampling] | None = None
) -> dict[str, Sampling]:
    """Role -> sampling of texts `KEY=VALUE` (all roles) or `ROLE.KEY=VALUE`; else as in `base`.

    Raises:
        InvalidArgument: If a text is ill-formed, or a key, role or value is unknown.
    """
    common: dict[str, Any] = {}
    special: dict[str, dict[str, Any]] = {role: {} for role in roles}
    for text in values:
        path, equals, value = text.partition("=")
        head, dot, rest = path.partition(".")
        target, key = (special[head], rest) if dot and head in special else (common, path)
        name = key.partition(".")[0]
        if not equals or name not in _SAMPLING or (name == "extra") != ("." in key):
            allowed = "[ROLE.]KEY=VALUE with a role of " + ", ".join(roles) + " and a key of "
            allowed += ", ".join(_SAMPLING[:-1]) + ", extra.NAME"
            raise InvalidArgument("--sampling", text, allowed + suggestion(name, _SAMPLING))
        _put(target, key, _value(value))
    # Nothing was said: policies keep their own defaults, which a `Sampling()` would override.
    if not common and not any(special.values()):
        return dict(base or {})
    given = {role: asdict(sampling) for role, sampling in (base or {}).items()}
    return {role: _sampling(given.get(role, {}), common, special[role]) for role in roles}


def read_prices(values: Iterable[str], assignment: Mapping[str, Name]) -> dict[str, Price]:
    """Policy -> price, of texts `[ROLE=]IN,OUT[,CACHED]`; see `EvaluationPlan.prices`.

    Raises:
        InvalidArgument: If a text is ill-formed or names an unknown role.
    """
    prices: dict[str, Price] = {}
    for text in values:
        match = _ROLE_AND_REST.fullmatch(text)
        role, numbers = match.groups() if match else ("", text)
        try:
            price = tuple(map(float, numbers.split(",")))
        except ValueError:
            price = ()
        if len(price) not in (2, 3) or not all(0 <= one < math.inf for one in price):
            raise InvalidArgument("--price", text, "[ROLE=]IN,OUT[,CACHED] in US dollars")
        if role and role not in assignment:
            raise InvalidArgument("--price", text, "a role of " + ", ".join(assignment))
        for policy in [assignment[role]] if role else assignment.values():
            prices[str(policy)] = price
    return prices


def run_environment(run: TrainingRun, name: str | None) -> TrainingRun:
    """The part of a run that is evaluated: one environment.

    Raises:
        UsageError: If one of several has to be named, or the only one was named.
        InvalidArgument: If the run has none of that name.
    """
    known = run.environments
    if name is None and len(known) > 1:
        raise click.UsageError(
            f"{run.path} trains on several environments; name one: "
            + " or ".join(f"--environment {env}" for env in known)
        )
    if name is not None and len(known) == 1:
        raise click.UsageError("--environment is for runs of several environments; leave it out")
    return run if name is None else run.environment(name)


def free_folder(what: str, env_id: str) -> Path:
    """A folder that does not exist yet, `runs/WHAT-ID-TIME`, where none is named."""
    # Local time, for people; two runs of one second get a number.
    stem = f"runs/{what}-{short_name(env_id)}-{datetime.now():%Y%m%d-%H%M%S}"
    path, number = Path(stem), 1
    while path.exists():
        number += 1
        path = Path(f"{stem}-{number}")
    return path


def _put(target: dict[str, Any], key: str, value: Any) -> None:
    name, dot, rest = key.partition(".")
    if dot:
        target.setdefault(name, {})[rest] = value
    elif name == "stop":
        texts = cast(list[Any], value) if isinstance(value, list) else [value]
        target[name] = (*target.get(name, ()), *map(str, texts))
    else:
        target[name] = value


def _sampling(*layers: Mapping[str, Any]) -> Sampling:
    """The sampling of layers, of which later ones count."""
    merged: dict[str, Any] = {}
    for layer in layers:
        # Fields of `extra` add up over the layers; everything else is replaced.
        extra = {**merged.get("extra", {}), **layer.get("extra", {})}
        merged = {**merged, **layer, **({"extra": extra} if extra else {})}
    return Sampling(**merged)


def _value(text: str) -> Any:
    try:
        # `size=6` is a number, `team=single` a text: the shell would take quotes away.
        return parse_json(text)
    except ValueError:
        return text


def complete_id(
    context: click.Context, parameter: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """The installed environments that begin like this, for the completion of a shell."""
    return [CompletionItem(env_id) for env_id in registered_ids() if env_id.startswith(incomplete)]
