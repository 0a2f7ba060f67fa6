"""`Sandbox`: the one way in which model-written code is run."""

from __future__ import annotations

import json
import os
import reprlib
import sys
import threading
import weakref
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Literal, Self

from pettingllms.callers import current_caller
from pettingllms.errors import InvalidArgument, SandboxError
from pettingllms.sandbox.isolation import (
    FILES_NOT_HIDDEN,
    JAILS,
    NOT_COVERED,
    STARVATION_NOT_SEEN,
    Tier,
    check_platform,
    open_jail,
)
from pettingllms.sandbox.library import packages_of
from pettingllms.sandbox.outcome import (
    CallResult,
    ExecutionResult,
    Limits,
    Status,
    clean,
    whole_number,
    without_addresses,
)
from pettingllms.sandbox.pool import Finished, Pool, counts_waits, num_processors
from pettingllms.sandbox.unsafe import UnsafePool
from pettingllms.sandbox.worker import ExecutionRequest

Isolation = Literal["auto", "namespaces", "landlock", "sealed", "unsafe"]
Flavour = Literal["lean", "science", "math_verify"]


class Sandbox:
    r"""Runs untrusted Python programs in a pool of jailed processes.

    A program sees Python's standard library, the packages of the flavour, its stdin, and nothing
    else: no file of the host, no network, no other process, no environment variable. It writes
    to stdout and stderr only. Each run is a fresh process; nothing of it is left afterwards.
    Equal program and input give equal output, unless the program asks for time, for entropy or for
    the address of an object.

    The sandbox is safe to use from threads, from asyncio, and in processes that were forked or
    spawned (each gets its own servers). Servers start with the first run.

    Args:
        isolation: "auto" takes the strongest tier that this machine offers; a tier's name demands
            it. "unsafe" is not a jail and needs PETTINGLLMS_ALLOW_UNSAFE_SANDBOX=1 as well.
        flavour: "lean" has the standard library; "science" also numpy, mpmath and sympy;
            "math_verify" the library of that name with sympy.
        workers: Programs that run at the same time, in [1, 1024]; None: one per processor,
            within the quota of a container.
        limits: What a run may use, unless the call says otherwise.

    Raises:
        InvalidArgument: An argument is out of its range.
        MissingDependency: A package of the flavour is not installed.
        SandboxError: (at the first run) The machine does not offer the isolation; the message
            says why, tier by tier.

    Example:
        >>> from pettingllms.sandbox import Sandbox
        >>> with Sandbox(workers=1) as sandbox:
        ...     sandbox.run("print(int(input()) ** 2)", stdin="12").stdout
        '144\n'
    """

    def __init__(
        self,
        isolation: Isolation = "auto",
        flavour: Flavour = "lean",
        workers: int | None = None,
        limits: Limits | None = None,
    ) -> None:
        allowed = ("auto", *map(str, Tier))
        if isolation not in allowed:
            raise InvalidArgument("isolation", isolation, " or ".join(map(repr, allowed)))
        # Not `check_whole`: it loads numpy, which nothing here needs.
        is_whole = isinstance(workers, int) and not isinstance(workers, bool)
        if workers is not None and not (is_whole and 1 <= workers <= 1024):
            raise InvalidArgument("workers", workers, "None or an integer from 1 to 1024")
        packages_of(flavour)
        self.flavour: Flavour = flavour
        self.limits = limits or Limits()
        self.workers = workers or num_processors()
        self._isolation: Isolation = isolation
        self._lock = threading.Lock()
        self._pool: Pool | UnsafePool | None = None
        self._tier = Tier.UNSAFE
        self._reasons: dict[str, str] = {}
        """Tier that this machine does not offer -> why."""
        self._is_closed = False
        _sandboxes.add(self)

    def __enter__(self) -> Self:
        self._opened()
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return Sandbox, (self._isolation, self.flavour, self.workers, self.limits)

    def close(self) -> None:
        """End all servers and whatever they run. Closing twice is allowed."""
        with self._lock:
            self._is_closed, pool, self._pool = True, self._pool, None
        if pool is not None:
            pool.close()

    # ---- running

    def run(
        self, code: str, stdin: str | bytes = "", limits: Limits | None = None
    ) -> ExecutionResult:
        """Run one program to its end.

        Args:
            code: Source of the program; any text at all.
            stdin: What it reads from its standard input.
            limits: What it may use; None: the sandbox's own limits.

        Raises:
            SandboxError: The sandbox is closed or cannot be started. A program never raises.
        """
        return self._opened().submit(self._request(code, stdin, limits)).result()[0]

    def run_many(
        self, code: str, stdins: Iterable[str | bytes], limits: Limits | None = None
    ) -> list[ExecutionResult]:
        """Run one program on several inputs, each in a process of its own, in any order.

        Args:
            code: Source of the program.
            stdins: One input per run.
            limits: What each run may use.

        Returns:
            One result per input, in the order of the inputs.

        Raises:
            SandboxError: As for `run`.
        """
        requests = (self._request(code, stdin, limits) for stdin in stdins)
        return [result for result, _ in self._stream(requests)]

    def run_calls(
        self,
        code: str,
        function_name: str,
        args_list: Iterable[Sequence[Any]],
        limits: Limits | None = None,
    ) -> list[CallResult]:
        """Call a function of a program, once per argument list, each in a process of its own.

        Args:
            code: Source that defines the function.
            function_name: "solve", or "Solution.solve" for a method of a class without
                constructor arguments. A bare name that the program does not define is looked up
                in a class `Solution`.
            args_list: Positional arguments of each call; anything that JSON can say.
            limits: What each call may use.

        Returns:
            One result per call. Values come back through JSON only: compare `value` with what you
            expect, outside. A program can make its function return anything, but knows no answer.

        Raises:
            InvalidArgument: Arguments that JSON cannot say, or nested too deep for it.
            SandboxError: As for `run`.
        """
        requests = self._call_requests(code, function_name, args_list, limits)
        return [_call_result(*finished) for finished in self._stream(requests)]

    # ---- what there is

    def describe(self) -> dict[str, Any]:
        """What the jail consists of, for a run's metadata and for messages; starts the servers."""
        pool = self._opened()
        is_jail = self._tier in JAILS
        not_covered = list(NOT_COVERED) if is_jail else ["everything: it is not a jail"]
        if is_jail and not pool.facts["hides_files"]:
            not_covered.append(FILES_NOT_HIDDEN)
        if is_jail and not counts_waits():
            not_covered.append(STARVATION_NOT_SEEN)
        return {
            "flavour": self.flavour,
            "workers": self.workers,
            "isolation": str(self._tier),
            "is_jail": is_jail,
            "server_pids": pool.server_pids,
            "num_restarts": pool.num_restarts,
            "not_available": dict(self._reasons),
            "not_covered": not_covered,
            **pool.facts,
        }

    # ---- inner workings

    def _opened(self) -> Pool | UnsafePool:
        """The servers, started now if they were not."""
        with self._lock:
            if self._is_closed:
                raise SandboxError("this sandbox is closed. Make a new one.")
            if self._pool is None:
                self._tier, self._pool = self._start()
                if isinstance(self._pool, Pool):  # the threads of the other one end with it
                    weakref.finalize(self, self._pool.end)
            return self._pool

    def _start(self) -> tuple[Tier, Pool | UnsafePool]:
        if self._isolation == "unsafe":
            return Tier.UNSAFE, UnsafePool(self.workers)
        check_platform()
        self._reasons = {}
        for tier in JAILS if self._isolation == "auto" else (Tier(self._isolation),):
            try:
                return tier, open_jail(tier, self.flavour, self.workers)
            except SandboxError as error:
                self._reasons[str(tier)] = str(error)
        reasons = "; ".join(f"{tier}: {reason}" for tier, reason in self._reasons.items())
        raise SandboxError(
            f"this machine does not offer isolation={self._isolation!r}: {reasons}. "
            "Run `pettingllms doctor`; in a container, the default settings of Docker are enough "
            "for 'landlock' and 'sealed'."
        )

    def _request(self, code: str, stdin: str | bytes, limits: Limits | None) -> ExecutionRequest:
        caller = current_caller()
        return ExecutionRequest(_encode(code), _encode(stdin), limits or self.limits, caller=caller)

    def _call_requests(
        self, code: str, name: str, args_list: Iterable[Sequence[Any]], limits: Limits | None
    ) -> Iterator[ExecutionRequest]:
        source, caller = _encode(code), current_caller()
        for index, arguments in enumerate(args_list):
            try:
                stdin = json.dumps([name, list(arguments)]).encode()
            except (TypeError, ValueError, RecursionError) as error:
                # Bounded, for these may be of any size and nested to any depth.
                shown = reprlib.repr(arguments)
                allowed = f"values that JSON can say ({error})"
                raise InvalidArgument(f"args_list[{index}]", shown, allowed) from error
            yield ExecutionRequest(source, stdin, limits or self.limits, True, caller)

    def _stream(self, requests: Iterable[ExecutionRequest]) -> Iterator[Finished]:
        """Results in order, with a bounded number of requests in flight."""
        pool = self._opened()
        window = pool.window
        under_way: deque[Future[Finished]] = deque()
        try:
            for request in requests:
                # A pool that has given up its last server has no window; `submit` says so.
                if under_way and len(under_way) >= window:
                    yield under_way.popleft().result()
                under_way.append(pool.submit(request))
            while under_way:
                yield under_way.popleft().result()
        finally:
            for future in under_way:
                future.cancel()


