"""A run from start to end: the loop, evaluation, checkpoints, metrics, and its directory."""
