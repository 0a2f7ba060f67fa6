"""Tianshou: a collector plays a team on numbers into a replay buffer."""

from typing import Any

from tianshou.algorithm.multiagent.marl import MultiAgentOffPolicyAlgorithm
from tianshou.algorithm.random import MARLRandomDiscreteMaskedOffPolicyAlgorithm
from tianshou.data import Collector, VectorReplayBuffer
from tianshou.env import DummyVectorEnv

from pettingllms.adapters.tianshou import make_tianshou_env
from pettingllms.adapters.tokenised import TextCodec

codec = TextCodec(64, [f'#### ["{letter}"]' for letter in "UDLR"])


def make() -> Any:
    """Return an environment of the vector."""
    return make_tianshou_env("plan_path_v0", codec, size=6, team="proposer-planner", max_turns=3)


env = make()
randoms = [MARLRandomDiscreteMaskedOffPolicyAlgorithm(env.action_space) for _ in env.agents]
algorithm = MultiAgentOffPolicyAlgorithm(algorithms=randoms, env=env)
collector = Collector(algorithm, DummyVectorEnv([make, make]), VectorReplayBuffer(1000, 2))
collector.reset()
stats = collector.collect(n_episode=4)
print(f"{stats.n_collected_episodes} episodes, returns {stats.returns.round(3).tolist()}")
collector.close()
