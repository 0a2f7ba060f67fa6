"""How a workflow can fail; each is the failure of one branch, and its siblings are not affected."""

from __future__ import annotations

from pettingllms.errors import BranchFailure


class WorkflowFailure(BranchFailure):
    """A workflow raised, made no request, or returned what its reward function cannot score.

    What the workflow raised is its ``__cause__``.
    """


class WorkflowDiverged(WorkflowFailure):
    """A workflow that was run again did not ask what it had asked before.

    Its requests must depend on the task, on ``client.seed`` and on the answers only.
    """


class WorkflowTimeout(WorkflowFailure):
    """A workflow neither asked nor ended within its time limit."""
