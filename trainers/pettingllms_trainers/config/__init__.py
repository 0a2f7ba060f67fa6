"""The configuration of a run: TOML files, flags over them, every rule checked here.

Defaults are overridden by the files, files by flags. Attribute docstrings are the help texts.
"""

from pettingllms_trainers.config.algorithm import Algorithm, ValueConfig
from pettingllms_trainers.config.root import Config, config_hash
from pettingllms_trainers.config.sections import (
    DeepSpeedConfig,
    EngineConfig,
    EnvConfig,
    LoggingConfig,
    LossConfig,
    OptimizerConfig,
    PolicyConfig,
    RolloutConfig,
)

__all__ = [
    "Algorithm",
    "Config",
    "DeepSpeedConfig",
    "EngineConfig",
    "EnvConfig",
    "LoggingConfig",
    "LossConfig",
    "OptimizerConfig",
    "PolicyConfig",
    "RolloutConfig",
    "ValueConfig",
    "config_hash",
]
