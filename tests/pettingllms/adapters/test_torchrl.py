"""Real rollouts in TorchRL, of which only numbers can be made."""

import pytest

import pettingllms
from pettingllms.adapters.pettingzoo import ParallelView
from pettingllms.adapters.tokenised import TextCodec, TokenisedEnv

LIBRARY = "torchrl"
LIBRARY_DRAWS = True
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]

MOVES = [f'#### ["{letter}"]' for letter in "UDLR"]
ARGUMENTS = {"size": 6, "team": "proposer-planner", "max_turns": 3}


def wrapped(kind):
    from torchrl.envs import PettingZooWrapper

    env = pettingllms.make("plan_path_v0", checks=False, **ARGUMENTS)
    numbers = TokenisedEnv(env, TextCodec(64, MOVES), scalar_infos=True)
    if kind == "AEC":
        return PettingZooWrapper(numbers, use_mask=True)
    return PettingZooWrapper(ParallelView(numbers))


@pytest.mark.parametrize("kind", ["AEC", "parallel"])
def test_torchrls_own_check_passes(library, kind):
    from torchrl.envs.utils import check_env_specs

    check_env_specs(wrapped(kind))


@pytest.mark.parametrize("kind", ["AEC", "parallel"])
def test_a_rollout_is_the_episode(library, kind):
    env, twin = wrapped(kind), pettingllms.make("plan_path_v0", checks=False, **ARGUMENTS)
    played = env.rollout(20, tensordict=env.reset(seed=4), auto_reset=False)
    twin.reset(seed=4)
    for step in played:
        agent = twin.agent_selection
        group = agent if kind == "AEC" else agent.partition("_")[0]
        twin.step(MOVES[int(step[group, "action"])])
        assert float(step["next", group, "reward"]) == pytest.approx(twin.rewards[agent])
        assert bool(step["next", "done"]) == (not twin.acting())


def test_texts_are_refused(library):
    from torchrl.envs import PettingZooWrapper

    env = pettingllms.make("plan_path_v0", checks=False, **ARGUMENTS)
    with pytest.raises((AttributeError, NotImplementedError, RuntimeError, TypeError, ValueError)):
        PettingZooWrapper(ParallelView(env)).rollout(3)
