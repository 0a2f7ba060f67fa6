"""Forkable text environments for teams of LLM agents, in the PettingZoo AEC API.

```python
env = pettingllms.make("plan_path_v0")
env.reset(seed=7)
for agent in env.agent_iter():
    observation, reward, terminated, truncated, info = env.last()
    env.step(None if terminated or truncated else policy[agent](observation))
```
"""

import sys
from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pettingllms.env import TextEnv
    from pettingllms.evaluation import evaluate
    from pettingllms.prompts import PromptTemplate
    from pettingllms.registry import make, register, registered_ids, spec
    from pettingllms.sources import EnvSpec
    from pettingllms.types import ParseError, Snapshot, Transition, role_of

__version__ = "0.1.0"

_HOMES = {
    "EnvSpec": "sources",
    "ParseError": "types",
    "PromptTemplate": "prompts",
    "Snapshot": "types",
    "TextEnv": "env",
    "Transition": "types",
    "evaluate": "evaluation",
    "make": "registry",
    "register": "registry",
    "registered_ids": "registry",
    "role_of": "types",
    "spec": "registry",
}
"""Public name -> the module that defines it."""


def _connect() -> None:
    from pettingllms.adapters.gymnasium import connect

    connect()


if not TYPE_CHECKING:  # else any name at all would be one of this module

    def __getattr__(name: str) -> Any:
        """Import at first use: a sandbox or a command needs neither NumPy nor Gymnasium."""
        if name not in _HOMES:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        _connect()
        value = globals()[name] = getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)
        return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


# Whoever has a registry loaded expects our names in it after this import.
if {"gymnasium", "pettingzoo"} & set(sys.modules):
    _connect()

__all__ = [
    "EnvSpec",
    "ParseError",
    "PromptTemplate",
    "Snapshot",
    "TextEnv",
    "Transition",
    "__version__",
    "evaluate",
    "make",
    "register",
    "registered_ids",
    "role_of",
    "spec",
]
