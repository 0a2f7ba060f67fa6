"""Forkable text environments for teams of LLM agents, in the PettingZoo AEC API.

```python
env = pettingllms.make("plan_path_v0")
env.reset(seed=7)
for agent in env.agent_iter():
    observation, reward, terminated, truncated, info = env.last()
    env.step(None if terminated or truncated else policy[agent](observation))
```
"""

from typing import TYPE_CHECKING, Any

from pettingllms.adapters.registries import connect as _connect
from pettingllms.env import TextEnv
from pettingllms.prompts import PromptTemplate
from pettingllms.registry import make, register, registered_ids, spec
from pettingllms.spec import EnvSpec
from pettingllms.state import Snapshot
from pettingllms.transition import ParseError, Transition, role_of

if TYPE_CHECKING:
    from pettingllms.evaluation import evaluate

__version__ = "0.1.0"

_connect()


def __getattr__(name: str) -> Any:
    """Import what takes a quarter of the time of the whole package, and few programs use."""
    if name != "evaluate":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pettingllms.evaluation import evaluate

    return evaluate


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
