"""Commands as workflows: what they are given, what they answer, and how they end."""

import subprocess
import sys
import time

import pytest

from pettingllms.errors import InvalidArgument
from pettingllms.workflows import Command, WorkflowFailure, WorkflowTimeout

ASK = """
import json, os, sys, urllib.request

def ask(role, text):
    body = {"model": role, "messages": [{"role": "user", "content": text}]}
    head = {"Authorization": "Bearer " + os.environ["OPENAI_API_KEY"]}
    url = os.environ["OPENAI_BASE_URL"] + "/chat/completions"
    request = urllib.request.Request(url, json.dumps(body).encode(), head)
    answer = json.load(urllib.request.urlopen(request))
    return answer["choices"][0]["message"]["content"]

"""


def python(code, *arguments, **fields):
    return Command([sys.executable, "-S", "-c", ASK + code, *arguments], **fields)


@pytest.mark.parametrize(
    ("command", "outcome"),
    [
        (python("print(1); print(ask('worker', ask('planner', sys.stdin.read()))); print()"), "9"),
        (
            python(
                "open('a.txt', 'w').write(ask('worker', ask('planner', sys.argv[1])) + '\\nend')",
                "to {task}",
                answer="a.txt",
            ),
            "9\nend",
        ),
    ],
)
def test_a_command_plays_forks_and_is_run_again(opened, command, outcome):
    outcomes = []
    env = opened(command, reward=lambda task, said: outcomes.append(said) or said == outcome)
    assert env.messages("planner_0")[0]["content"] in ("5", "7", "to 5", "to 7")
    env.step("3")
    assert env.messages("worker_0") == [{"role": "user", "content": "3"}]
    other = env.fork()
    other.step("8")
    env.fork().step("9")
    env.step("9")
    assert env.infos["worker_0"]["success"]
    assert not other.infos["worker_0"]["success"]
    assert outcomes == [outcome.replace("9", "8"), outcome, outcome]


def test_variables_of_a_command(opened):
    show = "ask('planner', 'go'); print(os.environ['PETTINGLLMS_SEED'], os.environ['OWN'])"
    seen = []
    env = opened(
        python(show), reward=lambda _, said: seen.append(said) or 1.0, environ={"OWN": "x"}
    )
    env.step("x")
    assert seen == [f"{env.state().seed} x"]


@pytest.mark.parametrize(
    ("command", "told"),
    [
        (python("sys.exit('broken')"), "CalledProcessError"),
        (Command(["/no/such/program"]), "cannot be run: .*/no/such/program"),
        (python("pass", answer="none.txt"), "wrote no none.txt"),
    ],
)
def test_a_command_that_fails(opened, command, told):
    with pytest.raises(WorkflowFailure, match=told) as caught:
        opened(command)
    if isinstance(caught.value.__cause__, subprocess.CalledProcessError):
        assert caught.value.__cause__.stderr == "broken"


def is_there(number):
    try:
        with open(f"/proc/{number}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # it may end while it is read
        return False


@pytest.mark.parametrize(
    "stubborn", ["", "import signal; signal.signal(signal.SIGTERM, signal.SIG_IGN); "]
)
def test_at_its_end_nothing_of_a_command_is_left(opened, tmp_path, stubborn):
    """Neither the command, nor what it has begun; whether it heeds the signal or not."""
    code = (
        f"{stubborn}import subprocess, time; "
        "child = subprocess.Popen(['sleep', '1000']); "
        f"open({str(tmp_path / 'pids')!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}'); "
        "ask('planner', 'go'); time.sleep(1000)"
    )
    env = opened(python(code))
    pids = [int(part) for part in (tmp_path / "pids").read_text().split()]
    assert all(map(is_there, pids))
    object.__setattr__(env.workflow, "timeout_s", 0.5)  # its beginning may take its time
    with pytest.raises(WorkflowTimeout):
        env.step("x")
    deadline = time.monotonic() + 60
    while any(map(is_there, pids)):
        assert time.monotonic() < deadline
        time.sleep(0.01)


@pytest.mark.parametrize("fields", [{"arguments": "ls"}, {"arguments": ["ls"], "answer": "../a"}])
def test_commands_that_cannot_be(fields):
    with pytest.raises(InvalidArgument):
        Command(**fields)
