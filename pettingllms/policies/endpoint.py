"""OpenAI-compatible endpoints: vLLM, SGLang, llama.cpp, Ollama, hosted models."""

from __future__ import annotations

import asyncio
import os
import re
from collections.abc import Sequence
from typing import Any, cast
from urllib.parse import urlsplit

import openai
from aiolimiter import AsyncLimiter
from openai.types.chat import ChatCompletion, ChatCompletionMessage

from pettingllms.ends import End
from pettingllms.env import TextEnv
from pettingllms.errors import InvalidArgument, suggestion
from pettingllms.exchange import AnswerRefused, WholeClient
from pettingllms.policies.protocol import (
    ANY_HOST,
    Answer,
    Completion,
    PolicyFailure,
    PolicySettings,
    PolicyUnavailable,
    Prompt,
    Sampling,
    Usage,
)

OPENAI_URL = "https://api.openai.com/v1"
"""Where requests go when neither the name of the policy nor OPENAI_BASE_URL says otherwise."""
OPENAI_KEY = "OPENAI_API_KEY"
"""Environment variable that holds the key of OpenAI's server, or of that of OPENAI_BASE_URL."""

# A host in ASCII: what other clients take for one, this one may not.
_URL = r"https?://[A-Za-z0-9._:\[\]-]+(?:[/?#][^\s@\\]*)?"
_NAME = re.compile(rf"(?P<model>.+?)(?:@(?P<url>{_URL}))?")
_LIKE_URL = re.compile(r"@(http|localhost|[\w.-]*(:\d|/v\d))")
_CHARACTERS_PER_TOKEN = 4
_DEFAULT_COMPLETION_TOKENS = 1024
"""What a request without a limit counts against `tokens_per_minute`."""
_MAX_COUNT = 10**9
_NOT_ANSWERED = ("content_filter", "error")
"""Reasons of servers to end a completion that are not the model's doing."""
_TOO_LONG = re.compile(
    r"context_length|context length|context size|context window|exceed_context_size"
    r"|maximum model length|prompt is too long",
    re.IGNORECASE,
)
"""How OpenAI, vLLM, SGLang, llama.cpp and others say that a prompt is longer than the context."""
_CHECK_TIMEOUT_S = 20.0
_NO_LIST = (openai.APIError, AttributeError, RecursionError, TypeError, ValueError)
"""What the client raises where a server lists no models, or answers anything else than a list."""
_FIRST_WAIT_S = 0.5
_LONGEST_WAIT_S = 8.0


