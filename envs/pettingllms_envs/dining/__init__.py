"""Dining philosophers: share forks by acting at the same time."""

from pettingllms_envs.dining.env import DiningEnv

__all__ = ["DiningEnv"]
