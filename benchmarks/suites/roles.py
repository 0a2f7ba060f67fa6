"""Does an update in which adapters of several roles share passes take less time?

    python benchmarks/suites/roles.py

Four adapters on one base of the shape of SmolLM2-135M learn from groups of the shape of
`recipe:plan_path_smollm2`: 8 answers of 8 tokens to a prompt of 27, 12 groups in an optimizer step.
Both ways take the same steps, in turn: passes of all roles, and one role after the other. Weights
and tokens are random: they decide no speed. The rates of a product with the rows of one role and of
four say how much of that a larger pass can win.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

import measuring
import torch

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
import gpu_jobs

PROMPT, COMPLETIONS, LENGTH, GROUPS_PER_STEP = 27, 8, 8, 12


def product_gflops(dtype: torch.dtype, num_rows: int = 2048) -> float:
    """Billions of operations per CPU second in products of the shapes of a layer."""
    left, right = torch.randn(num_rows, 576).to(dtype), torch.randn(576, 1536).to(dtype)
    measuring.timed(lambda: left @ right)  # not counted
    spent, _ = measuring.timed(lambda: [left @ right for _ in range(50)])
    return 50 * 2 * left.numel() * right.shape[1] / spent.cpu_s / 1e9


def measured(num_tokens: int, num_rounds: int, precision: str) -> dict[str, Any]:
    """Seconds of updates of that many tokens of each role, both ways."""
    load = gpu_jobs.GpuWorkload(
        num_prompts=num_tokens // (PROMPT + COMPLETIONS * LENGTH),
        num_candidates=COMPLETIONS,
        prompt_length=PROMPT,
        completion_length=LENGTH,
        tokens_per_microbatch=4096,
        precision=precision,
        kernel_groups={},
        completions_per_minibatch=GROUPS_PER_STEP * COMPLETIONS,
    )
    cpu = torch.device("cpu")
    found = gpu_jobs.roles(cpu, load, "smollm2", num_rounds, time.process_time)
    # What one role's rows cost a product, and those of all: more than their ratio no pass can win.
    alone = min(num_tokens, GROUPS_PER_STEP * (PROMPT + COMPLETIONS * LENGTH))
    rates = [product_gflops(getattr(torch, precision), rows) for rows in (alone, 4 * alone)]
    return {name: measuring.spread(values) for name, values in found.items()} | {
        "tokens_per_role": num_tokens, "product_gflops": [float(f"{rate:.3g}") for rate in rates]
    }  # fmt: skip


def main() -> None:
    parser = measuring.parser_of("roles", __doc__)
    parser.add_argument("--tokens", nargs="+", type=int, default=[100, 500, 2000], help="of a role")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--precision", choices=("bfloat16", "float32"), default="bfloat16")
    options = parser.parse_args()
    torch.set_num_threads(1)
    result = measuring.frame("roles", [0]) | {"precision": options.precision, "rows": []}
    for num_tokens in options.tokens:
        result["rows"].append(measured(num_tokens, options.rounds, options.precision))
        print(result["rows"][-1], flush=True)
        measuring.write(result, options.output)  # what is measured is kept if the next one fails


if __name__ == "__main__":
    main()
