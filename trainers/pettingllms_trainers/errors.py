"""Errors of the trainer, all of which are a `TrainerError`."""

from __future__ import annotations

from pettingllms.ends import End
from pettingllms.errors import InvalidArgument, PettingLLMsError, install_command


def reason_of(error: BaseException) -> str:
    """The first line of what an error says; its type if it says nothing."""
    return next(iter(str(error).strip().splitlines()), type(error).__name__)


class TrainerError(PettingLLMsError):
    """Base of all errors of the trainer; those of bad input are a `ValueError`, too."""


class ConfigError(TrainerError, ValueError):
    """A run file or a command-line flag is wrong, or what it asks for is not available."""


class MissingPackage(ConfigError):
    """A key needs an optional package.

    Args:
        key: What needs it, as in a run file.
        package: Its name on the package index.
        extra: The extra of pettingllms-trainers that brings it.
        why: What importing it raised.
    """

    def __init__(self, key: str, package: str, extra: str, why: object = "not installed") -> None:
        super().__init__(
            f"{key} needs the package {package}, which cannot be used ({why}). Install it with: "
            + install_command(extra, "pettingllms-trainers")
        )


class OutputDirError(TrainerError, ValueError):
    """The output directory of a run cannot be used."""


class CheckpointError(TrainerError, ValueError):
    """A checkpoint is missing, damaged, or of another run."""


class GroupError(TrainerError, RuntimeError):
    """Decisions cannot be compared: keys clash, or a choice or a finite advantage is missing."""


class RolloutError(TrainerError, RuntimeError):
    """More rollouts failed than the run allows."""


class ContextExceeded(TrainerError, InvalidArgument):
    """A prompt and the longest answer to it are longer than the context of the model."""

    end = End.CONTEXT
    """How an episode ends in which this prompt would come next."""


class EpisodeFailure(TrainerError, RuntimeError):
    """An episode cannot go on; others can.

    Args:
        end: How the episode ends.
        kind: Names the failure without its details: each kind is logged once. Empty: the message.
    """

    def __init__(self, message: str, end: End = End.ENVIRONMENT, kind: str = "") -> None:
        super().__init__(message)
        self.end, self.kind = end, kind


class BudgetSpent(TrainerError, RuntimeError):
    """Scoring answers has used up its money or its time; the run can be resumed with more."""


class WorkerLost(TrainerError, RuntimeError):
    """A process that holds a policy has ended; the run can be resumed from its checkpoint."""


class GenerationError(TrainerError, RuntimeError):
    """An engine cannot generate: logits are not finite, it failed, or it cannot take weights."""


class UpdateError(TrainerError, RuntimeError):
    """An optimizer step failed: loss or gradient not finite, too little memory, another engine.

    The weights are those of the last optimizer step that succeeded.
    """


class StuckError(TrainerError, RuntimeError):
    """Nothing is learnt any more, and the run was to stop then; it can be resumed."""


class RankError(TrainerError, RuntimeError):
    """The processes of a run cannot reach each other, or one of them has ended."""
