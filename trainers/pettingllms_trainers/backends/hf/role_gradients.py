"""The gradients of the roles of a mini-batch, apart from each other, in the one backward pass."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn

from pettingllms_trainers.learning.role_gradients import Products
from pettingllms_trainers.ranks import Ranks

__all__ = ["RoleGradients"]


class RoleGradients:
    """Takes each role's gradient away when its micro-batches are done; adds them up at the end.

    Until then there is one copy of the gradient for each role in place of one for all: with R roles
    R - 1 more than without, each as large as the trained weights in their own precision.

    Args:
        parameters: The trained weights.
        ranks: The processes that train them together; each has a share of every role.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], ranks: Ranks) -> None:
        self._parameters, self._ranks = list(parameters), ranks
        self._found: dict[str, list[Tensor | None]] = {}
        self.products: Products = {}
        """See `Products`; there after `finish`."""

    def take(self, role: str) -> None:
        """Take what has been added to the gradient since the last call: that of a role."""
        self._found[role] = [parameter.grad for parameter in self._parameters]
        for parameter in self._parameters:
            parameter.grad = None

    def finish(self, roles: Sequence[str]) -> None:
        """Compare the gradients of all ranks together and put their sum back. Collective.

        Args:
            roles: Those of the mini-batch, in the same order on every rank.
        """
        size = len(roles)
        products = torch.zeros(size, size, dtype=torch.float64)
        for index, parameter in enumerate(self._parameters):
            parts = [self._part(role, index) for role in roles]
            if self._ranks.size > 1:
                self._ranks.add(parts)
            stacked = torch.stack([part.flatten() for part in parts]).float()  # [R, weights]
            products += (stacked @ stacked.T).double().cpu()
            whole = parts[0]
            for part in parts[1:]:
                whole.add_(part)
            parameter.grad = whole
        self._found = {}
        self.products = {
            (one, other): float(products[i, j])
            for i, one in enumerate(roles)
            for j, other in enumerate(roles)
        }

    def _part(self, role: str, index: int) -> Tensor:
        """Return a role's gradient of a weight, which is not kept; zeros without any."""
        found = self._found.get(role)
        if found is None or (gradient := found[index]) is None:
            return torch.zeros_like(self._parameters[index])
        found[index] = None
        return gradient
