"""Real rollouts and real training in RLlib."""

import os

import pytest

import pettingllms
from pettingllms import PromptTemplate, TextEnv, Transition
from pettingllms.adapters.tokenised import CharacterTokenizer, TextCodec

LIBRARY = "ray"
LIBRARY_DRAWS = True
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("ignore")]


class PointEnv(TextEnv):
    """Both agents see a row with one x and must say where it is."""

    metadata = {"name": "point_v0", "render_modes": ["ansi"]}
    prompt_fields = {"row": "the row"}
    default_prompts = dict.fromkeys(("first", "second"), PromptTemplate("", "{row}"))

    def __init__(self, *, width=4, max_turns=4):
        super().__init__(stages=(("first_0",), ("second_0",)), max_turns=max_turns)
        self.width = width

    def _generate(self, rng, options):
        return tuple(rng.randrange(self.width) for _ in range(self.max_turns + 1))

    def _fields(self, state, agent, turn):
        return {"row": "".join("x" if i == state[0] else "." for i in range(self.width))}

    def _parse(self, state, agent, text):
        return text

    def _act(self, state, agent, action):
        local = float(action == str(state[0]))
        after = state if agent == "first_0" else state[1:]
        return Transition(after, local=local)

    def _ansi(self, state):
        return str(state)


@pytest.fixture
def point_id(monkeypatch):
    monkeypatch.setattr("pettingllms.registry._registered", {})
    pettingllms.register("point_v0", PointEnv)
    return "point_v0"


@pytest.fixture
def codec():
    return TextCodec(4, list("0123"), CharacterTokenizer(".x"), dtype="float32")


@pytest.fixture(scope="module")
def ray_cluster():
    ray = pytest.importorskip("ray", exc_type=ModuleNotFoundError)
    os.environ["RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO"] = "0"
    ray.init(
        num_cpus=1,
        include_dashboard=False,
        log_to_driver=False,
        object_store_memory=100 << 20,
        configure_logging=False,
    )
    yield ray
    ray.shutdown()


def test_a_rollout_with_texts(library, guess_id):
    from pettingllms.adapters.rllib import make_rllib_env

    env = make_rllib_env(guess_id)
    observations, _ = env.reset(seed=3)
    assert list(observations) == ["teller_0"], "only the agent that acts is asked"
    secret = str(env.env.state().secret)
    assert env.observation_spaces["teller_0"].contains(observations["teller_0"])
    observations, rewards, terminated, truncated, _ = env.step({"teller_0": secret})
    assert list(observations) == ["guesser_0"]
    assert not terminated["__all__"]
    _, rewards, terminated, truncated, infos = env.step({"guesser_0": secret})
    assert rewards == {"teller_0": 1.5, "guesser_0": 1.0}
    assert terminated == {"teller_0": True, "guesser_0": True, "__all__": True}
    assert not truncated["__all__"]
    assert infos["guesser_0"]["success"]


def test_ppo_learns_on_numbers(library, ray_cluster, point_id, codec):
    """From chance (1 of 4 points per answer, 4 turns, 2 agents: 2.0) to nearly the maximum, 8.0."""
    from ray.rllib.algorithms.ppo import PPOConfig
    from ray.rllib.core.rl_module.default_model_config import DefaultModelConfig

    from pettingllms.adapters.rllib import policy_mapping, register_env

    register_env(point_id, codec, max_turns=1)
    algorithm = (
        PPOConfig()
        .environment(point_id, env_config={"max_turns": 4})
        .multi_agent(policies={"first", "second"}, policy_mapping_fn=policy_mapping)
        .env_runners(num_env_runners=0, num_envs_per_env_runner=1)
        .rl_module(model_config=DefaultModelConfig(fcnet_hiddens=[32], fcnet_activation="tanh"))
        .training(
            train_batch_size=400, minibatch_size=100, num_epochs=8, lr=0.01, gamma=0.0, lambda_=0.0
        )
        .debugging(seed=1)
        .build_algo()
    )
    returns = []
    try:
        for _ in range(12):
            runners = algorithm.train()["env_runners"]
            returns.append(runners["episode_return_mean"])
            if returns[-1] > 7:
                break
    finally:
        algorithm.stop()
    assert returns[0] < 4
    assert returns[-1] > 6, returns
    assert set(runners["module_episode_returns_mean"]) == {"first", "second"}


def test_the_script_runs(library, run_script):
    assert "mean return" in run_script("rllib_ppo.py", RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO="0")
