"""Panel: a moderator who chooses who speaks, and experts who know different things."""

from pettingllms_envs.panel.env import PanelEnv

__all__ = ["PanelEnv"]
