"""Algorithms that the trainer is compared with, one per module, announced by entry points."""
