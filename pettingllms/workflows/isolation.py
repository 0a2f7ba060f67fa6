"""What the code of a run has of its own in this process: endpoint, variables, clock, chance, input.

Runs of somebody else's code share a process. A context variable says which run the code belongs to
that asks for the time, a random number, a variable of the environment or an answer; elsewhere the
process is as it was. It also says where in the run the code is: every task and thread that a run
begins has a place of its own, by the order in which its parent began it. Requests are known by
their place, so that equal ones that are sent at once stay apart when the run is repeated.
"""

from __future__ import annotations

import asyncio
import builtins
import contextlib
import ctypes
import datetime
import functools
import gc
import http.client
import io
import os
import random
import re
import sys
import threading
import time
from asyncio.base_events import BaseEventLoop
from collections import Counter
from collections.abc import Awaitable, Callable, Generator, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context, ContextVar, copy_context
from dataclasses import dataclass, field
from types import ModuleType
from typing import Any, NamedTuple, Protocol, TypeVar
from urllib.parse import quote
from weakref import WeakKeyDictionary, ref

PLACE = "x-pettingllms-place"
"""Header of a request: where in its run it was sent."""
AGENT = "x-pettingllms-agent"
"""Header of a request: the name of the agent that sent it, in its framework, as in a URL."""
_NUM_HOPS = 100
"""Turns of an event loop in which what waits for an answer takes note of it."""
_HINTS = ("instructions", "system_prompt", "system_message", "handoffs", "tools")
"""What agents of all frameworks have one of, besides a name."""

ResultT = TypeVar("ResultT")


def variables(base_url: str, api_key: str) -> dict[str, str]:
    """Variables of the environment by which clients find an endpoint."""
    # Traces of the Agents SDK would go to OpenAI, with a key that is none of theirs.
    return {
        "OPENAI_BASE_URL": base_url,
        "OPENAI_API_BASE": base_url,
        "OPENAI_API_KEY": api_key,
        "ANTHROPIC_BASE_URL": base_url.removesuffix("/v1"),
        "ANTHROPIC_API_KEY": api_key,
        "OPENAI_AGENTS_DISABLE_TRACING": "1",
        "NO_PROXY": f"127.0.0.1,{os.environ.get('NO_PROXY', '')}",
    }


def in_forked(begin: Callable[[], object]) -> None:
    """Have a process that is forked from this one, and has none of its threads, begin with this."""
    if hasattr(os, "register_at_fork"):
        os.register_at_fork(after_in_child=begin)


class BlocksLoop(BaseException):
    """A coroutine asks with a client that blocks the event loop, which other runs share."""


class Watcher(Protocol):
    """Whoever wants to know what becomes of the requests of a run, by their places."""

    def sent(self, place: str) -> None:
        """A request is on its way."""
        ...

    def settled(self, place: str) -> None:
        """It has come to its end, and whoever waited for it has taken note."""
        ...

    def withdrawn(self, place: str) -> None:
        """The coroutine that waits for it was cancelled."""
        ...


