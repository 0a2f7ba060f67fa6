"""Every command that a reader is shown: its name, its options, its recipes and keys are there."""

import re
import shlex
from pathlib import Path

import pytest

from pettingllms.cli.app import run
from pettingllms_trainers.cli import main as train
from pettingllms_trainers.config.loading import load_config
from pettingllms_trainers.errors import ConfigError

ROOT = Path(__file__).resolve().parents[2]
FOLDERS = ["*.md", "docs/**/*", "*/README.md", "examples/**/*", "pettingllms/**/*", "trainers/**/*"]
SHOWN = re.compile(
    r"^[ #$]*(pettingllms(?:-train)? [^\n`]*?)(?:\\n)?\\?$|`(pettingllms(?:-train)? [^`\n{}]+)`",
    re.MULTILINE,
)
NO_COMMANDS = {"pyproject.toml"}
# Of a shell, a usage line, or a sentence around a command.
AROUND = re.compile(r"\[.*?\]+|\.\.\.|[:,]$|: .*| #.*|\$PAPER")
COMMANDS = {"launch", "plan", "warm-start", "--dry-run", "--resume", "--trust", "--servers"}
VALUED = {"--gpus", "--gpu-memory", "--gpu", "--usd-per-hour", "--task"}


def commands():
    """Command -> a file that shows it."""
    found = {}
    for path in (path for pattern in FOLDERS for path in sorted(ROOT.glob(pattern))):
        if path.suffix in (".md", ".py", ".tmpl", ".toml") and path.name not in NO_COMMANDS:
            for line, quoted in SHOWN.findall(path.read_text(encoding="utf-8")):
                for command in re.split(r" && |;|  +", line or quoted):
                    if command.startswith("pettingllms"):
                        found.setdefault(command.strip(), path.relative_to(ROOT).as_posix())
    return found


@pytest.mark.parametrize(("command", "path"), sorted(commands().items()))
def test_a_command_that_is_shown_is_there(command, path, capsys):
    program, *words = shlex.split(AROUND.sub("", command))
    if program == "pettingllms":
        # Options are read before --help is obeyed.
        assert run([*words, "--help"]) == 0, (path, capsys.readouterr().err)
    elif words[0] in ("export", "fetch-model", "recipe", "recipes"):
        assert train([*words, "--help"]) == 0, (path, capsys.readouterr().err)
    else:
        check_training(words)


def check_training(words):
    """Fail if a recipe or a key is not there; where all files are recipes, also if it fails."""
    words = [word for word in words if word not in COMMANDS]
    for name in VALUED & {*words}:
        del words[words.index(name) : words.index(name) + 2]
    flags = words[next((i for i, word in enumerate(words) if word.startswith("--")), len(words)) :]
    files = words[: len(words) - len(flags)]
    recipes = [word for word in files if word.startswith("recipe:")]
    told = ""
    try:
        load_config(recipes or ["recipe:plan_path"], [one for one in flags if one != "--help"])
    except ConfigError as error:
        told = str(error)
    # A part alone is not a run, and a placeholder no file: what is not known fails in any case.
    is_whole = files and recipes == files and "/" not in recipes[0]
    assert not (told if is_whole else re.search("unknown key|no recipe|to no flag", told)), told
