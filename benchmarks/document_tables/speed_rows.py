"""Which measured ratios of sandbox and trainer are in the table of speeds, beside their goals."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["SPEED", "Row"]


class Row(NamedTuple):
    """One measured ratio."""

    workload: str
    here: str
    """What a user calls here."""
    there: str
    """What it is compared with."""
    goal: float | None
    """The ratio that was aimed at."""
    source: str
    """Result file and keys of the ratio in it, divided by slashes."""


SPEED = (
    Row(
        "sandbox, trivial program, two streams, tier `namespaces`",
        "`Sandbox.run`",
        "fresh interpreter",
        4,
        "sandbox/figures/trivial_two_streams_over_spawn",
    ),
    Row(
        "sandbox, the same, tier `landlock`",
        "`Sandbox.run`",
        "fresh interpreter",
        3,
        "sandbox_landlock/figures/trivial_two_streams_over_spawn",
    ),
    Row(
        "sandbox, the same, tier `sealed`",
        "`Sandbox.run`",
        "fresh interpreter",
        3,
        "sandbox_sealed/figures/trivial_two_streams_over_spawn",
    ),
    Row(
        "sandbox, the same, tier `namespaces`",
        "`Sandbox.run`",
        "the paper's way",
        30,
        "sandbox/figures/trivial_two_streams_over_paper",
    ),
    Row(
        "sandbox, numpy program",
        "`Sandbox.run`",
        "fresh interpreter",
        15,
        "sandbox/figures/numpy_over_spawn",
    ),
    Row(
        "`code_v0` episodes, four branches",
        "`env.step(text)`",
        "fresh interpreter per test, no cache",
        None,
        "code_math/metrics/code_sandbox_over_fresh",
    ),
    Row(
        "rollout of a train step, 0.43 M weights, 32 prompts of 128 tokens, 8 x 64",
        "`pettingllms-train`",
        "TRL `GRPOTrainer`",
        2.4,
        "trainer_trl/workloads/tiny/ratios/rollout_speedup_over_trl",
    ),
    Row(
        "update of a train step, the same",
        "`pettingllms-train`",
        "TRL `GRPOTrainer`",
        2.5,
        "trainer_trl/workloads/tiny/ratios/update_speedup_over_trl",
    ),
    Row(
        "train step, the same",
        "`pettingllms-train`",
        "TRL `GRPOTrainer`",
        2.3,
        "trainer_trl/workloads/tiny/ratios/step_speedup_over_trl",
    ),
    Row(
        "train step, 0.43 M weights, 8 prompts of 16 tokens, 8 x 128",
        "`pettingllms-train`",
        "TRL `GRPOTrainer`",
        2,
        "trainer_trl/workloads/short_prompts/ratios/step_speedup_over_trl",
    ),
    Row(
        "train step, 0.43 M weights, 8 prompts of 64 tokens, 8 x 256",
        "`pettingllms-train`",
        "TRL `GRPOTrainer`",
        2,
        "trainer_trl/workloads/long_completions/ratios/step_speedup_over_trl",
    ),
    Row(
        "train step, 0.43 M weights, 64 prompts of 32 tokens, 2 x 64",
        "`pettingllms-train`",
        "TRL `GRPOTrainer`",
        2,
        "trainer_trl/workloads/two_completions/ratios/step_speedup_over_trl",
    ),
    Row(
        "train step, 4.2 M weights, 32 prompts of 128 tokens, 8 x 64",
        "`pettingllms-train`",
        "TRL `GRPOTrainer`",
        2,
        "trainer_trl/workloads/bench/ratios/step_speedup_over_trl",
    ),
    Row(
        "train step, 4.2 M weights, 8 prompts of 16 tokens, 8 x 128",
        "`pettingllms-train`",
        "TRL `GRPOTrainer`",
        2,
        "trainer_trl/workloads/bench_short_prompts/ratios/step_speedup_over_trl",
    ),
    Row(
        "generation, 16,384 tokens",
        "`TransformersPolicy.generate`",
        "`transformers.generate`",
        2.4,
        "trainer_throughput/workloads/shared_prompts/ratios/generate_speedup_over_transformers",
    ),
    Row(
        "update, the same tokens",
        "`TransformersPolicy.update`",
        "plain forward and backward",
        None,
        "trainer_throughput/workloads/shared_prompts/ratios/update_speedup_over_plain",
    ),
)
