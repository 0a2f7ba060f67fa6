"""The Python tool that the games share: what is run, what is told."""

import pytest

from pettingllms import sandbox
from pettingllms.errors import SandboxError
from pettingllms.sandbox.outcome import ExecutionResult, Status, sandbox_failure
from pettingllms.types import ParseError
from pettingllms_envs.python_tool import (
    MAX_SOURCE_CHARS,
    OUTPUT_BYTES,
    PROMPT_CHARS,
    read_program,
    run_program,
    show_program,
)


def test_a_program_that_is_too_long_is_no_program():
    program = "#" * (MAX_SOURCE_CHARS + 1)
    read = read_program(f"```python\n{program}\n```")
    assert isinstance(read, ParseError)
    assert "characters" in read.reason


def test_a_program_reads_stdin_and_its_output_is_told():
    ran = run_program("print(input()[::-1])", "abc\n")
    assert ran.is_ok
    assert ran.stdout == "cba\n"
    assert ran.report == "status: ok\nstdout:\ncba"


@pytest.mark.parametrize(
    ("program", "told"),
    [
        ("raise ValueError('no')", "ValueError: no"),
        ("while True: pass", "status: "),
        ("x = bytearray(1 << 30)", "status: memory_limit"),
        ("print('y' * 10**6)", "status: output_limit"),
        ("import socket; socket.socket()", "status: "),
        ("", "nothing was printed"),
    ],
)
def test_what_a_planner_is_told_is_true_and_bounded(program, told):
    ran = run_program(program, "")
    assert ran.is_ok == (program == "")
    assert told in ran.report
    assert len(ran.report) < 2 * PROMPT_CHARS + 500
    assert len(ran.stdout) <= OUTPUT_BYTES


@pytest.mark.parametrize(
    ("program", "answer"),
    [
        ("print(3)", 3),
        ("print('x')", ParseError("what the program printed could not be read: no number")),
        ("print(3); 1 / 0", "the program failed: error, ZeroDivisionError: division by zero"),
        ("raise ValueError('x\\x07' * 999)", "the program failed: error, ValueError: x"),
        ("import sys; print(3); sys.exit(1)", "the program failed: error"),
    ],
)
def test_a_program_that_fails_has_no_answer(program, answer):
    def read(text):
        return int(text) if text.strip().isdigit() else ParseError("no number")

    found = run_program(program, "").answer(read)
    if isinstance(answer, str):
        assert isinstance(found, ParseError)
        assert found.reason.startswith(answer)
        assert found.reason.isprintable()
        assert len(found.reason) < 150
    else:
        assert found == answer


def test_the_same_program_on_the_same_input_is_run_once():
    program = "import os; print(os.urandom(8).hex())"
    assert run_program(program, "a") is run_program(program, "a")
    assert run_program(program, "a").stdout != run_program(program, "b").stdout


def test_a_starved_run_is_told_and_not_remembered(monkeypatch):
    class Crowded:
        starved = [True, False]

        def run(self, code, stdin, limits):
            starved = self.starved.pop(0)
            status = Status.TIMEOUT if starved else Status.OK
            return ExecutionResult(status, "3", "", 0, 8.0, 0.2, 0, False, starved=starved)

    crowded = Crowded()
    monkeypatch.setattr(sandbox, "default_sandbox", lambda: crowded)
    assert run_program("print('starved once')", "").ending == "timeout"
    assert run_program("print('starved once')", "").is_ok
    assert run_program("print('starved once')", "").is_ok


def test_a_failing_sandbox_is_an_error_and_not_the_programs_fault(monkeypatch):
    class Broken:
        def run(self, code, stdin, limits):
            return sandbox_failure("out of order")

    monkeypatch.setattr(sandbox, "default_sandbox", Broken)
    with pytest.raises(SandboxError, match="out of order"):
        run_program("print('never cached')", "")


def test_long_programs_are_cut_for_the_planner():
    assert show_program("\nprint(1)\n") == "print(1)"
    shown = show_program("x" * 5000)
    assert len(shown) < PROMPT_CHARS + 60
    assert shown.endswith("4000 characters left out ...")
