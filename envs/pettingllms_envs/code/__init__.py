"""Coder and tester: one writes a program, the other a test; agreement ends the episode."""

from pettingllms_envs.code.builtin import EXERCISES
from pettingllms_envs.code.comparison import outputs_match, values_match
from pettingllms_envs.code.env import CodeEnv
from pettingllms_envs.code.judge import Judge

__all__ = ["EXERCISES", "CodeEnv", "Judge", "outputs_match", "values_match"]