class EndpointPolicy:
    """Asks a chat model behind an OpenAI-compatible server.

    Requests that fail for a reason that may pass are sent again by the client library, with
    growing waits, as `PolicySettings.max_retries` says. The limit on tokens is sent as
    `max_tokens`, which every compatible server knows, and as `max_completion_tokens` to OpenAI's.

    Args:
        model: Name of the model, as the server calls it.
        base_url: Address of the server up to and including `/v1`; None: see `OPENAI_URL`.
        settings: Concurrency, retries, limits, and the variables that hold keys.

    Raises:
        PolicyUnavailable: If the server is OpenAI's, or has a variable for its key, and there is no
            key.
    """

    def __init__(self, model: str, base_url: str | None, settings: PolicySettings) -> None:
        self.model = model
        own = os.environ.get("OPENAI_BASE_URL")
        self.base_url = (base_url or own or OPENAI_URL).rstrip("/")
        for address in (self.base_url, own):
            if address and not _is_address(address):
                raise InvalidArgument("address of the server", address, "http(s)://HOST[:PORT]/v1")
        self.settings = settings
        self._client = openai.AsyncOpenAI(
            api_key="none",  # a local server needs none, the client library does
            base_url=self.base_url,
            max_retries=settings.max_retries,
            timeout=settings.timeout_s,
            http_client=WholeClient(timeout=settings.timeout_s),
        )
        # As the client library reads the address, and no other way: requests go where it says.
        origin = self._origin(self.base_url)
        self._is_openai = origin == self._origin(OPENAI_URL)
        self._is_own = self._is_openai or bool(own and origin == self._origin(own))
        variable = self._key_variable()
        key = os.environ.get(variable or "")
        if not key and (self._is_openai or variable not in (None, OPENAI_KEY)):
            raise PolicyUnavailable(
                f"{self} needs a key, and the environment variable {variable} is not set. Set it, "
                f"name another variable (api_keys, on the command line --api-key-env "
                f"{self._client.base_url.host}=VARIABLE), or name your own server: "
                "openai:MODEL@http://localhost:8000/v1"
            )
        if key:
            self._client.api_key = key
        self._cleared(self._client)
        self._once = self._cleared(
            self._client.with_options(max_retries=0, timeout=_CHECK_TIMEOUT_S)
        )
        self._slots = asyncio.Semaphore(settings.max_concurrency)
        self._requests = _limiter(settings.requests_per_minute)
        self._tokens = _limiter(settings.tokens_per_minute)
        self._has_answered = False

    @classmethod
    def of(cls, argument: str, settings: PolicySettings) -> EndpointPolicy:
        """The policy of `MODEL` or `MODEL@URL`.

        Raises:
            InvalidArgument: If the text is neither.
            PolicyUnavailable: If the server is OpenAI's and there is no key.
        """
        match = _NAME.fullmatch(argument)
        # Taken for a part of the model's name, it would send prompts and key to OpenAI.
        if match is None or _LIKE_URL.search(match["model"]):
            allowed = "openai:MODEL@URL with a URL that begins with http:// or https://"
            raise InvalidArgument("policy", f"openai:{argument}", allowed)
        return cls(match["model"], match["url"], settings)

    def _origin(self, address: str) -> tuple[str, str, int | None]:
        url = type(self._client.base_url)(address)
        return url.scheme, url.host, url.port

    def _cleared(self, client: openai.AsyncOpenAI) -> openai.AsyncOpenAI:
        """A new client without what it takes from variables that are for another server."""
        if not self._is_own:
            client.organization = client.project = None
            client._custom_headers = {}
        return client

    def _key_variable(self) -> str | None:
        """The variable that holds the key of the server; None: it gets no key."""
        url, given = self._client.base_url, self.settings.api_keys
        for name in (f"{url.host}:{url.port}", url.host, ANY_HOST):
            if name in given:
                return given[name]
        return OPENAI_KEY if self._is_own else None

    def __str__(self) -> str:
        return f"openai:{self.model}@{self.base_url}"

    async def check(self, env: TextEnv[Any]) -> None:
        """Send one request to the server; see `Policy.check`.

        Servers without a list of models pass, whatever they answer to it, unless it is a refusal.
        """
        try:
            await self._once.models.list()
        except (openai.APIConnectionError, openai.AuthenticationError) as error:
            raise self._explained(error) from error
        except _NO_LIST:
            pass  # a list of models is not needed; requests will show what is wrong
        self._has_answered = True

    async def sample(self, prompts: Sequence[Prompt], n: int, sampling: Sampling) -> list[Answer]:
        """See `Policy.sample`.

        A server that gives fewer than n completions at once is asked again for the rest.
        """
        # At once: the limits of the server are kept by slots and rates, not by the order here.
        tasks = [asyncio.ensure_future(self._answer(prompt, n, sampling)) for prompt in prompts]
        try:
            return list(await asyncio.gather(*tasks))
        finally:
            for task in tasks:
                task.cancel()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._client.close()

    async def _answer(self, prompt: Prompt, n: int, sampling: Sampling) -> Answer:
        completions: list[Completion] = []
        usage = Usage()
        while len(completions) < n:
            missing = n - len(completions)
            # Some servers ignore `n`: the rest is asked for with other seeds, or it would repeat
            # the first answer.
            bounded = sampling.bounded(prompt.constraints)
            body = self._body(prompt, missing, bounded, prompt.seed + len(completions))
            try:
                answer = await self._request(body, missing)
            except PolicyFailure as error:
                # Earlier answers of this prompt were paid for, although it fails.
                error.usage += usage
                raise
            completions += answer.completions
            usage += answer.usage
        return Answer(tuple(completions[:n]), usage)

    def _body(self, prompt: Prompt, n: int, sampling: Sampling, seed: int) -> dict[str, Any]:
        # Newer models of OpenAI refuse `max_tokens`; all other compatible servers know it.
        limit = "max_completion_tokens" if self._is_openai else "max_tokens"
        given = {
            "temperature": sampling.temperature,
            "top_p": sampling.top_p,
            limit: sampling.max_completion_tokens,
            "stop": list(sampling.stop) or None,
            "seed": seed if sampling.seeded else None,
            "n": n if n > 1 else None,
            "extra_body": dict(sampling.extra) or None,
        }
        body: dict[str, Any] = {"model": self.model, "messages": list(prompt.messages)}
        return body | {key: value for key, value in given.items() if value is not None}

    async def _request(self, body: dict[str, Any], n: int) -> Answer:
        """Send a request; the client retries all failures but unreadable answers."""
        spent = Usage()
        num_retries = 0
        # Waits between retries keep the slot: a server in trouble gets fewer requests, not more.
        async with self._slots:
            while True:
                await self._wait_for_limits(body, n)
                try:
                    answer = await self._send(body)
                    return answer._replace(usage=answer.usage + spent)
                except MalformedAnswer as error:
                    spent += error.usage
                    if num_retries == self.settings.max_retries:
                        raise _spent(PolicyFailure(f"{self} {error}"), spent) from error
                except openai.APITimeoutError as error:
                    raise _spent(await self._timed_out(), spent) from error
                except openai.NotFoundError as error:
                    raise _spent(await self._not_found(error), spent) from error
                except openai.APIError as error:
                    raise _spent(self._explained(error), spent) from error
                await asyncio.sleep(min(_FIRST_WAIT_S * 2**num_retries, _LONGEST_WAIT_S))
                num_retries += 1
                spent += Usage(num_retries=1)

    async def _send(self, body: dict[str, Any]) -> Answer:
        # The raw response has the number of retries the client made, which the parsed one lacks.
        raw = await self._client.chat.completions.with_raw_response.create(**body)
        self._has_answered = True
        unknown = Usage(num_requests=1, num_retries=raw.retries_taken, num_unknown=1)
        try:
            parsed = cast(object, raw.parse())
        except (ValueError, RecursionError) as error:
            text = f"gave an answer that is not JSON: {_start(raw.text)}"
            raise MalformedAnswer(text, unknown) from error
        if isinstance(parsed, str):  # the client's answer to another content type
            raise MalformedAnswer(f"gave an answer that is not JSON: {_start(parsed)}", unknown)
        usage = _usage(parsed, raw.retries_taken)
        # The client library reads without checking: any field may hold anything.
        choices = cast(object, getattr(parsed, "choices", None))
        if not isinstance(parsed, ChatCompletion) or not (choices and isinstance(choices, list)):
            raise MalformedAnswer(f"gave an answer without completions: {_start(raw.text)}", usage)
        model = getattr(parsed, "model", None)
        served = model if isinstance(model, str) else ""
        return Answer(tuple(_completion(one, served, usage) for one in parsed.choices), usage)

    def _explained(self, error: openai.APIError) -> PolicyFailure:
        """What the failure of a request means for the user, after the retries of the client."""
        tries = f"after {self.settings.max_retries + 1} tries"
        if isinstance(error, openai.APIConnectionError):
            return self._without_answer(error.__cause__ or error, tries)
        if isinstance(error, openai.AuthenticationError | openai.PermissionDeniedError):
            return PolicyUnavailable(
                f"{self} refused the key ({_said(error)}). What OPENAI_API_KEY holds goes to "
                "OpenAI and to OPENAI_BASE_URL alone; for any other server name the variable that "
                "holds its key: --api-key-env HOST=VARIABLE."
            )
        if isinstance(error, openai.RateLimitError) and error.code == "insufficient_quota":
            return PolicyUnavailable(f"{self}: the account has no quota left ({_said(error)}).")
        if isinstance(error, openai.RateLimitError):
            return PolicyFailure(
                f"{self} still refused for too many requests {tries} ({_said(error)}). Ask less: "
                "--concurrency, --requests-per-minute, --tokens-per-minute."
            )
        if isinstance(error, openai.InternalServerError):
            return PolicyFailure(f"{self} failed {tries} ({_said(error)}). Its log should say why.")
        if isinstance(error, openai.APIStatusError) and error.response.has_redirect_location:
            return PolicyUnavailable(
                f"{self} sends requests on to {error.response.headers['Location']!r}, and neither "
                "a key nor a prompt follows. Name that address if it is the right one."
            )
        end = End.CONTEXT if _TOO_LONG.search(_said(error)) else End.SERVER
        return PolicyFailure(f"{self} refused a request ({_said(error)}).", end)

    async def _timed_out(self) -> PolicyFailure:
        """A time-out: of the answer, or of a server that answers nothing at all any more."""
        try:
            await self._once.models.list()
            is_alive = True
        except (openai.APIConnectionError, openai.InternalServerError):
            is_alive = False
        except _NO_LIST:
            is_alive = True
        return PolicyFailure(
            f"{self} did not answer within {self.settings.timeout_s:g} s (after "
            f"{self.settings.max_retries + 1} tries). Allow more time (timeout_s), ask less at a "
            "time (concurrency), or limit the tokens of a completion (max_completion_tokens of "
            "the sampling).",
            End.TIME if is_alive else End.SERVER,
        )

    def _without_answer(self, cause: BaseException, tries: str) -> PolicyFailure:
        told = f"({type(cause).__name__}: {cause})"
        if isinstance(cause, AnswerRefused):
            return PolicyFailure(f"{self} cannot be understood {tries} {told}.")
        # A server that has answered before may answer again.
        if self._has_answered:
            told = f"{self} dropped the connection {tries} {told}. Its log should say why."
            return PolicyFailure(told, End.CONNECTION)
        told = f"{self} cannot be reached {told}. Is the server running, and is the address right?"
        return PolicyUnavailable(told)

    async def _not_found(self, error: openai.NotFoundError) -> PolicyUnavailable:
        """A 404 with the models that the server has, if it lists them."""
        told, where = (
            f"{self} was not found ({_said(error)})",
            "the address (it usually ends in /v1)",
        )
        try:
            page: Any = await self._once.models.list()
            known = sorted(str(entry.id) for entry in page.data or ())
        except _NO_LIST:
            return PolicyUnavailable(f"{told}. Check {where} and the name of the model.")
        if self.model in known:
            listed = "though the server lists this model"
            return PolicyUnavailable(f"{told}, {listed}. Check {where}.")
        shown = ", ".join(known[:_MAX_SHOWN]) + (", ..." if known[_MAX_SHOWN:] else "")
        return PolicyUnavailable(
            f"{self}: no such model ({_said(error)}){suggestion(self.model, known) or '.'} "
            f"The server has: {shown or 'none'}."
        )

    async def _wait_for_limits(self, body: dict[str, Any], n: int) -> None:
        if self._requests is not None:
            await self._requests.acquire()
        if self._tokens is not None:
            length = sum(len(message["content"]) for message in body["messages"])
            limit = body.get("max_tokens") or body.get("max_completion_tokens")
            size = length / _CHARACTERS_PER_TOKEN + n * (limit or _DEFAULT_COMPLETION_TOKENS)
            # A request larger than a whole minute's budget would otherwise wait forever.
            await self._tokens.acquire(min(size, self._tokens.max_rate))


