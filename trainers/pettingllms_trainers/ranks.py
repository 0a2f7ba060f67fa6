"""The processes of a run: each runs the same program, plays its share, learns its share, and stops.

One process is the ordinary case and needs none of this. Several are started by a launcher, such as
``torchrun --nproc-per-node 8 -m pettingllms_trainers.cli CONFIG``. Every rank has the same
configuration and, after each exchange, the same data; only the main rank writes files. What they
exchange are values of this package, between processes of one run.
"""

from __future__ import annotations

import asyncio
import atexit
import contextlib
import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Generator, Sequence
from datetime import timedelta
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, Self, TypeVar

from pettingllms_trainers.errors import RankError, reason_of

if TYPE_CHECKING:
    from torch import Tensor
    from torch.distributed import ProcessGroup

# There on machines with GPUs that the present user may use.
_DRIVER = Path("/proc/driver/nvidia/version")

# Ranks wait this long for one that plays long episodes, or for the main one that writes.
_TIMEOUT = timedelta(hours=2)

# Enough for gloo's threads to release what they hold, also on a busy machine.
_RELEASE_SECONDS = 0.5

SERVERS = "PETTINGLLMS_SERVERS"
"""Environment variable with the `--servers` of `launch`, which end with the run."""

_ValueT = TypeVar("_ValueT")


class Ranks:
    """The only process of a run; `TorchRanks` is one of several.

    All methods but `share` are collective: every rank must call them, in the same order.
    """

    local_rank: int = 0
    """Position on this machine: which of its GPUs to use."""

    def __init__(self, rank: int = 0, size: int = 1) -> None:
        self.rank, self.size = rank, size
        """Position of this process, from 0, and the number of processes."""

    @property
    def is_main(self) -> bool:
        """Whether this is the process that writes files and talks to people."""
        return self.rank == 0

    def share(self, items: Sequence[_ValueT]) -> list[_ValueT]:
        """The items that are this rank's to deal with: every `size`-th."""
        return list(items[self.rank :: self.size])

    def gather(self, share: Sequence[_ValueT]) -> list[_ValueT]:
        """The items of all ranks: first ones, second ones ..., as before `share`."""
        return list(share)

    def any(self, is_true: bool) -> bool:
        """Whether it is true on some rank."""
        return any(self.gather([is_true]))

    def broadcast(self, value: _ValueT) -> _ValueT:
        """The value of the main rank."""
        return self.gather([value])[0]

    def barrier(self) -> None:
        """Wait until all ranks are here."""
        self.gather([None])

    def add(self, tensors: Sequence[Tensor]) -> None:
        """Replace tensors by their sums over all ranks, equal on all."""

    def apart(self) -> Ranks:
        """The same ranks for another thread, whose exchanges have an order of their own."""
        return self


class TorchRanks(Ranks):
    """One of several processes that `torch.distributed` connects."""

    def __init__(self, group: ProcessGroup | None = None, local_rank: int | None = None) -> None:
        import torch.distributed

        self._group, self._torch = group, torch.distributed
        super().__init__(self._torch.get_rank(group), self._torch.get_world_size(group))
        said = int(os.environ.get("LOCAL_RANK", "0"))
        self.local_rank = said if local_rank is None else local_rank

    def gather(self, share: Sequence[_ValueT]) -> list[_ValueT]:
        shares: list[Any] = [None] * self.size
        with self._connected():
            self._torch.all_gather_object(shares, list(share), self._group)
        # In turns, as `share` has dealt them out: the order is that of a single process.
        longest = max(map(len, shares))
        return [share[index] for index in range(longest) for share in shares if index < len(share)]

    def broadcast(self, value: _ValueT) -> _ValueT:
        values: list[Any] = [value]
        with self._connected():
            self._torch.broadcast_object_list(values, group=self._group, group_src=0)
        return values[0]

    def add(self, tensors: Sequence[Tensor]) -> None:
        with self._connected():
            # All at once: one exchange after the other would wait for the network each time.
            works = [
                self._torch.all_reduce(tensor, group=self._group, async_op=True)
                for tensor in tensors
            ]
            for work in works:
                work.wait()

    def apart(self) -> Ranks:
        ranks = self._torch.get_process_group_ranks(self._group)
        # Exchanges of two threads in one group would be taken for each other's.
        group = self._torch.new_group(ranks, timeout=_TIMEOUT, backend="gloo")
        return TorchRanks(group, self.local_rank)

    @contextlib.contextmanager
    def _connected(self) -> Generator[None]:
        try:
            yield
        except RuntimeError as error:
            # The rest is a stack of the library, which says nothing about the one that ended.
            raise RankError(
                f"rank {self.rank} of {self.size} has lost the others ({reason_of(error)}). One of "
                "them has ended: what it wrote to the terminal says why. Resume from the newest "
                "checkpoint"
            ) from error


def num_launched() -> int:
    """How many processes a launcher says this run has; 1 without a launcher."""
    return int(os.environ.get("WORLD_SIZE", "1"))


