"""Who asks in a program: a dry run that answers anything, and tries every call that is offered."""

from __future__ import annotations

import json
import re
from collections import deque
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple, cast

from pettingllms.workflows.definition import Workflow, WorkflowFailure
from pettingllms.workflows.env import WorkflowEnv
from pettingllms.workflows.program import Program
from pettingllms.workflows.tools import call_text
from pettingllms.workflows.wire import ChatRequest, Sender

_NUM_STEPS = 60
"""Answers that are tried; each plays the program from its start."""
_MAX_SYSTEM = 80
"""Characters of a system prompt by which it is known."""


class SeenAgent(NamedTuple):
    """An agent of a framework that has sent requests."""

    role: str
    """A name for the agent, as a role of a workflow."""
    told_by: dict[str, Any]
    """What tells requests of this agent from others; see `Workflow.roles`."""
    sender: Sender
    """What the first of its requests told."""


def seen_agents(source: str, task: Any) -> list[SeenAgent]:
    """Who asks in a program, in the order of first requests.

    Args:
        source: See `Program`.
        task: What the program is given.

    Raises:
        EnvironmentNotLoadable: It cannot be imported.
        WorkflowFailure: It asks nobody.
    """
    heard: list[Sender] = []

    class Probe(Workflow):
        """A team of whoever asks."""

        def agent_of(self, sender: Sender, order: int) -> str:
            heard.append(sender)
            return "agent_0"

    run, tasks = Program(source), {"train": [task]}
    env = WorkflowEnv(Probe(run=run, reward=_nothing, roles=("agent",), tasks=tasks))
    env.reset(seed=0)
    _explore(env)
    kinds: dict[str, Sender] = {}
    for sender in heard:
        kinds.setdefault(sender.agent or _head(sender) or sender.model, sender)
    return _named([*kinds.values()])


def _nothing(task: Any, outcome: Any) -> float:
    return 0.0


def _explore(env: WorkflowEnv) -> None:
    """Answer all that is offered, once for every kind of request."""
    states, known, left = deque([env]), set[tuple[str, tuple[str, ...]]](), _NUM_STEPS
    while states and left > 0:
        here = states.popleft()
        request = here.state().request
        if request is None:
            continue
        kind = (request.messages[0].content, request.tools)
        # The plain answer leads on to whoever asks later; calls lead on once.
        for text in list(_answers(request))[: 1 if kind in known else None]:
            known.add(kind)
            left -= 1
            fork = here.fork()
            try:
                fork.step(text)
            except WorkflowFailure:  # that answer leads nowhere
                continue
            states.append(fork)


def _answers(request: ChatRequest) -> Iterator[str]:
    """Yield a plain answer, and a call of everything that is offered."""
    if request.form.schema:
        yield json.dumps(_least(json.loads(request.form.schema)))
    elif not request.form.calls:
        yield "ok"
    for line in request.messages[0].content.splitlines():
        if line.startswith('{"type": "function"'):
            tool = json.loads(line)["function"]
            yield call_text(tool["name"], **(_least(tool.get("parameters") or {}) or {}))


def _least(schema: Any, root: Any = None, opened: tuple[str, ...] = ()) -> Any:
    """Some data that fits a JSON schema, as far as its types say it.

    A schema within itself, of which the references are `opened`, is null.
    """
    root = schema if root is None else root
    if not isinstance(schema, Mapping):
        return {}
    known = cast("Mapping[str, Any]", schema)
    if "$ref" in known:
        name = known["$ref"].rpartition("/")[2]
        part = root.get("$defs", {}).get(name)
        return None if name in opened else _least(part, root, (*opened, name))
    if known.get("enum") or "const" in known:
        return known["const"] if "const" in known else known["enum"][0]
    for key in ("anyOf", "oneOf", "allOf"):
        if known.get(key):
            return _least(known[key][0], root, opened)
    if "properties" in known:
        parts = known["properties"].items()
        return {name: _least(part, root, opened) for name, part in parts}
    kind = known.get("type", "object")
    kinds = {"string": "x", "integer": 1, "number": 1, "boolean": False, "array": [], "null": None}
    return kinds.get(kind if isinstance(kind, str) else kind[0], {})


def _named(senders: list[Sender]) -> list[SeenAgent]:
    found: dict[str, SeenAgent] = {}
    for number, sender in enumerate(senders, 1):
        said = re.search(r"\bYou are (?:an?|the) ([\w -]{3,30})", sender.system)
        name = sender.agent or (said[1] if said else "") or f"agent {number}"
        # What ends in a number would be one agent of a role.
        role = re.sub(r"_(\d+)$", r"\1", re.sub(r"\W+", "_", name.lower()).strip("_"))
        role = role if role and role not in found else f"{role}{number}"
        told_by: dict[str, Any] = {"order": number}
        if sender.agent:
            told_by = {"agent": sender.agent}
        elif _head(sender):
            told_by = {"system": _head(sender)}
        elif [one.model for one in senders].count(sender.model) == 1:
            told_by = {"model": sender.model}
        found[role] = SeenAgent(role, told_by, sender)
    return [*found.values()]


def _head(sender: Sender) -> str:
    return sender.system.strip().partition("\n")[0][:_MAX_SYSTEM]
