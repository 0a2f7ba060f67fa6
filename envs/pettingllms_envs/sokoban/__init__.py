"""Sokoban: certified levels of any size, level files, three teams."""

from pettingllms_envs.sokoban.env import SokobanEnv

__all__ = ["SokobanEnv"]
