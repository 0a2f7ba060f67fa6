"""Windows and macOS have no sandbox: games that run no program are made and played there."""

import json
import subprocess
import sys

# What others import for the system that they are on is imported before it is another one.
PROGRAM = """
import asyncio, concurrent.futures, importlib.metadata, multiprocessing, subprocess, tempfile
import filelock, gymnasium, pettingzoo, json, random, os, sys
for name in ("fcntl", "resource", "pwd", "grp", "termios", "_posixsubprocess"):
    sys.modules[name] = None
for name in ("fork", "setsid", "killpg", "memfd_create", "sched_getaffinity"):
    delattr(os, name)
sys.platform = "win32"
import pettingllms
said = {}
for name in pettingllms.registered_ids():
    env = pettingllms.make(name)
    env.reset(seed=0)
    said[name] = "plays"
    try:
        for _ in range(2):
            policy = env.unwrapped.scripted_policies[0]
            env.step(env.unwrapped.scripted_action(env.agent_selection, policy, random.Random(0)))
    except pettingllms.errors.SandboxError as error:
        said[name] = str(error)
print(json.dumps(said))
"""
RUNS_PROGRAMS = {
    "blocksworld_v0", "code_v0", "math_v0", "plan_path_v0", "queens_v0", "sokoban_v0", "sudoku_v0",
}  # fmt: skip
"""In their first two actions."""


def test_every_environment_is_made_where_there_is_no_sandbox():
    done = subprocess.run([sys.executable, "-c", PROGRAM], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-2000:]
    said = json.loads(done.stdout)
    refused = {name for name, words in said.items() if words != "plays"}
    assert refused == RUNS_PROGRAMS, "a tool agent's program, or a verdict"
    assert all("WSL 2" in said[name] for name in refused)
