"""Answers of models, kept one by one: what is paid for is neither lost nor left off the bill."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from pettingllms.env import role_of
from pettingllms.policies import Completion, Prompt, Usage
from pettingllms.types import UNBOUND

Key = tuple[str, int, int]
"""Variant, level and sample: what identifies an episode within its run."""

Bill = dict[str, dict[str, Usage]]
"""Variant -> role -> what was spent on it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerRecord:
    """One answer of a policy that counts requests, or a prompt that it could not answer."""

    variant: str
    level: int
    sample: int
    action: int
    """Number of the action within its episode, from 0."""
    agent: str
    prompt: str
    """Hash of what the agent read; see `prompt_hash`."""
    completion: Completion | None
    """None: the prompt could not be answered."""
    usage: Usage

    @property
    def key(self) -> Key:
        """What identifies the episode within its run."""
        return (self.variant, self.level, self.sample)

    def to_json(self) -> dict[str, Any]:
        """Return the record as JSON data."""
        written = self.completion
        return {
            **{name: getattr(self, name) for name in _PLAIN},
            "completion": None if written is None else written._asdict(),
            "usage": asdict(self.usage),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> AnswerRecord:
        """Return the record that `to_json` gave.

        Raises:
            KeyError: A field is missing.
            TypeError: A field is unknown.
        """
        written = data["completion"]
        return cls(
            **{name: data[name] for name in _PLAIN},
            completion=None if written is None else Completion(**written),
            usage=Usage(**data["usage"]),
        )


_PLAIN = ("variant", "level", "sample", "action", "agent", "prompt")


class AnswerLog:
    """Where an episode finds answers of an earlier attempt, and puts new ones.

    Args:
        earlier: Answers of earlier attempts to episodes that are not finished.
        write: Keeps a new one.
    """

    def __init__(
        self, earlier: Iterable[AnswerRecord], write: Callable[[AnswerRecord], None]
    ) -> None:
        self._kept = {(record.key, record.action): record for record in earlier}
        self._write = write

    def kept(self, key: Key, action: int, prompt: Prompt) -> tuple[Completion, Usage] | None:
        """Return the answer that an earlier attempt got to the same prompt, if there is one."""
        record = self._kept.get((key, action))
        # A different prompt means that environment or templates changed since: ask again.
        if record is None or record.prompt != prompt_hash(prompt) or record.completion is None:
            return None
        return record.completion, record.usage

    def add(
        self, key: Key, action: int, prompt: Prompt, completion: Completion | None, usage: Usage
    ) -> None:
        """Keep an answer, or (None) what was spent on a prompt that could not be answered."""
        variant, level, sample = key
        self._write(
            AnswerRecord(
                variant=variant,
                level=level,
                sample=sample,
                action=action,
                agent=prompt.agent,
                prompt=prompt_hash(prompt),
                completion=completion,
                usage=usage,
            )
        )


def prompt_hash(prompt: Prompt) -> str:
    """Return 16 hexadecimal digits that identify who read what, and what binds the answer."""
    bounds = [] if prompt.constraints == UNBOUND else [prompt.constraints]
    data = json.dumps([prompt.agent, *map(dict, prompt.messages), *bounds], sort_keys=True)
    return hashlib.sha256(data.encode("ascii")).hexdigest()[:16]


def bill_of(
    records: Iterable[AnswerRecord], finished: Iterable[tuple[Key, Mapping[str, Usage]]]
) -> Bill:
    """Return what an evaluation has spent, on failed and interrupted episodes too.

    Args:
        records: Its answers.
        finished: Episode -> role -> usage of the finished episodes; counts for those without a
            record, which are of a run folder that kept none.
    """
    bill: Bill = {}
    recorded: set[Key] = set()
    for record in records:
        recorded.add(record.key)
        _charge(bill, record.variant, role_of(record.agent), record.usage)
    for key, roles in finished:
        if key not in recorded:
            for role, usage in roles.items():
                _charge(bill, key[0], role, usage)
    return bill


def _charge(bill: Bill, variant: str, role: str, usage: Usage) -> None:
    roles = bill.setdefault(variant, {})
    roles[role] = roles.get(role, Usage()) + usage
