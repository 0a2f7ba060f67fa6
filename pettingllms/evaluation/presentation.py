"""Figures in words: shares, means and tokens with what is known of them."""

from __future__ import annotations

import math

from pettingllms.evaluation.statistics import Interval
from pettingllms.policies import Usage


def tokens(usage: Usage) -> str:
    """Tokens in words; what a server did not report is not counted as 0."""
    if usage.num_unknown == usage.num_requests:
        return f"unknown: no usage reported for {usage.num_requests:,} answers"
    cached = f" ({usage.cached_tokens:,} cached)" if usage.cached_tokens else ""
    hidden = f" ({usage.reasoning_tokens:,} reasoning)" if usage.reasoning_tokens else ""
    text = f"{usage.prompt_tokens:,} in{cached}, {usage.completion_tokens:,} out{hidden}"
    if usage.num_unknown:
        text = f"at least {text}; no usage reported for {usage.num_unknown:,} answers"
    return text


def share(value: Interval) -> str:
    """A share with its interval, in percent."""
    return f"{value.value:.1%} [{value.low:.1%}, {value.high:.1%}]"


def share_difference(value: Interval) -> str:
    """A difference of shares with its interval, in points of percent."""
    return f"{100 * value.value:+.1f} [{100 * value.low:+.1f}, {100 * value.high:+.1f}] points"


def mean(value: Interval, sign: str = "") -> str:
    """A mean with its interval, if it has one."""
    text = number(value.value, sign)
    if not math.isfinite(value.low):
        return text
    return f"{text} [{number(value.low, sign)}, {number(value.high, sign)}]"


def number(value: float, sign: str = "") -> str:
    """A number with three decimals at most."""
    text = f"{value:{sign},.3f}"
    return text.rstrip("0").rstrip(".")
