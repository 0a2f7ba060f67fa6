"""Blocks World: build given stacks, one block at a time."""

from pettingllms_envs.blocksworld.env import BlocksworldEnv

__all__ = ["BlocksworldEnv"]
