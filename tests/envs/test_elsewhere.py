"""The games without programs play where Python has nothing of POSIX."""

import subprocess
import sys

from pettingllms.plugins import own_ids

_GAMES = [name for name in own_ids() if not name.startswith(("code", "math"))]
_PLANNING = ("blocksworld", "plan_path", "queens", "sokoban", "sudoku")
_PROGRAM = """
import multiprocessing.util, os, random, signal, subprocess, sys, tempfile
import gymnasium, numpy, pettingzoo

for name in ("fcntl", "grp", "pwd", "resource", "termios"):
    sys.modules[name] = None
for name in ("fork", "getuid", "geteuid", "killpg", "register_at_fork", "sched_getaffinity"):
    delattr(os, name)
for name in ("SIGHUP", "SIGKILL", "SIGPIPE"):
    delattr(signal, name)

import pettingllms

for name, *options in map(str.split, sys.argv[1:]):
    env = pettingllms.make(name, **dict(option.split("=") for option in options))
    env.reset(seed=3)
    for agent in env.agent_iter():
        is_over, game = any(env.last()[2:4]), env.unwrapped
        answer = (agent, game.scripted_policies[0], random.Random(1))
        env.step(None if is_over else game.scripted_action(*answer))
    print(name)
"""


def test_games_without_programs_play_elsewhere():
    games = [f"{name} team=single" if name.startswith(_PLANNING) else name for name in _GAMES]
    command = [sys.executable, "-c", _PROGRAM, *games]
    played = subprocess.run(command, capture_output=True, text=True, check=False)
    assert played.stdout.split() == _GAMES, played.stderr