@contextlib.contextmanager
def joined_ranks(
    tell: Callable[[StopRequested], object] = lambda _: None, *, is_masked: bool = False
) -> Generator[Ranks]:
    """Connect with the other processes that a launcher has started; on a GPU of its own each.

    Args:
        tell: Says what is kept where a second signal ends the process, one of several.
        is_masked: Whether this process already sees its own GPUs only, as Ray has it, which also
            ends it: of an engine that spreads these are several.

    Raises:
        RankError: They cannot be reached.
    """
    if num_launched() == 1:
        yield Ranks()
        return
    is_ended = not is_masked and threading.current_thread() is threading.main_thread()
    with _ended_by_two_signals(tell) if is_ended else contextlib.nullcontext():
        yield (ranks := _connect(is_masked))
        # Not after an error: the others may be gone, and the launcher waits for this process.
        ranks.barrier()
    leave_group()


def connect_alone() -> None:
    """Let a library that wants connected processes have this one alone, where there is no other."""
    import torch.distributed

    if torch.distributed.is_initialized():
        return
    store = torch.distributed.HashStore()  # pyright: ignore[reportPrivateImportUsage]
    torch.distributed.init_process_group(_backend(), store=store, rank=0, world_size=1)
    atexit.register(leave_group)


def _backend() -> str:
    import torch

    return "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"


def leave_group() -> None:
    """Take the process group of torch apart, unless vLLM does when the process ends."""
    import torch

    if not torch.distributed.is_initialized():
        return
    # Gloo's threads release the tensors of an exchange after it is over, for which they need the
    # interpreter's lock. Before Python 3.14, a thread that still waits for the lock when the
    # interpreter ends aborts the process (pytorch issue 190489). DeepSpeed keeps references to the
    # group, so that destroying it does not end the threads; here they are given the lock.
    time.sleep(_RELEASE_SECONDS)
    if "vllm" not in sys.modules:
        torch.distributed.destroy_process_group()


def _keep_own_gpu(local_rank: int) -> None:
    """Hide the GPUs of the other processes of this machine; before CUDA starts and counts them.

    vLLM places an engine of this process on the first GPU that it sees, whatever torch's present
    device is. So each process sees one, as Ray does it too; for DeepSpeed it is the first as well.
    """
    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    gpus = None if visible is None else [gpu for gpu in visible.split(",") if gpu.strip()]
    if gpus == []:
        return  # a run on the CPU is wanted
    if gpus is not None and local_rank >= len(gpus):
        raise _no_gpu(local_rank, f"CUDA_VISIBLE_DEVICES is {visible}")
    os.environ["CUDA_VISIBLE_DEVICES"] = str(local_rank) if gpus is None else gpus[local_rank]
    os.environ["LOCAL_RANK"] = "0"


def _no_gpu(local_rank: int, seen: str) -> RankError:
    return RankError(
        f"process {local_rank} of this machine has no GPU: {seen}. Start one process for each GPU "
        "(torchrun --nproc-per-node)"
    )


def _connect(is_masked: bool) -> TorchRanks:
    missing = [name for name in ("RANK", "LOCAL_RANK") if name not in os.environ]
    if missing:
        raise RankError(
            f"WORLD_SIZE is {num_launched()}, but {' and '.join(missing)} not set. Start the "
            "processes with torchrun or deepspeed, or unset WORLD_SIZE for a run in one process"
        )
    local_rank = int(os.environ["LOCAL_RANK"])
    if not is_masked:
        _keep_own_gpu(local_rank)
    # After the mask: torch, too, may count the GPUs only once.
    import torch

    has_mask = bool(os.environ.get("CUDA_VISIBLE_DEVICES", "").strip())
    has_driver = torch.version.cuda and _DRIVER.exists()
    if has_driver and has_mask and not torch.cuda.is_available():
        raise _no_gpu(local_rank, "it sees none with that number")
    try:
        torch.distributed.init_process_group(_backend(), timeout=_TIMEOUT)
    except (RuntimeError, ValueError) as error:
        raise RankError(
            f"the processes of the run cannot reach each other ({error}). Start them with torchrun "
            "or deepspeed, with the same settings on all machines"
        ) from error
    return TorchRanks(local_rank=local_rank)


_ANSWER = "stopping when the current step is done; a second signal stops at once"
_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)
# For so long a launcher may pass on what a terminal or a service manager has told all processes.
_PASSED_ON_S = 0.5
# For what cleans up at the end of a process that a second signal ends.
_END_S = 5.0


class StopRequested(BaseException):
    """A signal asked to stop.

    Not an `Exception`: raised in an engine or environment, it would be a failure of the rollout.
    Not a `KeyboardInterrupt`: that leaves event loops with tasks that cannot be ended.
    """

    def __init__(self, kind: signal.Signals) -> None:
        super().__init__(kind.name)
        self.signal = kind


