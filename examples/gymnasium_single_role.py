"""One role of a team as a Gymnasium environment; the team-mate is scripted."""

import re

import pettingllms
from pettingllms.adapters.gymnasium import SingleAgentView

PROPOSAL = re.compile(r"The proposer proposes: (\[.*\])")


def main() -> None:
    """Play a planner that executes whatever the oracle proposes."""
    team = pettingllms.make("plan_path_v0", team="proposer-planner", size=6)
    env = SingleAgentView(team, "planner_0", {"proposer": "oracle"})
    observation, info = env.reset(seed=7)
    total, terminated, truncated = 0.0, False, False
    while not (terminated or truncated):
        proposed = PROPOSAL.findall(observation)
        action = f"#### {proposed[-1] if proposed else '[]'}"
        observation, reward, terminated, truncated, info = env.step(action)
        total += reward
        print(f"{action} -> reward {reward:+.2f}")
    print(f"return {total:.2f}, solved: {info['success']}")


if __name__ == "__main__":
    main()
