"""Every mistake in a run file or a flag is named in a line, with the file that it is in."""

import tomllib
from pathlib import Path

import pytest

from pettingllms_trainers.config.loading import load_config
from pettingllms_trainers.errors import ConfigError

TABLE = tomllib.loads(Path(__file__).with_name("mistakes.toml").read_text(encoding="utf-8"))


def text_of(case):
    """The run file of a case."""
    text = TABLE["runs"][case["run"]]
    if "replace" in case:
        text = text.replace(*case["replace"], 1)
    if "policy" in case:
        text = text.replace('model = "tiny"\n', f'model = "tiny"\n{case["policy"]}\n')
    return case.get("before", "") + text + case.get("after", "")


@pytest.mark.parametrize("case", TABLE["cases"], ids=lambda case: case["told"][:60])
def test_it_is_named(case, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name, text in {"run.toml": text_of(case), "over.toml": case.get("over", "")}.items():
        Path(name).write_text(text)
    files = ["run.toml", "over.toml"] if "over" in case else ["run.toml"]
    with pytest.raises(ConfigError) as caught:
        load_config(files, case.get("flags", ()), trust=True)
    said = str(caught.value)
    assert not {"\n", "input_value", "pydantic"} & {*said, *said.split()}
    assert said.count("unknown key") <= max(case["told"].count("unknown key"), 1), "told once"
    assert "run.toml" in said or {"over", "flags"} & {*case}
    for part in case["told"].split("…"):
        assert part.strip() in said, said
        said = said.partition(part.strip())[2]
