"""The seccomp allow-list: what a program in the jail may ask of the kernel.

The rule in one line: no fork, no exec, no socket, no open for writing, no signal to others, no new
namespaces. Fair programs need none of these, whole families of attacks do, and a jail that can only
ever be one process is ended by one SIGKILL. Calls that no fair program makes kill (status
`violation`); the others return an error that Python turns into an ordinary exception. What is
allowed, and why it reaches nobody else, is in `calls.py`.

The program is a search tree over the call number, built once in the parent.
"""

from __future__ import annotations

import errno
import struct
from typing import Final, NamedTuple

from pettingllms.sandbox.syscalls import CALLS, audit_arch, syscall_numbers

_ALLOW: Final = 0x7FFF0000
_KILL: Final = 0x80000000
_ASK: Final = 0x7FC00000
_LOAD, _JUMP, _JUMP_EQ, _JUMP_GE, _AND, _RETURN = 0x20, 0x05, 0x15, 0x35, 0x54, 0x06
_LONGEST_JUMP = 255
_X32_BIT = 0x40000000

SELF_PID: Final = 0x5E1F0000
"""Placeholder for the pid of the jailed process; the child puts its own pid in before it loads."""


def _error(number: int) -> int:
    return 0x00050000 | number


class _Test(NamedTuple):
    """`(argument & mask) in values`, on the low or the high half of an argument."""

    argument: int
    values: tuple[int, ...]
    mask: int = 0xFFFFFFFF
    high: bool = False


class _Rule(NamedTuple):
    """What `passed` says if all tests hold, else `otherwise`."""

    tests: tuple[_Test, ...]
    otherwise: int
    passed: int = _ALLOW


class FilterProgram(NamedTuple):
    """A BPF program and where the pid of the jailed process goes into it."""

    code: bytes
    pid_offsets: tuple[int, ...]


_Action = int | _Rule

_KILLED = """
execve execveat ptrace process_vm_readv process_vm_writev process_madvise mount umount2 pivot_root
chroot move_mount open_tree fsopen fsmount fsconfig fspick mount_setattr bpf perf_event_open
userfaultfd io_uring_setup io_uring_enter io_uring_register add_key request_key keyctl init_module
finit_module delete_module kexec_load kexec_file_load unshare setns reboot swapon swapoff acct iopl
ioperm modify_ldt pidfd_getfd pidfd_send_signal kcmp open_by_handle_at quotactl settimeofday
clock_settime sethostname setdomainname
"""

_OPEN_FOR_WRITING = 0o3 | 0o100 | 0o1000 | 0o2000 | 0o20000000
_AT_EMPTY_PATH = 0x1000
# What glibc and musl pass to make a thread, and nothing else: VM, FS, FILES, SIGHAND, THREAD,
# SYSVSEM, SETTLS, PARENT_SETTID, CHILD_CLEARTID; musl adds DETACHED, which the kernel ignores. A
# thread without FILES would have descriptors, and so pipes, of its own, with a limit of its own.
_THREAD = 0x3D0F00
_THREADS = (_THREAD, _THREAD | 0x400000)
# SHARED, PRIVATE, FIXED, ANONYMOUS, GROWSDOWN, DENYWRITE, EXECUTABLE, NORESERVE, POPULATE,
# NONBLOCK, STACK, FIXED_NOREPLACE
_MAP_FLAGS = 0x1 | 0x2 | 0x10 | 0x20 | 0x100 | 0x800 | 0x1000 | 0x4000 | 0x8000 | 0x130000
# NORMAL, RANDOM, SEQUENTIAL, WILLNEED, DONTNEED, FREE, (NO)HUGEPAGE, DONTDUMP, DODUMP
_OWN_ADVICE = (0, 1, 2, 3, 4, 8, 14, 15, 16, 17)
_FUTEX_COMMAND = 0x7F  # without PRIVATE_FLAG and CLOCK_REALTIME
_FUTEX_COMMANDS = (0, 1, 3, 4, 5, 9, 10)  # WAIT, WAKE, (CMP_)REQUEUE, WAKE_OP, their BITSETs: no PI
_MANY_CLOCKS = 0xFFFFFFF0  # beyond 15: clocks of processes and of devices
_CLOSE_RANGE_FLAGS = (0, 4)  # CLOEXEC; UNSHARE would give each thread a table, and its own limit
_FCNTL_COMMANDS = (0, 1, 2, 3, 4, 1030)  # DUPFD, GETFD, SETFD, GETFL, SETFL, DUPFD_CLOEXEC
_IOCTL_COMMANDS = (0x5401, 0x5413, 0x5421, 0x5450, 0x5451, 0x541B)
# Only we and the kernel may end a program with SIGKILL or for its processor time or file size, so
# that whoever sees such an end knows its cause. Within the hard limits, the rest is its own affair.
_OWN_SIGNALS = tuple(number for number in range(32) if number not in (9, 19, 24, 25, 31))
_OWN_LIMITS = (2, 3, 4, 7, 9)  # DATA, STACK, CORE, NOFILE, AS
_PRCTL_NAME = (15, 16)


