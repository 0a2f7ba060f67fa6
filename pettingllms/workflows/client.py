"""What a workflow is given besides its task."""

from __future__ import annotations

import atexit
import functools
import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from pettingllms.errors import MissingDependency


@dataclass(frozen=True, kw_only=True)
class Client:
    """The way of one run of a workflow to its policies, and back to the trainer.

    Any OpenAI client works with `base_url` and `api_key`, in this process or another one on this
    machine. Both are of this run alone.
    """

    base_url: str
    """Address of the endpoint, on the loopback interface, up to and including ``/v1``."""
    api_key: str
    """Key of the endpoint, drawn at random when it is started."""
    seed: int
    """Decides what the workflow draws, 0 to 2**53 - 1. Runs of one episode get the same one: what
    is drawn otherwise would make a repeated run ask something else."""
    roles: tuple[str, ...]
    """Names of models that may be asked."""
    _report: Callable[[float, float, str | None], None] = field(repr=False)

    def openai(self) -> Any:
        """Return an `openai.OpenAI` that asks this endpoint; it never repeats a request.

        Raises:
            MissingDependency: The package openai is not installed.
        """
        return _shared().with_options(base_url=self.base_url, api_key=self.api_key)

    def async_openai(self) -> Any:
        """Return an `openai.AsyncOpenAI` that asks this endpoint; it never repeats a request.

        The workflow closes it: ``async with client.async_openai() as opened: ...``.

        Raises:
            MissingDependency: The package openai is not installed.
        """
        # Not shared: its connections belong to the event loop that opened them.
        return _opened("Async", self.base_url, self.api_key)

    def reward(
        self, local: float = 0.0, *, team: float = 0.0, parse_error: str | None = None
    ) -> None:
        """Report what the latest answer earned, before the next one is asked for.

        Several reports for one answer add up. The reward for the outcome comes on top.

        Args:
            local: Earned by the agent that answered.
            team: Earned by the team.
            parse_error: Why the answer could not be read; None when it could.

        Raises:
            WorkflowFailure: The workflow does not declare `step_rewards`, or nothing was answered.
        """
        self._report(float(local), float(team), parse_error)


@functools.cache
def _shared() -> Any:
    # Kept, so that its connections serve all runs.
    client = _opened("", "http://127.0.0.1/v1", "none")
    atexit.register(client.close)
    return client


def _opened(kind: str, base_url: str, api_key: str) -> Any:
    """Return a client of the package openai; its kind is ``""`` or ``"Async"``."""
    try:
        import openai
    except ImportError as error:
        raise MissingDependency("the client of a workflow", "openai", "cli") from error
    # The endpoint speaks plain HTTP on this machine: proxies of the environment are not for it, and
    # reading certificates would take tens of milliseconds for every client.
    transport = getattr(openai, f"Default{kind}HttpxClient")(
        trust_env=False, verify=ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    )
    client = getattr(openai, f"{kind}OpenAI")
    return client(base_url=base_url, api_key=api_key, max_retries=0, http_client=transport)
