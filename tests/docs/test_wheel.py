"""The wheels hold all that they should, and the root wheel alone makes environments."""

import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


def build_wheel(source, out):
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, source],
        check=True,
        capture_output=True,
    )
    (wheel,) = Path(out).glob("*.whl")
    return wheel


@pytest.fixture(scope="module")
def root_wheel(tmp_path_factory):
    return build_wheel(ROOT, tmp_path_factory.mktemp("root"))


def members(wheel):
    with zipfile.ZipFile(wheel) as archive:
        return set(archive.namelist()), archive


@pytest.mark.parametrize("folder", ["pettingllms", "envs/pettingllms_envs"])
def test_root_wheel_holds_every_module_and_data_file(root_wheel, folder):
    names, _ = members(root_wheel)
    base = (ROOT / folder).parent
    tracked = subprocess.run(
        ["git", "ls-files", folder], cwd=ROOT, check=True, capture_output=True, text=True
    ).stdout.splitlines()
    if not tracked:
        pytest.skip("not a git checkout")
    missing = {(ROOT / path).relative_to(base).as_posix() for path in tracked} - names
    assert not missing


def test_core_needs_five_packages_only(root_wheel):
    with zipfile.ZipFile(root_wheel) as archive:
        (metadata,) = (n for n in archive.namelist() if n.endswith("METADATA"))
        text = archive.read(metadata).decode()
    needed = [
        line.split(":")[1].strip()
        for line in text.splitlines()
        if line.startswith("Requires-Dist:") and "extra ==" not in line
    ]
    assert sorted(n.split(">")[0] for n in needed) == [
        "cloudpickle",  # Gymnasium needs it anyway
        "filelock",  # a folder that is written has an owner
        "gymnasium",
        "numpy",
        "pettingzoo",
    ]


def test_root_wheel_alone_makes_an_environment_without_torch(root_wheel, tmp_path):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", tmp_path / "v"], check=True)
    python = tmp_path / "v" / "bin" / "python"
    site = subprocess.run(
        [python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))"],
        check=True,
        capture_output=True,
        text=True,
    ).stdout.strip()
    with zipfile.ZipFile(root_wheel) as archive:
        archive.extractall(site)
    # The dependencies come from this environment; its own editable install does not, because a
    # path that is named in a .pth file has its own .pth files ignored.
    (Path(site) / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    code = (
        "import sys, pettingllms; "
        f"assert pettingllms.__file__.startswith({site!r}), pettingllms.__file__; "
        "env = pettingllms.make('plan_path_v0'); env.reset(seed=1); "
        "assert 'goal' in env.last()[0]; "
        "heavy = {'torch', 'transformers', 'vllm', 'pydantic'} & set(sys.modules); "
        "assert not heavy, heavy"
    )
    subprocess.run([python, "-I", "-c", code], check=True, cwd=tmp_path)


def test_trainer_wheel_holds_every_module_and_recipe(tmp_path):
    names, _ = members(build_wheel(ROOT / "trainers", tmp_path))
    package = ROOT / "trainers" / "pettingllms_trainers"
    for path in [*package.rglob("*.py"), *package.rglob("*.toml")]:
        assert path.relative_to(ROOT / "trainers").as_posix() in names
