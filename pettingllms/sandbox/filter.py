"""The seccomp allow-list: what a program in the jail may ask of the kernel, and what that reaches.

The rule in one line: no fork, no exec, no socket, no open for writing, no signal to others, no new
namespaces. Fair programs need none of these, whole families of attacks do, and a jail that can only
ever be one process is ended by one SIGKILL. Calls that no fair program makes kill (status
`violation`); the others return an error that Python turns into an ordinary exception. What is
allowed, and why it reaches nobody else, is in `CALLS`: a row says which arguments name another
process, what the call takes from a pool that the kernel counts per user, and what it reads or takes
of a table that the whole machine shares, each with what bounds it.

The program is a search tree over the call number, built once in the parent.

Source of the numbers: asm/unistd_64.h (x86_64) and asm-generic/unistd.h (aarch64) of Linux 6.1. A
name that an architecture does not have is -1 there.
"""

from __future__ import annotations

import errno
import platform
import struct
from typing import Final, NamedTuple

from pettingllms.errors import SandboxError

# name, number on x86_64, number on aarch64
_TABLE = """
read 0 63, write 1 64, close 3 57, lseek 8 62, mmap 9 222, mprotect 10 226, munmap 11 215,
mremap 25 216, madvise 28 233, brk 12 214, msync 26 227, mincore 27 232, pread64 17 67,
pwrite64 18 68, readv 19 65, writev 20 66, preadv 295 69, pwritev 296 70, rt_sigaction 13 134,
rt_sigprocmask 14 135, rt_sigreturn 15 139, rt_sigpending 127 136, rt_sigtimedwait 128 137,
rt_sigsuspend 130 133, sigaltstack 131 132, restart_syscall 219 128, pause 34 -1, pipe 22 -1,
pipe2 293 59, dup 32 23, dup2 33 -1, dup3 292 24, select 23 -1, pselect6 270 72, poll 7 -1,
ppoll 271 73, epoll_create 213 -1, epoll_create1 291 20, epoll_ctl 233 21, epoll_wait 232 -1,
epoll_pwait 281 22, epoll_pwait2 441 441, eventfd2 290 19, sched_yield 24 124, nanosleep 35 101,
clock_nanosleep 230 115, clock_gettime 228 113, clock_getres 229 114, gettimeofday 96 169,
time 201 -1, getitimer 36 102, setitimer 38 103, alarm 37 -1, getpid 39 172, gettid 186 178,
getppid 110 173, getuid 102 174, geteuid 107 175, getgid 104 176, getegid 108 177,
getresuid 118 148, getresgid 120 150, getgroups 115 158, getpgrp 111 -1, getpgid 121 155,
getsid 124 156, getrusage 98 165, times 100 153, getrlimit 97 163, setrlimit 160 164,
sched_getaffinity 204 123, getcpu 309 168, sched_getscheduler 145 120, sched_getparam 143 121,
sched_get_priority_max 146 125, sched_get_priority_min 147 126, getpriority 140 141, exit 60 93,
exit_group 231 94, futex 202 98, futex_waitv 449 449, set_tid_address 218 96,
set_robust_list 273 99, rseq 334 293, getrandom 318 278, uname 63 160,
umask 95 166, getdents64 217 61, fstat 5 80, close_range 436 436, getcwd 79 17,
openat 257 56, open 2 -1,
newfstatat 262 79, statx 332 291, stat 4 -1, lstat 6 -1, access 21 -1, faccessat 269 48,
faccessat2 439 439, readlink 89 -1, readlinkat 267 78, clone 56 220, clone3 435 435,
openat2 437 437, prctl 157 167, ioctl 16 29, fcntl 72 25, prlimit64 302 261, kill 62 129,
tgkill 234 131, sendmsg 46 211, execve 59 221, execveat 322 281, ptrace 101 117,
process_vm_readv 310 270, process_vm_writev 311 271, process_madvise 440 440, mount 165 40,
umount2 166 39, pivot_root 155 41, chroot 161 51, move_mount 429 429, open_tree 428 428,
fsopen 430 430, fsmount 432 432, fsconfig 431 431, fspick 433 433, mount_setattr 442 442,
bpf 321 280, perf_event_open 298 241, userfaultfd 323 282, io_uring_setup 425 425,
io_uring_enter 426 426, io_uring_register 427 427, add_key 248 217, request_key 249 218,
keyctl 250 219, init_module 175 105, finit_module 313 273, delete_module 176 106,
kexec_load 246 104, kexec_file_load 320 294, unshare 272 97, setns 308 268, reboot 169 142,
swapon 167 224, swapoff 168 225, acct 163 89, iopl 172 -1, ioperm 173 -1, modify_ldt 154 -1,
pidfd_getfd 438 438, pidfd_send_signal 424 424, kcmp 312 272, open_by_handle_at 304 265,
quotactl 179 60, settimeofday 164 170, clock_settime 227 112, sethostname 170 161,
setdomainname 171 162, capset 126 91, seccomp 317 277, fork 57 -1, vfork 58 -1
"""

