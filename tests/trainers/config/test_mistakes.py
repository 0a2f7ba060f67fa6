"""Mistakes are named with the file they are in; what is legal and rarely meant is told."""

import tomllib
from pathlib import Path

import pytest

from pettingllms_trainers.config.loading import load_config
from pettingllms_trainers.config.root import start_advice
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


RUN = """
[env]
id = "ENV"
[policies.a]
model = "tiny"
[roles]
caller = "a"
echo = "a"
"""
REWARD = '[rewards.style]\nfunction = "math:fsum"\n'


@pytest.fixture
def advice(load):
    def of(algorithm, env="toy_echo_v0", rest=""):
        return " ".join(start_advice(load(RUN.replace("ENV", env) + rest + algorithm, trust=True)))

    return of


AT_GRPO = '[algorithm]\nname = "at_grpo"\n'


@pytest.mark.parametrize(
    ("algorithm", "trusts"),
    [
        (AT_GRPO, True),
        ('[algorithm]\nname = "reinforce"\n', True),
        ('[algorithm]\nname = "auto"\n', False),
        ('[algorithm]\nname = "reinforce"\ncredit = "success"\n', False),
    ],
)
def test_who_trusts_a_score_that_nothing_has_tested_is_told(advice, algorithm, trusts):
    said = advice(algorithm, rest=REWARD)
    assert ("nothing has tested that for rewards.style" in said) == trusts
    assert ("judged/style/outcome_alignment" in said) == trusts
    assert advice(algorithm) == "", "an announced environment is tested before"


def test_a_score_that_pays_nobody_misleads_nobody(advice):
    assert advice(AT_GRPO, rest=REWARD + "weights = { caller = 0 }\n") == ""


def test_an_environment_that_nobody_announces_was_not_tested(advice):
    said = advice(AT_GRPO, env="my.module:Game")
    assert "nothing has tested that for the rewards of" in said
    assert "pettingllms check my.module:Game" in said
    outcome = '[env.kwargs]\nreward = "outcome"\n'
    assert "nothing has tested" not in advice(AT_GRPO, env="my.module:Game", rest=outcome)
    assert "nothing has tested" not in advice(AT_GRPO, env="workflow:my.module:team")


def test_a_scale_that_cancels_out_but_for_the_cost_of_a_cut_is_told(advice):
    said = advice(AT_GRPO, env='toy_echo_v0"\nreward_scale = 0.5 #')
    assert "changes only what rollout.cut_reward = -1 weighs" in said
