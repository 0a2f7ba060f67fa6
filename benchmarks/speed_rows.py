"""Which measured ratios the table of speeds shows, next to their goals."""

from __future__ import annotations

from typing import NamedTuple

__all__ = ["SPEED", "Row"]


class Row(NamedTuple):
    """One measured ratio."""

    workload: str
    peer: str
    """What it is compared with."""
    goal: float | None
    """The ratio that was aimed at."""
    source: str
    """Result file and keys of the ratio in it, divided by slashes."""


SPEED = (
    Row(
        "Plan-Path 10x10, certified levels",
        "reasoning-gym",
        2,
        "plan_path/ratios/levels_per_s_over_reasoning_gym",
    ),
    Row(
        "Plan-Path step and text, core",
        "paper's code (estimate)",
        19,
        "plan_path/ratios/core_steps_over_paper_code_estimate",
    ),
    Row("Plan-Path fork", "copy.deepcopy", None, "plan_path/ratios/fork_over_deepcopy"),
    Row(
        "Sokoban 6x6, 1 box, optimal length known, levels",
        "gem-llm",
        20,
        "games/ratios/sokoban_6x6_1_box_levels_over_gem-llm",
    ),
    Row(
        "Sokoban 6x6, 2 boxes, levels",
        "reasoning-gym",
        6,
        "games/ratios/sokoban_6x6_2_boxes_levels_over_reasoning-gym",
    ),
    Row(
        "Sokoban 6x6, 3 boxes, levels",
        "reasoning-gym",
        3,
        "games/ratios/sokoban_6x6_3_boxes_levels_over_reasoning-gym",
    ),
    Row(
        "Sokoban step and text, core",
        "paper's code (estimate)",
        20,
        "games/ratios/sokoban_core_steps_over_paper_code_estimate",
    ),
    Row(
        "Sokoban `step` and `last` of a team of two, on fresh levels",
        "paper's code (estimate)",
        6,
        "games/ratios/sokoban_aec_steps_over_paper_code_estimate",
    ),
    Row(
        "the same, on and on in one level, as the peers are timed",
        "paper's code (estimate)",
        6,
        "games/ratios/sokoban_aec_steps_on_one_level_over_paper_code_estimate",
    ),
    Row(
        "Sudoku 4x4, unique, 6 clues, puzzles",
        "reasoning-gym",
        3.5,
        "games/ratios/sudoku_4x4_6_clues_levels_over_reasoning-gym",
    ),
    Row(
        "Sudoku 9x9, unique, 40 clues, puzzles",
        "TextArena",
        10,
        "games/ratios/sudoku_9x9_40_clues_levels_over_textarena",
    ),
    Row(
        "Sudoku 9x9, unique, 31 clues, puzzles",
        "gem-llm",
        20,
        "games/ratios/sudoku_9x9_31_clues_levels_over_gem-llm",
    ),
    Row("Sudoku 4x4 step and text", "gem-llm", 4, "games/ratios/sudoku_4x4_steps_over_gem-llm"),
    Row("Sudoku 9x9 step and text", "gem-llm", 10, "games/ratios/sudoku_9x9_steps_over_gem-llm"),
    Row(
        "Sudoku 16x16 step and text",
        "paper's code (estimate)",
        200,
        "games/ratios/sudoku_16x16_steps_over_paper_code_estimate",
    ),
    Row(
        "sandbox, trivial program, two streams, tier `namespaces`",
        "fresh interpreter",
        4,
        "sandbox/figures/trivial_two_streams_over_spawn",
    ),
    Row(
        "sandbox, the same, tier `landlock`",
        "fresh interpreter",
        3,
        "sandbox_landlock/figures/trivial_two_streams_over_spawn",
    ),
    Row(
        "sandbox, the same, tier `sealed`",
        "fresh interpreter",
        3,
        "sandbox_sealed/figures/trivial_two_streams_over_spawn",
    ),
    Row(
        "sandbox, the same, tier `namespaces`",
        "the paper's way",
        30,
        "sandbox/figures/trivial_two_streams_over_paper",
    ),
    Row("sandbox, numpy program", "fresh interpreter", 15, "sandbox/figures/numpy_over_spawn"),
    Row(
        "`code_v0` episodes, four branches",
        "fresh interpreter per test, no cache",
        None,
        "code_math/metrics/code_sandbox_over_fresh",
    ),
    Row(
        "rollout of a train step, 0.43 M weights",
        "TRL `GRPOTrainer`",
        2.4,
        "trainer_trl/workloads/tiny/ratios/rollout_speedup_over_trl",
    ),
    Row(
        "update of a train step, 0.43 M weights",
        "TRL `GRPOTrainer`",
        2.5,
        "trainer_trl/workloads/tiny/ratios/update_speedup_over_trl",
    ),
    Row(
        "train step, 0.43 M weights",
        "TRL `GRPOTrainer`",
        2.3,
        "trainer_trl/workloads/tiny/ratios/step_speedup_over_trl",
    ),
    Row(
        "train step, 4.2 M weights",
        "TRL `GRPOTrainer`",
        2.8,
        "trainer_trl/workloads/bench/ratios/step_speedup_over_trl",
    ),
    Row(
        "generation, 16,384 tokens",
        "`transformers.generate`",
        2.4,
        "trainer_throughput/workloads/shared_prompts/ratios/generate_speedup_over_transformers",
    ),
    Row(
        "update, the same tokens",
        "plain forward and backward",
        None,
        "trainer_throughput/workloads/shared_prompts/ratios/update_speedup_over_plain",
    ),
)
