"""What is checked: a way to make equal environments, and variants of them."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from copy import deepcopy
from functools import partial
from typing import Any, cast

from pettingllms.env import TextEnv
from pettingllms.errors import ConformanceError
from pettingllms.registry import make, spec
from pettingllms.sources import is_source
from pettingllms.testing.play import AnyEnv
from pettingllms.testing.report import NotPromised, SkippedCheck


class Subject:
    """Makes the environment that is checked, as often as the checks need it.

    Args:
        env: An id, a class, or a function that makes an environment.
        kwargs: Arguments of it.

    Raises:
        ConformanceError: If it makes something else than a `TextEnv`.
    """

    def __init__(self, env: str | Callable[..., Any], kwargs: Mapping[str, Any]) -> None:
        self.kwargs = dict(kwargs)
        # A copy: whether they are still the same is a check of its own.
        self.given = {n: deepcopy(v) for n, v in kwargs.items() if isinstance(v, list | dict | set)}
        self.maker = _maker_of(env)
        self.parameters = frozenset(inspect.signature(self.maker).parameters)
        first = cast(Any, self())
        if not isinstance(first, TextEnv):
            raise ConformanceError(f"{first!r} is not a pettingllms.TextEnv")
        given = ", ".join(f"{name}={value!r}" for name, value in kwargs.items())
        name = env if isinstance(env, str) else type(cast(AnyEnv, first)).__name__
        self.name = f"{name}({given})" if given else name

    def __call__(self, **changes: Any) -> AnyEnv:
        """Return a new raw environment, with some arguments changed."""
        return self.maker(**{**self.kwargs, **changes}).unwrapped

    def require_argument(self, name: str) -> None:
        """Make sure that the checks can set an argument of the environment.

        Raises:
            NotPromised: If the environment has no such argument.
            SkippedCheck: If it has, but the function that makes it does not pass it on.
        """
        if name in self.parameters:
            return
        kind = type(self())
        if name not in inspect.signature(cast(Any, kind)).parameters:
            raise NotPromised(f"The environment has no argument {name!r}.")
        raise SkippedCheck(
            f"The function that makes the environment does not take {name!r}; pass the class and "
            f"its arguments instead: check_env({kind.__name__}, ...)."
        )


def _maker_of(env: str | Callable[..., Any]) -> Callable[..., Any]:
    if not isinstance(env, str):
        return env
    found = spec(env)
    # What was registered by a call has an id that another process does not know.
    if not (found.package or is_source(found.id)):
        return partial(found.load(), **found.kwargs)
    return _Made(found.id)


class _Made:
    """`make` of one id, with the parameters of the environment as its own; picklable."""

    def __init__(self, env_id: str) -> None:
        self.env_id = env_id

    @property
    def __signature__(self) -> inspect.Signature:
        return inspect.signature(spec(self.env_id).load())

    def __call__(self, **kwargs: Any) -> AnyEnv:
        return make(self.env_id, checks=False, **kwargs)
