"""Rewards beside those of the environment: judges, functions and reward models score answers."""