def _encode(text: str | bytes) -> bytes:
    # A lone surrogate makes ill-formed UTF-8, which is the program's problem, not ours.
    return text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")


def _call_result(execution: ExecutionResult, report: bytes) -> CallResult:
    if execution.status is not Status.OK:
        return CallResult(execution)
    try:
        reported = json.loads(without_addresses(report), parse_int=whole_number)
        # The class of the value may have any `__repr__`: escape sequences, say.
        shown = clean(str(reported["repr"]).encode("utf-8", "replace"))
        return CallResult(execution, reported.get("value"), "value" in reported, shown)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        # The program wrote its own report, or ended before the driver could.
        return CallResult(execution)


_sandboxes: weakref.WeakSet[Sandbox] = weakref.WeakSet()
_shared: dict[str, Sandbox] = {}
_shared_lock = threading.Lock()


def _begin_fork() -> None:
    for sandbox in list(_sandboxes):
        # The servers are the other process's, and the lock may be held there.
        sandbox._lock, sandbox._pool = threading.Lock(), None
    _shared_lock.release()


if hasattr(os, "register_at_fork"):
    # So that no forked process begins with the lock held by a thread that it does not have.
    os.register_at_fork(
        before=_shared_lock.acquire,
        after_in_parent=_shared_lock.release,
        after_in_child=_begin_fork,
    )