_COLUMN = {"x86_64": 0, "amd64": 0, "aarch64": 1, "arm64": 1}
_AUDIT_ARCH = (0xC000003E, 0xC00000B7)


def _column() -> int:
    machine = platform.machine().lower()
    if machine not in _COLUMN:
        raise SandboxError(
            f"no system-call table for the machine type {machine!r}; allowed: x86_64, aarch64. "
            "Run model-written code in a virtual machine of one of these types."
        )
    return _COLUMN[machine]


def syscall_numbers() -> dict[str, int]:
    """The number of every named system call that this machine has.

    Raises:
        SandboxError: The machine is neither x86_64 nor aarch64.
    """
    column = _column()
    rows = (entry.split() for entry in _TABLE.replace("\n", " ").split(","))
    numbers = {name: (int(x86), int(arm))[column] for name, x86, arm in rows}
    return {name: number for name, number in numbers.items() if number >= 0}


def audit_arch() -> int:
    """The AUDIT_ARCH constant that seccomp reports for native calls of this machine."""
    return _AUDIT_ARCH[_column()]


class Reach(NamedTuple):
    """What an allowed system call reaches; empty where it names nothing but the program's own."""

    processes: tuple[int, ...] = ()
    """Arguments that name a process: the filter lets 0 and the program's own pid pass."""
    shared: str = ""
    """What the call reads or takes that is the user's or the machine's, and not the run's alone."""
    bound: str = ""
    """What bounds how much of `shared` a run can read or take."""
    per: str = ""
    """What the bound counts for, of which a run has as many as `COPIES` says; empty where nothing
    is taken, or the whole of it is refused."""


COPIES: Final = {
    "process": "one: clone makes threads only, fork and vfork are refused",
    "descriptor table": "one: threads share it (clone), close_range and unshare may not copy it",
    "thread": "as many as the server, which is asked about each, admits (`jail.threads`)",
}
"""What limits of the kernel count for -> how many of these a run can have, and why not more.

A limit per X bounds nothing where a program can make many X.
"""

# Their arguments are descriptors, addresses, signals and times of the calling process. Its memory
# is bounded by RLIMIT_AS, its descriptors by RLIMIT_NOFILE, its threads by `jail.threads`.
_OWN = """
read write close lseek mprotect munmap msync pread64 pwrite64 readv writev preadv pwritev
rt_sigaction rt_sigprocmask rt_sigreturn rt_sigpending rt_sigtimedwait rt_sigsuspend sigaltstack
restart_syscall pause dup dup2 dup3 select pselect6 poll ppoll epoll_wait epoll_pwait epoll_pwait2
sched_yield nanosleep getitimer setitimer alarm getpid gettid getuid geteuid getgid getegid
getresuid getresgid getgroups getpgrp getrusage times getrlimit setrlimit sched_get_priority_max
sched_get_priority_min exit exit_group futex_waitv set_tid_address set_robust_list rseq umask
getdents64 fstat newfstatat close_range getcwd prctl ioctl fcntl
"""

