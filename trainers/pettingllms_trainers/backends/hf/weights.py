"""The weights of a model as the processes of a run hold them: full on each, or sharded."""

from __future__ import annotations

import contextlib
import pickle
from collections.abc import Generator, Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from transformers import PreTrainedModel

from pettingllms.files import whole_file
from pettingllms_trainers.errors import CheckpointError
from pettingllms_trainers.ranks import Ranks


class Replicated:
    """Every process holds every weight in full; placements that shard them are subclasses."""

    is_sharded = False
    """Whether no process holds full weights, so that the model itself cannot generate."""

    def full(self, parameter: nn.Parameter) -> contextlib.AbstractContextManager[Tensor]:
        """The context in which a weight is full here, and gives it; collective."""
        return contextlib.nullcontext(parameter.detach())

    def write(self, parameter: nn.Parameter, value: Tensor) -> None:
        """Replace a weight by a full one that every process has; collective."""
        parameter.copy_(value)

    def held(self, parameter: nn.Parameter) -> Tensor:
        """The tensor whose data is what this process holds of a weight."""
        return parameter

    @contextlib.contextmanager
    def exchanged(self, held: Mapping[str, Tensor], other: Mapping[str, Tensor]) -> Generator[None]:
        """Let what is held and as many other tensors change places for a while."""
        # Data are exchanged, not parameters: optimizers and hooks hold on to these.
        own = {name: tensor.data for name, tensor in held.items()}
        try:
            for name, tensor in held.items():
                tensor.data = other[name]
            yield
        finally:
            for name, tensor in held.items():
                tensor.data = own[name]

    def shape(self, parameter: nn.Parameter) -> tuple[int, ...]:
        """The shape of a full weight."""
        return tuple(parameter.shape)

    def forget_gathered(self) -> None:
        """Drop full weights that are left from a forward pass."""


