"""`check_env`: all promises of the contract, checked one after another."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from typing import Any

from pettingllms.errors import ConformanceError
from pettingllms.testing.cheap import check_cheap_policies
from pettingllms.testing.documentation import check_page
from pettingllms.testing.incentives import (
    check_alignment,
    check_detours,
    check_length,
    check_long_episodes,
    check_other_answers,
    check_unsolved,
)
from pettingllms.testing.interface import (
    check_any_text,
    check_arguments,
    check_determinism,
    check_global_rngs,
    check_modes,
    check_names_and_spaces,
    check_other_process,
    check_parallel,
    check_pettingzoo,
)
from pettingllms.testing.levels import check_shortest, check_splits, check_variety
from pettingllms.testing.observations import (
    check_observe,
    check_private,
    check_reading,
    check_same_moment,
    check_watching,
)
from pettingllms.testing.report import (
    CheckReport,
    CheckStatus,
    ConformanceWarning,
    Finding,
    Measured,
    NotPromised,
    SkippedCheck,
    Subject,
)
from pettingllms.testing.rewards import (
    check_bounds,
    check_ending,
    check_max_turns,
    check_outcome,
    check_parse_errors,
    check_rewards,
    check_success_ends,
    check_timeouts,
)
from pettingllms.testing.states import (
    check_fork,
    check_hashes,
    check_snapshot,
    check_state_key,
    check_state_value,
)

Check = Callable[[Subject], Mapping[str, float] | None]
"""A check: its docstring is the promise; it raises, or returns figures."""

CHECKS: tuple[Check, ...] = (
    check_pettingzoo,
    check_parallel,
    check_names_and_spaces,
    check_any_text,
    check_arguments,
    check_modes,
    check_determinism,
    check_global_rngs,
    check_other_process,
    check_variety,
    check_splits,
    check_shortest,
    check_observe,
    check_watching,
    check_reading,
    check_same_moment,
    check_private,
    check_fork,
    check_snapshot,
    check_state_value,
    check_hashes,
    check_rewards,
    check_bounds,
    check_outcome,
    check_parse_errors,
    check_ending,
    check_success_ends,
    check_max_turns,
    check_timeouts,
    check_unsolved,
    check_long_episodes,
    check_detours,
    check_other_answers,
    check_length,
    check_cheap_policies,
    check_alignment,
    check_state_key,
    check_page,
)
"""All checks, in the order in which `check_env` runs them."""


def check_env(env: str | Callable[..., Any], **kwargs: Any) -> CheckReport:
    """Prove that an environment keeps the contract of `TextEnv`.

    Args:
        env: An id, a class, or a function that makes an environment. Some checks change arguments
            (`split`, `max_turns`): with a function that does not take them, they are skipped.
        **kwargs: Arguments of the environment.

    Returns:
        What was checked, what was skipped and why, and what was measured.

    Raises:
        ConformanceError: Naming every promise that does not hold; the first cause is chained.

    Warns:
        ConformanceWarning: For every check that was skipped, with the reason.
    """
    report = examine_env(env, **kwargs)
    for finding in report.of(CheckStatus.SKIPPED):
        text = f"{report.env}: not checked: {finding}"
        warnings.warn(text, ConformanceWarning, stacklevel=2)
    broken = report.of(CheckStatus.BROKEN)
    if broken:
        lines = "\n".join(f"- {finding}" for finding in broken)
        raise ConformanceError(f"{report.env}: broken promises:\n{lines}") from broken[0].error
    return report


def examine_env(env: str | Callable[..., Any], **kwargs: Any) -> CheckReport:
    """Return the report of `check_env`, whatever it says.

    Args:
        env: As for `check_env`.
        **kwargs: Arguments of the environment.

    Raises:
        ConformanceError: If `env` does not make a `TextEnv`.
    """
    subject = Subject(env, kwargs)
    return CheckReport(subject.name, tuple(finding_of(check, subject) for check in CHECKS))


def promise_of(check: Check) -> str:
    """Return the promise that a check is about: the first sentence of its docstring."""
    return " ".join((check.__doc__ or check.__name__).split("\n\n")[0].split())


def finding_of(check: Check, subject: Subject) -> Finding:
    """Run one check."""
    started = time.perf_counter()
    status, message, error, figures = CheckStatus.KEPT, "", None, {}
    try:
        figures = check(subject) or {}
        message = figures.message if isinstance(figures, Measured) else ""
    except SkippedCheck as reason:
        status, message = CheckStatus.SKIPPED, str(reason)
    except NotPromised as reason:
        status, message = CheckStatus.NOT_PROMISED, str(reason)
    except ConformanceError as fault:
        status, message, error = CheckStatus.BROKEN, str(fault), fault
    except Exception as fault:  # noqa: BLE001  whatever an environment raises during a check is a finding
        status, message, error = CheckStatus.BROKEN, f"{type(fault).__name__}: {fault}", fault
    seconds = time.perf_counter() - started
    name = check.__name__.removeprefix("check_")
    return Finding(name, promise_of(check), status, message, seconds, figures, error)
