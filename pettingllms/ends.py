"""Why episodes end: the policy, a limit, or the infrastructure, and what follows for credit.

Ends of the first two kinds belong to the policy: it can choose them, so that they are outcomes like
any other. Those of the infrastructure are nobody's: such an episode is played again, and never
counted or trained on.
"""

from __future__ import annotations

import errno
from collections.abc import Iterator
from enum import StrEnum
from typing import Literal

EndKind = Literal["policy", "limit", "infrastructure"]

_FULL = frozenset({errno.ENOSPC, errno.EDQUOT, errno.EMFILE, errno.ENFILE, errno.EIO})
"""What the machine lacks, whatever was asked of it."""
_TOO_MANY_REQUESTS, _SERVER_ERROR = 429, 500


class End(StrEnum):
    """Why an episode is over."""

    ANSWERED = "answered"
    """The game ended with an answer that it could read."""
    UNREADABLE = "unreadable"
    """The game ended with an answer that it could not read."""
    TOKENS = "tokens"
    """The game ended with an answer that it could not read, at the limit of tokens."""
    TURNS = "turns"
    """The turns were used up."""
    CODE = "code"
    """An answer made the code of the environment, or of the workflow, fail."""
    CONTEXT = "context"
    """The next prompt was too long for its model."""
    TIME = "time"
    """Something took longer than it may: the code after an answer, or an answer."""
    SERVER = "server"
    """An engine, or the server of a model, failed."""
    CONNECTION = "connection"
    """A connection was lost."""
    SANDBOX = "sandbox"
    """The sandbox itself failed."""
    ENVIRONMENT = "environment"
    """An environment failed before any answer, was lost, or cannot be played again."""

    @property
    def kind(self) -> EndKind:
        """Whose end it is."""
        if self in (End.CONTEXT, End.TIME):
            return "limit"
        lost = (End.SERVER, End.CONNECTION, End.SANDBOX, End.ENVIRONMENT)
        return "infrastructure" if self in lost else "policy"


def end_of_game(finish_reason: str, parse_error: str | None) -> End:
    """The end of an episode that its game has ended, by the last answer."""
    if parse_error is None:
        return End.ANSWERED
    return End.TOKENS if finish_reason == "length" else End.UNREADABLE


def end_of_error(error: BaseException) -> End:
    """The end of an episode in which code has raised on an answer.

    By the error, or by what it came from: code wraps what it cannot handle. Unless that is known to
    be a limit or the infrastructure, the answer made the code fail.
    """
    for one in _origins(error):
        # Errors of this project say it themselves.
        end = getattr(one, "end", None)
        if isinstance(end, End) and end is not End.CODE:
            return end
        if isinstance(one, TimeoutError):
            return End.TIME
        if isinstance(one, ConnectionError):
            return End.CONNECTION
        if isinstance(one, OSError) and one.errno in _FULL:
            return End.ENVIRONMENT
        # Of a model or tool that the code has asked: clients of HTTP agree on this name.
        status = getattr(one, "status_code", None)
        if isinstance(status, int) and (status == _TOO_MANY_REQUESTS or status >= _SERVER_ERROR):
            return End.SERVER
    return End.CODE


def _origins(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and what it came from, as a traceback shows it."""
    seen: list[BaseException] = []
    origin: BaseException | None = error
    while origin is not None and origin not in seen:
        seen.append(origin)
        yield origin
        origin = origin.__cause__ or (None if origin.__suppress_context__ else origin.__context__)
