"""Import of the libraries that adapters adapt to; none of them is a dependency of pettingllms."""

from __future__ import annotations

import importlib
from typing import Any

from pettingllms.errors import MissingDependency


def require(module: str, feature: str, package: str) -> Any:
    """Import and return a module of an optional library.

    Args:
        module: Dotted name of the module.
        feature: What needs it, as the subject of the message.
        package: The distribution to install, such as `ray[rllib]`. The extra of pettingllms that
            brings it is called after it, or after its own extra.

    Raises:
        MissingDependency: If the library is not installed. A library that is installed but cannot
            be imported raises its own error.
    """
    try:
        return importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name != module.partition(".")[0]:
            raise
        extra = package.partition("[")[2].rstrip("]") or package
        raise MissingDependency(feature, package, extra) from error
