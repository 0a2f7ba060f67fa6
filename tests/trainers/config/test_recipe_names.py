"""Recipes: found by name everywhere a run file is, listed, copied, and recorded in the run."""

import re
import tomllib

import pytest

from pettingllms_trainers.cli import main
from pettingllms_trainers.config import config_hash
from pettingllms_trainers.config.loading import config_of, dump_config, load_config, recipe_names
from pettingllms_trainers.errors import ConfigError


def test_a_recipe_is_found_from_anywhere_and_is_what_its_file_says(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert load_config("recipe:queens").env[0].id == "queens_v0"
    both = ["recipe:plan_path", "recipe:options/outcome"]
    assert load_config(both).env[0].kwargs["reward"] == "outcome"
    assert config_of("recipe:plan_path", {"num_steps": 5}).num_steps == 5


def test_a_wrong_name_is_corrected():
    with pytest.raises(ConfigError, match=r"no recipe:planpath; did you mean recipe:plan_path\?"):
        load_config("recipe:planpath")
    with pytest.raises(ConfigError, match=r"no recipe:\.\./x; there are: blocksworld, "):
        load_config("recipe:../x")


def test_a_run_records_what_it_was_read_from_and_is_the_same_run_without(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "more.toml").write_text("num_steps = 7\n")
    config = load_config(["recipe:queens", "more.toml"], ["--seed", "3"])
    assert config.sources == ("recipe:queens", str(tmp_path / "more.toml"))
    (tmp_path / "config.toml").write_text(dump_config(config))
    again = load_config(["config.toml", "more.toml"])
    assert again.sources == (*config.sources, str(tmp_path / "more.toml"))
    assert config_hash(again) == config_hash(config)


def test_the_table_of_a_recipe_changes_nothing_and_is_checked(tmp_path):
    path = tmp_path / "run.toml"
    path.write_text("[recipe]\ntask = 'x'\n[recipe.recorded]\nseeds = 0\n")
    with pytest.raises(ConfigError, match=r"run\.toml: 'recipe\.recorded\.seeds': .*left out"):
        load_config(["recipe:queens", path])
    path.write_text("[recipe]\ntask = 'x'\n")
    assert load_config(["recipe:queens", path]).num_steps == load_config("recipe:queens").num_steps


def test_the_list_has_every_recipe_with_its_team_and_result(capsys):
    assert main(["recipes"]) == 0
    out = capsys.readouterr().out
    assert max(map(len, out.splitlines())) <= 100
    assert {*re.findall(r"^  ([\w./]+)", out, re.M)} == {*recipe_names()}
    assert "two tiny models; team: tool, planner\n" in out
    assert "success 19 to 55 -> 100 %, 5 seeds\n" in out


def test_a_copy_is_the_recipe_and_overwrites_nothing(tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert main(["recipe", "queens", "--copy"]) == 0
    assert capsys.readouterr().out == "queens.toml\n"
    original, copy = load_config("recipe:queens"), load_config("queens.toml")
    assert copy.model_copy(update={"sources": original.sources}) == original
    (tmp_path / "queens.toml").write_text("mine")
    assert main(["recipe", "queens", "--copy", "queens.toml"]) == 2
    assert (tmp_path / "queens.toml").read_text() == "mine"
    assert main(["recipe", "recipe:options/outcome"]) == 0
    assert tomllib.loads(capsys.readouterr().out)["algorithm"]["name"] == "reinforce"