@dataclass(eq=False, kw_only=True)
class Scope:
    """What a run has of its own in this process."""

    base_url: str
    """Address of the endpoint, for this run."""
    api_key: str
    seed: int
    """Seed of everything that code of the run draws."""
    clock_s: float
    """What the clocks of the run show, in seconds since 1970."""
    environ: Mapping[str, str]
    """Variables of the environment, besides those of the process."""
    addresses: tuple[str, ...] = ()
    """Other addresses whose requests are for the endpoint."""
    lines: Iterator[str] | None = None
    """What `input` reads; None: the terminal."""
    printed: io.StringIO | None = None
    """What is printed; None: it goes to the terminal."""
    awaited: set[str] = field(default_factory=set[str])
    """Places of requests that a coroutine waits for."""
    threads: set[str] = field(default_factory=set[str])
    """Places of threads that the run has begun, and that have not ended."""
    siblings: dict[Any, Any] = field(default_factory=dict[Any, Any])
    """Event loop and client of httpx -> the client that asks there in its place."""
    watcher: Watcher | None = None
    """Whoever wants to know what becomes of requests; None: nobody."""
    is_over: bool = False
    """Whether the run has ended. Code that still runs keeps all but the clock, and what it asks is
    refused: it must not ask, read, print or draw as the process."""
    counts: Counter[str] = field(default_factory=Counter[str])
    """Place, or kind and place -> how many requests, tasks or threads were begun there."""
    _generators: dict[tuple[str, str], Any] = field(default_factory=dict[tuple[str, str], Any])
    """Name of a kind of generator, place -> the generator there."""
    _ends: list[Callable[[], Any]] = field(default_factory=list[Callable[[], Any]])
    """What is called when the run ends."""

    def run(self, function: Callable[[], ResultT]) -> ResultT:
        """Call a function as code of this run."""
        with _INSTALLING:
            _install()
            _hook_clients()
        context = copy_context()
        context.run(_HERE.set, _Here(self, "0"))
        return context.run(function)

    def restart(self) -> None:
        """Begin the run again: places and what is drawn there are those of its start."""
        self.counts.clear()
        self._generators.clear()

    def at_end(self, end: Callable[[], Any]) -> None:
        """Have something called when the run ends, which may have been already."""
        self._ends.append(end)
        if self.is_over:
            end()

    def close(self) -> None:
        """End the run."""
        self.is_over = True
        for end in [*self._ends]:
            end()

    def generator(self, place: str, kind: Callable[[Any], Any]) -> Any:
        """The random numbers of a place; by place, because tasks draw in any order."""
        key = (kind.__name__, place)
        if key not in self._generators:
            text = random.Random(f"{self.seed} {place}")
            self._generators[key] = kind(text.getrandbits(32))
        return self._generators[key]

    def signed(self, url: str, *, is_repeated: bool) -> tuple[str, dict[str, str]] | None:
        """The address and headers by which the endpoint knows a request; None of any other.

        No headers: the run has ended, and is refused at its own address by itself.
        """
        here = _here()
        origin = self.base_url.rsplit("/", 2)[0]
        own = re.match(rf"{re.escape(origin)}/[^/]+/v1(?=/)", url)
        start = own[0] if own else next((one for one in self.addresses if url.startswith(one)), "")
        if here is None or not start:
            return None
        if own and self.is_over:
            return url, {}
        key = f"request {here.place}"
        self.counts[key] += not is_repeated
        place = f"{here.place}:{self.counts[key]}"
        headers = {PLACE: place, "authorization": f"Bearer {self.api_key}"}
        if name := _agent_name():
            headers[AGENT] = quote(name)
        return self.base_url + url[len(start) :], headers


class _Here(NamedTuple):
    """Whose code runs, and where in it."""

    scope: Scope
    place: str
    """Numbers divided by dots, from `0`: the task, thread or process of the run."""

    def child(self) -> _Here:
        """The place of the next task, thread or process that is begun here."""
        self.scope.counts[self.place] += 1
        return self._replace(place=f"{self.place}.{self.scope.counts[self.place]}")


_HERE: ContextVar[_Here | None] = ContextVar("pettingllms_here", default=None)
_THREAD = threading.local()
_INSTALLING = threading.Lock()


def _here() -> _Here | None:
    here: _Here | None = _HERE.get()
    # Frameworks run what they submit to a pool in contexts that they have copied before. A thread
    # that one run has begun may serve others, whose contexts say so.
    inner: _Here | None = getattr(_THREAD, "here", None)
    if inner is None or here is None:
        return here or inner
    is_within = f"{inner.place}.".startswith(f"{here.place}.")
    return inner if inner.scope is here.scope and is_within else here


def _before_fork() -> None:
    # No process begins with half of it, or with a lock of a thread that it does not have.
    _INSTALLING.acquire()
    here = _here()
    _THREAD.child = here and here.child()


def _in_child() -> None:
    """Give a forked process a place of its own: its requests may equal those of another one."""
    _INSTALLING.release()
    _HERE.set(_THREAD.child)
    _THREAD.here = _THREAD.child


if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_before_fork, after_in_parent=_INSTALLING.release, after_in_child=_in_child
    )


def scope() -> Scope | None:
    """The run that the calling code belongs to."""
    here = _here()
    return here and here.scope


@functools.cache
def _install() -> None:
    try:
        _replace(BaseEventLoop, "create_task", _create_task)
        _replace(threading.Thread, "start", _start)
        _replace(ThreadPoolExecutor, "submit", _submit)
        _install_chance()
        _replace(type(os.environ), "__getitem__", _variable)
        _replace(builtins, "input", _input)
        _replace(builtins, "print", _print)
        _replace(http.client.HTTPConnection, "putrequest", _put_request)
        _install_clock()
        _rebind()
    except BaseException:
        # Whoever tries again must not wrap what is wrapped, nor a process keep half of a clock.
        while _UNDONE:
            setattr(*_UNDONE.pop())
        _REPLACED.clear()
        raise


