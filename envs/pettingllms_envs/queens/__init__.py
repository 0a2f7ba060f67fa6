"""N queens: repair a board so that no queen attacks another."""

from pettingllms_envs.queens.env import QueensEnv

__all__ = ["QueensEnv"]