class StopRequest:
    """Remembers the first signal; a second one acts as if this object were not there.

    Used as a context. Signals reach the main thread alone, so in another one it hears of none. With
    several ranks `is_wanted` and `check` are collective, and `joined_ranks` answers.

    Args:
        raises: Whether a signal raises `StopRequested` where it comes: there is nothing to finish.
    """

    def __init__(self, ranks: Ranks | None = None, *, raises: bool = False) -> None:
        self._ranks = ranks or Ranks()
        self.signal: signal.Signals | None = None
        """The signal that asked to stop; None while nothing did."""
        self._previous: dict[signal.Signals, Any] = {}
        self._raises = raises

    def is_wanted(self) -> bool:
        """Whether a signal has asked some rank to stop; then all have it."""
        asked = max(self._ranks.gather([int(self.signal or 0)]))
        if asked:
            self.signal = signal.Signals(asked)
        return bool(asked)

    def check(self) -> None:
        """Stop where there is nothing to save.

        Raises:
            StopRequested: A signal has asked to stop.
        """
        if self.is_wanted() and self.signal:
            raise StopRequested(self.signal)

    @contextlib.contextmanager
    def at_once(self) -> Generator[None]:
        """Stop in the middle of what is computed in this context, where there is nothing to save.

        Several ranks stop after it, and so does a run in another thread than the main one.

        Raises:
            StopRequested: A signal has asked to stop.
        """
        self.check()
        is_main_thread = threading.current_thread() is threading.main_thread()
        self._raises = is_main_thread and self._ranks.size == 1
        try:
            yield
        except asyncio.CancelledError:
            if not self.signal:
                raise
        finally:
            self._raises = False
        self.check()

    def __enter__(self) -> Self:
        """Listen to the signals."""
        if threading.current_thread() is not threading.main_thread():
            return self
        for kind in _SIGNALS:
            # What nohup has started outlives its terminal.
            if kind != signal.SIGHUP or signal.getsignal(kind) != signal.SIG_IGN:
                self._previous[kind] = signal.signal(kind, self._remember)
        return self

    def __exit__(self, raised: type[BaseException] | None, *_: Any) -> None:
        """Restore what listened before."""
        for kind, handler in self._previous.items():
            signal.signal(kind, handler)
        if self.signal and raised is asyncio.CancelledError:
            raise StopRequested(self.signal)

    def _remember(self, number: int, frame: FrameType | None) -> None:
        self.signal = signal.Signals(number)
        if self._ranks.size > 1:
            return
        if not self._raises:
            _answer(self.signal)
        for kind, handler in self._previous.items():
            # Of a terminal that closes both the kernel and the shell tell.
            signal.signal(kind, signal.SIG_IGN if kind == signal.SIGHUP else handler)
        if self._raises:
            # One task gets the exception. The others, too, may be about to compute for long.
            with contextlib.suppress(RuntimeError):  # no event loop runs
                for task in asyncio.all_tasks():
                    task.cancel()
            raise StopRequested(self.signal)


@contextlib.contextmanager
def _ended_by_two_signals(tell: Callable[[StopRequested], object]) -> Generator[None]:
    """End this process at a second signal, even if it waits for the others.

    Its main thread then is in a library of torch, where Python runs no handler of a signal.
    """
    heard, written = os.pipe()
    os.set_blocking(written, False)
    before = signal.set_wakeup_fd(written)
    thread = threading.Thread(target=_hear, args=(heard, tell), daemon=True)
    thread.start()
    try:
        yield
    finally:
        signal.set_wakeup_fd(before)
        os.close(written)
        thread.join()
        os.close(heard)


def _hear(heard: int, tell: Callable[[StopRequested], object]) -> None:
    first_s = math.inf
    while number := os.read(heard, 1):
        now = time.monotonic()
        if number[0] in _SIGNALS and first_s == math.inf:
            first_s = now
            # Before the first step Ctrl+C ends the run at once.
            handler = getattr(signal.getsignal(number[0]), "__self__", None)
            if os.environ.get("RANK") == "0" and isinstance(handler, StopRequest):
                _answer(signal.Signals(number[0]))
        elif number[0] in _SIGNALS[:2] and now - first_s >= _PASSED_ON_S:
            _end(StopRequested(signal.Signals(number[0])), tell)


def _end(request: StopRequested, tell: Callable[[StopRequested], object]) -> None:
    code = 128 + request.signal
    # What hangs may keep functions that clean up from their end, too.
    threading.Timer(_END_S, os._exit, (code,)).start()
    try:
        tell(request)
        atexit._run_exitfuncs()  # temporary files, perhaps gigabytes of weights in memory
    finally:
        os._exit(code)


def _answer(kind: signal.Signals) -> None:
    # What is being done may take minutes. A file object could be in the middle of writing.
    with contextlib.suppress(OSError):  # its terminal may have been closed
        os.write(2, f"\n{kind.name}: {_ANSWER}\n".encode())
