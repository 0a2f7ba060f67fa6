"""`EnvSpec`: how an environment is made."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pettingllms.errors import EnvironmentNotLoadable
from pettingllms.sources import load_source


@dataclass(frozen=True)
class EnvSpec:
    """How an environment is made."""

    id: str
    """Versioned name, `<name>_v<number>`, of which a change of behaviour is a new number; or an
    absolute source, see `pettingllms.sources`."""
    entry_point: str | Callable[..., Any]
    """The source of the `TextEnv` class or factory, or the callable itself."""
    kwargs: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Arguments that `make` passes on."""
    package: str = ""
    """The distribution that provides it; empty when it was registered by a call."""

    @property
    def origin(self) -> str:
        """` of the package ...`, for messages; empty when it was registered by a call."""
        return f" of the package {self.package!r}" if self.package else ""

    def load(self) -> Callable[..., Any]:
        """Import and return the class or factory.

        Raises:
            EnvironmentNotLoadable: If the import fails, or finds nothing that can be called; the
                cause is chained.
        """
        if callable(self.entry_point):
            return self.entry_point
        what = f"environment {self.id!r}{self.origin}"
        if self.entry_point != self.id:
            what += f", announced as {self.entry_point!r},"
        factory = load_source(self.entry_point, what, is_installed=bool(self.package))
        if not callable(factory):
            raise EnvironmentNotLoadable(
                f"{what} cannot be loaded: {factory!r} is no class or function; a workflow is "
                "named workflow:module:name"
            )
        return factory
