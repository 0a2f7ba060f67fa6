"""What went wrong at an endpoint, in words that say what to do."""

from __future__ import annotations

import openai

from pettingllms.errors import suggestion
from pettingllms.policies.failures import PolicyFailure, PolicyUnavailable
from pettingllms.policies.protocol import PolicySettings, Usage

_MAX_SHOWN = 8


class MalformedAnswer(Exception):
    """The server answered something that is not a chat completion.

    Args:
        problem: What is wrong with it.
        usage: What it cost.
    """

    def __init__(self, problem: str, usage: Usage) -> None:
        super().__init__(problem)
        self.usage = usage


def explained(
    policy: str, settings: PolicySettings, error: openai.APIError, *, has_answered: bool = False
) -> PolicyFailure:
    """Return what the failure of a request means for the user.

    Args:
        policy: Name of the policy.
        settings: How it was reached.
        error: What the client library raised, after its retries.
        has_answered: Whether the server has answered before, so that a connection that is lost
            says nothing about the next one.
    """
    tries = f"after {settings.max_retries + 1} tries"
    if isinstance(error, openai.APITimeoutError):
        return PolicyFailure(
            f"{policy} did not answer within {settings.timeout_s:g} s ({tries}). Allow more time "
            "(--timeout-s), ask less at a time (--concurrency), or limit the tokens of a "
            "completion (--sampling max_completion_tokens=N)."
        )
    if isinstance(error, openai.APIConnectionError):
        cause = error.__cause__ or error
        if has_answered:
            return PolicyFailure(
                f"{policy} dropped the connection {tries} ({type(cause).__name__}: {cause}). Its "
                "log should say why."
            )
        return PolicyUnavailable(
            f"{policy} cannot be reached ({type(cause).__name__}: {cause}). Is the server running, "
            "and is the address right?"
        )
    if isinstance(error, openai.AuthenticationError | openai.PermissionDeniedError):
        return PolicyUnavailable(
            f"{policy} refused the key ({_said(error)}). What OPENAI_API_KEY holds goes to OpenAI "
            "and to OPENAI_BASE_URL alone; for any other server name the variable that holds its "
            "key: --api-key-env HOST=VARIABLE."
        )
    if isinstance(error, openai.RateLimitError) and error.code == "insufficient_quota":
        return PolicyUnavailable(f"{policy}: the account has no quota left ({_said(error)}).")
    if isinstance(error, openai.RateLimitError):
        return PolicyFailure(
            f"{policy} still refused for too many requests {tries} ({_said(error)}). Ask less: "
            "--concurrency, --requests-per-minute, --tokens-per-minute."
        )
    if isinstance(error, openai.InternalServerError):
        return PolicyFailure(f"{policy} failed {tries} ({_said(error)}). Its log should say why.")
    return PolicyFailure(f"{policy} refused a request ({_said(error)}).")


async def model_not_found(
    policy: str, client: openai.AsyncOpenAI, error: openai.NotFoundError
) -> PolicyUnavailable:
    """Return a 404 with the models that the server has, if it lists them."""
    model = policy.removeprefix("openai:").partition("@")[0]
    try:
        page = await client.models.list()
        known = sorted(entry.id for entry in page.data or ())
    except (openai.APIError, ValueError):
        return PolicyUnavailable(
            f"{policy} was not found ({_said(error)}). Check the address (it usually ends in /v1) "
            "and the name of the model."
        )
    if model in known:
        return PolicyUnavailable(
            f"{policy} was not found ({_said(error)}), though the server lists this model. Check "
            "the address (it usually ends in /v1)."
        )
    shown = ", ".join(known[:_MAX_SHOWN]) + (", ..." if known[_MAX_SHOWN:] else "")
    return PolicyUnavailable(
        f"{policy}: no such model ({_said(error)}){suggestion(model, known)} "
        f"The server has: {shown or 'none'}."
    )


def _said(error: openai.APIError) -> str:
    text = " ".join(str(error).split())
    status = getattr(error, "status_code", None)
    if status is not None and str(status) not in text:
        text = f"{status}: {text}"
    return text if len(text) <= 300 else text[:300] + "..."
