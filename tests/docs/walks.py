"""Prints the files of this repository that a piece of work enters, in order: one per line.

`python tests/docs/walks.py {game,train,eval} FOLDER`; runs are written into the folder. A file is
entered when one of its functions is called.
"""

import contextlib
import inspect
import random
import sys
import threading
from pathlib import Path

ROOT = Path(__file__).parents[2]


class Walk:
    """The files that were entered while it was on."""

    def __init__(self):
        self.files = {}
        self._known = {}

    def _enter(self, frame, event, argument):
        code = frame.f_code
        # Of functions: bodies of modules and classes run when something is imported.
        is_function = bool(code.co_flags & inspect.CO_OPTIMIZED)
        if event == "call" and is_function and code.co_filename not in self._known:
            path = Path(code.co_filename)
            is_ours = path.is_relative_to(ROOT) and not path.is_relative_to(ROOT / ".venv")
            self._known[code.co_filename] = is_ours
            if is_ours and path != Path(__file__):
                self.files[str(path.relative_to(ROOT))] = None

    def start(self):
        threading.setprofile(self._enter)
        sys.setprofile(self._enter)

    def stop(self):
        sys.setprofile(None)
        threading.setprofile(None)

    @contextlib.contextmanager
    def on(self):
        self.start()
        try:
            yield
        finally:
            self.stop()


def game(walk, folder):
    """One observation and one action in Sokoban."""
    import pettingllms

    env = pettingllms.make("sokoban_v0", team="proposer-planner")
    env.reset(seed=3)
    env.step(env.scripted_action(env.agent_selection, "oracle", random.Random(0)))
    env.last()
    with walk.on():
        env.last()
        env.step('#### ["U", "R"]')


class Enough(Exception):
    """What would follow belongs to no walk."""


def train(walk, folder):
    """The second train step of the embedded default, without an evaluation."""
    from pettingllms_trainers import train

    def on_step(step, metrics):
        (walk.start if step == 1 else walk.stop)()
        if step == 2:
            raise Enough

    changes = {
        "num_steps": 3,
        "warm_start": {"num_steps": 2, "num_episodes": 8},
        "rollout": {"num_levels": 4},
        "evaluation": {"num_episodes": 1, "every": 3},
        "output_dir": str(folder / "run"),
    }
    with contextlib.suppress(Enough):
        train("recipe:plan_path", on_step=on_step, **changes)


def evaluate(walk, folder):
    """An evaluation of Sokoban on two levels."""
    from pettingllms.cli import main

    sys.argv = ["pettingllms", "eval", "sokoban_v0", "-n", "2", "-p", "oracle", "--out"]
    sys.argv.append(str(folder / "run"))
    with walk.on(), contextlib.suppress(SystemExit):
        main()


if __name__ == "__main__":
    name, folder = sys.argv[1:]
    walk = Walk()
    {"game": game, "train": train, "eval": evaluate}[name](walk, Path(folder))
    Path(folder, "walk.txt").write_text("\n".join(walk.files))
