"""The configuration of a run: TOML files, flags over them, every rule checked here.

Defaults are overridden by the files, files by flags. Attribute docstrings are the help texts.
"""

from pettingllms_trainers.config.algorithm import (
    AdvantageConfig,
    LossConfig,
    OptimizerConfig,
    RoleSamplingConfig,
    RolloutConfig,
    ValueConfig,
)
from pettingllms_trainers.config.distributed import DeepSpeedConfig, RayConfig
from pettingllms_trainers.config.engine import EngineConfig, VLLMConfig, VLLMServerConfig
from pettingllms_trainers.config.policies import PolicyConfig
from pettingllms_trainers.config.root import Config, config_hash, decides_results, flat_table
from pettingllms_trainers.config.run import (
    CheckpointConfig,
    EnvConfig,
    EvaluationConfig,
    LoggingConfig,
    StageConfig,
    WarmStartConfig,
)

__all__ = [
    "AdvantageConfig",
    "CheckpointConfig",
    "Config",
    "DeepSpeedConfig",
    "EngineConfig",
    "EnvConfig",
    "EvaluationConfig",
    "LoggingConfig",
    "LossConfig",
    "OptimizerConfig",
    "PolicyConfig",
    "RayConfig",
    "RoleSamplingConfig",
    "RolloutConfig",
    "StageConfig",
    "VLLMConfig",
    "VLLMServerConfig",
    "ValueConfig",
    "WarmStartConfig",
    "config_hash",
    "decides_results",
    "flat_table",
]
