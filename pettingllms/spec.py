"""`EnvSpec`: how an environment is made."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from pettingllms.errors import EnvironmentNotLoadable


@dataclass(frozen=True)
class EnvSpec:
    """How an environment is made."""

    id: str
    """Versioned name, `<name>_v<number>`; a change of behaviour is a new number."""
    entry_point: str | Callable[..., Any]
    """`"module:attribute"` of the `TextEnv` class or factory, or the callable itself."""
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
        module, _, attribute = self.entry_point.partition(":")
        where = f"environment {self.id!r}{self.origin} is announced as {self.entry_point!r}"
        try:
            factory = getattr(importlib.import_module(module), attribute)
        except Exception as error:
            raise EnvironmentNotLoadable(
                f"{where}, but loading it failed: {type(error).__name__}: {error}"
            ) from error
        if not callable(factory):
            raise EnvironmentNotLoadable(f"{where}, which is no class or function: {factory!r}")
        return factory
