"""`check_env`: all promises of the contract, checked one after another."""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from pettingllms.errors import ConformanceError, told
from pettingllms.testing import (
    arguments,
    cheap,
    incentives,
    interface,
    observations,
    readers,
    rewards,
    states,
)
from pettingllms.testing.report import (
    CheckReport,
    CheckStatus,
    ConformanceWarning,
    Figures,
    Finding,
    NotPromised,
    SkippedCheck,
    Subject,
)

Check = Callable[[Subject], Mapping[str, float] | None]
"""A check: its docstring is the promise; it raises, or returns figures."""

CHECKS: tuple[Check, ...] = (
    interface.check_pettingzoo,
    interface.check_parallel,
    interface.check_names_and_spaces,
    interface.check_any_text,
    interface.check_modes,
    interface.check_rendering,
    interface.check_determinism,
    interface.check_global_rngs,
    interface.check_other_process,
    arguments.check_unchanged,
    arguments.check_shared_arguments,
    arguments.check_second_values,
    arguments.check_difficulties,
    states.check_variety,
    states.check_splits,
    states.check_shortest,
    observations.check_observe,
    observations.check_watching,
    observations.check_reading,
    observations.check_same_moment,
    observations.check_private,
    observations.check_prompts,
    observations.check_answers_hidden,
    readers.check_one_answer,
    readers.check_whole_answer,
    states.check_fork,
    states.check_snapshot,
    states.check_state_value,
    states.check_hashes,
    rewards.check_rewards,
    rewards.check_bounds,
    rewards.check_outcome,
    rewards.check_parse_errors,
    rewards.check_ending,
    rewards.check_success_ends,
    rewards.check_max_turns,
    rewards.check_timeouts,
    incentives.check_unsolved,
    incentives.check_long_episodes,
    incentives.check_detours,
    incentives.check_giving_up,
    incentives.check_other_answers,
    incentives.check_length,
    cheap.check_cheap_policies,
    incentives.check_alignment,
    states.check_state_key,
    interface.check_page,
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
        lines = "\n".join(f"- {finding.check}: {finding}" for finding in broken)
        # All at once: mending one promise after another would take a run of the kit for each.
        raise ConformanceError(f"{report.env}: broken promises:\n{lines}") from broken[0].error
    return report


def examine_env(env: str | Callable[..., Any], **kwargs: Any) -> CheckReport:
    """The report of `check_env`, whatever it says.

    Args:
        env: As for `check_env`.
        **kwargs: Arguments of the environment.

    Raises:
        ConformanceError: If `env` does not make a `TextEnv`.
    """
    subject = Subject(env, kwargs)
    findings: list[Finding] = []
    first: dict[str, str] = {}
    for check in CHECKS:
        found = finding_of(check, subject)
        if found.error is not None:
            # Once: an environment that cannot begin breaks nearly every promise in the same line.
            name = first.setdefault(found.message, found.check)
            found = found if name == found.check else replace(found, message=f"As {name}.")
        findings.append(found)
    return CheckReport(subject.name, tuple(findings))


def promise_of(check: Check) -> str:
    """The promise that a check is about: the first sentence of its docstring."""
    return " ".join((check.__doc__ or check.__name__).split("\n\n")[0].split())


def finding_of(check: Check, subject: Subject) -> Finding:
    """Run one check."""
    started = time.perf_counter()
    status, message, error, figures = CheckStatus.KEPT, "", None, {}
    try:
        found = check(subject)
        message = found.message if isinstance(found, Figures) else ""
        figures = found or {}
    except SkippedCheck as reason:
        status, message = CheckStatus.SKIPPED, str(reason)
    except NotPromised as reason:
        status, message = CheckStatus.NOT_PROMISED, str(reason)
    except ConformanceError as fault:
        status, message, error = CheckStatus.BROKEN, str(fault), fault
    except Exception as fault:  # noqa: BLE001  whatever an environment raises during a check is a finding
        status, message, error = CheckStatus.BROKEN, told(fault), fault
    seconds = time.perf_counter() - started
    name = check.__name__.removeprefix("check_")
    return Finding(name, promise_of(check), status, message, seconds, figures, error)
