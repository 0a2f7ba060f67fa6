"""The page on files as its reader follows it: save the files, run the commands, compare."""

import re
import shlex
import tomllib
from pathlib import Path

import pytest

from pettingllms.files import read_lines
from pettingllms.workflows import load_workflow
from pettingllms_trainers.cli import main

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "bring-a-file.md").read_text(encoding="utf-8")
SMALL = str(ROOT / "tests" / "trainers" / "small_program.toml")


def blocks(kind):
    return re.findall(rf"^```{kind}([^\n]*)\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


@pytest.mark.usefixtures("others_program")
def test_the_page_is_followed_to_a_trained_team(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    files = {title.partition('"')[2].strip('"'): text for title, text in blocks("py")}
    for file, text in files.items():
        Path(file).write_text(text)
    assert load_workflow("shell.py:workflow").agents == ("agent_0",)
    proposing, training = (shlex.split(text) for _, text in blocks("sh"))
    assert proposing[-2] == ">"
    assert main(proposing[1:-2]) == 0
    told = capsys.readouterr()
    Path(proposing[-1]).write_text(told.out)
    assert "2 agents: Editor, Poet" in told.err
    ((_, shown),) = blocks("toml")
    proposed = tomllib.loads(told.out)
    assert proposed["env"]["id"] == f"workflow:{tmp_path}/team.py:main"
    table, same = (found["env"]["kwargs"]["program"] for found in (proposed, tomllib.loads(shown)))
    assert {**table, "clock": same["clock"]} == same
    small = [*training[1:2], SMALL, *training[2:], "--output-dir", "run"]
    assert main([*small, "--evaluation.kwargs.split=train"]) == 2, "it is not held out"
    assert main(small) == 0, capsys.readouterr().err
    assert read_lines(Path("run", "metrics.jsonl"))[-1]["rollout/num_failed_trees"] == 0
