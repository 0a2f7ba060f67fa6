"""Team environments in Tianshou."""

from __future__ import annotations

from typing import Any

from pettingzoo.utils import BaseWrapper

from pettingllms.adapters.optional import require
from pettingllms.adapters.tokenised import TextCodec, TokenisedEnv, scalar_info
from pettingllms.registry import make


class ScalarInfos(BaseWrapper[str, Any, Any]):
    """Reduces the infos of a team's AEC environment to numbers, the same for all agents and steps.

    Tianshou stores infos in arrays, and fails when their keys or shapes change from step to step,
    as those of a game may. Infos become those of `scalar_info`.
    """

    def last(self, observe: bool = True) -> tuple[Any, float, bool, bool, dict[str, Any]]:
        """Observation, reward, terminated, truncated, reduced info."""
        observation, reward, terminated, truncated, info = self.env.last(observe)
        return observation, reward, terminated, truncated, scalar_info(info)


def make_tianshou_env(env_id: str, codec: TextCodec | None = None, **kwargs: Any) -> Any:
    """Tianshou's `PettingZooEnv` of a team, with the infos of `ScalarInfos`.

    Rewards are those of the last action, one number per agent in the order of the team. Tianshou
    returns the same list every time; copy it to keep it.

    Args:
        env_id: Id of the environment, such as `"plan_path_v0"`.
        codec: How texts become numbers, which Tianshou's networks need. None: texts.
        **kwargs: Arguments of the environment.

    Raises:
        MissingDependency: If Tianshou is not installed.
    """
    library = require("tianshou.env.pettingzoo_env", "The Tianshou adapter", "tianshou")
    env = make(env_id, checks=codec is None, **kwargs)
    return library.PettingZooEnv(ScalarInfos(env if codec is None else TokenisedEnv(env, codec)))
