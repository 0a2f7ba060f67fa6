"""Makes a folder that a machine with torch and transformers alone needs for the GPU campaign.

    python benchmarks/gpu_pack.py DIR
    python -m pip install --no-index --no-deps DIR/wheels/*.whl   # there, in an environment
    python DIR/gpu_campaign.py --output RESULTS

The wheels of both packages are built from this checkout: they announce environments and
algorithms. The others are those of `requirements/dev.txt`, for this version of Python or the one
that is given. None draws pictures, which is a third of what the packages ask for.
"""

from __future__ import annotations

import argparse
import platform
import re
import shutil
import subprocess
import sys
from pathlib import Path

from gpu_campaign import COMMIT, commit_of

ROOT = Path(__file__).resolve().parents[1]
MAX_BYTES = 60 << 20

WHEELS = (
    "accelerate", "aiolimiter", "cloudpickle", "distro", "farama-notifications", "gymnasium",
    "jiter", "openai", "peft", "pettingzoo", "psutil", "scipy", "sniffio", "starlette",
    "tomli-w", "uvicorn",
)  # fmt: skip
"""What a campaign imports beside torch, transformers and what those require."""

WHEELS_WITH_REQUIREMENTS = ("httpx2", "pydantic")
"""Those whose requirements have to fit them to the version."""


def pack(folder: Path, python: str) -> int:
    """Fill a new folder; return its size in bytes."""
    commit, wheels = commit_of(ROOT), folder / "wheels"
    wheels.mkdir(parents=True)
    (folder / COMMIT).write_text(commit, encoding="utf-8")
    for package in (ROOT, ROOT / "trainers"):
        build = [sys.executable, "-m", "build", "--wheel", "--outdir", str(wheels), str(package)]
        subprocess.run(build, check=True, stdout=subprocess.DEVNULL)
    download = [sys.executable, "-m", "pip", "download", "--quiet", "--dest", str(wheels)]
    download += ["--only-binary", ":all:", "--python-version", python]
    # The versions that the tests of this commit have passed with; without hashes, as pip would
    # want a hash for what other builds need, too.
    lock = (ROOT / "requirements" / "dev.txt").read_text(encoding="utf-8")
    pins = folder / "constraints.txt"
    pins.write_text("".join(f"{pin}\n" for pin in re.findall(r"^\S+==[^\\\n]+", lock, re.M)))
    download += ["--constraint", str(pins)]
    subprocess.run([*download, "--no-deps", *WHEELS], check=True)
    subprocess.run([*download, *WHEELS_WITH_REQUIREMENTS], check=True)
    for path in (ROOT / "benchmarks").glob("gpu_*.py"):
        shutil.copy(path, folder)
    (folder / "configs").mkdir()
    for path in (ROOT / "benchmarks" / "configs").glob("gpu_*.toml"):
        shutil.copy(path, folder / "configs")
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="a new one")
    here = ".".join(platform.python_version_tuple()[:2])
    parser.add_argument("--python", default=here, help="version of Python there")
    options = parser.parse_args()
    if options.folder.exists():
        parser.error(f"{options.folder} is there already: name a new folder")
    num_bytes = pack(options.folder, options.python)
    print(f"{options.folder}: {num_bytes / (1 << 20):.1f} MiB")
    if num_bytes > MAX_BYTES:
        raise SystemExit(f"more than the {MAX_BYTES >> 20} MiB that are to travel")


if __name__ == "__main__":
    main()
