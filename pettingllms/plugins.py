"""Plug-ins: what installed packages announce in three entry-point groups.

- `pettingllms.envs`: an id, such as `my_game_v0`, of a `TextEnv` class or of a factory. Or the
  beginning of sources, such as `my_data:`, of an environment that `make("my_data:NAME")` makes with
  `source="my_data:NAME"`.
- `pettingllms.policies`: the kind, of policies named `KIND:ARGUMENT`, of a `PolicyFactory`.
- `pettingllms.algorithms`: what `algorithm.name` is in a run file, of a subclass of the trainer's
  `Algorithm`.

Announcements are data from strangers: any package can write any text there. Each is checked on its
own, and one that cannot be used is kept with the reason, so that it affects only those who ask
for it. Nothing is imported before it is asked for.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from pettingllms.errors import EnvironmentNotLoadable, InvalidArgument, suggestion

if TYPE_CHECKING:
    from importlib.metadata import EntryPoint

ENVS = "pettingllms.envs"
POLICIES = "pettingllms.policies"
ALGORITHMS = "pettingllms.algorithms"

ID_RULE = "lower-case words of letters and digits, joined by _, ending in _v<number>"
_WORDS = r"[a-z][a-z0-9]*(_[a-z0-9]+)*"
_ID = re.compile(rf"{_WORDS}_v(0|[1-9][0-9]*)")
_PREFIX = re.compile(rf"{_WORDS}:")
_PATH = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*")
_OWN_PACKAGE = "pettingllms"


class Plugin(NamedTuple):
    """One announcement that can be used."""

    name: str
    """Name under which it is announced, such as `plan_path_v0`."""
    value: str
    """`module:attribute`."""
    package: str
    """The distribution that announces it."""

    def load(self) -> Any:
        """Import and return it.

        Raises:
            ImportError, AttributeError: It is not there; and whatever its module raises.
        """
        from importlib.metadata import EntryPoint

        return EntryPoint(self.name, self.value, "").load()


class Plugins(NamedTuple):
    """What installed packages announce in one group, by name."""

    usable: dict[str, Plugin]
    """Name -> the announcement."""
    refused: dict[str, str]
    """Name -> why the announcement cannot be used, and what to do."""


def is_id(text: str) -> bool:
    """Whether a text has the form of an id: `sokoban_v0`."""
    return _ID.fullmatch(text) is not None


def is_path(text: str) -> bool:
    """Whether a text has the form `module:attribute`."""
    return _PATH.fullmatch(text) is not None


@cache
def installed(group: str) -> Plugins:
    """Sort what all installed packages announce in a group; reads their metadata once."""
    # Importing importlib.metadata and reading every package's metadata costs tens of milliseconds
    # in a large installation. `import pettingllms` does neither; the first look-up does both.
    from importlib.metadata import entry_points

    return _sorted(group, entry_points(group=group))


def own_ids() -> tuple[str, ...]:
    """The ids that this distribution announces, from its own metadata alone.

    One small file is read instead of those of all packages; there are none in a bare checkout.
    """
    from importlib.metadata import PackageNotFoundError, distribution

    try:
        points = distribution(_OWN_PACKAGE).entry_points.select(group=ENVS)
    except PackageNotFoundError:
        return ()
    return tuple(sorted(filter(is_id, _sorted(ENVS, points).usable)))


def load_plugin(group: str, name: str, what: str, others: Iterable[str] = ()) -> Any:
    """Import what an installed package announces.

    Args:
        group: The group.
        name: The name in it.
        what: What it is a name of, for errors.
        others: Names that are known without being announced, for errors.

    Raises:
        InvalidArgument: If nothing usable is announced under the name.
        EnvironmentNotLoadable: If the package that announces it cannot be imported.
    """
    plugins = installed(group)
    if name in plugins.refused:
        raise InvalidArgument(
            what, name, "one that can be used", f"It is not: {plugins.refused[name]}"
        )
    if name not in plugins.usable:
        known = (*others, *sorted(plugins.usable))
        allowed = ", ".join(known) or "none is installed"
        raise InvalidArgument(what, name, allowed + suggestion(name, known))
    plugin = plugins.usable[name]
    try:
        return plugin.load()
    except (ImportError, AttributeError) as error:
        raise EnvironmentNotLoadable(
            f"{what} {name!r} is announced as {plugin.value!r}, but loading that failed: {error}"
        ) from error


def _sorted(group: str, points: Iterable[EntryPoint]) -> Plugins:
    # Grouped first: whether an announcement is usable depends on its rivals.
    by_name: dict[str, list[EntryPoint]] = {}
    for point in points:
        by_name.setdefault(point.name, []).append(point)
    usable: dict[str, Plugin] = {}
    refused: dict[str, str] = {}
    for name, rivals in by_name.items():
        packages = sorted({point.dist.name if point.dist else "" for point in rivals})
        values = sorted({point.value for point in rivals})
        if group == ENVS and not is_id(name) and not _PREFIX.fullmatch(name):
            refused[name] = f"{packages[0]} announces it under an ill-formed id; allowed: {ID_RULE}"
        # Not first come, first served: that would depend on the order of installation, and let any
        # package replace another's plug-in silently.
        elif len(packages) > 1 or len(values) > 1:
            refused[name] = (
                f"it is announced more than once, by {' and '.join(packages)} as "
                f"{' and '.join(values)}, and an id has one meaning. Uninstall one of the packages."
            )
        elif not is_path(values[0]):
            refused[name] = (
                f'{packages[0]} announces it as {values[0]!r}; allowed: "module:attribute"'
            )
        else:
            usable[name] = Plugin(name, values[0], packages[0])
    return Plugins(usable, refused)