def _is_address(text: str) -> bool:
    try:
        has_port = urlsplit(text).port != 0  # raises for 99999, which the client library would take
    except ValueError:
        return False
    return has_port and re.fullmatch(_URL, text) is not None


def _limiter(per_minute: float | None) -> AsyncLimiter | None:
    if per_minute is None:
        return None
    # Room for one request at least: the limiter refuses to wait for more than it can hold.
    return AsyncLimiter(max(1, per_minute), 60 * max(1, 1 / per_minute))


def _spent(failure: PolicyFailure, usage: Usage) -> PolicyFailure:
    failure.usage = usage
    return failure


def _usage(parsed: object, num_retries: int) -> Usage:
    """What an answer cost; unknown unless the server reports both counts."""
    found = getattr(parsed, "usage", None)
    counts = [getattr(found, f"{name}_tokens", None) for name in ("prompt", "completion")]
    # Some servers report nothing, and what is absurd must not add up with the counts of others.
    if not all(isinstance(count, int) and 0 <= count <= _MAX_COUNT for count in counts):
        return Usage(num_requests=1, num_retries=num_retries, num_unknown=1)
    prompt_tokens, completion_tokens = cast(list[int], counts)
    return Usage(
        num_requests=1,
        num_retries=num_retries,
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        cached_tokens=_detail(found, "prompt", "cached", prompt_tokens),
        reasoning_tokens=_detail(found, "completion", "reasoning", completion_tokens),
    )


