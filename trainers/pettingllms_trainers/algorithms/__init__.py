"""The built-in algorithms, one per module; their names are entry points of this package."""
