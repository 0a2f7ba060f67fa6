"""The statistics of one update, collected over its optimizer steps."""

from __future__ import annotations

from collections.abc import Sequence

from pettingllms_trainers.backends.hf.role_gradients import RoleGradients
from pettingllms_trainers.learning.diagnostics import Diagnostics, StepDiagnostics, update_figures
from pettingllms_trainers.learning.minibatch import UpdatePart
from pettingllms_trainers.learning.role_gradients import Products, role_figures
from pettingllms_trainers.ranks import Ranks
from pettingllms_trainers.types import UpdateStats

__all__ = ["UpdateReport"]


class UpdateReport:
    """Collects the diagnostics of all optimizer steps of one update."""

    def __init__(self, engine_gap: tuple[float, float]) -> None:
        self._engine_gap = engine_gap
        self.steps: list[StepDiagnostics] = []
        self._norms: list[float] = []
        self._products: list[Products] = []

    def add(self, diagnostics: Diagnostics, grad_norm: float, roles: RoleGradients | None) -> None:
        """Add one optimizer step."""
        self.steps.append(diagnostics.total())
        self._norms.append(grad_norm)
        if roles is not None:
            self._products.append(roles.products)

    def last_kl(self, ranks: Ranks) -> float:
        """Return `UpdateStats.approx_kl` of the last mini-batch, from before its step. Collective.

        Source: the early stopping of PPO in OpenAI Spinning Up, by mini-batch as in Stable
            Baselines 3. Changed: no factor of 1.5, and the step of the mini-batch that shows it is
            taken.
        """
        last = StepDiagnostics.merged(ranks.gather(self.steps[-1:]))
        return update_figures([last])["approx_kl"]

    def stats(
        self, parts: Sequence[UpdatePart], rate: float, update_kl: float, ranks: Ranks
    ) -> UpdateStats:
        """Return the statistics of the update. Collective.

        Args:
            parts: Those that were trained on.
            rate: Learning rate.
            update_kl: See `UpdateStats`.
            ranks: The processes that train together.
        """
        shares = ranks.gather([self.steps])
        steps = [StepDiagnostics.merged(parts) for parts in zip(*shares, strict=True)]
        lengths = [len(c.token_ids) for part in parts for c in part.group.completions]
        return UpdateStats(
            num_groups=len({part.source for part in parts}),
            num_completions=len(lengths),
            num_tokens=sum(lengths),
            num_optimizer_steps=len(steps),
            engine_gap_mean=self._engine_gap[0],
            engine_gap_max=self._engine_gap[1],
            update_kl=update_kl,
            grad_norm=sum(self._norms) / len(steps),
            learning_rate=rate,
            role_gradients=role_figures(self._products),
            **update_figures(steps),
        )
