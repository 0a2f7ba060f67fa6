"""Which keys of a run file name code or servers; a file may do so only where it is trusted.

What is typed, on the command line or in Python, is not asked about; see `pettingllms.trust`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, NamedTuple

from pettingllms.policies import stays_here
from pettingllms.registry import is_announced
from pettingllms.trust import FoundName


class _Kind(NamedTuple):
    """Keys of a run file that name one kind of thing."""

    what: str
    """What is named, in words."""
    would: str
    """What acting upon the name does, to end a sentence with "would"."""
    places: tuple[tuple[str, ...], ...]
    """Paths of the keys; * stands for any name, and any entry of a list."""
    is_harmless: Callable[[str], bool] = lambda name: False
    """Whether a name needs no trust."""


ENVIRONMENT, ALGORITHM, POLICY = "environment", "algorithm", "policy"
_RUN = "import and run code from that place"
_KINDS = (
    _Kind(ENVIRONMENT, _RUN, (("env", "id"), ("env", "*", "id")), is_announced),
    _Kind(ALGORITHM, _RUN, (("algorithm", "name"),), lambda name: ":" not in name),
    _Kind("reward function", _RUN, (("rewards", "*", "function"),)),
    _Kind(
        POLICY,
        "send prompts to a server, or fetch a model",
        (("policies", "*", "fixed"), ("every_policy", "fixed")),
        stays_here,
    ),
    _Kind(
        "server",
        "get prompts, and say where weights lie",
        (("policies", "*", "endpoints", "*"), ("every_policy", "endpoints", "*")),
    ),
    _Kind(
        "key in the variable",
        "be sent to the server of a policy",
        (("policies", "*", "requests", "api_key_env"), ("every_policy", "requests", "api_key_env")),
    ),
    _Kind(
        "Ray cluster",
        "get code to run, and send some back",
        (("ray", "address"),),
        lambda name: name == "auto",  # on this machine
    ),
)


def vet(
    table: Mapping[str, Any],
    file: str,
    *,
    trust: bool,
    known: Collection[str] = (),
    is_read: bool = False,
) -> None:
    """Refuse a table of a file that names code or servers, unless it is trusted.

    Args:
        is_read: Whether the configuration is only read: all that is imported is its algorithm.

    Raises:
        UntrustedName: The file names code or a server; of several the first.
    """
    # Before anything is merged or imported: a refusal must come before the first use.
    for kind, name in _names(table):
        is_unused = is_read and kind.what != ALGORITHM
        is_harmless = is_unused or name in known or kind.is_harmless(name)
        FoundName(name, file, trust).vouched(kind.what, is_harmless=is_harmless, would=kind.would)


def named_code(table: Mapping[str, Any], *kinds: str) -> list[str]:
    """What only a trusted file may name in a run file's table; of all kinds if none is given."""
    found = ((kind, name) for kind, name in _names(table) if not kinds or kind.what in kinds)
    return [name for kind, name in found if not kind.is_harmless(name)]


def _names(table: Mapping[str, Any]) -> Iterator[tuple[_Kind, str]]:
    for kind in _KINDS:
        for place in kind.places:
            for value in _values(table, place):
                if isinstance(value, str) and value:
                    yield kind, value


def _values(table: Any, place: tuple[str, ...]) -> Iterator[Any]:
    """Yield all values at a path of keys; what has another form than a run file has none."""
    if not place:
        yield table
        return
    key, *rest = place
    if isinstance(table, Mapping):
        inner = table.values() if key == "*" else [table[key]] if key in table else []
    else:
        inner = table if key == "*" and isinstance(table, list | tuple) else []
    for one in inner:
        yield from _values(one, tuple(rest))
