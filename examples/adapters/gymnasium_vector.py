"""Gymnasium: one role plays two episodes at once, its team-mate is scripted."""

from pettingllms.adapters.gymnasium import make_vector

team = {"team": "proposer-planner", "partners": {"proposer": "oracle"}}
env = make_vector("plan_path_v0", 2, agent="planner_0", **team)
observations, infos = env.reset(seed=7)
print(observations[0])
for turn in range(3):
    actions = ('#### ["U"]', '#### ["R", "R"]')  # one answer for each episode
    observations, rewards, terminated, truncated, infos = env.step(actions)
    print(f"turn {turn + 1}: rewards {rewards.round(3).tolist()}")
env.close()
