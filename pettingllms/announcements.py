"""What installed packages announce: environments, and whatever else has an entry-point group.

Announcements are data from strangers: any package can write any text there. Each is checked on its
own, and one that cannot be used is kept with the reason, so that it affects only those who ask
for it.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from pettingllms.env_spec import EnvSpec
from pettingllms.errors import EnvironmentNotLoadable, InvalidArgument, suggestion

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

GROUP = "pettingllms.envs"
"""The entry-point group in which packages announce environments."""
OWN_PACKAGE = "pettingllms"
"""The distribution of this package and of the environments that come with it."""

ID_RULE = "lower-case words of letters and digits, joined by _, ending in _v<number>"
_ID = re.compile(r"[a-z][a-z0-9]*(_[a-z0-9]+)*_v(0|[1-9][0-9]*)")
_PATH = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")


class Announcements(NamedTuple):
    """What installed packages announce."""

    specs: dict[str, EnvSpec]
    """Id -> how it is made."""
    refused: dict[str, str]
    """Announced id -> why it cannot be used, and what to do."""


def is_id(text: str) -> bool:
    """Return whether a text has the form of an id: `sokoban_v0`."""
    return _ID.fullmatch(text) is not None


def is_path(text: str) -> bool:
    """Return whether a text has the form `module:attribute`."""
    return _PATH.fullmatch(text) is not None


@cache
def announced() -> Announcements:
    """Return what all installed packages announce; reads their metadata once per process."""
    # Importing importlib.metadata and reading every package's metadata costs tens of milliseconds
    # in a large installation. `import pettingllms` does neither; the first look-up does both.
    from importlib.metadata import entry_points

    return checked(entry_points(group=GROUP))


def own_ids() -> tuple[str, ...]:
    """Return the ids that this distribution announces, from its own metadata alone.

    One small file is read instead of those of all packages; there are none in a bare checkout.
    """
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        points = distribution(OWN_PACKAGE).entry_points.select(group=GROUP)
    except PackageNotFoundError:
        return ()
    return tuple(sorted(checked(points).specs))


def checked(points: Iterable[EntryPoint]) -> Announcements:
    """Sort announcements into usable and refused ones; imports none of them."""
    # Grouped first: whether an announcement is usable depends on its rivals.
    by_id: dict[str, list[EntryPoint]] = {}
    for point in points:
        by_id.setdefault(point.name, []).append(point)
    specs: dict[str, EnvSpec] = {}
    refused: dict[str, str] = {}
    for id, rivals in by_id.items():
        packages = sorted({_package(point) for point in rivals})
        values = sorted({point.value for point in rivals})
        if not is_id(id):
            refused[id] = f"{packages[0]} announces it under an ill-formed id; allowed: {ID_RULE}"
        # Not first come, first served: that would depend on the order of installation, and let any
        # package replace another's environment silently.
        elif len(packages) > 1 or len(values) > 1:
            refused[id] = (
                f"it is announced more than once, by {' and '.join(packages)} as "
                f"{' and '.join(values)}, and an id has one meaning. Uninstall one of the packages."
            )
        elif not is_path(values[0]):
            refused[id] = (
                f'{packages[0]} announces it as {values[0]!r}; allowed: "module:attribute"'
            )
        else:
            specs[id] = EnvSpec(id, values[0], package=packages[0])
    return Announcements(specs, refused)


def _package(point: EntryPoint) -> str:
    return point.dist.name if point.dist else ""


@cache
def announced_names(group: str) -> frozenset[str]:
    """Return what installed packages announce in an entry-point group."""
    from importlib.metadata import entry_points  # costs tens of ms

    return frozenset(entry_points(group=group).names)


def load_announced(group: str, name: str, what: str, others: Iterable[str] = ()) -> Any:
    """Return what an installed package announces under a name in an entry-point group.

    Args:
        group: The group.
        name: The name in it.
        what: What it is a name of, for errors.
        others: Names that are known without being announced, for errors.

    Raises:
        InvalidArgument: If nothing is announced under the name.
        EnvironmentNotLoadable: If the package that announces it cannot be imported.
    """
    from importlib.metadata import entry_points  # costs tens of ms

    points = {point.name: point for point in entry_points(group=group)}
    if name not in points:
        known = (*others, *sorted(points))
        allowed = ", ".join(known) or "none is installed"
        raise InvalidArgument(what, name, allowed + suggestion(name, known))
    try:
        return points[name].load()
    except (ImportError, AttributeError) as error:
        raise EnvironmentNotLoadable(
            f"{what} {name!r} is announced as {points[name].value!r}, but loading that failed: "
            f"{error}"
        ) from error
