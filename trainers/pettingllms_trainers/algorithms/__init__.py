"""The built-in algorithms, one per module; their names are entry points of this package.

An algorithm is one class, whose fields are its parameters. `base` has what most of them share, and
what only one of them does during rollouts stands beside it in its module. To add one, subclass
`config.algorithm.Algorithm` or a class of `base`, and announce it in the group
`pettingllms.algorithms` of the entry points: `my_algorithm = "package.module:Class"`. Its hooks
need no docstrings: `Algorithm` says what they do.
"""
