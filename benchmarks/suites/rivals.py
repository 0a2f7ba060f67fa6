"""What do the published algorithms learn that the trainer is compared with?

    python benchmarks/suites/rivals.py [--processes 2]

Plug-ins of `benchmarks/rivals`, rows `[rivals]` of the table of the study, beside the trainer's
own. Levels, rewards, seeds and the selection of learning rates are those of
`misleading_rewards.py`; noise has one size here, because all three of them gave the same there.
"""

from __future__ import annotations

import sys
from pathlib import Path

from misleading_rewards import run_suite

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "rivals"))

from credit_study.cells import read_table

REWARDS = (
    "every step",
    "outcome",
    "outcome, noise 0.01",
    "outcome, one answer 0.05",
)
BUDGETS = (1250, 2500, 5000)

if __name__ == "__main__":
    rows = read_table()["rivals"].values()
    algorithms = {row["label"]: row["algorithm"] for row in rows}
    run_suite("rivals", __doc__, algorithms, REWARDS, BUDGETS)
