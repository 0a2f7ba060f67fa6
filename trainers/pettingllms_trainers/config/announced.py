"""From the name of an algorithm to its class; algorithms are plug-ins, built-in ones too.

So the way of third parties is the one that is walked every day, and a run file that names an
algorithm imports this one only.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pettingllms.errors import suggestion
from pettingllms.plugins import ALGORITHMS, Plugin, installed
from pettingllms_trainers.config.algorithm import Algorithm

DEFAULT = "at_grpo"


def algorithm_names() -> tuple[str, ...]:
    """The names of all installed algorithms, sorted."""
    return tuple(sorted(installed(ALGORITHMS).usable))


def algorithm_class(name: Any) -> type[Algorithm]:
    """Import the class of an algorithm.

    Args:
        name: One of `algorithm_names()`, or ``package.module:Class`` of one that is not announced.

    Raises:
        ValueError: There is no such algorithm, it cannot be imported, or it is announced twice.
    """
    if not isinstance(name, str):
        raise ValueError(f"algorithm.name is {name!r}; it must be a string")
    announced, refused = installed(ALGORITHMS)
    if name in refused:
        raise ValueError(f"algorithm.name is {name!r}: {refused[name]}")
    plugin = Plugin(name, name, "") if ":" in name else announced.get(name)
    if plugin is None and not announced:
        raise ValueError(
            "no algorithm is installed; in a checkout, run `pip install -e trainers` again: they "
            "are found through the metadata of installed packages"
        )
    if plugin is None:
        raise ValueError(
            f"algorithm.name is {name!r}, which is not installed"
            f"{suggestion(name, algorithm_names())} There are: {', '.join(algorithm_names())}"
        )
    try:
        found = plugin.load()
    except (ImportError, AttributeError) as error:
        raise ValueError(
            f"algorithm.name is {name!r}: {plugin.value} cannot be imported: {error}"
        ) from error
    if not (isinstance(found, type) and issubclass(found, Algorithm)):
        raise ValueError(f"algorithm.name is {name!r}: {plugin.value} is not an Algorithm")
    return found


def algorithm_of(table: Any) -> Any:
    """Return the algorithm that a table [algorithm] describes.

    Raises:
        ValueError: Its name is unknown, or a key is no parameter of it, or a value is not allowed.
    """
    if isinstance(table, Algorithm):
        return table
    if not isinstance(table, Mapping):
        raise ValueError(f'algorithm is {table!r}; write a table [algorithm] with name = "NAME"')
    name = table.get("name", DEFAULT)
    kind = algorithm_class(name)
    own = _own_parameters(kind)
    for key in table:
        if key != "name" and key not in own:
            others = [other for other in algorithm_names() if key in known_parameters(other)]
            of = f" but of {', '.join(others)}" if others else suggestion(key, own)
            raise ValueError(
                f"algorithm.{key} is no parameter of {name}{of}; its own are: {', '.join(own)}"
            )
    return kind.model_validate({**table, "name": name})


def _own_parameters(kind: type[Algorithm]) -> list[str]:
    """Return the names of the parameters of an algorithm."""
    return [key for key in kind.model_fields if key != "name"]


def known_parameters(name: Any) -> list[str]:
    """Return the names of the parameters of an algorithm; none of one that cannot be used."""
    try:
        return _own_parameters(algorithm_class(name))
    except ValueError:  # whoever wants to use it is told
        return []


def section_of(parameter: str) -> type[Algorithm] | None:
    """Return an algorithm with a parameter; None when there is none.

    A key has the same type in all of them, as far as a flag or a message needs it.
    """
    names = (name for name in algorithm_names() if parameter in known_parameters(name))
    return next(map(algorithm_class, names), None)
