"""Policies of transformers: tiny and pretrained models, generation, updates."""
