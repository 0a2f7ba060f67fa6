"""The network of V: a head on a policy's hidden states.

Legend: B prompts, D hidden size of the policy, W width of V.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pettingllms.seeding import derive_seed
from pettingllms_trainers.backends.hf.weights import cpu_copy
from pettingllms_trainers.config import ValueConfig
from pettingllms_trainers.errors import CheckpointError
from pettingllms_trainers.ranks import Ranks
from pettingllms_trainers.types import ValueExample, ValueFit


class HeadOfPolicy(nn.Module):
    """V of the hidden state at the end of a prompt: a norm and one hidden layer; 0 at first.

    Args:
        hidden_size: D.
        width: W.
    """

    def __init__(self, hidden_size: int, width: int) -> None:
        super().__init__()
        self.layers = nn.Sequential(
            nn.LayerNorm(hidden_size), nn.Linear(hidden_size, width), nn.GELU()
        )
        self.output = nn.Linear(width, 1)
        # Zero at the start: advantages are then those without V.
        nn.init.zeros_(self.output.weight)
        nn.init.zeros_(self.output.bias)

    def forward(self, hidden: Tensor) -> Tensor:
        """``[B]`` from ``[B, D]``."""
        return self.output(self.layers(hidden)).squeeze(-1)


HiddenOf = Callable[[Sequence[tuple[int, ...]]], Tensor]
"""Prompts to the policy's last hidden states ``[B, D]`` at their ends, without gradient."""


class Critic:
    """A network of V with its own optimizer; nothing of it reaches the policy's weights.

    It is evaluated by the trainer, whatever engine generates: a prompt costs one forward pass.

    Args:
        config: Width, learning rate, target, clipping.
        hidden_of: See `HiddenOf`.
        hidden_size: D.
        device: Where V is computed.
        seed: Decides its first weights and the order of examples.
        ranks: The processes that train the policy together; all take over the main one's V.

    Source:
        PPO (arXiv 1707.06347) with its implementation's value clipping. Changed: features are not
        trained by V's loss, so that no coefficient weighs it against the policy's; predictions can
        be shrunk by the share of the variance that they explained (`ValueConfig.shrink`).
    """

    def __init__(
        self,
        config: ValueConfig,
        hidden_of: HiddenOf,
        *,
        hidden_size: int,
        device: torch.device,
        seed: int,
        ranks: Ranks | None = None,
    ) -> None:
        self._config, self._hidden_of, self._device = config, hidden_of, device
        self._seed, self._ranks = seed, ranks or Ranks()
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            network = HeadOfPolicy(hidden_size, config.hidden_size)
        self._network: nn.Module = network.to(device).float()
        self._adamw = torch.optim.AdamW(
            self._network.parameters(), lr=config.learning_rate, weight_decay=0.01
        )
        self._replay: list[list[ValueExample]] = []
        self._num_fits = 0
        self._mean, self._reliability = 0.0, 0.0

    @torch.no_grad()
    def values(self, prompts: Sequence[tuple[int, ...]]) -> list[float]:
        """V of prompts, shrunk if the configuration wants it."""
        if not prompts:
            return []
        predicted = self._predict(self._hidden_of(prompts).float())
        if self._config.shrink:
            predicted = self._mean + self._reliability * (predicted - self._mean)
        return predicted.tolist()

    def fit(self, examples: Sequence[ValueExample]) -> ValueFit:
        """Fit V to the examples of a train step and of those before it that are kept.

        The first figures are of predictions that were made before the fit.
        """
        self._num_fits += 1
        if not examples:
            return ValueFit(num_examples=0, target=0.0, r2=0.0, loss=0.0)
        # Older examples come last: figures are of the first ones.
        known = [example for step in self._replay for example in step]
        data = [*examples, *known]
        features = self._hidden_of([example.prompt_ids for example in data]).float()  # [B, D]
        targets = torch.tensor([e.target for e in data], device=self._device)  # [B]
        # Predictions from before the fit are what clipping and R2 refer to.
        with torch.no_grad():
            before = self._predict(features)
        num = len(examples)
        self._mean = float(targets[:num].mean())
        r2 = _explained(before[:num], targets[:num])
        # A V that is worse than the mean is replaced by the mean.
        self._reliability = max(r2, 0.0)
        loss = self._train(features, targets, before)
        if self._config.replay_steps:
            self._replay = [*self._replay, list(examples)][-self._config.replay_steps :]
        if self._ranks.size > 1:  # float rounding differs between processes
            self._load(self._ranks.broadcast(self.state_dict()))
        return ValueFit(num_examples=num, target=self._mean, r2=r2, loss=loss)

    def _train(self, features: Tensor, targets: Tensor, before: Tensor) -> float:
        config, losses = self._config, [torch.zeros(())]
        generator = torch.Generator().manual_seed(derive_seed(self._seed, self._num_fits))
        for _ in range(config.num_epochs):
            losses = []
            order = torch.randperm(len(targets), generator=generator)
            for indices in order.split(config.batch_size):
                predicted = self._predict(features[indices.to(features.device)])
                loss = _loss(predicted, before[indices], targets[indices], config.clip)
                self._adamw.zero_grad()
                loss.backward()
                # Returns are unbounded; one outlier must not throw V off.
                nn.utils.clip_grad_norm_(self._network.parameters(), 1.0)
                self._adamw.step()
                losses.append(loss.detach())
        return float(torch.stack(losses).mean())

    def _predict(self, features: Tensor) -> Tensor:
        return torch.cat([self._network(part) for part in features.split(self._config.batch_size)])

    def state_dict(self) -> dict[str, Any]:
        """All that an exact resume needs, on the CPU, as tensors, numbers and lists."""
        return {
            "network": cpu_copy(self._network.state_dict()),
            "optimizer": cpu_copy(self._adamw.state_dict()),
            "replay": [[(list(e.prompt_ids), e.target) for e in step] for step in self._replay],
            "num_fits": self._num_fits,
            "mean": self._mean,
            "reliability": self._reliability,
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Continue from a state.

        Raises:
            CheckpointError: It is of another V.
        """
        try:
            self._load(state)
        except (KeyError, RuntimeError, ValueError) as error:
            raise CheckpointError(
                f"checkpoint: its V does not fit ({error}). Resume with the settings of V"
            ) from error

    def _load(self, state: Mapping[str, Any]) -> None:
        self._network.load_state_dict(state["network"])
        self._adamw.load_state_dict(cpu_copy(state["optimizer"]))
        self._replay = [
            [ValueExample(tuple(ids), target) for ids, target in step] for step in state["replay"]
        ]
        self._num_fits = state["num_fits"]
        self._mean, self._reliability = state["mean"], state["reliability"]


def _loss(predicted: Tensor, before: Tensor, targets: Tensor, clip: float) -> Tensor:
    error = (predicted - targets).square()
    if clip:
        # As PPO clips ratios: the pessimistic of both errors.
        limited = before + (predicted - before).clamp(-clip, clip)
        error = torch.maximum(error, (limited - targets).square())
    return error.mean()


def _explained(predicted: Tensor, targets: Tensor) -> float:
    """The share of the targets' variance that predictions explain, at most 1."""
    variance = float(targets.var(unbiased=False))
    if variance < 1e-12:  # equal targets: nothing to explain
        return 0.0
    return 1.0 - float((predicted - targets).square().mean()) / variance
