"""Errors of the trainer, all of which are a `TrainerError`."""

from __future__ import annotations

from pettingllms.ends import End
from pettingllms.errors import InvalidArgument, PettingLLMsError, install_command


class TrainerError(PettingLLMsError):
    """Base of all errors of the trainer."""


class ConfigError(TrainerError, ValueError):
    """A run file or a command-line flag is wrong."""


class MissingPackage(ConfigError):
    """A key needs an optional package.

    Args:
        key: What needs it, as in a run file.
        extra: The extra of pettingllms-trainers that brings it.
    """

    def __init__(self, key: str, package: str, extra: str, why: object = "not installed") -> None:
        super().__init__(
            f"{key} needs the package {package}, which cannot be used ({why}). Install it with: "
            + install_command(extra, "pettingllms-trainers")
        )


class OutputDirError(TrainerError, ValueError):
    """The output directory of a run cannot be used."""


class CheckpointError(TrainerError, ValueError):
    """A checkpoint is damaged or belongs to another run."""


class GroupError(TrainerError, ValueError):
    """Candidates of different prompts, or the same ones twice, were put into one group."""


class RolloutError(TrainerError, RuntimeError):
    """More rollouts failed than the run allows."""


class ContextExceeded(TrainerError, InvalidArgument):
    """A prompt and the longest answer to it are longer than the context of the model."""

    end = End.CONTEXT


class EpisodeFailure(TrainerError, RuntimeError):
    """An episode cannot go on; others can.

    Args:
        kind: What it has in common with messages that differ in details; none: the message itself.
    """

    def __init__(self, message: str, end: End = End.ENVIRONMENT, kind: str = "") -> None:
        super().__init__(message)
        self.end, self.kind = end, kind


class BudgetSpent(TrainerError, RuntimeError):
    """Judges have taken the money or the time that they may; the run can be resumed with more."""


class WorkerLost(TrainerError, RuntimeError):
    """A process that holds a policy has ended; the run can be resumed from its checkpoint."""


class GenerationError(TrainerError, RuntimeError):
    """The model gives no usable distribution over tokens: its logits are NaN or infinite."""


class UpdateError(TrainerError, RuntimeError):
    """The loss or its gradient is NaN or infinite, or memory does not suffice.

    The weights were left as they are.
    """


class StuckError(TrainerError, RuntimeError):
    """Nothing is learnt any more, and the run was to stop then; it can be resumed."""


class RankError(TrainerError, RuntimeError):
    """The processes of a run cannot reach each other, or one of them has ended."""
