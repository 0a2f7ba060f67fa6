"""Train steps of the trainer compared with those of TRL's `GRPOTrainer`, on the same work.

    python benchmarks/suites/trainer_trl.py --trl-python PYTHON

A step samples completions of an exact length for prompts of an exact length, rewards them, and
takes one optimizer step on all of them: GRPO without reference model, AdamW, gradients clipped to
norm 1, float32. Every workload names its model and its shape: how many prompts of how many tokens,
with how many completions of how many tokens each. Two completions are the fewest that TRL takes.
 Both sides start from the same weights, read the same prompts and pay
the same reward; no end token can be sampled. The numbers of prompt, sampled and trained tokens and
of optimizer steps are checked after every step on both sides.

TRL runs in a process of its own, with the interpreter that has it, and takes its steps in turn with
ours; who begins changes from round to round. Both use one thread; times are CPU seconds. Ours is
the way of a train step: environment, rollout trees, groups, advantages, update. TRL's rollout is
`_generate_and_score_completions`, its update the rest of the step. Micro-batches are small on both
sides: on a CPU these are the fastest. The first round is thrown away.
"""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import measuring
import torch
from trainer_words import LEARNING_RATE, Ours, Shape, Size, save_model
from transformers.utils import logging as transformers_logging

PEER = Path(__file__).with_name("trainer_trl_peer.py")
TINY, BENCH = Size(1024, 128, 256, 2), Size(4096, 256, 768, 4)
WORKLOADS = {
    "tiny": (TINY, Shape(32, 128, 8, 64)),
    "bench": (BENCH, Shape(32, 128, 8, 64)),
    "short_prompts": (TINY, Shape(8, 16, 8, 128)),
    "long_completions": (TINY, Shape(8, 64, 8, 256)),
    "two_completions": (TINY, Shape(64, 32, 2, 64)),
    "bench_short_prompts": (BENCH, Shape(8, 16, 8, 128)),
}


class MicroBatchSizes(NamedTuple):
    """What each side has in memory at once."""

    our_tokens: int
    """0: as many as the rows of TRL hold."""
    trl_rows: int

    def for_shape(self, shape: Shape) -> MicroBatchSizes:
        """The same with both numbers known."""
        length = shape.prompt_length + shape.completion_length
        return self._replace(our_tokens=self.our_tokens or self.trl_rows * length)


class Theirs:
    """A process of TRL that takes a step on request."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.about = self._answer()

    def step(self) -> dict[str, float]:
        """Run one optimizer step there; return its report."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"TRL has ended with exit code {self._process.wait()}; see above")
        return json.loads(line)


