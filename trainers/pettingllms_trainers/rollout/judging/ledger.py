"""All verdicts of a run: kept by content, so that no answer is paid for twice."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

from pettingllms.files import open_to_append, read_lines
from pettingllms_trainers.config.rewards import RewardConfig
from pettingllms_trainers.errors import BudgetSpent
from pettingllms_trainers.rollout.judging.scoring import Exchange, Verdict


class Spent(NamedTuple):
    """What the scores of a reward have taken so far, in earlier parts of the run too."""

    num_verdicts: int = 0
    """Verdicts that were asked for, those without a score too."""
    dollars: float = 0.0
    seconds: float = 0.0
    """All verdicts together, also those that were asked for at the same time."""


class Ledger:
    """The verdicts on one reward, in a file of lines, and what they took.

    Verdicts with a score are found again by content. In a resumed run the train steps after the
    checkpoint are played again, with the same answers: they get the scores that they had, so that
    the run goes on as if it had never stopped even where a judge would now say something else.

    Args:
        path: The file; None keeps nothing beyond this process.
        name: Name of the reward.
        config: What it is; its budget is checked here.
        num_shares: Processes that share the budget.
    """

    def __init__(
        self, path: Path | None, name: str, config: RewardConfig, num_shares: int = 1
    ) -> None:
        self._path, self._name, self._config = path, name, config
        self._num_shares = num_shares
        self._scores: dict[str, float] = {}
        self.spent = Spent()
        """What was spent."""
        for line in read_lines(path) if path else ():
            if line["reward"] == name:
                self._count(line)

    def find(self, key: str) -> float | None:
        """Return the score that was given before."""
        return self._scores.get(key)

    def add(self, key: str, exchange: Exchange, verdict: Verdict, seconds: float) -> None:
        """Write down a verdict."""
        line = {
            "reward": self._name,
            "key": key,
            "score": verdict.score,
            "dollars": verdict.dollars,
            "seconds": round(seconds, 4),
            "answer": exchange.answer,
            "verdict": verdict.text,
        }
        self._count(line)
        if self._path:
            with open_to_append(self._path) as file:
                file.write(f"{json.dumps(line)}\n".encode())

    def check_budget(self) -> None:
        """Refuse to spend more than the budget.

        Raises:
            BudgetSpent: It is spent.
        """
        for unit, spent in (("dollars", self.spent.dollars), ("seconds", self.spent.seconds)):
            limit = getattr(self._config, f"max_{unit}") / self._num_shares
            if limit and spent >= limit:
                raise BudgetSpent(
                    f"rewards.{self._name} has taken {spent:.4g} {unit} for "
                    f"{self.spent.num_verdicts} verdicts, and max_{unit} = {limit:g}. Raise "
                    f"rewards.{self._name}.max_{unit} and resume the run: verdicts are kept"
                )

    def _count(self, line: Mapping[str, Any]) -> None:
        if line["score"] is not None:
            self._scores[line["key"]] = line["score"]
        self.spent = Spent(
            self.spent.num_verdicts + 1,
            self.spent.dollars + line["dollars"],
            self.spent.seconds + line["seconds"],
        )


def content_key(config: RewardConfig, exchange: Exchange, number: int) -> str:
    """Return 32 hexadecimal digits of all that decides a verdict.

    Args:
        config: Who is asked what. Weights and budgets do not matter.
        exchange: What is scored.
        number: Which verdict on it, from 0.
    """
    names = ("judge", "question", "rubric", "function", "model", "temperature")
    asked = [getattr(config, name) for name in names]
    content = [*asked, [dict(one) for one in exchange.messages], exchange.answer, number]
    text = json.dumps(content, sort_keys=True)
    return hashlib.sha256(text.encode("ascii")).hexdigest()[:32]
