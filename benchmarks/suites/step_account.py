"""Where does the time of a train step go, and how does it grow?

    python benchmarks/suites/step_account.py

Recipes take two train steps, and the second is accounted for: CPU seconds of each phase, and beside
them what products of matrices alone take at the rate that this machine reaches in a large one of
the same process: 2 operations for each weight and token that is read or written, 6 where it learns,
4 where an adapter does. Sandboxed programs run in processes of their own, which are not counted.
Then a step of the tiny recipe is made two and four times as large along each axis: the slope of
log(seconds) over log(answers) is the exponent, and 1 is linear.
"""

from __future__ import annotations

import functools
import importlib
import math
import statistics
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import measuring
import torch

from pettingllms_trainers.cli import main as train

RECIPES = ("plan_path", "plan_path_smollm2", "math_smollm2", "code_smollm2")
TWO_STEPS = "--num-steps 2 --num-threads 1 --evaluation.num-episodes 2"
# An untaught tiny model writes what games read slowly; a pretrained one spends its time elsewhere.
UNTAUGHT = "--warm-start.num-steps 1 --warm-start.num-episodes 8"
SIZES = (1, 2, 4)
AXES = {
    "levels": ("--rollout.num-levels", 6),
    "candidates": ("--algorithm.num-candidates", 4),
    "decisions": ("--env.kwargs.max_turns", 2),
}
EPISODE = "rollout.episode:BranchingEpisode"
SMALL = " ".join([UNTAUGHT, *(f"{flag} {size}" for flag, size in AXES.values())])
DOORS = {
    "engines": ["backends.hf.engine:TransformersEngine.generate_now"],
    "updates": ["backends.hf.updater:Updater.update_together"],
    "environments": [f"{EPISODE}.{name}" for name in ("start", "branch", "follow", "successors")],
    "tokens of prompts": ["backends.hf.chat:Chat.encode"],
    "credit": ["runs.train:score_decisions", "runs.train:training_groups"],
    "recording": ["runs.recorder:Recorder.rollouts"],
}


def product_gflops(dtype: torch.dtype) -> float:
    """Billions of operations per CPU second in a large product of the shapes of a layer."""
    left, right = torch.randn(2048, 576).to(dtype), torch.randn(576, 1536).to(dtype)
    measuring.timed(lambda: left @ right)  # not counted
    spent, _ = measuring.timed(lambda: [left @ right for _ in range(50)])
    return 50 * 2 * left.numel() * right.shape[1] / spent.cpu_s / 1e9


def watch(path: str, after: Callable[[float, Any, tuple[Any, ...]], None]) -> None:
    """Call `after` with the CPU seconds, the result and the arguments of every call."""
    module, _, names = path.partition(":")
    *owners, name = names.split(".")
    owner: Any = importlib.import_module(f"pettingllms_trainers.{module}")
    for one in owners:
        owner = getattr(owner, one)
    original, is_static = getattr(owner, name), isinstance(vars(owner)[name], staticmethod)
    # Only a whole step is of the process: in it, environments may have threads of their own.
    clock = time.process_time if name == "_take_step" else time.thread_time

    @functools.wraps(original)
    def timed(*given: Any, **options: Any) -> Any:
        begin = clock()
        result = original(*given, **options)
        after(clock() - begin, result, given)
        return result

    setattr(owner, name, staticmethod(timed) if is_static else timed)


class Account:
    """CPU seconds, answers and operations of train steps."""

    def __init__(self) -> None:
        self.steps: list[dict[str, float]] = []
        self._now: Counter[str] = Counter()
        for phase, paths in DOORS.items():
            for path in paths:
                watch(path, functools.partial(self._add, phase))
        watch("runs.train:Trainer._take_step", self._end)

    def _add(self, phase: str, seconds: float, result: Any, given: tuple[Any, ...]) -> None:
        now = self._now
        now[phase] += seconds
        if phase == "engines":
            written = [answer for answers in result for answer in answers]
            now["answers"] += len(written)
            now["tokens"] += sum(len(request.prompt_ids) for request in given[1])
            now["tokens"] += sum(len(answer.token_ids) for answer in written)
        for updater, groups in given[0] if phase == "updates" else ():
            learner = updater.learner
            now["weights"] = learner.model.num_parameters()
            tokens = sum(
                len(group.prompt_ids) + sum(len(one.token_ids) for one in group.completions)
                for group in groups
            )
            now["learnt"] += tokens * now["weights"] * (4 if learner.adapter else 6)

    def _end(self, seconds: float, result: Any, given: tuple[Any, ...]) -> None:
        now, self._now = self._now, Counter()
        phases = {phase: now[phase] for phase in DOORS}
        products = {"engines": 2 * now["tokens"] * now["weights"], "updates": now["learnt"]}
        found = {"step": seconds, **phases, "other": seconds - sum(phases.values())}
        self.steps.append(found | {"answers": now["answers"], "products": products})  # type: ignore[dict-item]

    def of(self, recipe: str, *flags: str) -> dict[str, Any]:
        """The second train step of a run."""
        with tempfile.TemporaryDirectory() as folder:
            words = [f"recipe:{recipe}", *TWO_STEPS.split(), f"--output-dir={folder}/run", *flags]
            is_pretrained = recipe.endswith("smollm2")
            if train(words + UNTAUGHT.split() * is_pretrained):
                raise SystemExit(f"{recipe} failed: {words}")
        rate = product_gflops(torch.bfloat16 if is_pretrained else torch.float32)
        step: Any = self.steps[-1]
        products = {phase: 1e-9 * count / rate for phase, count in step.pop("products").items()}
        return {"recipe": recipe, "product_gflops": rate, "products": products, "seconds": step}


def exponents(rows: Sequence[Mapping[str, float]]) -> dict[str, float]:
    """The slope of log(seconds) over log(answers), by phase."""
    return {
        phase: statistics.linear_regression(
            [math.log(row["answers"]) for row in rows], [math.log(row[phase]) for row in rows]
        ).slope
        for phase in ("step", *DOORS)
    }


def main() -> None:
    parser = measuring.parser_of("step_account", __doc__)
    parser.add_argument("--recipes", nargs="*", default=RECIPES)
    parser.add_argument("--growth", nargs="*", choices=AXES, default=list(AXES))
    options = parser.parse_args()
    result = measuring.frame("step_account", [0]) | {"recipes": [], "growth": {}}
    account = Account()
    for recipe in options.recipes:
        result["recipes"].append(account.of(recipe))
        measuring.write(result, options.output)  # kept if the next one fails
    for axis in options.growth:
        flag, size = AXES[axis]
        larger = [[*SMALL.split(), flag, str(size * times)] for times in SIZES]
        rows = [account.of("plan_path", *flags)["seconds"] for flags in larger]
        result["growth"][axis] = {"exponents": exponents(rows), "seconds": rows}
        measuring.write(result, options.output)


if __name__ == "__main__":
    main()
