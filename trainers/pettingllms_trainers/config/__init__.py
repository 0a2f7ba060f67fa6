"""The configuration of a run: TOML files, flags over them, every rule checked here.

Defaults are overridden by the files, files by flags. Attribute docstrings are the help texts.
"""

from pettingllms_trainers.config.algorithm import Algorithm, ValueConfig
from pettingllms_trainers.config.distributed import DeepSpeedConfig, FsdpConfig, RayConfig
from pettingllms_trainers.config.engine import EngineConfig, VLLMConfig, VLLMServerConfig
from pettingllms_trainers.config.env import EnvConfig, EnvEvaluationConfig, StageConfig
from pettingllms_trainers.config.identity import config_hash, decides_results
from pettingllms_trainers.config.learning import LossConfig, OptimizerConfig
from pettingllms_trainers.config.policies import PolicyConfig
from pettingllms_trainers.config.rollout import RoleSamplingConfig, RolloutConfig
from pettingllms_trainers.config.root import Config
from pettingllms_trainers.config.run import (
    CheckpointConfig,
    EvaluationConfig,
    LoggingConfig,
    WarmStartConfig,
)
from pettingllms_trainers.config.updates import PhaseConfig, UpdatesConfig

__all__ = [
    "Algorithm",
    "CheckpointConfig",
    "Config",
    "DeepSpeedConfig",
    "EngineConfig",
    "EnvConfig",
    "EnvEvaluationConfig",
    "EvaluationConfig",
    "FsdpConfig",
    "LoggingConfig",
    "LossConfig",
    "OptimizerConfig",
    "PhaseConfig",
    "PolicyConfig",
    "RayConfig",
    "RoleSamplingConfig",
    "RolloutConfig",
    "StageConfig",
    "UpdatesConfig",
    "VLLMConfig",
    "VLLMServerConfig",
    "ValueConfig",
    "WarmStartConfig",
    "config_hash",
    "decides_results",
]