_MEMORY = Reach(shared="memory", bound="RLIMIT_AS", per="process")

CALLS: Final[dict[str, Reach]] = {
    **dict.fromkeys(_OWN.split(), Reach()),
    # `sendmsg` is there for our own child, which hands the listener of this filter to the server.
    # It closes that socket before the program is compiled, and the program cannot make one.
    "sendmsg": Reach(),
    **dict.fromkeys(("brk", "mremap"), _MEMORY),
    "mmap": _MEMORY._replace(
        shared="memory; huge pages that are set aside, locked memory",
        bound="RLIMIT_AS; the flags for the others are refused",
    ),
    "madvise": Reach(
        shared="pages merged with other processes', broken pages, swap", bound="advice refused"
    ),
    "mincore": Reach(
        shared="page cache", bound="the kernel answers for files of the same user only"
    ),
    "futex": Reach(
        shared="threads, by number in a word of memory", bound="operations of PI are refused"
    ),
    **dict.fromkeys(
        ("pipe", "pipe2"),
        Reach(
            shared="pages of pipes",
            bound="RLIMIT_NOFILE, such that all workers stay below the budget",
            per="descriptor table",
        ),
    ),
    **dict.fromkeys(
        ("epoll_create", "epoll_create1", "epoll_ctl"),
        Reach(
            shared="epoll watches, of which there are millions",
            bound="half the square of RLIMIT_NOFILE",
            per="descriptor table",
        ),
    ),
    "eventfd2": Reach(shared="anonymous inodes", bound="RLIMIT_NOFILE", per="descriptor table"),
    "clone": Reach(shared="processes", bound="counted by the server", per="thread"),
    **dict.fromkeys(
        ("kill", "tgkill"),
        Reach((0,), shared="pending signals", bound="one of each kind", per="thread"),
    ),
    **dict.fromkeys(
        ("getpgid", "getsid", "sched_getaffinity", "sched_getscheduler", "sched_getparam"),
        Reach((0,)),
    ),
    "getpriority": Reach((1,)),
    "prlimit64": Reach((0,)),
    "getppid": Reach(shared="pids", bound="the server's own, in tiers B and C"),
    **dict.fromkeys(
        ("clock_gettime", "clock_getres", "clock_nanosleep"),
        Reach(shared="clocks of the machine", bound="those of processes and devices are refused"),
    ),
    **dict.fromkeys(("gettimeofday", "time"), Reach(shared="clocks", bound="read only")),
    "getcpu": Reach(shared="processors", bound="the number of the one it runs on"),
    "getrandom": Reach(shared="entropy", bound="it does not run out"),
    "uname": Reach(shared="names", bound="kernel, and host in tiers B and C: THREATS.md says so"),
}


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
    """`(argument & mask) in values`, on the low half of an argument."""

    argument: int
    """Number of the argument, 0 to 5."""
    values: tuple[int, ...]
    """Values of 32 bits; `SELF_PID` stands for the pid of the jailed process."""
    mask: int = 0xFFFFFFFF
    """Bits of the argument that count."""


class _Rule(NamedTuple):
    """What the filter returns for a call whose arguments decide."""

    tests: tuple[_Test, ...]
    """What must hold of the arguments."""
    otherwise: int
    """Return value of seccomp if a test does not hold."""
    passed: int = _ALLOW
    """Return value of seccomp if all tests hold."""


class FilterProgram(NamedTuple):
    """A BPF program and where the pid of the jailed process goes into it."""

    code: bytes
    """Instructions of 8 bytes each, as `struct sock_filter` has them."""
    pid_offsets: tuple[int, ...]
    """Offsets in bytes of the 32-bit numbers that the child replaces by its pid."""


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
            next_test = self.put(_LOAD, 16 + 8 * test.argument)
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
