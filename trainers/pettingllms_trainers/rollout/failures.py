"""Failed rollouts are data, not a crash: counted, logged once, and too many stop the run."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field

from pettingllms_trainers.errors import RolloutError

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class FailureLog:
    """Failures of rollouts: counted per call, each cause logged once per run."""

    max_failed_fraction: float = 0.0
    """Share of the trees, or of the candidates, of one call that may fail."""
    _logged: set[str] = field(default_factory=set[str])

    def log(
        self, cause: str, error: Exception | None = None, kind: str = "", details: str = ""
    ) -> None:
        """Log a cause, unless its kind has been logged before.

        Args:
            cause: What failed.
            error: Whose traceback is shown.
            kind: What it has in common with causes that differ in details; none: the cause itself.
            details: A traceback as text, of an error of another process.
        """
        kind = kind or cause
        if kind not in self._logged:
            self._logged |= {kind, cause}
            text = f"{cause}\n{details}" if details else cause
            logger.warning("a rollout failed and is left out: %s", text, exc_info=error)

    def check(self, num_failed: int, num_all: int, what: str, cause: str) -> None:
        """Stop the run when too much failed.

        Raises:
            RolloutError: More than the allowed share failed; carries the cause.
        """
        if num_failed > self.max_failed_fraction * num_all:
            raise RolloutError(
                f"{num_failed} of {num_all} {what} failed, more than the allowed share of "
                f"{self.max_failed_fraction:g} (rollout.max_failed_fraction). Cause: {cause}"
            )
