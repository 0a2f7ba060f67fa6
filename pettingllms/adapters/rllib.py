"""Team environments in RLlib.

```python
register_env("plan_path_v0", team="tool-planner", codec=TextCodec(256, actions))
config = PPOConfig().environment("plan_path_v0")
```
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pettingllms.adapters.optional import require
from pettingllms.adapters.tokenised import TextCodec, TokenisedEnv
from pettingllms.env import role_of
from pettingllms.registry import make, spec


def make_rllib_env(env_id: str, codec: TextCodec | None = None, **kwargs: Any) -> Any:
    """An RLlib `MultiAgentEnv` of a team.

    In every step it has an observation for the one agent that acts next, and at the end one for
    every agent.

    Args:
        env_id: Id of the environment, such as `"plan_path_v0"`.
        codec: How texts become numbers, which RLlib's own learners need. None: texts.
        **kwargs: Arguments of the environment.

    Raises:
        MissingDependency: If RLlib is not installed.
    """
    wrappers = require("ray.rllib.env.wrappers.pettingzoo_env", "The RLlib adapter", "ray[rllib]")
    # The checks want texts, and the tokenised environment wraps the raw one anyway.
    env = make(env_id, checks=codec is None, **kwargs)
    return wrappers.PettingZooEnv(env if codec is None else TokenisedEnv(env, codec))


def register_env(env_id: str, codec: TextCodec | None = None, **kwargs: Any) -> None:
    """Register an environment with Ray under its own id, for `config.environment(env_id)`.

    `env_config` of the algorithm replaces arguments one by one.

    Args:
        env_id: Id of the environment, such as `"plan_path_v0"`.
        codec: How texts become numbers; see `make_rllib_env`.
        **kwargs: Arguments of the environment.

    Raises:
        MissingDependency: If RLlib is not installed.
        UnknownEnvironment: If there is no such environment.
    """
    registry = require("ray.tune.registry", "The RLlib adapter", "ray[rllib]")
    spec(env_id)

    def creator(config: Mapping[str, Any]) -> Any:
        # RLlib gives an `EnvContext`, a dict with attributes of its own: only its keys count.
        return make_rllib_env(env_id, codec, **{**kwargs, **config})

    registry.register_env(env_id, creator)


def policy_mapping(agent: str, *_: Any, **__: Any) -> str:
    """An agent's role: RLlib's `policy_mapping_fn` for one policy per role."""
    return role_of(agent)
