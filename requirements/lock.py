"""Writes the locks: every package that CI and `make` install, with the hashes of its files.

    python requirements/lock.py [--upgrade]

Called by `make locks`, from the root of the repository. Versions that the locks name stay where the
ranges of the packages allow it; `--upgrade` takes the newest. Locks of `make` hold for all systems
and Pythons; those of backends and adapters for Linux on x86-64, where they are tested.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

FOLDER = Path("requirements")
EVERYWHERE = ["--universal", "--python-version", "3.11.5"]
LINUX = ["--python-platform", "x86_64-unknown-linux-gnu", "--python-version"]
LOCKS = {
    "build": EVERYWHERE,
    "train": EVERYWHERE,
    "dev": [*EVERYWHERE, "--group", "dev"],
    "backends": [*LINUX, "3.11.5"],
    "adapters/models": [*LINUX, "3.11.5"],
    "adapters/agents": [*LINUX, "3.11.5"],
    "adapters/harbor": [*LINUX, "3.12"],
    "adapters/nemo-gym": [*LINUX, "3.12"],
}
"""The locks and how they are resolved; `NAME.in` beside each says what is wanted."""

OURS = ("pettingllms", "pettingllms-trainers", "torch")


def main(options: list[str]) -> None:
    """Resolve one after the other; what `make train` and `make test` share has one version."""
    for name, resolution in LOCKS.items():
        words = ["uv", "pip", "compile", "--quiet", "--generate-hashes", "--no-annotate"]
        words += ["--no-header", "--override", str(FOLDER / "no-torch.txt"), *resolution]
        for package in OURS:
            words += ["--no-emit-package", package]
        if name == "dev":
            words += ["--constraint", str(FOLDER / "train.txt")]
        words += [
            str(FOLDER / f"{name}.in"),
            "--output-file",
            str(FOLDER / f"{name}.txt"),
            *options,
        ]
        subprocess.run([sys.executable, "-m", *words], check=True)


if __name__ == "__main__":
    main(sys.argv[1:])
