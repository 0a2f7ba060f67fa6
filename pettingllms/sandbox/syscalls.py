"""System calls: their numbers, which are allowed, and what each names beyond the program.

A call is allowed because it has a row here. The row says which arguments name another process,
what it takes from a pool that the kernel counts per user, and what it reads or takes of a table
that the whole machine shares, each with what bounds it. The filter is built from these rows.

Source of the numbers: asm/unistd_64.h (x86_64) and asm-generic/unistd.h (aarch64) of Linux 6.1. A
name
that an architecture does not have is -1 there.
"""

from __future__ import annotations

import platform
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
    """An allowed system call; empty where it names nothing but the program's own."""

    processes: tuple[int, ...] = ()
    """Arguments that name a process: the filter lets 0 and the program's own pid pass."""
    shared: str = ""
    """What it reads or takes that is not the run's alone: of the user, or of the machine."""
    bound: str = ""
    """What bounds that."""
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
