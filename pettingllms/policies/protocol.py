"""The `Policy` protocol and the plain values that go in and out."""

from __future__ import annotations

import asyncio
import contextlib
import operator
from collections.abc import Generator, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any, NamedTuple, Protocol

from pettingllms.arguments import check_number, check_texts, check_whole
from pettingllms.ends import End
from pettingllms.env import TextEnv
from pettingllms.errors import InvalidArgument, PettingLLMsError, told
from pettingllms.types import UNBOUND, Action, Constraints, TokenCounts


@dataclass(frozen=True, kw_only=True, slots=True)
class Sampling:
    """How completions are drawn; for a field that is None the policy's own default holds."""

    temperature: float | None = None
    """Divides the logits, at least 0; 0 takes the most probable token."""
    top_p: float | None = None
    """Smallest set of tokens whose probability reaches this is kept, above 0 and at most 1."""
    max_completion_tokens: int | None = None
    """Maximum number of tokens of a completion, at least 1."""
    stop: tuple[str, ...] = ()
    """Texts that end a completion."""
    seeded: bool = True
    """Whether the seed of a prompt is passed on; for servers that refuse seeds."""
    extra: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """Further fields of an endpoint's request body, such as `top_k` or `chat_template_kwargs`."""

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            InvalidArgument: If a value is out of its range.
        """
        if self.temperature is not None:
            check_number("sampling.temperature", self.temperature, 0)
        if self.top_p is not None and not check_number("sampling.top_p", self.top_p, 0, 1):
            raise InvalidArgument("sampling.top_p", self.top_p, "a number above 0 and at most 1")
        if self.max_completion_tokens is not None:
            check_whole("sampling.max_completion_tokens", self.max_completion_tokens, 1)
        check_texts("sampling.stop", self.stop, "a tuple of texts")

    def bounded(self, constraints: Constraints) -> Sampling:
        """These settings with what the answer to a prompt is bound to, too."""
        # The tighter one counts; a game may bound answers below what the user allows.
        limits = [self.max_completion_tokens, constraints.max_tokens]
        known = [limit for limit in limits if limit is not None]
        stop = tuple(dict.fromkeys((*self.stop, *constraints.stop)))
        return replace(self, stop=stop, max_completion_tokens=min(known, default=None))


class Prompt(NamedTuple):
    """What an agent is asked."""

    messages: Sequence[Mapping[str, str]]
    """Chat messages with `role` and `content`, as `TextEnv.messages` gives them."""
    agent: str
    """Who is asked, `<role>_<n>`."""
    seed: int
    """Decides what is drawn, where the policy honours seeds; in [0, 2**31)."""
    env: TextEnv[Any] | None = None
    """The environment at this moment, for policies that look at the state instead of the prompt.
    It must not be changed."""
    constraints: Constraints = UNBOUND
    """What the answer is bound to besides the prompt."""


class Completion(NamedTuple):
    """What a policy wrote."""

    text: str
    """The whole text, reasoning that stands in it included."""
    finish_reason: str
    """`"stop"`: it ended by itself; `"length"`: at the limit of tokens; servers have others."""
    reasoning: str = ""
    """Reasoning that a server returns apart from the text; no agent reads it."""
    model: str = ""
    """Model that the server says has answered; empty where nothing says so."""


@dataclass(frozen=True, slots=True)
class Usage:
    """What answers cost. Usages add up."""

    num_requests: int = 0
    """Requests that were answered."""
    num_retries: int = 0
    """Requests that had to be sent again."""
    prompt_tokens: int = 0
    completion_tokens: int = 0
    """Tokens of the completions, those of reasoning included."""
    num_unknown: int = 0
    """Answered requests whose tokens the server did not report; they are not in the counts."""
    cached_tokens: int = 0
    """Tokens of the prompts that a server says it had kept from earlier requests."""
    reasoning_tokens: int = 0
    """Tokens of the completions that a server says were hidden reasoning; billed as all others."""

    def __add__(self, other: Usage) -> Usage:
        return Usage(*map(operator.add, _counts(self), _counts(other)))


_counts = operator.attrgetter(*(one.name for one in fields(Usage)))


def acted(completion: Completion, usage: Usage) -> Action:
    """A completion as an action, with what it took."""
    counts = TokenCounts(
        usage.prompt_tokens, usage.completion_tokens, usage.cached_tokens, usage.reasoning_tokens
    )
    return Action(completion.text, completion.finish_reason, counts)


class Answer(NamedTuple):
    """All completions of one prompt, and what they cost."""

    completions: tuple[Completion, ...]
    """[n] completions, in no particular order."""
    usage: Usage = Usage()
    """What the completions cost together; all 0 for policies that cost nothing."""


class Policy(Protocol):
    """Who answers prompts. One policy may play several roles, and is called concurrently."""

    async def check(self, env: TextEnv[Any]) -> None:
        """Make sure, at little cost, that this policy can play in an environment.

        Raises:
            InvalidArgument: It cannot play in this environment.
            PolicyUnavailable: It cannot be reached or used.
        """
        ...

    async def sample(
        self, prompts: Sequence[Prompt], n: int, sampling: Sampling
    ) -> Sequence[Answer]:
        """One answer of n completions per prompt, in order.

        Raises:
            PolicyFailure: A prompt could not be answered.
        """
        ...

    async def aclose(self) -> None:
        """Release connections; called once, when the policy is no longer needed."""
        ...


ANY_HOST = "*"
"""Stands for every host in `PolicySettings.api_keys`, where there is one policy only."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PolicySettings:
    """How policies reach their models; nothing in here changes what is sampled."""

    max_concurrency: int = 16
    """Concurrent requests to one policy."""
    max_retries: int = 6
    """Retries of a request that failed for a reason that may pass: 408, 409, 429, 5xx,
    time-outs, lost connections, unreadable answers, and those that the server ended by itself.
    Waits double from 0.5 to 8 s unless the server says how long (`Retry-After`), up to two
    minutes."""
    timeout_s: float = 300.0
    """Longest wait for one whole answer, from the connection to the last byte, in seconds."""
    requests_per_minute: float | None = None
    """Maximum rate of requests of one policy."""
    tokens_per_minute: float | None = None
    """Maximum rate of tokens of one policy. As providers do it, a request counts beforehand with
    the size of its prompt (4 characters a token) and all the tokens it may write."""
    api_keys: Mapping[str, str] = field(default_factory=dict[str, str])
    """Host, or `HOST:PORT`, of a server -> environment variable that holds its key. Without an
    entry OpenAI's and that of OPENAI_BASE_URL get the key in OPENAI_API_KEY, and others none."""
    trust: bool = False
    """Whether run folders that policies are read from may name code; see `pettingllms.trust`."""
    is_local: bool = False
    """Whether a policy must have all that it needs on this machine, since a file names it."""

    def __post_init__(self) -> None:
        """Check the ranges.

        Raises:
            InvalidArgument: If a value is out of its range.
        """
        check_whole("max_concurrency", self.max_concurrency, 1)
        check_whole("max_retries", self.max_retries, 0)
        for name in ("timeout_s", "requests_per_minute", "tokens_per_minute"):
            value = getattr(self, name)
            if value is not None and not check_number(name, value, 0):
                raise InvalidArgument(name, value, "a number above 0")


class PolicyFailure(PettingLLMsError, RuntimeError):
    """A prompt could not be answered, after all retries.

    Args:
        message: Why.
        end: How the episode ends with it.
    """

    usage = Usage()
    """What was spent on the prompt: answers that could not be read cost tokens, too."""

    def __init__(self, message: str, end: End = End.SERVER) -> None:
        super().__init__(message)
        self.end = end


class PolicyUnavailable(PolicyFailure):
    """No prompt can be answered, so that continuing is pointless."""


@contextlib.contextmanager
def uncancelled() -> Generator[None]:
    """Raise a `CancelledError` of a policy as a `PolicyFailure`, unless its task is cancelled."""
    try:
        yield
    except asyncio.CancelledError as error:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise PolicyFailure(f"nothing was cancelled, yet a policy raised {told(error)}") from error
