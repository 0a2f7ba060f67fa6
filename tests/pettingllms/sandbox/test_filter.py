"""The filter says what the design says, decided by an interpreter of its own."""

import errno
import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms.sandbox import filter as seccomp
from pettingllms.sandbox.filter import CALLS, COPIES, audit_arch, syscall_numbers

ALLOW, ASK, KILL = 0x7FFF0000, 0x7FC00000, 0x80000000
NUMBERS = syscall_numbers()
FILTER = seccomp.build_filter(has_fstat=False)
STRICT = seccomp.build_filter(has_fstat=True)


def decide(program, number, arguments=(), arch=None, pid=4321):
    """Run the BPF program as the kernel does; returns the action."""
    code = bytearray(program.code)
    for offset in program.pid_offsets:
        code[offset : offset + 4] = pid.to_bytes(4, "little")
    instructions = list(struct.iter_unpack("=HBBI", bytes(code)))
    words = [*arguments, *[0] * (6 - len(arguments))]
    data = struct.pack("=iIQ6Q", number, arch or audit_arch(), 0, *words)
    accumulator = position = 0
    while True:
        operation, if_true, if_false, value = instructions[position]
        position += 1
        if operation == 0x20:
            (accumulator,) = struct.unpack_from("=I", data, value)
        elif operation == 0x54:
            accumulator &= value
        elif operation == 0x05:
            position += value
        elif operation in (0x15, 0x35):
            is_true = accumulator == value if operation == 0x15 else accumulator >= value
            position += if_true if is_true else if_false
        elif operation == 0x06:
            return value
        else:
            raise AssertionError(f"unknown operation {operation:#x}")


def error(number):
    return 0x50000 | number


def call(name, *arguments):
    return decide(FILTER, NUMBERS[name], arguments)


@given(st.integers(0, 2**31 - 1).filter(lambda n: n not in NUMBERS.values() and n < 2**30))
def test_what_is_not_named_is_refused(number):
    assert decide(FILTER, number) == error(errno.EPERM)


@given(st.integers(0, 1000), st.lists(st.integers(0, 2**64 - 1), max_size=6))
def test_other_interfaces_kill(number, arguments):
    assert decide(FILTER, number, arguments, arch=0x40000003) == KILL
    assert decide(FILTER, number | 0x40000000, arguments) == KILL


@pytest.mark.parametrize(
    ("names", "action"),
    [
        ("read write mmap futex exit_group getrandom", ALLOW),
        ("execve ptrace unshare bpf io_uring_setup keyctl", KILL),
    ],
    ids=["everyday", "hostile"],
)
def test_calls_of_every_day_pass_and_hostile_ones_kill(names, action):
    assert {name: call(name) for name in names.split()} == dict.fromkeys(names.split(), action)


def can_pass(program, number):
    """Whether some arguments let the call pass: wherever an argument decides, both ways are gone.

    A load from below 16 in `seccomp_data` is the number or the architecture, one from above an
    argument.
    """
    instructions = list(struct.iter_unpack("=HBBI", program.code))
    ways = [(0, None)]
    while ways:
        position, known = ways.pop()
        operation, if_true, if_false, value = instructions[position]
        if operation == 0x06 and value in (ALLOW, ASK):
            return True
        if operation == 0x20:
            known = {0: number, 4: audit_arch()}.get(value)
        jumps = {0x05: [value], 0x06: []}.get(operation, [0])
        if operation in (0x15, 0x35):
            is_true = known is not None and (
                known == value if operation == 0x15 else known >= value
            )
            jumps = [if_true if is_true else if_false] if known is not None else [if_true, if_false]
        ways += [(position + 1 + jump, known) for jump in jumps]
    return False


@pytest.mark.parametrize("name", NUMBERS)
def test_what_is_allowed_has_a_row_in_the_audit(name):
    assert (name in CALLS) == any(can_pass(each, NUMBERS[name]) for each in (FILTER, STRICT))


