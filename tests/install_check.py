"""Installs built packages into empty environments and uses them: wheels, then sdists.

    python tests/install_check.py INTERPRETER DIST

Needs a package index. `make install-check` calls it for every Python that is here.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

USE = """
import sys, pettingllms
env = pettingllms.make("blocksworld_v0", team="single")
env.reset(seed=1)
env.step(env.scripted_action("planner_0", "oracle", __import__("random").Random(0)))
assert env.last()[4]["success"]
assert len(__import__("pettingllms_envs.code").code.builtin_problems()) >= 60
assert len(pettingllms.registered_ids()) >= 11, pettingllms.registered_ids()
assert "torch" not in sys.modules
"""


def main(interpreter: str, dist: Path) -> None:
    """Check wheels and sdists with one interpreter."""
    for suffix in (".whl", ".tar.gz"):
        with tempfile.TemporaryDirectory() as folder:
            python = Path(folder) / "bin" / "python"
            run(interpreter, "-m", "venv", folder)
            core, trainer = (
                found(dist, "pettingllms-", suffix),
                found(dist, "pettingllms_trainers-", suffix),
            )
            run(python, "-m", "pip", "install", "--quiet", f"{core}[cli]")
            run(python, "-m", "pip", "install", "--quiet", "--no-deps", str(trainer))
            run(python, "-I", "-c", USE)
            run(Path(folder) / "bin" / "pettingllms", "list")
            run(python, "-I", "-c", "import pettingllms_trainers")
        print(f"{interpreter}: {core.name} and {trainer.name} install and run")


def found(dist: Path, start: str, suffix: str) -> Path:
    """The only package of that name in a folder."""
    (path,) = (
        one for one in dist.iterdir() if one.name.startswith(start) and one.name.endswith(suffix)
    )
    return path.resolve()


def run(*words: object) -> None:
    """Run a command that must succeed."""
    subprocess.run([str(word) for word in words], check=True, stdout=subprocess.DEVNULL)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
