"""Policies and environments in the worker processes of a Ray cluster."""
