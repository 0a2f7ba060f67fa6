"""Episodes, rollout trees over them, and which branch an episode continues with."""
