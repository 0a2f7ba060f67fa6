"""Several run files: merged from left to right, keys of all policies, errors that name the file."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pettingllms_trainers.config.loading import Layer, merge_layers
from pettingllms_trainers.errors import ConfigError

TASK = """
[env]
id = "toy_echo_v0"
kwargs = { max_turns = 2 }
[roles]
caller = "caller"
echo = "echo"
"""
MODEL = """
[every_policy]
model = "tiny"
num_layers = 2
chat_template_kwargs = { enable_thinking = false, x = 1 }
"""


def test_tables_are_merged_and_later_files_win(load):
    texts = (
        TASK + MODEL + "[optimizer]\nlearning_rate = 0.1\nweight_decay = 0.1\n",
        "[optimizer]\nlearning_rate = 0.2\n[env.kwargs]\nsplit = 'x'\n",
    )
    config = load(*texts)
    assert config.optimizer.learning_rate == 0.2
    assert config.optimizer.weight_decay == 0.1
    assert config.env[0].kwargs == {"max_turns": 2, "split": "x"}
    assert load(*texts[::-1]).optimizer.learning_rate == 0.1
    assert load(*texts, flags=["--optimizer.learning-rate", "3"]).optimizer.learning_rate == 3


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 1, 0), (1, 0, 2)])
def test_every_policy_has_common_keys_unless_it_has_its_own(load, order):
    own = "[policies.echo]\nnum_layers = 7\nchat_template_kwargs = { x = 2 }\n"
    texts = (TASK, MODEL, own)
    config = load(*(texts[index] for index in order))
    assert set(config.policies) == {"caller", "echo"}
    caller, echo = config.policies["caller"], config.policies["echo"]
    assert (caller.model, caller.num_layers, echo.model, echo.num_layers) == ("tiny", 2, "tiny", 7)
    assert caller.chat_template_kwargs == {"enable_thinking": False, "x": 1}
    assert echo.chat_template_kwargs == {"enable_thinking": False, "x": 2}


def test_sizes_of_a_tiny_model_go_where_a_later_file_names_another(load):
    other = "[every_policy]\nmodel = 'other'\nchat_template_kwargs.x = 3\n"
    policy = load(TASK, MODEL, other).policies["caller"]
    assert (policy.model, policy.num_layers, policy.chat_template_kwargs["x"]) == ("other", 3, 3)
    with pytest.raises(ConfigError, match=r"num_layers = 2 would .* policies.\w+.model = .tiny"):
        load(TASK, MODEL.replace("tiny", "other"))


def test_one_policy_plays_every_role_of_the_files_before(load):
    config = load(TASK, MODEL, 'every_role = "team"\n')
    assert config.roles == {"caller": "team", "echo": "team"}
    assert list(config.policies) == ["team"]
    later = load(TASK, MODEL, 'every_role = "team"\n', '[roles]\necho = "other"\n')
    assert later.roles == {"caller": "team", "echo": "other"}


values = st.recursive(
    st.integers(), lambda inner: st.dictionaries(st.sampled_from("abc"), inner), max_leaves=8
)
tables = st.dictionaries(st.sampled_from("abc"), values)


@given(st.lists(tables, min_size=1, max_size=4))
def test_merging_keeps_the_last_value_and_changes_no_file(contents):
    before = repr(contents)
    merged = merge_layers([Layer(str(n), table) for n, table in enumerate(contents)])
    assert repr(contents) == before
    assert set(merged) == {key for table in contents for key in table}
    for key, value in contents[-1].items():
        if not isinstance(value, dict):
            assert merged[key] == value
    again = merge_layers([Layer("", merged), Layer("", contents[-1])])
    assert again == merged, "merging the last file again changes nothing"
