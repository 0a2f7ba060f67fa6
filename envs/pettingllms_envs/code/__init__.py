"""Coder and tester: one writes a program, the other a test; agreement ends the episode."""
