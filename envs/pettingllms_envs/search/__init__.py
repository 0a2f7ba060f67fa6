"""Search: one agent queries a small corpus, another answers a question from what was found."""

from pettingllms_envs.search.env import SearchEnv

__all__ = ["SearchEnv"]
