"""Fireworks: a card game in which players see every hand but their own, and may hint."""

from pettingllms_envs.fireworks.env import FireworksEnv

__all__ = ["FireworksEnv"]
