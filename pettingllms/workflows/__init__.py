"""Bring your own workflow: teams that exist as Python code, played as environments.

A workflow is a callable ``run(task, client) -> outcome`` that asks an OpenAI-compatible endpoint;
the name of the model says which role is asked. See docs/workflows.md.
"""

from pettingllms.workflows.command import Command
from pettingllms.workflows.definition import (
    Client,
    Score,
    Workflow,
    WorkflowDiverged,
    WorkflowFailure,
    WorkflowTimeout,
    load_workflow,
)
from pettingllms.workflows.env import WorkflowEnv, WorkflowState
from pettingllms.workflows.tools import call_text

__all__ = [
    "Client",
    "Command",
    "Score",
    "Workflow",
    "WorkflowDiverged",
    "WorkflowEnv",
    "WorkflowFailure",
    "WorkflowState",
    "WorkflowTimeout",
    "call_text",
    "load_workflow",
]
