"""Every command that a reader is shown, run where he would run it, as far as this machine can.

    python tests/docs/test_commands.py     # write commands.tsv: needs and results

Where that is a server, a GPU or a file of the reader, name, options, recipes and keys are checked.
"""

import io
import re
import shlex
import shutil
import subprocess
import sys
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
VALUED = {"--gpus", "--gpu-memory", "--gpu", "--usd-per-hour", "--task", "--from"}


def commands():
    """Command -> a file that shows it."""
    found = {}
    for path in (path for pattern in FOLDERS for path in sorted(ROOT.glob(pattern))):
        if path.suffix in (".md", ".py", ".tmpl", ".toml") and path.name not in NO_COMMANDS:
            text = re.sub(r" *\\\n\s*", " ", path.read_text(encoding="utf-8"))
            for line, quoted in SHOWN.findall(text):
                for command in re.split(r" && |;|  +", line or quoted):
                    if command.startswith("pettingllms"):
                        found.setdefault(command.strip(), path.relative_to(ROOT).as_posix())
    return found


# What a command needs, by the first pattern that is in it; else it runs after the installation.
NEEDS = {
    "usage": r"^[\w-]+( (?!list|doctor|recipes)[a-z:-]+)?( check| export)?$|eval plan_path_v0$"
    r"|eval:|--merge",
    "a server": r"http|openai:|POLICY|run:runs/team|runs/(my_team|team|seed|eval)",
    "weights": r"(?i)paper|qwen|gpus/|launch|--ray|vllm|smollm2|TASK|hf:|A\.toml|fetch-",
    "an extra": r"reasoning_gym|langgraph",
    "a file": r"FILE|usable|problems|episode\.jsonl|my_t|run\.toml|largest_digit|team\.py|RUN\.t",
    "more runs": r"runs/(?!tiny_team|oracle|random|mixed|good|greedy)|RUN RUN|--environment|GAME"
    r"|--resume|--live|--open",
    "minutes": r"train (?!.*(--help|--dry-run|--copy|recipes|plan |RUN)).*(recipe:|toml|CONFIG)"
    r"|bench|check ID|doctor",
    "a run": r"RUN|runs/|FOLDER|DIRECTORY",
}
# What a reader types for what stands in capitals, and for names that the page has introduced.
MEANT = {
    "--policy NAME": "--policy planner",
    "ID": "plan_path_v0",
    "NAME.py": "my_game.py",
    "my_game_v0": "my_game.py",
    "hidden_number_v0": "my_game.py",
    "CONFIG": "recipe:plan_path",
    "HUB": "openenv",
    "NAME": "queens",
    "RUN": "runs/tiny_team",
    "FOLDER": "runs/mixed",
    "N": "2",
    "train.toml": "train.toml --env.id my_game.py --trust",  # in place of an installation
    "examples/tiny_team.toml": str(ROOT / "examples" / "tiny_team.toml"),
}
PLAYED = {"oracle": "oracle", "random": "random", "good": "oracle", "mixed": "tool=oracle"}
RESULTS = {"nothing": "runs", "a run": "runs", "minutes": "runs, nightly"}
LIST = Path(__file__).with_name("commands.tsv")


def need(command):
    return next((name for name, pattern in NEEDS.items() if re.search(pattern, command)), "nothing")


def listed():
    """The list; a test below holds each row to its result."""
    rows = sorted((need(command), command, path) for command, path in commands().items())
    lines = [(*row[:1], RESULTS.get(row[0], "is read"), *row[1:]) for row in rows]
    return "".join(
        "\t".join(line) + "\n" for line in [("needs", "result", "command", "shown in"), *lines]
    )


def called(program, words):
    """Run a command in this process; return its exit code."""
    if any(word.endswith(".py") for word in words):
        # Except where a file is imported, whose name a process has once.
        package = program.replace("-train", "_trainers")
        return subprocess.run([sys.executable, "-m", f"{package}.cli", *words]).returncode
    try:
        return (run if program == "pettingllms" else train)(words)
    except SystemExit as end:  # argparse, for --help
        return end.code


@pytest.fixture(scope="module")
def workplace(tmp_path_factory):
    """A reader's folder: a new game, an example, evaluations, and a training run."""
    folder = tmp_path_factory.mktemp("reader")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [*sys.path])
        patch.chdir(folder)
        assert run(["new", "my_game"]) == 0
        patch.chdir(folder / "my_game")
        shutil.copy(ROOT / "examples" / "one_file_game.py", ".")
        shutil.copy(ROOT / "examples" / "one_file_game.toml", ".")
        for name, policy in {**PLAYED, "greedy": "greedy"}.items():
            others = ["-p", "planner=random"] if "=" in policy else []
            words = ["-p", policy, *others, "-e", "max_turns=2", "-n", "2"]
            assert run(["eval", "plan_path_v0", *words, "--out", f"runs/{name}"]) == 0
        assert train([MEANT["examples/tiny_team.toml"], "--output-dir", "runs/tiny_team"]) == 0
    return folder / "my_game"


def typed(command):
    """What a reader types for a command."""
    text = AROUND.sub("", command)
    for name, meant in MEANT.items():
        text = re.sub(rf"(?<![\w./-]){name}(?![\w./])", meant, text)
    return text.strip()


RUN_HERE = {
    typed(command): [pytest.mark.nightly] if need(command) == "minutes" else []
    for command in sorted(commands())
    if need(command) in RESULTS
}


@pytest.mark.slow
@pytest.mark.parametrize("command", [pytest.param(k, marks=v) for k, v in RUN_HERE.items()])
def test_a_command_runs_where_a_reader_runs_it(command, workplace, tmp_path, monkeypatch, capsys):
    pytest.importorskip("torch")
    monkeypatch.chdir(shutil.copytree(workplace, tmp_path / "here"))
    monkeypatch.setattr("sys.stdin", io.StringIO())
    program, *words = shlex.split(command)
    if words[:1] == ["blame"] and "-m" not in words:
        words += ["-m", "2"]  # in place of 32 replays
    if RUN_HERE[command]:
        shutil.rmtree("runs")
    elif "--out" in words:
        shutil.rmtree(words[words.index("--out") + 1], ignore_errors=True)
    if words[0] == "new":
        words[1] = f"other_{words[1]}"
    assert called(program, words) == 0, capsys.readouterr()


def test_the_list_of_commands_is_what_is_shown():
    assert LIST.read_text(encoding="utf-8") == listed(), f"run: python {LIST.parent / __file__}"


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


if __name__ == "__main__":
    LIST.write_text(listed(), encoding="utf-8")
