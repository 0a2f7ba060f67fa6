"""The one way in which model-written code is run.

See README.md in this folder for its use, THREATS.md for the tiers and what is not covered.
"""

from pettingllms.sandbox.api import Sandbox, default_sandbox, probe
from pettingllms.sandbox.isolation import Tier
from pettingllms.sandbox.outcome import CallResult, ExecutionResult, Limits, Status

__all__ = [
    "CallResult",
    "ExecutionResult",
    "Limits",
    "Sandbox",
    "Status",
    "Tier",
    "default_sandbox",
    "probe",
]
