"""Phases of updates: which policy is updated, on whose samples, in which train step."""

from hypothesis import given
from hypothesis import strategies as st

from pettingllms_trainers.config import PhaseConfig, UpdatesConfig, config_hash
from pettingllms_trainers.config.loading import dump_config

RUN = """
[env]
id = "toy_echo_v0"
[policies.a]
model = "tiny"
[policies.b]
model = "tiny"
[roles]
caller = "a"
echo = "b"
"""
SHARED = RUN.replace('echo = "b"', 'echo = "a"').replace('[policies.b]\nmodel = "tiny"\n', "")
TURNS = """
[updates]
repeat = true
[[updates.phases]]
policies = ["a"]
num_steps = 2
[[updates.phases]]
policies = ["b"]
num_steps = 1
"""
STAGED = """
[[updates.phases]]
policies = ["b"]
num_steps = 2
[[updates.phases]]
policies = ["a"]
num_steps = 1
[[updates.phases]]
"""


@given(st.lists(st.integers(1, 9), min_size=1, max_size=4), st.integers(0, 80))
def test_phases_last_their_steps_and_repeat(lengths, step):
    played = [index for index, length in enumerate(lengths) for _ in range(length)]
    phases = tuple(PhaseConfig(num_steps=length) for length in lengths)
    assert UpdatesConfig(phases=phases, repeat=True).phase_at(step) == played[step % len(played)]
    staged = UpdatesConfig(phases=(*phases, PhaseConfig()))
    assert staged.phase_at(step) == (played[step] if step < len(played) else len(lengths))
    assert UpdatesConfig().phase_at(step) == 0


def updated(config, num_steps=6):
    return [
        "".join(name for name in config.models if config.updates_policy(name, step))
        for step in range(num_steps)
    ]


def test_turns_and_stages(load):
    assert updated(load(RUN)) == ["ab"] * 6
    assert updated(load(RUN + TURNS)) == ["a", "a", "b", "a", "a", "b"]
    assert updated(load(RUN + STAGED)) == ["b", "b", "a", "ab", "ab", "ab"]
    frozen = load(RUN.replace("[policies.a]", "[policies.a]\nfrozen = true"))
    assert updated(frozen) == ["b"] * 6


def test_roles_of_a_shared_policy_take_turns(load):
    config = load(SHARED + TURNS.replace('policies = ["a"]', 'roles = ["echo"]').replace(
        'policies = ["b"]', 'roles = ["caller"]'
    ))  # fmt: skip
    assert updated(config, 3) == ["a", "a", "a"]
    assert [config.trains("echo", step) for step in range(3)] == [True, True, False]
    assert [config.trains("caller", step) for step in range(3)] == [False, False, True]


def test_phases_are_written_read_and_decide_results(load):
    config, other = load(RUN + TURNS), load(RUN + STAGED)
    assert load(dump_config(config)) == config
    assert len({config_hash(one) for one in (config, other, load(RUN))}) == 3


def test_figures_of_roles_change_no_result(load):
    flag = "--optimizer.role-gradients"
    assert config_hash(load(SHARED, flags=[flag])) == config_hash(load(SHARED)), "up to rounding"