def _hook_clients() -> None:
    """Have requests of the clients that are imported by now say from which run they come."""
    for name in ("httpx", "httpx2"):
        module = sys.modules.get(name)
        if module is not None and not hasattr(module.Client.send, "__wrapped__"):
            _replace(module.Client, "send", _send)
            _replace(module.AsyncClient, "send", _send_async)
            _replace(module, "create_ssl_context", _ssl_context)
            _rebind()
    if "aiohttp" in sys.modules:
        kind = sys.modules["aiohttp"].ClientSession
        if not hasattr(kind._request, "__wrapped__"):
            _replace(kind, "_request", _request_async)


def _ssl_context(real: Any, verify: Any = True, cert: Any = None, trust_env: bool = True) -> Any:
    # A file makes its clients anew for every run, which took as long as all else that it does.
    if scope() is None or verify is not True or cert is not None:
        return real(verify, cert, trust_env)
    return _with_certificates(real, trust_env, *map(os.environ.get, _CERTIFICATES))


_CERTIFICATES = ("SSL_CERT_FILE", "SSL_CERT_DIR")


@functools.cache
def _with_certificates(real: Any, trust_env: bool, *_: str | None) -> Any:
    return real(trust_env=trust_env)


_REPLACED: dict[int, tuple[Any, Any]] = {}
"""Functions of modules that were replaced, by their ids, and what stands in their places."""
_UNDONE: list[tuple[Any, str, Any]] = []
"""Owner, name and what was there, of every replacement: what an error half-way takes back."""


def _rebind() -> None:
    """Replace functions also where modules have imported them by their names."""
    for module in [one for one in tuple(sys.modules.values()) if isinstance(one, ModuleType)]:
        for name, value in [*vars(module).items()]:
            if id(value) in _REPLACED and module is not sys.modules[__name__]:
                _UNDONE.append((module, name, value))
                setattr(module, name, _REPLACED[id(value)][1])


def _replace(owner: Any, name: str, function: Callable[..., Any]) -> None:
    """Replace a function by one that gets it as its first argument."""
    real = getattr(owner, name)

    # A function, not a partial: it may become a method.
    @functools.wraps(real)
    def replaced(*arguments: Any, **options: Any) -> Any:
        return function(real, *arguments, **options)

    _UNDONE.append((owner, name, real))
    setattr(owner, name, replaced)
    if isinstance(owner, ModuleType):
        _REPLACED[id(real)] = (real, replaced)


# Tasks and threads ------------------------------------------------------------------------------


def _create_task(real: Any, loop: Any, work: Any, **options: Any) -> Any:
    here = _here()
    if here is not None and options.get("context") is None:
        options["context"] = _context(None if _is_of_garbage(work) else here.child())
    return real(loop, work, **options)


def _is_of_garbage(work: Any) -> bool:
    """Whether a task ends what was forgotten, which is noticed at any time, in anybody's code."""
    if type(work).__name__ == "async_generator_athrow":
        return True
    # Clients close themselves so. Two of our functions are between, and at most one of asyncio.
    frame = sys._getframe(3)
    return "__del__" in (frame.f_code.co_name, frame.f_back and frame.f_back.f_code.co_name)


def _start(real: Any, thread: threading.Thread) -> None:
    here = _here()
    if here is not None:
        # As Python does from 3.14 on, by a flag: a thread has the context of who starts it.
        thread.run = _as_thread(here.child(), thread.run)
    real(thread)


def _submit(real: Any, pool: Any, work: Any, /, *arguments: Any, **options: Any) -> Any:
    here = _here()
    if here is None:
        return real(pool, work, *arguments, **options)
    work = _as_thread(here.child(), functools.partial(work, *arguments, **options))
    # Threads that the pool begins for it will serve other runs, too.
    return _context(None).run(real, pool, work)


def _as_thread(here: _Here, work: Callable[[], ResultT]) -> Callable[[], ResultT]:
    here.scope.threads.add(here.place)

    def called() -> ResultT:
        _THREAD.here = here
        try:
            return _context(here).run(work)
        finally:
            _THREAD.here = None
            here.scope.threads.discard(here.place)

    return called


def _context(here: _Here | None) -> Context:
    context = copy_context()
    context.run(_HERE.set, here)
    return context


# Chance and clock -------------------------------------------------------------------------------


def _install_chance() -> None:
    _install_generator(random, random.random.__self__, random.Random)  # pyright: ignore[reportFunctionMemberAccess]
    if "numpy.random" in sys.modules:
        numbers: Any = sys.modules["numpy.random"]
        _install_generator(numbers, numbers.mtrand._rand, numbers.RandomState)
    # uuid4 and secrets draw here.
    _replace(os, "urandom", _urandom)
    _replace(random, "_urandom", _urandom)