def default_sandbox(flavour: Flavour = "lean") -> Sandbox:
    """The sandbox that this process shares, one per flavour.

    Made at the first call, with servers from the first run on; a forked process gets servers of
    its own; all end with their process. Environments use it, so that thousands of them need no
    more processes than one.
    """
    with _shared_lock:
        if flavour not in _shared:
            _shared[flavour] = Sandbox(flavour=flavour)
        return _shared[flavour]


@dataclass(frozen=True, slots=True)
class TierReport:
    """Whether one tier works on this machine."""

    isolation: str
    """Name of the tier, as `Sandbox` takes it."""
    is_available: bool
    """Whether a canary ran in the tier and did not get out."""
    reason: str
    """Why it does not work; empty if it does."""
    facts: dict[str, Any]
    """What a server of this tier says about itself."""


def probe() -> tuple[TierReport, ...]:
    """Try every tier by running a canary in it, strongest first. Takes less than a second."""
    return tuple(map(_try, JAILS))


def _try(tier: Tier) -> TierReport:
    try:
        check_platform()
        pool = open_jail(tier, "lean", 1)
    except SandboxError as error:
        return TierReport(str(tier), False, str(error), {"platform": sys.platform})
    facts = dict(pool.facts)
    pool.close()
    return TierReport(str(tier), True, "", facts)