def _rules(*, has_fstat: bool) -> dict[str, _Action]:
    """The calls whose arguments decide."""
    denied = _error(errno.EPERM)
    absent = _error(errno.ENOENT)
    unimplemented = _error(errno.ENOSYS)
    # No file can be opened: what is imported lies in memory. For a program that only tries to read,
    # files do not exist; one that tries to write gets a permission error.
    read_only = (0,), _OPEN_FOR_WRITING
    # No path may be looked up. But fstat is a newfstatat with an empty path in some C libraries,
    # and a filter sees the address of the path only, so a path that is not empty passes as well.
    # Then the root, in which there is nothing, answers; THREATS.md says where there is none such.
    open_file_only = _Rule((_Test(3, (_AT_EMPTY_PATH,), _AT_EMPTY_PATH),), absent)
    others = _error(errno.ESRCH)
    own = (0, SELF_PID)
    no_clock = _Rule((_Test(0, (0,), _MANY_CLOCKS),), _error(errno.EINVAL))
    return {
        **{
            name: _Rule(tuple(_Test(argument, own) for argument in call.processes), others)
            for name, call in CALLS.items()
            if call.processes
        },
        # ENOSYS for others: glibc asks for its own threads, by number, and does without.
        "sched_getaffinity": _Rule((_Test(0, own),), unimplemented),
        "getpriority": _Rule((_Test(0, (0,)), _Test(1, own)), others),
        **dict.fromkeys(("clock_gettime", "clock_getres", "clock_nanosleep"), no_clock),
        "close_range": _Rule((_Test(2, _CLOSE_RANGE_FLAGS),), _error(errno.EINVAL)),
        "mmap": _Rule((_Test(3, (0,), 0xFFFFFFFF & ~_MAP_FLAGS),), _error(errno.ENOMEM)),
        "madvise": _Rule((_Test(2, _OWN_ADVICE),), _error(errno.EINVAL)),
        "futex": _Rule((_Test(1, _FUTEX_COMMANDS, _FUTEX_COMMAND),), unimplemented),
        "open": _Rule((_Test(1, *read_only),), denied, absent),
        "openat": _Rule((_Test(2, *read_only),), denied, absent),
        "newfstatat": absent if has_fstat else open_file_only,
        **dict.fromkeys(("statx", "stat", "lstat", "access", "faccessat", "faccessat2"), absent),
        **dict.fromkeys(("readlink", "readlinkat"), absent),
        # Their arguments are in memory that a filter cannot read. ENOSYS makes the C library fall
        # back to clone and openat, which are checked.
        **dict.fromkeys(("clone3", "openat2"), unimplemented),
        # The server counts threads, so that each run has a number of its own (`jail.threads`).
        "clone": _Rule((_Test(0, _THREADS),), denied, _ASK),
        "exit": _ASK,
        "prctl": _Rule((_Test(0, _PRCTL_NAME),), denied),
        "ioctl": _Rule((_Test(1, _IOCTL_COMMANDS),), _error(errno.ENOTTY)),
        "fcntl": _Rule((_Test(1, _FCNTL_COMMANDS),), denied),
        "prlimit64": _Rule((_Test(0, own), _Test(1, _OWN_LIMITS)), denied),
        "setrlimit": _Rule((_Test(0, _OWN_LIMITS),), denied),
        "kill": _Rule((_Test(0, (SELF_PID,)), _Test(1, _OWN_SIGNALS)), denied),
        "tgkill": _Rule((_Test(0, (SELF_PID,)), _Test(2, _OWN_SIGNALS)), denied),
    }


def _actions(*, has_fstat: bool) -> dict[int, _Action]:
    by_name: dict[str, _Action] = {
        **dict.fromkeys(CALLS, _ALLOW),
        **dict.fromkeys(_KILLED.split(), _KILL),
        **_rules(has_fstat=has_fstat),
    }
    numbers = syscall_numbers()
    return {numbers[name]: action for name, action in by_name.items() if name in numbers}


