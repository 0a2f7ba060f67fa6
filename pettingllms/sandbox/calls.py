"""The allowed system calls, and what each of them names that is not the program's own.

A call is allowed because it has a row here. The row says which arguments name another process,
what it takes from a pool that the kernel counts per user, and what it reads or takes of a table
that the whole machine shares, each with what bounds it. The filter is built from these rows.
"""

from __future__ import annotations

from typing import Final, NamedTuple


class Reach(NamedTuple):
    """An allowed system call; empty where it names nothing but the program's own."""

    processes: tuple[int, ...] = ()
    """Arguments that name a process: the filter lets 0 and the program's own pid pass."""
    pool: str = ""
    """What it takes of a pool of the user: bound."""
    machine: str = ""
    """What it reads or takes of a table of the machine: bound."""


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

_MEMORY = "memory: RLIMIT_AS per run"

CALLS: Final[dict[str, Reach]] = {
    **dict.fromkeys(_OWN.split(), Reach()),
    # `sendmsg` is there for our own child, which hands the listener of this filter to the server.
    # It closes that socket before the program is compiled, and the program cannot make one.
    "sendmsg": Reach(),
    **dict.fromkeys(("brk", "mremap"), Reach(machine=_MEMORY)),
    "mmap": Reach(machine=f"{_MEMORY}; huge pages that are set aside: MAP_HUGETLB is refused"),
    "madvise": Reach(machine="pages merged with other processes', broken pages: advice refused"),
    "mincore": Reach(machine="page cache: the kernel answers for files of the same user only"),
    "futex": Reach(machine="threads, by number in a word of memory: operations of PI are refused"),
    **dict.fromkeys(
        ("pipe", "pipe2"),
        Reach(pool="pages of pipes: RLIMIT_NOFILE, such that all workers stay below the budget"),
    ),
    **dict.fromkeys(
        ("epoll_create", "epoll_create1", "epoll_ctl"),
        Reach(pool="epoll watches: half the square of RLIMIT_NOFILE per run, of millions"),
    ),
    "eventfd2": Reach(machine="anonymous inodes: RLIMIT_NOFILE"),
    "clone": Reach(pool="processes: threads are counted run by run (`jail.threads`)"),
    **dict.fromkeys(
        ("kill", "tgkill"), Reach((0,), pool="pending signals: one of each per thread")
    ),
    **dict.fromkeys(
        ("getpgid", "getsid", "sched_getaffinity", "sched_getscheduler", "sched_getparam"),
        Reach((0,)),
    ),
    "getpriority": Reach((1,)),
    "prlimit64": Reach((0,)),
    "getppid": Reach(machine="pids: the server's own, in tiers B and C"),
    **dict.fromkeys(
        ("clock_gettime", "clock_getres", "clock_nanosleep"),
        Reach(machine="clocks: those of the machine; clocks of processes and devices are refused"),
    ),
    **dict.fromkeys(("gettimeofday", "time"), Reach(machine="clocks")),
    "getcpu": Reach(machine="processors: the number of the one it runs on"),
    "getrandom": Reach(machine="entropy: does not run out"),
    "uname": Reach(machine="names: kernel and, in tiers B and C, host; THREATS.md says so"),
}
