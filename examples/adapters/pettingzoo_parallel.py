"""PettingZoo: the AEC loop, and the parallel one."""

import pettingllms
from pettingllms.adapters.pettingzoo import ParallelView

env = pettingllms.make("plan_path_v0", team="proposer-planner")
env.reset(seed=7)
for _ in env.agent_iter():
    observation, reward, terminated, truncated, info = env.last()
    env.step(None if terminated or truncated else '#### ["U"]')
print("AEC: every agent has left:", env.agents == [])

parallel = ParallelView(pettingllms.make("plan_path_v0", team="proposer-planner"))
observations, infos = parallel.reset(seed=7)
while parallel.agents:
    answers = dict.fromkeys(observations, '#### ["U"]')  # of the agents whose stage it is
    observations, rewards, terminated, truncated, infos = parallel.step(answers)
print("parallel: success", any(info["success"] for info in infos.values()))
