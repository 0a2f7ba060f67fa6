"""Programs that know nothing of this project: a function of a file as a workflow, unchanged."""

from __future__ import annotations

import asyncio
import contextlib
import importlib.util
import inspect
import io
import json
import shlex
import sys
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Any, cast

from pettingllms.errors import EnvironmentNotLoadable, InvalidArgument
from pettingllms.sources import load_source
from pettingllms.workflows.definition import Client, Workflow
from pettingllms.workflows.isolation import (
    BlocksLoop,
    Scope,
    awaited,
    scope,
    shared_loop,
    variables,
)

_CLOSED = "http://127.0.0.1:9/none/v1"
"""Where nobody answers: clients can be made before there is a run."""


class Program:
    """A function of a file as the `run` of a workflow.

    Its file is executed anew for every run: clients, agents and memories that it makes at its top
    level are those of one run. What it imports is imported once. The function gets the task, if it
    takes something; else `input` reads it. Its outcome is what it returns, or what was printed.

    Args:
        source: ``file.py:function`` or ``package.module:function``.

    Raises:
        EnvironmentNotLoadable: The file cannot be imported, or has no such function.
    """

    def __init__(self, source: str) -> None:
        # Imported once before all runs, and outside of them: what the imports draw, runs do not.
        found = inspect.unwrap(_nowhere.run(partial(load_source, source, f"program {source!r}")))
        if not inspect.isfunction(found):
            raise EnvironmentNotLoadable(f"the program {source!r} is {found!r}, not a function")
        self._name, self._module = source.rpartition(":")[2], found.__module__
        self._file = found.__code__.co_filename
        self._is_blocking = False

    def __call__(self, task: Any, client: Client) -> Any:
        """See `Workflow.run`."""
        own = scope()
        assert own is not None, "programs are run by workflows"
        # Found in the table of modules while it runs: annotations are resolved there.
        name = f"{self._module}__{client.base_url.split('/')[3]}"
        spec: Any = importlib.util.spec_from_file_location(name, self._file)
        module = sys.modules[name] = importlib.util.module_from_spec(spec)
        text = task if isinstance(task, str) else json.dumps(task)
        own.lines, own.printed = iter([text]), io.StringIO()
        try:
            spec.loader.exec_module(module)
            outcome = self._outcome(getattr(module, self._name), task, own)
        except SystemExit as end:
            if end.code not in (None, 0):
                raise
            outcome = None
        finally:
            del sys.modules[name]
            # Of this thread, if somebody has left one there.
            with contextlib.suppress(RuntimeError):
                asyncio.get_event_loop().close()
        return own.printed.getvalue().strip() if outcome is None else outcome

    def _outcome(self, function: Callable[..., Any], task: Any, own: Scope) -> Any:
        arguments = [task] if inspect.signature(function).parameters else []
        outcome = function(*arguments)
        if not inspect.isawaitable(outcome):
            return outcome
        if self._is_blocking:
            return asyncio.run(_in_task(outcome))
        try:
            return asyncio.run_coroutine_threadsafe(_until(own, outcome), shared_loop()).result()
        except BlocksLoop:
            self._is_blocking = True  # whoever runs it does so again, and this time on its own loop
            raise


async def _until(own: Scope, outcome: Awaitable[Any]) -> Any:
    """Await an outcome as long as its run lasts."""
    task = asyncio.current_task()
    assert task is not None, "coroutines on the shared loop are tasks"
    # Not the future of whoever waits for it: that would be told before the coroutine has ended.
    own.at_end(lambda: shared_loop().call_soon_threadsafe(task.cancel))
    try:
        return await outcome
    finally:
        # Its thread learns of it later: what others still ask meanwhile is nobody's turn.
        if own.watcher:
            own.watcher.sent("end")


async def _in_task(outcome: Awaitable[Any]) -> Any:
    # As on the shared loop: requests then have the same places.
    return await asyncio.create_task(awaited(outcome))


_nowhere = Scope(
    base_url=_CLOSED, api_key="none", seed=0, clock_s=0.0, environ=variables(_CLOSED, "none")
)


def load_program(source: str, table: Mapping[str, Any]) -> Workflow:
    """A program as a workflow.

    Args:
        source: See `Program`.
        table: The fields of the `Workflow`, without `run`. `reward` and `tasks` may be sources of
            such; `misfit_errors` are sources.

    Raises:
        InvalidArgument: A field is missing, unknown or ill-formed.
        EnvironmentNotLoadable: Something cannot be imported.
    """
    fields = {**table}
    known = [name for name in inspect.signature(Workflow).parameters if name != "run"]
    for name in fields:
        if name not in known:
            raise InvalidArgument("key of the program", name, ", ".join(known))
    for name in ("roles", "tasks", "reward"):
        if name not in fields:
            hint = f"Propose a run file: pettingllms-train workflow:{shlex.quote(source)}"
            raise InvalidArgument("program", sorted(fields), f"a table with {name}", hint)
    for name in ("reward", "tasks"):
        if isinstance(fields[name], str):
            fields[name] = load_source(fields[name], f"{name} of the program {source!r}")
    errors = cast("list[str]", fields.get("misfit_errors", []))
    fields["misfit_errors"] = tuple(load_source(one, f"misfit error {one!r}") for one in errors)
    return Workflow(run=Program(source), **fields)
