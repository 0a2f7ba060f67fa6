"""Engines of vLLM, in this process and as servers."""
