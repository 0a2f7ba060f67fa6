"""What is checked, as often as it is needed, and what was found: one finding per check."""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Mapping
from copy import deepcopy
from dataclasses import dataclass, field
from enum import StrEnum
from functools import partial
from typing import Any, cast

from pettingllms.env import TextEnv
from pettingllms.errors import ConformanceError, counted
from pettingllms.registry import make, spec
from pettingllms.sources import is_source
from pettingllms.tables import Block, TextTable, as_markdown
from pettingllms.testing.play import AnyEnv


class CheckStatus(StrEnum):
    """How a check ended."""

    KEPT = "kept"
    """The promise was checked and holds."""
    NOT_PROMISED = "not promised"
    """The environment does not make this promise, by what it declares about itself."""
    SKIPPED = "skipped"
    """The promise could not be checked; `check_env` warns about it."""
    BROKEN = "broken"
    """The promise does not hold."""


class SkippedCheck(Exception):
    """Raised by a check that cannot be carried out; the message says why."""


class NotPromised(Exception):
    """Raised by a check whose promise the environment does not make; the message says why."""


class ConformanceWarning(UserWarning):
    """A check of `check_env` was skipped."""


class Figures(dict[str, float]):
    """What a check measured (name -> value), with a remark on it as `message`."""

    def __init__(self, figures: Mapping[str, float], message: str = "") -> None:
        super().__init__(figures)
        self.message = message


@dataclass(frozen=True)
class Finding:
    """How one check ended."""

    check: str
    """Name of the check's function without `check_`."""
    promise: str
    """What was checked, in one sentence."""
    status: CheckStatus
    """Whether the promise holds, or why nothing is known about it."""
    message: str = ""
    """The fault, the reason why the check was skipped, or a remark on its figures."""
    seconds: float = 0.0
    """Wall time of the check."""
    figures: Mapping[str, float] = field(default_factory=dict[str, float])
    """What the check measured: name -> value."""
    error: Exception | None = field(default=None, compare=False, repr=False)
    """The exception that broke the promise; None if none did."""

    def __str__(self) -> str:
        return f"{self.promise} {self.message}" if self.message else self.promise


@dataclass(frozen=True)
class CheckReport:
    """The findings of all checks of one environment; `str` gives Markdown."""

    env: str
    """The environment and its arguments."""
    findings: tuple[Finding, ...]
    """One per check, in the order in which they ran."""

    def of(self, status: CheckStatus) -> tuple[Finding, ...]:
        """The findings of a status."""
        return tuple(finding for finding in self.findings if finding.status is status)

    @property
    def figures(self) -> dict[str, float]:
        """What the checks measured: name -> value."""
        return {name: value for f in self.findings for name, value in f.figures.items()}

    def to_json(self) -> dict[str, Any]:
        """The report as JSON data; figures that are not finite, as of a reward, are null."""
        names = ("check", "promise", "status", "message", "seconds")
        findings = [
            {
                **{name: getattr(f, name) for name in names},
                "figures": {
                    name: value if math.isfinite(value) else None
                    for name, value in f.figures.items()
                },
            }
            for f in self.findings
        ]
        return {"env": self.env, "findings": findings}

    @property
    def summary(self) -> str:
        """How many checks ended in which way, in one line."""
        counts = [f"{len(self.of(status))} {status}" for status in CheckStatus if self.of(status)]
        return f"{self.env}: {counted(len(self.findings), 'check')}: {', '.join(counts)}"

    def parts(self) -> list[Block]:
        """Figures, findings, what is broken last, and the summary."""
        figures = [(name, f"{value:.4g}") for name, value in self.figures.items()]
        findings = [
            (f.check, f.status, f"{f.seconds:.1f}", f"{f.promise}\n{f.message}".rstrip())
            for status in CheckStatus
            for f in self.of(status)
        ]
        head = ["check", "status", "s", "promise"]
        return [TextTable(["measured", "value"], figures), TextTable(head, findings), self.summary]

    def __str__(self) -> str:
        return as_markdown(self.parts())


class Subject:
    """Makes the environment that is checked, as often as the checks need it.

    Args:
        env: An id, a class, or a function that makes an environment.
        kwargs: Arguments of the environment.

    Raises:
        ConformanceError: If `env` makes anything other than a `TextEnv`.
    """

    def __init__(self, env: str | Callable[..., Any], kwargs: Mapping[str, Any]) -> None:
        self.kwargs = dict(kwargs)
        # A copy: whether they are still the same is a check of its own.
        self.given = {n: deepcopy(v) for n, v in kwargs.items() if isinstance(v, list | dict | set)}
        self.maker = _maker_of(env)
        kind = spec(env).load() if isinstance(env, str) else env
        self.parameters = frozenset(inspect.signature(kind).parameters)
        first = cast(Any, self())
        if not isinstance(first, TextEnv):
            raise ConformanceError(f"{first!r} is not a pettingllms.TextEnv")
        given = ", ".join(f"{name}={value!r}" for name, value in kwargs.items())
        name = env if isinstance(env, str) else type(cast(AnyEnv, first)).__name__
        self.name = f"{name}({given})" if given else name

    def __call__(self, **changes: Any) -> AnyEnv:
        """A new raw environment, with some arguments changed."""
        return self.maker(**{**self.kwargs, **changes}).unwrapped

    def require_argument(self, name: str) -> None:
        """Make sure that the checks can set an argument of the environment.

        Raises:
            NotPromised: If the environment has no such argument.
            SkippedCheck: If it has, but the function that makes it does not pass it on.
        """
        if name in self.parameters:
            return
        kind = type(self())
        if name not in inspect.signature(cast(Any, kind)).parameters:
            raise NotPromised(f"The environment has no argument {name!r}.")
        raise SkippedCheck(
            f"The function that makes the environment does not take {name!r}; pass the class and "
            f"its arguments instead: check_env({kind.__name__}, ...)."
        )


def _maker_of(env: str | Callable[..., Any]) -> Callable[..., Any]:
    if not isinstance(env, str):
        return env
    found = spec(env)
    # What was registered by a call has an id that another process does not know.
    if not (found.package or is_source(found.id)):
        return partial(found.load(), **found.kwargs)
    return partial(make, found.id, checks=False)