def _install_generator(module: Any, shared: Any, kind: Callable[[Any], Any]) -> None:
    """Have functions that draw from the generator of a process draw from that of a place."""

    def drawn(name: str, real: Any, *arguments: Any, **options: Any) -> Any:
        here = _here()
        if here is None:
            return real(*arguments, **options)
        return getattr(here.scope.generator(here.place, kind), name)(*arguments, **options)

    for name in dir(module):
        if getattr(getattr(module, name), "__self__", None) is shared:
            _replace(module, name, functools.partial(drawn, name))


def _urandom(real: Any, size: int) -> bytes:
    here = _here()
    if here is None:
        return real(size)
    return here.scope.generator(here.place, random.Random).randbytes(size)


def _install_clock() -> None:
    def read(real: Any) -> Any:
        clock_s = _clock_s()
        return real() if clock_s is None else clock_s

    def read_ns(real: Any) -> Any:
        clock_s = _clock_s()
        return real() if clock_s is None else int(clock_s * 1e9)

    def shown(real: Any, seconds: float | None = None) -> Any:
        return real(time.time() if seconds is None else seconds)

    def written(real: Any, *arguments: Any) -> Any:
        is_now = not isinstance(arguments[-1] if arguments else None, tuple)
        return real(*arguments, time.localtime()) if is_now else real(*arguments)

    _replace(time, "time", read)
    _replace(time, "time_ns", read_ns)
    for name in ("localtime", "gmtime", "ctime"):
        _replace(time, name, shown)
    for name in ("strftime", "asctime"):
        _replace(time, name, written)
    # What else datetime offers asks time.time.
    _set_method(datetime.datetime, "now", _now)
    _set_method(datetime.datetime, "utcnow", _utcnow)


def _now(cls: Any, tz: datetime.tzinfo | None = None) -> Any:
    return cls.fromtimestamp(time.time(), tz)


def _clock_s() -> float | None:
    """What clocks show; None: the time. Threads of libraries outlive the run that began them."""
    own = scope()
    return None if own is None or own.is_over else own.clock_s


def _utcnow(cls: Any) -> Any:
    return cls.now(datetime.UTC).replace(tzinfo=None)


def _set_method(kind: type, name: str, method: Any) -> None:
    # Types that are written in C refuse new attributes. A subclass in their place would not be the
    # type of what libraries have imported before, nor of what they make.
    gc.get_referents(vars(kind))[0][name] = classmethod(method)
    ctypes.pythonapi.PyType_Modified(ctypes.py_object(kind))


# Variables, input and output --------------------------------------------------------------------


def _variable(real: Any, environ: Any, key: Any) -> Any:
    own = scope() if environ is os.environ else None
    return own.environ[key] if own and key in own.environ else real(environ, key)


def _input(real: Any, prompt: object = "") -> str:
    own = scope()
    if own is None or own.lines is None:
        return real(prompt)
    for line in own.lines:
        return line
    raise EOFError("the task is read; a run has no other input")


def _print(real: Any, *values: object, file: Any = None, **options: Any) -> None:
    own = scope()
    real(*values, file=own.printed if own and file is None else file, **options)


# Clients ----------------------------------------------------------------------------------------


def _signed(request: Any) -> dict[str, str] | None:
    """Sign a request of httpx that is for the endpoint."""
    own = scope()
    is_repeated = request.headers.get("x-stainless-retry-count", "0") != "0"
    found = own and own.signed(str(request.url), is_repeated=is_repeated)
    if not found:
        return None
    request.url = type(request.url)(found[0])
    request.headers.update({**found[1], "host": request.url.netloc.decode()})
    if own and own.printed is not None:
        # Programs close no clients.
        request.headers["connection"] = "close"
    return found[1]


def _send(real: Any, client: Any, request: Any, **options: Any) -> Any:
    headers = _signed(request)
    if headers:
        _check_blocking()
    with _watched(headers):
        return real(client, request, **options)


async def _send_async(real: Any, client: Any, request: Any, **options: Any) -> Any:
    own, headers = scope(), _signed(request)
    # Also when its run is over: nobody else may find the connection of a loop that ended with it.
    if own and headers is not None:
        client = _of_this_loop(client, own.siblings)
    with _watched(headers, is_awaited=True):
        return await real(client, request, **options)