@given(
    st.sampled_from([name for name, row in CALLS.items() if row.processes and name in NUMBERS]),
    st.integers(1, 2**32 - 1).filter(lambda pid: pid != 4321),
    st.lists(st.integers(0, 20), min_size=6, max_size=6),
)
def test_no_call_names_another_process(name, pid, arguments):
    for argument in CALLS[name].processes:
        arguments[argument] = pid
    assert call(name, *arguments) not in (ALLOW, ASK)


@given(st.integers(0, 2**32 - 1))
def test_arguments_that_reach_beyond_the_process(value):
    assert (call("close_range", 3, 2**32 - 1, value) == ALLOW) == (value in (0, 4))
    assert (call("clock_gettime", value) == ALLOW) == (value < 16)
    assert (call("mmap", 0, 0, 0, value) == ALLOW) == (not value & ~0x13D933)
    assert (call("madvise", 0, 0, value) == ALLOW) == (value in (0, 1, 2, 3, 4, 8, 14, 15, 16, 17))
    assert (call("futex", 0, value) == ALLOW) == (value & 0x7F in (0, 1, 3, 4, 5, 9, 10))


@given(st.integers(0, 2**32 - 1))
def test_no_file_exists_and_none_can_be_made(flags):
    writing = flags & (0o3 | 0o100 | 0o1000 | 0o2000 | 0o20000000)
    expected = error(errno.EPERM if writing else errno.ENOENT)
    assert call("openat", 0, 0, flags) == expected


@given(st.integers(0, 2**32 - 1) | st.integers(0, 31).map(lambda bit: 0x3D0F00 ^ 1 << bit))
def test_clone_makes_threads_only_as_a_c_library_makes_them(flags):
    expected = ASK if flags in (0x3D0F00, 0x7D0F00) else error(errno.EPERM)
    assert call("clone", flags) == expected
    assert call("clone", 0x3D0F00) == ASK


@pytest.mark.parametrize(("name", "row"), [one for one in CALLS.items() if one[1].shared])
def test_what_is_shared_is_bound_for_what_a_run_cannot_multiply(name, row):
    assert row.bound, f"nothing bounds what {name} takes"
    assert not row.per or row.per in COPIES
    if "RLIMIT" in row.bound:
        assert row.per, f"{name}: whose is the limit?"


MULTIPLYING = {
    "process": [("fork",), ("vfork",), ("clone", 17), ("clone", 0x3D0F00 & ~0x10000), ("clone3",)],
    "descriptor table": [
        ("clone", 0x3D0F00 & ~0x400),
        ("unshare", 0x400),
        ("close_range", 3, 9, 2),
    ],
    "thread": [("clone3",), ("clone", 0x50F00)],
}


@pytest.mark.parametrize("what", COPIES)
def test_no_call_multiplies_what_limits_count_for(what):
    for name, *arguments in MULTIPLYING[what]:
        if name in NUMBERS:
            assert call(name, *arguments) not in (ALLOW, ASK), name


def test_the_end_of_a_thread_is_asked_about():
    assert call("exit") == ASK
    assert call("exit_group") == ALLOW


@given(st.integers(0, 2**32 - 1), st.integers(0, 70))
def test_signals_go_to_oneself_only(pid, number):
    to_oneself = pid == 4321
    harmless = number < 32 and number not in (9, 19, 24, 25, 31)
    assert (call("kill", pid, number) == ALLOW) == (to_oneself and harmless)
    assert (call("tgkill", pid, pid, number) == ALLOW) == (to_oneself and harmless)


def test_new_interfaces_do_not_exist():
    assert call("clone3") == call("openat2") == error(errno.ENOSYS)


def test_files_are_not_looked_up_by_path():
    assert call("newfstatat", 0, 0, 0, 0) == error(errno.ENOENT)
    assert call("newfstatat", 0, 0, 0, 0x1000) == ALLOW
    assert call("statx", 0, 0, 0x1000) == error(errno.ENOENT)
    assert decide(STRICT, NUMBERS["newfstatat"], (0, 0, 0, 0x1000)) == error(errno.ENOENT)
    assert decide(STRICT, NUMBERS["fstat"]) == ALLOW


@pytest.mark.parametrize("program", [FILTER, STRICT])
def test_it_is_short(program):
    """Every child loads it, and the kernel translates it anew for each."""
    assert len(program.code) // 8 <= 320
