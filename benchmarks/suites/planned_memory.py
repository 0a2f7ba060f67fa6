"""Memory that the dry run plans beside what runs of a pretrained model take.

    pettingllms-train fetch-model smollm2
    python benchmarks/suites/planned_memory.py

Each row is a run of `pettingllms-train` with the recipe of `make train-llm` in a process of its
own: a warm start, one train step in which both policies take an optimizer step, and evaluations of
few levels. Measured is the maximum resident set of the process; planned is the peak of `--dry-run`
for the same run file and flags. Rows that are not measured again stay in the file.
"""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from measuring import REPOSITORY, frame, parser_of, write

from pettingllms_trainers.config.loading import load_config
from pettingllms_trainers.files import read_lines
from pettingllms_trainers.plan import make_plan
from pettingllms_trainers.rollout.environments import make_environments

CONFIG = "recipe:plan_path_smollm2"
FEW = ["--num-steps", "1", "--num-threads", "1", "--evaluation.num-episodes", "2"]
FEW += ["--warm-start.num-steps", "12", "--warm-start.batch-size", "4"]
FEW += ["--warm-start.num-episodes", "20", "--logging.progress", "off", "--logging.no-tensorboard"]
# So that completions are as long as the plan takes them: answers of the recipe have four tokens.
FEW += ["--rollout.max-completion-tokens", "4"]
FULL = ["--every-policy.lora.rank", "0", "--warm-start.learning-rate", "1e-4"]
ROWS = {
    "LoRA per role, bfloat16": ["--engine.precision", "bfloat16"],
    "LoRA per role, float32": ["--engine.precision", "float32"],
    "full weights per role, bfloat16": [*FULL, "--engine.precision", "bfloat16"],
    "full weights per role, float32": [*FULL, "--engine.precision", "float32"],
}


def main(arguments: Sequence[str] | None = None) -> None:
    """Plan and measure all rows, and write the result."""
    parser = parser_of("planned_memory", __doc__)
    parser.add_argument("--only", default="", help="part of the titles to measure again")
    options, flags = parser.parse_known_args(arguments)
    known = json.loads(options.output.read_text())["rows"] if options.output.exists() else []
    found = {row["title"]: row for row in known} | {
        title: row(title, [*FEW, *own, *flags])
        for title, own in ROWS.items()
        if options.only in title
    }
    result = frame("planned_memory", []) | {"config": CONFIG}
    result["hardware"] = f"{platform.system()} {platform.machine()}, no GPU"
    result["rows"] = [found[title] for title in ROWS if title in found]
    write(result, options.output)
    print(json.dumps(result, indent=2))


def row(title: str, flags: Sequence[str]) -> dict[str, Any]:
    """Return what is planned and measured for a run with these flags, in bytes."""
    config = load_config(CONFIG, flags)
    planned = make_plan(config, make_environments(config)).memory.peak
    with tempfile.TemporaryDirectory() as folder:
        command = [sys.executable, "-m", "pettingllms_trainers.cli", CONFIG, *flags]
        process = subprocess.Popen([*command, "--output-dir", f"{folder}/run"], cwd=REPOSITORY)
        _, status, usage = os.wait4(process.pid, 0)
        if status:
            raise SystemExit(f"the run failed: {command}")
        *_, last = read_lines(Path(folder) / "run" / "metrics.jsonl")
    idle = [name for name in config.models if not last.get(f"update/{name}/num_optimizer_steps")]
    if idle:
        raise SystemExit(f"{title}: {idle} took no optimizer step, so that nothing is measured")
    measured = usage.ru_maxrss << 10
    return {
        "title": title,
        "planned": planned,
        "measured": measured,
        "ratio": round(planned / measured, 3),
    }


if __name__ == "__main__":
    main()