_LOOPS: WeakKeyDictionary[Any, ref[asyncio.AbstractEventLoop]] = WeakKeyDictionary()
"""Client of httpx -> the first event loop on which it asked."""


def _of_this_loop(client: Any, siblings: dict[Any, Any]) -> Any:
    """The client, or its like: connections belong to a loop, and frameworks share one client."""
    loop = asyncio.get_running_loop()
    if _LOOPS.setdefault(client, ref(loop))() is loop:
        return client
    if (loop, client) not in siblings:
        kind = next(base for base in type(client).__mro__ if base.__name__ == "AsyncClient")
        same = {name: getattr(client, name) for name in ("auth", "cookies", "event_hooks")}
        same["follow_redirects"] = client.follow_redirects
        # Nobody closes it, so no connection outlives its answer.
        limits = sys.modules[kind.__module__.partition(".")[0]].Limits(max_keepalive_connections=0)
        siblings[loop, client] = kind(**same, limits=limits, trust_env=False)
    return siblings[loop, client]


async def _request_async(real: Any, session: Any, method: str, url: Any, **options: Any) -> Any:
    own = scope()
    found = own and own.signed(str(session._build_url(url)), is_repeated=False)
    if not found:
        return await real(session, method, url, **options)
    options["headers"] = {**(options.get("headers") or {}), **found[1]}
    with _watched(found[1], is_awaited=True):
        return await real(session, method, found[0], **options)


def _put_request(
    real: Any, connection: Any, method: str, url: str, *more: Any, **options: Any
) -> None:
    own = scope()
    address = f"http://{connection.host}:{connection.port}"
    found = own and own.signed(address + url, is_repeated=False)
    # The connection is open: only what goes to the endpoint anyway gets another path.
    if not found or not found[1] or not found[0].startswith(address):
        real(connection, method, url, *more, **options)
        return
    _check_blocking()
    real(connection, method, found[0][len(address) :], *more, **options)
    connection.putheader(PLACE, found[1][PLACE])


@contextlib.contextmanager
def _watched(headers: dict[str, str] | None, *, is_awaited: bool = False) -> Generator[None]:
    """Tell the run what becomes of a request."""
    own = scope()
    if own is None or own.watcher is None or not headers:
        yield
        return
    watcher, place = own.watcher, headers[PLACE]
    settled = functools.partial(watcher.settled, place)
    watcher.sent(place)
    if is_awaited:
        own.awaited.add(place)
    try:
        yield
    except asyncio.CancelledError:
        watcher.withdrawn(place)
        raise
    finally:
        if is_awaited:
            _hop(asyncio.get_running_loop(), settled, _NUM_HOPS)
        else:
            settled()


def _hop(loop: asyncio.AbstractEventLoop, then: Callable[[], None], num_hops: int) -> None:
    # Counted, not timed: whoever waits for the answer, and for whoever waits, has its turn by then.
    if num_hops:
        loop.call_soon(_hop, loop, then, num_hops - 1)
    else:
        then()


def _agent_name() -> str | None:
    """The name of the agent whose code asks, in the words of its framework; None: unknown."""
    frame = sys._getframe(1)
    while frame is not None:
        for local, found in frame.f_locals.items():
            if local == "self" or local.endswith("agent"):
                name = getattr(found, "name", None)
                if isinstance(name, str) and any(hasattr(found, hint) for hint in _HINTS):
                    return name
        frame = frame.f_back
    return None


# One loop ---------------------------------------------------------------------------------------


@functools.cache
def shared_loop() -> asyncio.AbstractEventLoop:
    """The event loop of the coroutines of all runs: what they share belongs to one loop."""
    loop = asyncio.new_event_loop()

    def serve() -> None:
        while True:
            # `exit` in a task ends the loop; whoever waits for the task is told, too.
            with contextlib.suppress(SystemExit):
                loop.run_forever()

    thread = threading.Thread(target=serve, name="pettingllms-runs", daemon=True)
    _context(None).run(thread.start)
    return loop


in_forked(shared_loop.cache_clear)


async def awaited(outcome: Awaitable[ResultT]) -> ResultT:
    """Anything that can be awaited as a coroutine."""
    return await outcome


def _check_blocking() -> None:
    """Refuse to wait where other runs would have to wait, too."""
    with contextlib.suppress(RuntimeError):
        if asyncio.get_running_loop() is shared_loop():
            raise BlocksLoop
        # On its own loop nothing else happens until there is an answer.
        own = scope()
        if own is not None and own.watcher is not None:
            for place in {*own.awaited}:
                own.watcher.settled(place)
