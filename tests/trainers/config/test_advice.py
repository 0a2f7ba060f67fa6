"""Runs are told at their start what is legal and rarely meant."""

import pytest

from pettingllms_trainers.config.rules import start_advice

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