class ModelWeights:
    """The weights of a model, and which of them are trained.

    Args:
        model: Has them.
        ranks: The processes that hold them; None for this one alone.
        placement: How they are held; None: in full on each.
        trained: Weights by name that are trained; None: those that require a gradient.
    """

    def __init__(
        self,
        model: PreTrainedModel,
        ranks: Ranks | None = None,
        placement: Replicated | None = None,
        trained: Mapping[str, nn.Parameter] | None = None,
    ) -> None:
        self.model, self._ranks = model, ranks or Ranks()
        self._placement = placement or Replicated()
        self.is_sharded = self._placement.is_sharded
        if trained is None:
            trained = {name: p for name, p in model.named_parameters() if p.requires_grad}
        self.trained = trained
        """Name to weight, whose tensor may be empty here where weights are sharded."""
        self._shapes = {name: self._placement.shape(p) for name, p in self.trained.items()}

    def named(self) -> Iterator[tuple[str, Tensor]]:
        """Yield all full weights, one at a time where they are sharded; tied ones once."""
        for name, parameter in self.model.named_parameters():
            with self._placement.full(parameter) as weight:
                yield name, weight.clone() if self.is_sharded else weight

    def save_pretrained(self, directory: Path) -> None:
        """Write the model as an ordinary Hugging Face directory; the main rank does. Collective."""
        full = None
        if self.is_sharded:
            # All ranks take part in putting weights together; the main one keeps them.
            full = {name: w.cpu() for name, w in self.named() if self._ranks.is_main}
        if self._ranks.is_main:
            self.model.save_pretrained(directory, state_dict=full)
        self._ranks.barrier()

    def copy(self) -> dict[str, Tensor]:
        """A copy of what this rank holds of the trained weights; see `holding`."""
        self._placement.forget_gathered()
        return {name: self._placement.held(p).detach().clone() for name, p in self.trained.items()}

    @contextlib.contextmanager
    def holding(self, copy: Mapping[str, Tensor]) -> Generator[None]:
        """Compute with other weights for a while: a reference costs no second model."""
        held = {name: self._placement.held(p) for name, p in self.trained.items()}
        self._placement.forget_gathered()  # else full weights that are still here would count
        with self._placement.exchanged(held, copy):
            yield
            self._placement.forget_gathered()

    def export_copy(self, copy: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Full weights of a copy on the CPU, those that this rank saves. Collective."""
        saved: dict[str, Tensor] = {}
        with self.holding(copy):
            for name, parameter, is_saved in self.dealt():
                with self._placement.full(parameter) as weight:
                    if is_saved:
                        saved[name] = weight.to("cpu", copy=True)
        return saved

    def import_copy(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """A copy, as `copy` does, of full weights.

        Raises:
            CheckpointError: They are of another model.
        """
        self.check(weights)
        held = self.copy()
        with self.holding(held):
            self._write(weights)
        return held

    def load(self, weights: Mapping[str, Tensor]) -> None:
        """Replace the trained weights by full ones of the same model.

        Raises:
            CheckpointError: They are of another model; nothing was changed.
        """
        self.check(weights)
        self._write(weights)

    @torch.no_grad()
    def _write(self, weights: Mapping[str, Tensor]) -> None:
        for name, parameter in self.trained.items():
            self._placement.write(parameter, weights[name])

    def dealt(self) -> Iterator[tuple[str, nn.Parameter, bool]]:
        """Yield the trained weights with their names, and whether this rank saves them."""
        for index, (name, parameter) in enumerate(self.trained.items()):
            yield name, parameter, index % self._ranks.size == self._ranks.rank

    def check(self, weights: Mapping[str, Tensor]) -> None:
        """Raise `CheckpointError` unless weights have names and shapes of the trained ones."""
        own = self._shapes
        given = {name: tuple(tensor.shape) for name, tensor in weights.items()}
        if own != given:
            different = sorted(name for name in own | given if own.get(name) != given.get(name))
            raise CheckpointError(
                f"checkpoint: {len(different)} of {len(own)} weights differ in name or shape, "
                f"first {different[0]!r}: {given.get(different[0])} instead of "
                f"{own.get(different[0])}. Resume with the model that the run was started with"
            )


def cpu_copy(value: Any, seen: dict[int, Tensor] | None = None) -> Any:
    """A copy on the CPU of nested state; tensors that share memory (tied) still do."""
    seen = {} if seen is None else seen
    if isinstance(value, Tensor):
        # Empty tensors share the address 0.
        key = value.data_ptr() if value.numel() else id(value)
        if key not in seen or seen[key].shape != value.shape:
            seen[key] = value.detach().to("cpu", copy=True)
        return seen[key]
    if isinstance(value, Mapping):
        return {name: cpu_copy(part, seen) for name, part in value.items()}
    if isinstance(value, list | tuple):
        return type(value)(cpu_copy(part, seen) for part in value)
    return value


_MAIN = "state.pt"


def read_state(path: Path) -> dict[str, Any]:
    """A state, its tensors on the CPU.

    Raises:
        CheckpointError: The file is missing or damaged.
    """
    try:
        # Mapped: what is not used of a large state is not read.
        return torch.load(path, weights_only=True, map_location="cpu", mmap=True)
    except (RuntimeError, OSError, EOFError, pickle.UnpicklingError) as error:
        raise CheckpointError(
            f"{path} cannot be read ({error}). Continue from an earlier state, or from the start"
        ) from error


def write_share(directory: Path, rank: int, state: Mapping[str, Any]) -> None:
    """Write what one rank saves of a state whole, in place of an earlier one, and durable.

    Args:
        directory: Of the state; it exists.
        rank: Names the file.
        state: Entries, or the rank's parts of entries that are tables.
    """
    # A checkpoint counts as written when its directory is renamed: its bytes must be there.
    with whole_file(directory / (_MAIN if rank == 0 else f"state-{rank}.pt"), "wb") as file:
        torch.save(dict(state), file)


def read_shares(directory: Path) -> dict[str, Any]:
    """The state that all ranks have written into a directory, put together.

    Raises:
        CheckpointError: A file is missing or damaged.
    """
    whole = read_state(directory / _MAIN)
    for path in sorted(directory.glob("state-*.pt")):
        for name, value in read_state(path).items():
            whole[name] = whole[name] | value if isinstance(value, dict) else value
    return whole
