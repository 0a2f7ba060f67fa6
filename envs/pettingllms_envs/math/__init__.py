"""Reasoner and tool user: two ways to one answer; agreement ends the episode."""

from pettingllms_envs.math.ensemble import MathEnsembleEnv
from pettingllms_envs.math.env import MathEnv
from pettingllms_envs.math.families import FAMILIES
from pettingllms_envs.math.verifier import Outcome, Verdict, Verifier, default_verifier

__all__ = [
    "FAMILIES",
    "MathEnsembleEnv",
    "MathEnv",
    "Outcome",
    "Verdict",
    "Verifier",
    "default_verifier",
]
