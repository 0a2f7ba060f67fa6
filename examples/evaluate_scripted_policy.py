"""Evaluate scripted policies on held-out levels, with 95 % intervals.

Two assignments play the same levels: a planner that plays like the oracle, and one that moves at
random. A model behind an endpoint is named in the same place, `openai:MODEL@URL`.
"""

import tempfile
from pathlib import Path

from pettingllms.evaluation import EvaluationPlan, RunFolder, compare, evaluate, summarise


def main() -> None:
    """Play 40 levels with both assignments and compare them level by level."""
    plan = EvaluationPlan(
        env_id="plan_path_v0",
        env_kwargs={"team": "proposer-planner", "size": 6, "split": "test"},
        variants={
            "main": {"proposer": "oracle", "planner": "oracle"},
            "random planner": {"proposer": "oracle", "planner": "random"},
        },
        num_levels=40,
    )
    with tempfile.TemporaryDirectory() as parent:
        folder = RunFolder.create(Path(parent) / "run", plan)
        evaluate(folder)
        results = list(folder.results())
    for name, variant in summarise(plan, results).variants.items():
        low, high = variant.success.low, variant.success.high
        print(f"{name}: {variant.success.value:.2f} (95 % interval {low:.2f} to {high:.2f})")
    first, second = ([r for r in results if r.variant == variant] for variant in plan.variants)
    change = compare(first, second).success.difference
    print(f"paired difference: {change.value:.2f} ({change.low:.2f} to {change.high:.2f})")


if __name__ == "__main__":
    main()
