"""Train a tiny team in seconds, then read what the run has written.

Needs the trainer: `pip install ./trainers`. The run file next to this script says what is
trained; from the command line it is `pettingllms-train examples/tiny_team.toml`.
"""

import json
import sys
import tempfile
from pathlib import Path

from pettingllms_trainers.cli import main as train

CONFIG = Path(__file__).with_name("tiny_team.toml")


def main() -> int:
    """Train, then print the loss of every step and the names of the files."""
    with tempfile.TemporaryDirectory() as parent:
        run = Path(parent) / "run"
        code = train([str(CONFIG), "--output-dir", str(run), "--logging.progress", "off"])
        if code:
            return code
        for line in (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines():
            metrics = json.loads(line)
            if metrics["step"]:
                loss = metrics.get("loss/planner/loss")
                used = metrics["role/planner/decisions_used"]
                print(f"step {metrics['step']}: planner loss {loss}, groups used {used:.2f}")
        tree = json.loads((run / "rollouts.jsonl").read_text(encoding="utf-8").splitlines()[0])
        print("a rollout tree has the keys", ", ".join(tree))
        print("the run has written", ", ".join(sorted(path.name for path in run.iterdir())))
    return 0


if __name__ == "__main__":
    sys.exit(main())
