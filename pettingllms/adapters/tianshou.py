"""Team environments in Tianshou."""

from __future__ import annotations

from typing import Any

from pettingllms.adapters.optional import require
from pettingllms.adapters.tokenised import TextCodec, TokenisedEnv
from pettingllms.registry import make


def make_tianshou_env(env_id: str, codec: TextCodec | None = None, **kwargs: Any) -> Any:
    """Return Tianshou's `PettingZooEnv` of a team.

    Rewards are those of the last action, one number per agent in the order of the team. Tianshou
    returns the same list every time; copy it to keep it.

    Args:
        env_id: Id of the environment, such as `"plan_path_v0"`.
        codec: How texts become numbers, which Tianshou's collectors need. None: texts.
        **kwargs: Arguments of the environment.

    Raises:
        MissingDependency: If Tianshou is not installed.
    """
    library = require(
        "tianshou.env.pettingzoo_env",
        feature="The Tianshou adapter",
        package="tianshou",
        extra="tianshou",
    )
    env = make(env_id, checks=codec is None, **kwargs)
    return library.PettingZooEnv(env if codec is None else TokenisedEnv(env, codec))
