"""The configuration of a run: data whose defaults are settled and which keeps every rule."""

from __future__ import annotations

from pydantic import model_validator

from pettingllms_trainers.config.data import ConfigData
from pettingllms_trainers.config.defaults import settled
from pettingllms_trainers.config.rules import AFTER_DEFAULTS, BEFORE_DEFAULTS


class Config(ConfigData):
    """Training of teams of agents on one environment or several."""

    @model_validator(mode="after")
    def _settle_and_check(self) -> Config:
        for rule in BEFORE_DEFAULTS:
            rule(self)
        # The model is frozen for everybody else; what it is made of is complete after this.
        vars(self).update(settled(self))
        for rule in AFTER_DEFAULTS:
            rule(self)
        return self
