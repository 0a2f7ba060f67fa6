"""What the viewer refuses."""

from __future__ import annotations

from pettingllms.errors import PettingLLMsError


class ViewerError(PettingLLMsError, ValueError):
    """A path is no run, a run has nothing to show, or the page cannot be written."""
