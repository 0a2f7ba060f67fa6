"""Import of the libraries that adapters adapt to; none of them is a dependency of pettingllms."""

from __future__ import annotations

import importlib
from typing import Any

from pettingllms.errors import MissingDependency


def require(module: str, *, feature: str, package: str, extra: str) -> Any:
    """Import and return a module of an optional library.

    Args:
        module: Dotted name of the module.
        feature: What needs it, as the subject of the message.
        package: The distribution to install.
        extra: The extra of pettingllms that brings it.

    Raises:
        MissingDependency: If the library is not installed. A library that is installed but cannot
            be imported raises its own error.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
        raise MissingDependency(feature, package, extra) from error
