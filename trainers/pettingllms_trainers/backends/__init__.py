"""Engines behind the protocols `Generate` and `Update`: the only files that import torch models."""
