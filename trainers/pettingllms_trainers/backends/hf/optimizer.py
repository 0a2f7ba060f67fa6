"""AdamW on the weights of a model: gradients in, steps out, and its state in checkpoints."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pettingllms_trainers.backends.hf.quantised import adamw_8bit
from pettingllms_trainers.backends.hf.weights import ModelWeights, cpu_copy
from pettingllms_trainers.config import OptimizerConfig
from pettingllms_trainers.errors import CheckpointError
from pettingllms_trainers.learning.loss import Products
from pettingllms_trainers.ranks import Ranks

MOMENTS = ("exp_avg", "exp_avg_sq")
"""What AdamW calls its moments."""


def adamw(weights: ModelWeights, config: OptimizerConfig) -> torch.optim.Optimizer:
    """AdamW for the trained weights; biases and the gains of norms are not decayed."""
    parameters = list(weights.trained.values())
    groups = [
        {"params": [p for p in parameters if p.ndim >= 2]},
        {"params": [p for p in parameters if p.ndim < 2], "weight_decay": 0.0},
    ]
    # An adapter has no biases, and an optimizer takes no empty group.
    groups = [group for group in groups if group["params"]]
    if config.state_bits == 8:
        return adamw_8bit(groups, config)
    return torch.optim.AdamW(
        groups,
        lr=config.learning_rate,
        betas=config.betas,
        weight_decay=config.weight_decay,
        fused=weights.model.device.type in ("cpu", "cuda"),
    )


class Optimizer:
    """AdamW of torch: every process holds all of it, and gradients are added up over processes.

    All methods are collective.

    Args:
        weights: Trained in place.
        config: Betas, weight decay, clipping.
        ranks: The processes that train them together; None for this one alone.
    """

    def __init__(
        self, weights: ModelWeights, config: OptimizerConfig, ranks: Ranks | None = None
    ) -> None:
        self._weights, self._config, self._ranks = weights, config, ranks or Ranks()
        self.forward: Any = weights.model
        """What computes with the weights: the model, or what wraps it."""
        self._adamw = adamw(weights, config)

    def backward(self, loss: Tensor, *, is_last: bool) -> None:
        """Add the gradient of a micro-batch to that of the mini-batch."""
        loss.backward()

    def step(self, learning_rate: float, *, is_reduced: bool = False) -> float:
        """Change the weights, unless the gradient is not finite; return its norm.

        Args:
            learning_rate: Of this step.
            is_reduced: Whether every rank has the gradient of all already.
        """
        parameters = list(self._weights.trained.values())
        if self._ranks.size > 1 and not is_reduced:
            for parameter in parameters:
                # A rank without a share of a weight, such as an idle expert, adds nothing to it.
                if parameter.grad is None:
                    parameter.grad = torch.zeros_like(parameter)
            self._ranks.add([p.grad for p in parameters if p.grad is not None])
        return self._take_step(
            learning_rate, nn.utils.clip_grad_norm_(parameters, self._config.max_grad_norm)
        )

    def _take_step(self, learning_rate: float, grad_norm: Tensor) -> float:
        # Clipping has multiplied the gradients by it: a step along NaN could not be undone.
        norm = float(grad_norm)
        if math.isfinite(norm):
            for group in self._adamw.param_groups:
                group["lr"] = learning_rate
            self._adamw.step()
        return norm

    def clear_gradients(self) -> None:
        """Forget the gradients, also those of a step that failed."""
        self._adamw.zero_grad()

    def restart(self) -> None:
        """Forget the moments of the gradients: the next step is as the first one."""
        self._adamw.state.clear()

    def load_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Replace the trained weights by full ones of the same model.

        Raises:
            CheckpointError: They are of another model; nothing was changed.
        """
        self._weights.load(weights)

    def state_dict(self) -> dict[str, Any]:
        """Copies of trained weights and moments on the CPU: what this rank saves."""
        if not self._ranks.is_main:
            return {}
        return {
            "model": cpu_copy(self._weights.trained),
            "optimizer": cpu_copy(self._adamw.state_dict()),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state of the same model, weights included.

        Raises:
            CheckpointError: The state is of another model or optimizer; nothing was changed.
        """
        self._weights.check(state["model"])
        try:
            self._adamw.load_state_dict(cpu_copy(state["optimizer"]))
        except (KeyError, ValueError) as error:
            raise CheckpointError(
                f"checkpoint: its optimizer state does not fit ({error}); it needs the state of "
                "the same model and optimizer. Resume with the configuration of the run"
            ) from error
        self.load_weights(state["model"])


class ShardedOptimizer(Optimizer, ABC):
    """AdamW of which every process holds a part.

    Every rank saves some weights, in full, so that another number of ranks can resume.
    """

    library = "shards"
    """What shards, for the message about a checkpoint that was written without it."""

    @abstractmethod
    def _full(self, parameter: nn.Parameter) -> dict[str, Tensor]:
        """A weight and its `MOMENTS`, by what they are called in a state. Collective."""

    @abstractmethod
    def _set_moments(self, moments: Mapping[str, Mapping[str, Tensor]], num_steps: int) -> None:
        """Take over full moments by kind and name of weight, and how many steps made them."""

    @abstractmethod
    def _num_steps(self) -> int:
        """Steps that the moments are of."""

    def state_dict(self) -> dict[str, Any]:
        saved: dict[str, Any] = {kind: {} for kind in ("model", *MOMENTS)}
        for name, parameter, is_saved in self._weights.dealt():
            for kind, whole in self._full(parameter).items():
                if is_saved:
                    saved[kind][name] = whole.to("cpu", copy=True)
        return saved | {"num_optimizer_steps": self._num_steps()}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        if not set(state) >= {*MOMENTS, "num_optimizer_steps"}:
            raise CheckpointError(
                f"checkpoint: it was written without {self.library}. Resume with the "
                "configuration of the run"
            )
        for kind in MOMENTS:
            self._weights.check(state[kind])
        self.load_weights(state["model"])
        self._set_moments({kind: state[kind] for kind in MOMENTS}, state["num_optimizer_steps"])


class RoleGradients:
    """Keeps the gradients of roles apart until all are there, and then adds them up.

    With R roles it holds R - 1 gradients more than an update without it, each as large as the
    trained weights in their own precision.

    Args:
        parameters: The trained weights.
        ranks: The processes that train them together.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], ranks: Ranks) -> None:
        self._parameters, self._ranks = list(parameters), ranks
        self._found: dict[str, list[Tensor | None]] = {}
        self.products: Products = {}
        """Inner products of the gradients; empty before `finish`."""

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
            # Each rank has a part of every role; products are of the sums.
            if self._ranks.size > 1:
                self._ranks.add(parts)
            # Summed in float64 over the weights: a cosine is a sum of millions of small products.
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
        """A role's gradient of a weight, which is not kept; zeros without any."""
        found = self._found.get(role)
        if found is None or (gradient := found[index]) is None:
            return torch.zeros_like(self._parameters[index])
        found[index] = None
        return gradient