_Instruction = tuple[int, int, int, int]


class _Assembler:
    """Builds a program from its end, since jumps go forwards only.

    A position is a number of instructions from the end, so it stays what it is while instructions
    are put before it. Every child loads a program of its own, which takes the kernel longer the
    more instructions there are; so returns are shared.
    """

    def __init__(self) -> None:
        self._reversed: list[_Instruction] = []
        self._known: dict[_Action, int] = {}

    @property
    def code(self) -> list[_Instruction]:
        """The whole program."""
        return self._reversed[::-1]

    def put(self, operation: int, value: int, if_true: int = 0, if_false: int = 0) -> int:
        """Put an instruction first; `if_true` and `if_false` are positions. Returns its own."""
        here = len(self._reversed)
        is_test = operation in (_JUMP_EQ, _JUMP_GE)
        true, false = (here - if_true, here - if_false) if is_test else (0, 0)
        self._reversed.append((operation, true, false, value))
        return here + 1

    def near(self, position: int) -> int:
        """A position from where the program goes on to `position`, and which a test reaches."""
        here = len(self._reversed)
        # A rule's other instructions may come between this one and the test.
        is_near = here - position < _LONGEST_JUMP // 2
        return position if is_near else self.put(_JUMP, here - position)

    def action(self, action: _Action) -> int:
        """Put what an action needs, unless it is near already; returns where it begins."""
        known = self._known.get(action)
        if known is None or len(self._reversed) - known >= _LONGEST_JUMP // 2:
            is_rule = isinstance(action, _Rule)
            self._known[action] = self._rule(action) if is_rule else self.put(_RETURN, action)
        return self._known[action]

    def _rule(self, rule: _Rule) -> int:
        next_test = self.action(rule.passed)
        for test in reversed(rule.tests):
            refused = self.action(rule.otherwise)
            passed = self.near(next_test)
            for value in reversed(test.values):
                refused = self.put(_JUMP_EQ, value, passed, refused)
            if test.mask != 0xFFFFFFFF:
                self.put(_AND, test.mask)
            # seccomp_data: number at 0, architecture at 4, arguments from 16 on, 8 bytes each, low
            # half first on little-endian machines.
            next_test = self.put(_LOAD, 16 + 8 * test.argument + (4 if test.high else 0))
        return next_test

    def tree(self, intervals: list[tuple[int, _Action]]) -> int:
        """Put a search tree over the number of the call; returns where it begins."""
        if len(intervals) == 1:
            return self.action(intervals[0][1])
        middle = len(intervals) // 2
        right = self.tree(intervals[middle:])
        left = self.tree(intervals[:middle])
        right, left = self.near(right), self.near(left)
        return self.put(_JUMP_GE, intervals[middle][0], right, left)


def _intervals(actions: dict[int, _Action], default: int) -> list[tuple[int, _Action]]:
    # Neighbouring numbers with equal actions become one interval, so the tree is a few levels deep;
    # every system call of every program pays for each level.
    intervals = [(0, actions.get(0, default))]
    for number in range(1, max(actions) + 2):
        action = actions.get(number, default)
        if action != intervals[-1][1]:
            intervals.append((number, action))
    # x32 calls have bit 30 set and would reach the same kernel functions under other numbers.
    return [*intervals, (_X32_BIT, _KILL)]


def build_filter(*, has_fstat: bool) -> FilterProgram:
    """The filter of this machine's architecture, ready for `seccomp(2)`.

    Args:
        has_fstat: Whether the C library asks about an open file with fstat(2) and needs no other
            call for it.

    Raises:
        SandboxError: There is no table of system calls for this machine type.
    """
    assembler = _Assembler()
    assembler.tree(_intervals(_actions(has_fstat=has_fstat), _error(errno.EPERM)))
    known = assembler.put(_LOAD, 0)
    # A call through another architecture's entry has other numbers: kill it before looking further.
    assembler.put(_JUMP_EQ, audit_arch(), known, assembler.action(_KILL))
    assembler.put(_LOAD, 4)
    code = assembler.code
    packed = b"".join(struct.pack("=HBBI", *instruction) for instruction in code)
    # Offset of the 32-bit constant within each 8-byte instruction (H B B I) that compares with the
    # placeholder; the child writes its own pid there.
    pids = tuple(
        8 * index + 4
        for index, (operation, _, _, value) in enumerate(code)
        if operation == _JUMP_EQ and value == SELF_PID
    )
    return FilterProgram(packed, pids)
