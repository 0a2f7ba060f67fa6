import gymnasium
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pettingzoo.test import api_test

import pettingllms
from pettingllms.adapters.pettingzoo import ParallelView
from pettingllms.adapters.tokenised import CharacterTokenizer, TextCodec, TokenisedEnv
from pettingllms.errors import InvalidArgument

ALPHABET = CharacterTokenizer().alphabet
MOVES = ['#### ["U"]', '#### ["D"]', '#### ["L"]', '#### ["R"]']


@given(st.text(alphabet=ALPHABET, max_size=40))
def test_what_fits_is_kept(text):
    codec = TextCodec(40, 40)
    numbers, cut = codec.encode(text)
    assert numbers in codec.observation_space
    assert cut == 0
    assert codec.decode(numbers) == text


@given(st.text(max_size=60), st.integers(1, 50))
def test_the_end_of_a_long_text_is_kept(text, length):
    codec = TextCodec(length, 1)
    numbers, cut = codec.encode(text)
    assert numbers in codec.observation_space
    assert cut == max(0, len(text) - length)
    assert codec.tokenizer.decode([n - 1 for n in numbers if n]) == "".join(
        c if c in ALPHABET else "\ufffd" for c in text[cut:]
    )


def test_actions_from_a_list():
    codec = TextCodec(8, MOVES)
    assert codec.action_space == gymnasium.spaces.Discrete(4)
    assert [codec.decode(np.int64(i)) for i in range(4)] == MOVES
    with pytest.raises(InvalidArgument, match="0 to 3"):
        codec.decode(4)


def test_free_actions_end_at_the_padding():
    codec = TextCodec(8, 5, CharacterTokenizer("abc"))
    assert codec.decode(np.array([1, 2, 0, 3, 3])) == "ab"
    assert codec.decode([4, 4, 4, 4, 4]) == "\ufffd" * 5
    assert codec.decode(codec.action_space.sample()) is not None
    for wrong in ([1, 2, 0, 3], [1, 2, 0, 3, 9], [-1, 0, 0, 0, 0]):
        with pytest.raises(InvalidArgument, match="MultiDiscrete"):
            codec.decode(wrong)


@pytest.mark.parametrize(
    ("length", "actions"),
    [(0, 1), (1, 0), (1, []), (1, "UDLR"), (2.5, 1), (True, 1), (1, True), (1, 2.5), (1, [3])],
    ids=repr,
)
def test_bad_sizes_are_told(length, actions):
    with pytest.raises(InvalidArgument):
        TextCodec(length, actions)


def test_observations_as_floats():
    codec = TextCodec(4, 1, CharacterTokenizer("ab"), dtype="float32")
    numbers, _ = codec.encode("abc")
    assert numbers.dtype == np.float32
    assert numbers.tolist() == [1, 2, 3, 0]
    assert numbers in codec.observation_space
    with pytest.raises(InvalidArgument, match="int64, float32"):
        TextCodec(4, 1, dtype="int8")


def test_bad_alphabets_are_told():
    for alphabet in ("", "aa"):
        with pytest.raises(InvalidArgument, match="alphabet"):
            CharacterTokenizer(alphabet)


@pytest.mark.parametrize("actions", [MOVES, 12], ids=["list", "free"])
@pytest.mark.filterwarnings("ignore:Action space for each agent probably should be:UserWarning")
def test_pettingzoos_own_test_passes(actions):
    env = TokenisedEnv(pettingllms.make("plan_path_v0", size=6), TextCodec(300, actions))
    api_test(env, num_cycles=50)


def test_the_team_environment_mirrors_the_texts():
    codec = TextCodec(4000, MOVES)
    env = TokenisedEnv(pettingllms.make("plan_path_v0", size=6), codec)
    env.reset(seed=1)
    twin = pettingllms.make("plan_path_v0", size=6)
    twin.reset(seed=1)
    for agent in env.agent_iter():
        assert agent == twin.agent_selection
        observation, reward, terminated, truncated, info = env.last()
        text, *expected = twin.last()
        assert codec.tokenizer.decode([n - 1 for n in observation if n]) == text
        assert [reward, terminated, truncated] == expected[:3]
        assert info == {**expected[3], "cut_tokens": 0}
        assert env.state() == twin.state()
        ended = terminated or truncated
        env.step(None if ended else 2)
        twin.step(None if ended else MOVES[2])
    assert not twin.agents


def test_lost_tokens_are_counted():
    env = TokenisedEnv(pettingllms.make("plan_path_v0", size=6), TextCodec(10, MOVES))
    env.reset(seed=1)
    for agent in env.agents:
        assert env.infos[agent]["cut_tokens"] == len(env.env.observe(agent)) - 10


def test_a_parallel_view_of_numbers_whose_infos_are_numbers():
    team = pettingllms.make("plan_path_v0", checks=False, team="proposer-planner", max_turns=2)
    env = ParallelView(TokenisedEnv(team, TextCodec(8, MOVES), scalar_infos=True))
    _, infos = env.reset(seed=3)
    keys = set(infos["planner_0"])
    assert env.acting == ("proposer_0",)
    while env.agents:
        observations, *_, infos = env.step(dict.fromkeys(env.agents, 0))
        assert observations["planner_0"].shape == (8,)
        for info in infos.values():
            assert set(info) == keys
            assert all(isinstance(value, bool | int | float) for value in info.values())
