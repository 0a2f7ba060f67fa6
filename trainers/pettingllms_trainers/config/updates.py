"""The part of a configuration that says which policies are updated in which train steps."""

from __future__ import annotations

from bisect import bisect_right
from itertools import accumulate

from pydantic import Field, model_validator

from pettingllms_trainers.config.section import Section


class PhaseConfig(Section):
    """Train steps in which some policies are updated; without policies and roles all are."""

    policies: tuple[str, ...] = ()
    """Policies that are updated; the others play with the weights that they have."""
    roles: tuple[str, ...] = ()
    """Roles whose samples are trained on, by the policies that play them, or by those of them that
    policies names. In a run of several environments also "ENV.ROLE"."""
    num_steps: int | None = Field(default=None, ge=1)
    """Train steps of the phase. Unless phases repeat, the last one has none and lasts to the end of
    the run."""


class UpdatesConfig(Section):
    """Updates in turns: alternating ones, or one policy after the other.

    A policy that is not updated keeps weights, optimizer state and its place in the schedule of the
    learning rate bit for bit. Its decisions have one candidate in a tree.
    """

    phases: tuple[PhaseConfig, ...] = ()
    """Tables [[updates.phases]], in order; none: every train step updates all policies."""
    repeat: bool = False
    """Whether the first phase follows the last one."""
    branch_frozen: bool = False
    """Whether decisions of roles that are not trained have K candidates in a tree too: these
    explore, by algorithm.branch_choice, and cost K times the tokens; none of them is trained on."""

    @model_validator(mode="after")
    def _check_lengths(self) -> UpdatesConfig:
        if self.repeat and not self.phases:
            raise ValueError("updates.repeat = true needs phases: add tables [[updates.phases]]")
        for number, phase in enumerate(self.phases, 1):
            is_endless = number == len(self.phases) and not self.repeat
            if is_endless and phase.num_steps is not None:
                raise ValueError(
                    f"phase {number} of updates.phases has num_steps = {phase.num_steps}; the last "
                    "phase lasts to the end of the run: remove its num_steps, or set "
                    "updates.repeat = true"
                )
            if not is_endless and phase.num_steps is None:
                raise ValueError(
                    f"phase {number} of updates.phases has no num_steps; only the last phase may "
                    "have none, and only where updates.repeat is false"
                )
        return self

    def phase_at(self, step: int) -> int:
        """Return the index of the phase of a train step; it depends on nothing else.

        Args:
            step: Train steps that come before it, from 0.
        """
        if not self.phases:
            return 0
        ends = list(accumulate(phase.num_steps or 0 for phase in self.phases))
        if self.repeat:
            return bisect_right(ends, step % ends[-1])
        return bisect_right(ends[:-1], step)
