"""Our ids in the registries of Gymnasium and PettingZoo."""

from __future__ import annotations

from collections.abc import Iterable
from functools import cache, partial
from typing import Any

import gymnasium
import pettingzoo

from pettingllms.adapters.gymnasium import gymnasium_spec
from pettingllms.plugins import own_ids
from pettingllms.registry import make, on_new_ids


@cache
def connect() -> None:
    """Register our environments with Gymnasium and PettingZoo, now and in future.

    `pettingllms` calls it: at its import if either library is loaded then, else when the first of
    its names is used.

    Now: those that come with this package. Later: every id that becomes known, see
    `pettingllms.registry.on_new_ids`. Registering stores a name; it imports no environment.
    """
    announce(own_ids())
    on_new_ids(announce)


def announce(ids: Iterable[str]) -> None:
    """Register environments with Gymnasium (single-agent view) and with PettingZoo.

    PettingZoo has a registry since 1.27; with older releases only Gymnasium's is used.

    Args:
        ids: Our ids. Those that are registered already are left as they are.
    """
    zoo: Any = pettingzoo
    for env_id in ids:
        found = gymnasium_spec(env_id)
        # Not `gymnasium.register`, which warns about names that are there already.
        gymnasium.registry.setdefault(found.id, found)
        if hasattr(zoo, "aec_registry"):
            # PettingZoo's own form of ids: namespace, name, -vN.
            zoo_id = "pettingllms/" + env_id.replace("_v", "-v")
            if zoo_id not in zoo.aec_registry:
                zoo.register("aec", zoo_id, partial(make, env_id))