@contextmanager
def trl(python: str, settings: Mapping[str, Any]) -> Generator[Theirs]:
    """Run TRL for as long as the context is open."""
    path = Path(settings["output_dir"]) / "settings.json"
    path.write_text(json.dumps(settings), encoding="utf-8")
    with subprocess.Popen(
        [python, str(PEER), str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
    ) as process:
        try:
            yield Theirs(process)
        finally:
            process.kill()


def check(side: str, shape: Shape, step: int, figures: Mapping[str, float]) -> None:
    """End the run unless a step did the work that is compared."""
    num_sampled = shape.num_rows * shape.completion_length
    expected = {
        "num_completions": shape.num_rows,
        "num_prompt_tokens": shape.num_rows * shape.prompt_length,
        "num_sampled_tokens": num_sampled,
        "num_trained_tokens": num_sampled,
        "num_optimizer_steps": step + 1,
    }
    found = {name: figures[name] for name in expected}
    if found != expected:
        raise SystemExit(f"{side} did other work in step {step}: {found}, expected {expected}")
    if figures["num_with_advantage"] < 0.99 * shape.num_rows:
        raise SystemExit(f"{side} had advantages for {figures['num_with_advantage']:.0f} only")


def measure(
    size: Size,
    shape: Shape,
    python: str,
    micro_batch: MicroBatchSizes,
    num_rounds: int,
    save: Callable[[Size, Path], None] = save_model,
) -> dict[str, Any]:
    """The figures of a workload; `save` writes the model that both sides read.

    Both sides take steps in turn; the first step of each is not counted.
    """
    num_steps, micro_batch = num_rounds + 1, micro_batch.for_shape(shape)
    series: dict[str, list[dict[str, float]]] = {"ours": [], "trl": []}
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as runner:
        model = Path(folder) / "model"
        save(size, model)
        ours = Ours(size, shape, model, micro_batch.our_tokens, runner)
        settings = {
            "model": str(model),
            "output_dir": folder,
            "prompts": [text for step in range(num_steps) for text in ours.prompts(step)],
            "num_steps": num_steps,
            "num_rows": shape.num_rows,
            "rows_per_microbatch": micro_batch.trl_rows,
            "num_candidates": shape.num_candidates,
            "completion_length": shape.completion_length,
            "learning_rate": LEARNING_RATE,
        }
        with trl(python, settings) as theirs:
            if theirs.about["num_parameters"] != ours.num_parameters:
                raise SystemExit(f"TRL has another model: {theirs.about}")
            for step in range(num_steps):
                for side in ("ours", "trl") if step % 2 else ("trl", "ours"):
                    figures = theirs.step() if side == "trl" else ours.step(step)
                    check(side, shape, step, figures)
                    series[side].append(figures)
    workload = size._asdict() | shape._asdict() | micro_batch._asdict() | theirs.about
    counted = {side: figures[1:] for side, figures in series.items()}
    return {"workload": workload, **summary(shape, counted)}


def phases(steps: Sequence[Mapping[str, float]]) -> dict[str, list[float]]:
    """The seconds of the phases of some steps."""
    return {
        "rollout": [step["rollout_cpu_s"] for step in steps],
        "update": [step["step_cpu_s"] - step["rollout_cpu_s"] for step in steps],
        "step": [step["step_cpu_s"] for step in steps],
        "step_wall": [step["step_wall_s"] for step in steps],
    }


def summary(shape: Shape, series: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, Any]:
    """Seconds, rates and ratios of the phases."""
    seconds = {side: phases(steps) for side, steps in series.items()}
    num_tokens = shape.num_rows * shape.completion_length
    return {
        "tokens_per_step": {
            "sampled": num_tokens,
            "trained": num_tokens,
            "prompt": shape.num_rows * shape.prompt_length,
        },
        "seconds": {
            side: {phase: measuring.spread(values) for phase, values in found.items()}
            for side, found in seconds.items()
        },
        "sampled_tokens_per_s": {
            side: measuring.spread([num_tokens / value for value in found["rollout"]])
            for side, found in seconds.items()
        },
        "ratios": {
            f"{phase}_speedup_over_trl": measuring.ratios(
                seconds["trl"][phase], seconds["ours"][phase]
            )
            for phase in ("rollout", "update", "step")
        },
    }


def main() -> None:
    """Measure the workloads and write the result."""
    parser = measuring.parser_of("trainer_trl", __doc__)
    parser.add_argument("--trl-python", required=True, help="interpreter with TRL 1.16 installed")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--our-tokens", type=int, default=0, help="of a micro-batch; 0: as many as TRL's rows hold"
    )
    parser.add_argument("--trl-rows", type=int, default=16, help="of a micro-batch")
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    options = parser.parse_args()
    micro_batch = MicroBatchSizes(options.our_tokens, options.trl_rows)
    torch.set_num_threads(1)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    transformers_logging.disable_progress_bar()
    result = measuring.frame("trainer_trl", range(options.rounds))
    result["workloads"] = {}
    for name in options.workloads:
        result["workloads"][name] = measure(
            *WORKLOADS[name], options.trl_python, micro_batch, options.rounds
        )
        print(name, json.dumps(result["workloads"][name]["ratios"], indent=2), file=sys.stderr)
        measuring.write(result, options.output)  # what is measured is kept if the next one fails


if __name__ == "__main__":
    main()
