"""Plan-Path: lead a player through a maze to the goal."""

from pettingllms_envs.plan_path.env import PlanPathEnv

__all__ = ["PlanPathEnv"]
