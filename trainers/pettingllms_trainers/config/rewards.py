"""The part of a configuration that says what answers earn beside the environment's rewards."""

from __future__ import annotations

from typing import Annotated

from pydantic import AfterValidator, Field

from pettingllms.sources import absolute
from pettingllms_trainers.config.section import Section


def _absolute(source: str) -> str:
    """Return a source that means the same in every working directory."""
    return absolute(source) if source else source


class RewardConfig(Section):
    """A score of every answer in training, times a weight, on top of the environment's reward.

    It comes from a judge, a function or a reward model. Held-out evaluation has no such rewards.
    """

    judge: str = ""
    """A fixed policy of [policies] that is asked about the answer; it plays no role."""
    question: str = ""
    """What a judge is asked, to be answered yes, which scores 1, or no, which scores 0."""
    rubric: str = ""
    """Or by what a judge grades, from 0 to 10, which scores a tenth of that."""
    function: Annotated[str, AfterValidator(_absolute)] = ""
    """Instead of a judge: package.module:name or file.py:name of a function (messages, answer) that
    returns a finite number. `messages` is the prompt, a list of {"role": ..., "content": ...}."""
    model: str = ""
    """Instead of a judge: Hugging Face directory or hub name of a sequence classifier with one
    label, which scores the chat of prompt and answer."""
    weights: dict[str, float] = Field(default={})
    """Role to the factor of the score in its reward; empty: 1 for all roles. Roles that are not
    named are not judged."""
    on_failure: float | None = None
    """Score of an answer that could not be judged; none: the candidate is left out, as one whose
    environment failed (rollout.max_failed_fraction)."""
    judged_twice: float = Field(default=0.1, ge=0, le=1)
    """Share of the answers that are judged a second time, to measure the noise of the scores."""
    temperature: float = Field(default=0.0, ge=0)
    """Sampling temperature of a judge."""
    max_completion_tokens: int = Field(default=512, ge=1)
    """Longest verdict of a judge, in tokens."""
    dollars_per_million: tuple[float, float] = (0.0, 0.0)
    """What a judge costs: US dollars per million tokens of prompts, and of verdicts."""
    max_dollars: float = Field(default=0.0, ge=0)
    """The run ends when it has spent this much on these scores; 0: no limit. May be raised when the
    run is resumed, which pays for no answer twice."""
    max_seconds: float = Field(default=0.0, ge=0)
    """The run ends when scoring has taken this long, all requests together; 0: no limit."""

    def weight_of(self, role: str) -> float:
        """Return the factor of the score in a role's reward, as the run names it."""
        if not self.weights:
            return 1.0
        return self.weights.get(role, self.weights.get(role.partition(".")[2], 0.0))


def check_reward(name: str, reward: RewardConfig) -> None:
    """Raise `ValueError` unless a reward has one source, and only what that uses."""
    sources = [key for key in ("judge", "function", "model") if getattr(reward, key)]
    if len(sources) != 1:
        raise ValueError(
            f"rewards.{name} has {', '.join(sources) or 'no source'}; give it one: judge, the name "
            "of a fixed policy, function, or model"
        )
    asked = [key for key in ("question", "rubric") if getattr(reward, key)]
    if len(asked) != (sources == ["judge"]):
        wanted = "one of question and rubric" if sources == ["judge"] else "neither"
        raise ValueError(
            f"rewards.{name} has {sources[0]} and {' and '.join(asked) or 'no question'}; with "
            f"{sources[0]} it needs {wanted}"
        )
