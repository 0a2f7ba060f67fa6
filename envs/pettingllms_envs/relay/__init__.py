"""Relay: a witness describes a board that a builder, who does not see it, must reproduce."""

from pettingllms_envs.relay.env import RelayEnv

__all__ = ["RelayEnv"]