def _detail(usage: object, side: str, kind: str, total: int) -> int:
    """How many of some tokens are of a kind, at most all; 0 where the server is silent."""
    # At most all: prices are per kind, and some servers count their template among them.
    count = getattr(getattr(usage, f"{side}_tokens_details", None), f"{kind}_tokens", None)
    return min(total, max(0, count)) if isinstance(count, int) else 0


def _completion(choice: Any, model: str, usage: Usage) -> Completion:
    message = getattr(choice, "message", None)
    text = getattr(message, "content", None)
    if not isinstance(message, ChatCompletionMessage) or not isinstance(text, str | None):
        raise MalformedAnswer("gave a completion without a text", usage)
    # No text is an outcome: all tokens went into hidden reasoning, or the model refused.
    reason = str(getattr(choice, "finish_reason", None) or "unknown")
    if reason in _NOT_ANSWERED:
        raise MalformedAnswer(f"ended a completion itself (finish_reason {reason!r})", usage)
    # Under either of the names that servers use.
    found = (getattr(message, name, None) for name in ("reasoning_content", "reasoning"))
    reasoning = next((one for one in found if isinstance(one, str)), "")
    return Completion(text or "", reason, reasoning, model)


def _start(text: str) -> str:
    return repr(text if len(text) <= 200 else text[:200] + "...")


_MAX_SHOWN = 8


class MalformedAnswer(Exception):
    """The server answered something that is not what a model wrote."""

    def __init__(self, problem: str, usage: Usage) -> None:
        super().__init__(problem)
        self.usage = usage


def _said(error: openai.APIError) -> str:
    text = " ".join(str(error).split())
    status = getattr(error, "status_code", None)
    if status is not None and str(status) not in text:
        text = f"{status}: {text}"
    return text if len(text) <= 300 else text[:300] + "..."
