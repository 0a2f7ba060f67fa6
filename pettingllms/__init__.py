"""Forkable text environments for teams of LLM agents, in the PettingZoo AEC API.

```python
env = pettingllms.make("plan_path_v0")
env.reset(seed=7)
for agent in env.agent_iter():
    observation, reward, terminated, truncated, info = env.last()
    env.step(None if terminated or truncated else policy[agent](observation))
```
"""

from pettingllms.adapters.registries import connect as _connect
from pettingllms.env import TextEnv
from pettingllms.prompts import PromptTemplate
from pettingllms.registry import make, register, registered_ids, spec
from pettingllms.spec import EnvSpec
from pettingllms.state import Snapshot
from pettingllms.transition import ParseError, Transition, role_of

__version__ = "0.1.0"

_connect()

__all__ = [
    "EnvSpec",
    "ParseError",
    "PromptTemplate",
    "Snapshot",
    "TextEnv",
    "Transition",
    "__version__",
    "make",
    "register",
    "registered_ids",
    "role_of",
    "spec",
]
