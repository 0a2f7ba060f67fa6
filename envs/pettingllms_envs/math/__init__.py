"""Reasoner and tool user: two ways to one answer; agreement ends the episode."""
