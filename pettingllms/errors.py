"""Every error that pettingllms raises on purpose.

Model text is never an error: it is an outcome of the environment. These are for people and programs
that call the library.
"""

from __future__ import annotations

import contextlib
import difflib
import os
import re
import traceback
from collections.abc import Generator, Iterable
from importlib import metadata

from pettingllms.ends import End


class PettingLLMsError(Exception):
    """Base of all errors raised on purpose."""

    def __reduce__(self) -> tuple[object, ...]:
        return (_rebuild, (type(self), self.args, dict(self.__dict__)))


FOREIGN = (Exception, SystemExit)
"""What code of others may raise; where it calls for the end, that is not the caller's."""


@contextlib.contextmanager
def stated(kind: type[PettingLLMsError], what: str) -> Generator[None]:
    """Raise what code of others raises as an error of ours, which says what failed and where."""
    try:
        yield
    except PettingLLMsError:
        raise
    except FOREIGN as error:
        raise kind(f"{what}: {told(error)}") from error


_OURS, _PYTHONS = os.path.dirname(__file__), os.path.dirname(os.__file__)


def _is_theirs(file: str) -> bool:
    # Without a virtual environment, installed packages are below the standard library.
    is_library = file.startswith((_PYTHONS, "<frozen")) and "-packages" not in file
    return not is_library and not file.startswith(_OURS)


def told(error: BaseException) -> str:
    """What was raised, and where in the code of others: `KeyError: 'x' (/me/game.py, line 7)`."""
    frames = [(f.f_code.co_filename, line) for f, line in traceback.walk_tb(error.__traceback__)]
    places = [place for place in frames if _is_theirs(place[0])]
    # Errors of ours, and those of syntax, say themselves what is meant.
    if not places or isinstance(error, PettingLLMsError | SyntaxError):
        return f"{type(error).__name__}: {error}"
    # Where a library was called, and not where in it that was refused.
    *_, (file, line) = [one for one in places if "-packages" not in one[0]] or places
    return f"{type(error).__name__}: {error} ({file}, line {line})"


MALFORMED = (KeyError, TypeError, IndexError, AttributeError, ValueError, RecursionError)
"""What reading data raises that lacks a key, has a value of another kind, or nests too deep."""


def data_problem(error: Exception) -> str:
    """What is wrong with recorded data; of a missing key, more than its name."""
    if isinstance(error, KeyError):
        return f"it has no key {error}: another version or program wrote it, or it was edited"
    return str(error) if isinstance(error, InvalidArgument) else f"{type(error).__name__}: {error}"


@contextlib.contextmanager
def readable(kind: type[PettingLLMsError], what: str, fix: str = "") -> Generator[None]:
    """Raise what malformed data causes as an error of ours: what is damaged, how, what to do."""
    try:
        yield
    except MALFORMED as error:
        if isinstance(error, PettingLLMsError) and not isinstance(error, InvalidArgument):
            raise
        raise kind(f"{what} ({data_problem(error)}). {fix}".rstrip()) from error


class UnknownEnvironment(PettingLLMsError, LookupError):
    """No environment of that id is installed."""


class EnvironmentNotLoadable(PettingLLMsError, ImportError):
    """The id is known, but importing its entry point failed."""


_MAX_SHOWN = 500
"""Characters of a value that a message shows."""


class InvalidArgument(PettingLLMsError, ValueError):
    """An argument is out of its range or of the wrong kind.

    Args:
        argument: Name of the argument.
        got: The value that was given.
        allowed: What is allowed, as the end of the sentence "allowed: ...".
        fix: What to do about it; left out of the message when empty.
    """

    choices: tuple[object, ...] = ()
    """All values that are allowed, where they are few."""

    def __init__(self, argument: str, got: object, allowed: str, fix: str = "") -> None:
        self.argument, self.got = argument, got
        shown = repr(got)
        if len(shown) > _MAX_SHOWN:  # a whole data set, given in the wrong place
            shown = f"{shown[:_MAX_SHOWN]}..."
        message = f"invalid {argument}: got {shown}; allowed: {allowed}"
        super().__init__(f"{message}. {fix}" if fix else message)


class UntrustedName(PettingLLMsError):
    """A file names code or a server, and the user has not said that the file is trusted.

    Args:
        file: The file.
        what: What is named: `"environment"`.
        name: The name.
        would: What acting upon it would do, after the word `"would"`.
    """

    def __init__(self, file: str, what: str, name: str, would: str) -> None:
        super().__init__(
            f"{file} names the {what} {name!r}, which would {would}. Nothing was done: a file may "
            "name what installed packages announce, and nothing else. If you trust the file, add "
            "--trust (in Python trust=True)"
        )


