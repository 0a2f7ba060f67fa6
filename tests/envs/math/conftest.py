"""A verifier whose comparisons run nothing."""

import pytest

from pettingllms.sandbox import CallResult, ExecutionResult, Status
from pettingllms_envs.math import Verifier


class FakeSandbox:
    """Takes the sandbox's place: notes texts and limits, and runs nothing."""

    status, value, wall_s = Status.OK, ["wrong", ""], 0.0

    def __init__(self, **arguments):
        self.asked, self.limits_s = [], []

    def run_calls(self, program, name, args_list, limits):
        self.asked += args_list
        self.limits_s.append(limits.cpu_s)
        result = ExecutionResult(self.status, "", "", 0, self.wall_s, 0.0, 0, truncated=False)
        return [CallResult(result, self.value, self.status is Status.OK)]


@pytest.fixture
def fake(monkeypatch):
    """A verifier of 2 s, and the sandbox that it asks."""
    sandbox = FakeSandbox()
    monkeypatch.setattr("pettingllms_envs.math.verifier.Sandbox", lambda **arguments: sandbox)
    return Verifier(timeout_s=2.0), sandbox
