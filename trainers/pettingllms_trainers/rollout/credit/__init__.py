"""What a candidate is worth beyond its reward: one small module per credit."""
