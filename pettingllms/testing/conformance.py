"""`check_env`: all promises of the contract, proved one after another."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from pettingllms.env import TextEnv
from pettingllms.errors import ConformanceError
from pettingllms.registry import make, spec
from pettingllms.testing.branches import check_fork, check_snapshot, check_state_value
from pettingllms.testing.interface import (
    check_any_text,
    check_modes,
    check_names_and_spaces,
    check_observe,
    check_pettingzoo,
)
from pettingllms.testing.play import Factory
from pettingllms.testing.rewards import check_ending, check_incentives, check_rewards
from pettingllms.testing.seeds import (
    check_determinism,
    check_global_rngs,
    check_other_process,
    check_variety,
)

CHECKS: tuple[Callable[[Factory], None], ...] = (
    check_pettingzoo,
    check_names_and_spaces,
    check_determinism,
    check_variety,
    check_global_rngs,
    check_any_text,
    check_rewards,
    check_ending,
    check_observe,
    check_fork,
    check_snapshot,
    check_state_value,
    check_modes,
    check_incentives,
)
"""All checks, in the order in which `check_env` runs them."""


def check_env(env: str | Callable[[], Any], **kwargs: Any) -> None:
    """Prove that an environment keeps the contract of `TextEnv`.

    Args:
        env: An id, or a function without arguments that makes an environment.
        **kwargs: Arguments of the environment, when an id is given.

    Raises:
        ConformanceError: Naming the promise that does not hold; the cause is chained.
    """
    if isinstance(env, str):
        env_id = env
        factory: Factory = lambda: make(env_id, checks=False, **kwargs)  # noqa: E731
    else:
        given = env
        factory = lambda: given().unwrapped  # noqa: E731
    first = factory()
    if not isinstance(cast(Any, first), TextEnv):
        raise ConformanceError(f"{first!r} is not a pettingllms.TextEnv")
    for check in CHECKS:
        with _Promise(str(first), check):
            check(factory)
    if isinstance(env, str) and not kwargs and spec(env).package:
        check_other_process(env)  # which knows installed environments only


class _Promise:
    """Turns whatever an environment raises during a check into a finding that names the promise."""

    def __init__(self, name: str, check: Callable[[Factory], None]) -> None:
        self.text = f"{name}: broken promise: {(check.__doc__ or check.__name__).splitlines()[0]}"

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if isinstance(error, Exception) and not isinstance(error, ConformanceError):
            raise ConformanceError(f"{self.text} ({type(error).__name__}: {error})") from error