class LevelFormatError(InvalidArgument):
    """A level or puzzle text is ill-formed.

    Args:
        problem: What is wrong.
        line: 1-based line number, or 0 when the text as a whole is wrong.
        column: 1-based column number, or 0 when the line as a whole is wrong.
        allowed: What a well-formed text has.
    """

    def __init__(self, problem: str, line: int = 0, column: int = 0, allowed: str = "") -> None:
        self.argument, self.got = "level", problem
        self.line = line
        self.column = column
        place = f" (line {line}" + (f", column {column})" if column else ")") if line else ""
        message = f"invalid level: {problem}{place}"
        Exception.__init__(self, f"{message}; allowed: {allowed}" if allowed else message)


class UnreachableRequest(PettingLLMsError, ValueError):
    """No level with the requested properties could be generated within the documented bound."""


def requirements(extra: str, distribution: str = "pettingllms") -> list[str]:
    """What an extra of an installed distribution brings, as pip takes it: `["click>=8.1", ...]`."""
    # Of a distribution: 'click>=8.1; extra == "cli"', where other conditions may stand before it.
    lines = [line.partition(";") for line in metadata.requires(distribution) or ()]
    ending = re.compile(rf"""extra == ['"]{re.escape(extra)}['"]""")
    return [requirement.strip() for requirement, _, marker in lines if ending.search(marker)]


def install_command(extra: str, distribution: str = "pettingllms") -> str:
    """The command that installs what an extra brings.

    It names the packages and not the extra: so it is the same in a checkout and outside it, and for
    what is in no index.
    """
    if not extra:
        return "pip install ./trainers (in a checkout of pettingllms)"
    return " ".join(["pip install", *(f'"{one}"' for one in requirements(extra, distribution))])


class MissingDependency(PettingLLMsError, ImportError):
    """A feature needs an optional extra that is not installed.

    Args:
        feature: What was asked for.
        package: The distribution that is missing.
        extra: The extra of pettingllms that brings it; empty: the trainer does.
    """

    def __init__(self, feature: str, package: str, extra: str) -> None:
        self.feature = feature
        super().__init__(
            f"{feature} needs the package {package!r}, which is not installed. "
            f"Install it with: {install_command(extra)}"
        )


class InvalidAction(PettingLLMsError, TypeError):
    """Something that is not a text was passed to `step`, or None for a live agent."""


class OrderError(PettingLLMsError, RuntimeError):
    """A method was called before `reset` or after the end."""


class TranscriptError(PettingLLMsError, ValueError):
    """A transcript file is truncated, of another version, or not a transcript."""


class ReplayDivergence(TranscriptError):
    """A recorded episode did not replay to the same states and rewards.

    Args:
        step: 0-based index of the first step that differs; -1 for the initial state.
        field: What differs ("observation", "state_hash", "rewards", ...).
        recorded: The recorded value.
        replayed: The value of the replay.
    """

    def __init__(self, step: int, field: str, recorded: object, replayed: object) -> None:
        self.step = step
        self.field = field
        super().__init__(
            f"the replay diverged at step {step} in {field!r}: recorded {recorded!r}, "
            f"replayed {replayed!r}. Its version or arguments are not the recorded ones."
        )


class ConformanceError(PettingLLMsError, AssertionError):
    """`pettingllms.testing.check_env` found a promise of the contract that does not hold."""


class SandboxError(PettingLLMsError, RuntimeError):
    """The sandbox itself failed or cannot offer the requested isolation."""

    end = End.SANDBOX


def _rebuild(
    kind: type[PettingLLMsError], args: tuple[object, ...], attributes: dict[str, object]
) -> PettingLLMsError:
    """Rebuild an error whose constructor takes other arguments than its message (for pickle)."""
    error = kind.__new__(kind, *args)
    error.args = args
    error.__dict__.update(attributes)
    return error


def counted(number: float, noun: str) -> str:
    """A number and what it counts, for messages: `1 GPU`, `2 GPUs`, `0.5 GPUs`."""
    return f"{number:,.10g} {noun}{'s' * (number != 1)}"


def suggestion(word: object, known: Iterable[object]) -> str:
    """Return `'; did you mean "x"?'` for the known word nearest to `word`, or an empty string."""
    if not isinstance(word, str):
        return ""
    words = {other.casefold(): other for other in known if isinstance(other, str)}
    near = difflib.get_close_matches(word.casefold(), words, n=1, cutoff=0.5)
    return f'; did you mean "{words[near[0]]}"?' if near else ""


class RunFolderError(PettingLLMsError, ValueError):
    """A folder is not that of an evaluation, is damaged, or is in the way of a new one."""
