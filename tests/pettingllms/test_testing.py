"""The conformance kit passes a good environment and finds each broken promise."""

import random

import numpy as np
import pytest

from pettingllms.errors import ConformanceError
from pettingllms.testing import check_documentation, check_env, transcript_of
from pettingllms.testing.play import reference_player
from pettingllms.testing.seeds import check_other_process


@pytest.mark.parametrize("kwargs", [{}, {"simultaneous": True}, {"observation_mode": "delta"}])
def test_a_good_environment_passes(guess_env, kwargs):
    check_env(lambda: guess_env(**kwargs))


def test_an_id_is_checked_in_other_processes_too():
    check_env("plan_path_v0")


def test_an_id_that_is_registered_in_this_process_is_checked_here(guess_id):
    check_env(guess_id)


def test_what_cannot_be_played_elsewhere_is_told():
    with pytest.raises(ConformanceError, match=r"no_such_v0 cannot be played(.|\n)*UnknownEnv"):
        check_other_process("no_such_v0")


def test_what_is_no_text_env_is_told():
    class Other:
        unwrapped = object()

    with pytest.raises(ConformanceError, match="is not a pettingllms"):
        check_env(Other)


def global_python(env, state, agent, action, good):
    random.random()
    return good


def global_numpy(env, state, agent, action, good):
    np.random.rand()
    return good


def raises_on_text(env, state, agent, action, good):
    if isinstance(action, str) and action == "0":
        raise KeyError(action)
    return good


def infinite_reward(env, state, agent, action, good):
    return good._replace(local=float("inf"))


def success_without_end(env, state, agent, action, good):
    return good._replace(success=True, terminated=False, team=0.0)


def hidden_counter(env, state, agent, action, good):
    env.counter = getattr(env, "counter", 0) + 1
    return good._replace(local=float(env.counter % 7))


def shared_list(env, state, agent, action, good):
    env.memory.append(action)
    return good._replace(local=0.001 * len(env.memory))


def pays_silence(env, state, agent, action, good):
    return good if isinstance(action, str) else good._replace(local=100.0)


@pytest.mark.parametrize(
    ("fault", "message"),
    [
        (global_python, "global `random`"),
        (global_numpy, "numpy's global state"),
        (raises_on_text, "KeyError"),
        (infinite_reward, "not finite|reward"),
        (success_without_end, "time-out is counted as success|did not solve"),
        (hidden_counter, "differs|two episodes|Incorrect"),
        (shared_list, "fork|two episodes"),
        (pays_silence, "earns"),
    ],
)
def test_faults_of_act_are_found(guess_env, fault, message):
    class Faulty(guess_env):
        def reset(self, seed=None, options=None):
            self.memory = []
            super().reset(seed, options)

        def _act(self, state, agent, action):
            return fault(self, state, agent, action, super()._act(state, agent, action))

    state, numpy_state = random.getstate(), np.random.get_state()
    try:
        with pytest.raises(ConformanceError, match=message):
            check_env(Faulty)
    finally:
        random.setstate(state)
        np.random.set_state(numpy_state)


def test_unseeded_levels_are_found(guess_env):
    class Faulty(guess_env):
        def _generate(self, rng, options):
            return super()._generate(random.SystemRandom(), options)

    with pytest.raises(ConformanceError, match=r"two episodes|Incorrect"):
        check_env(Faulty)


def test_constant_levels_are_found(guess_env):
    class Faulty(guess_env):
        def _generate(self, rng, options):
            return super()._generate(rng, {"secret": 5})

    with pytest.raises(ConformanceError, match="same initial state"):
        check_env(Faulty)


def test_observations_that_hide_the_level_are_found(guess_env):
    class Faulty(guess_env):
        def _fields(self, state, agent, turn):
            return {"secret": 1, "hint": 2, "answer": 3}

    with pytest.raises(ConformanceError, match="depends on the seed"):
        check_env(Faulty)


def test_games_that_begin_alike_say_so(guess_env):
    class Alike(guess_env):
        metadata = {**guess_env.metadata, "seed_shows": False}

        def _generate(self, rng, options):
            return super()._generate(rng, {"secret": 5})

    check_env(Alike)


def test_mutable_states_are_found(guess_env):
    class Faulty(guess_env):
        def _state_json(self, state):
            return list(state)

        def _generate(self, rng, options):
            return super()._generate(rng, options)._replace(hint=[])

    with pytest.raises(ConformanceError, match="unhashable"):
        check_env(Faulty)


def test_observing_with_side_effects_is_found(guess_env):
    class Faulty(guess_env):
        def _fields(self, state, agent, turn):
            self._state = state._replace(hint=str(len(state.hint)))
            return super()._fields(state, agent, turn)

    with pytest.raises(ConformanceError):
        check_env(Faulty)


def test_different_spaces_are_found(guess_env):
    class Faulty(guess_env):
        def __init__(self):
            super().__init__()
            self.action_spaces["teller_0"] = type(self.action_space("teller_0"))(10)

    with pytest.raises(ConformanceError, match="space"):
        check_env(Faulty)


def test_undocumented_environments_are_found(guess_env):
    with pytest.raises(ConformanceError, match="sections"):
        check_documentation(guess_env())


def test_transcripts_tell_all(guess_env):
    text = transcript_of(guess_env(), 1, reference_player("oracle", random.Random(0)))
    assert text.startswith("seed 1 agents teller_0, guesser_0\n---- step 0 turn 0 teller_0 reads\n")
    assert text.endswith("terminated\n")
