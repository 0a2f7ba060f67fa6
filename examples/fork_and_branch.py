"""Tree sampling without the trainer: fork at every turn, compare K candidates, follow the best."""

import random

import pettingllms

NUM_CANDIDATES = 4


def main() -> None:
    """Play one episode and print every group with its rewards."""
    env = pettingllms.make(
        "plan_path_v0", checks=False, team="proposer-planner", size=6, moves_per_turn=4
    )
    env.reset(seed=2)
    rng = random.Random(0)
    while not (env.terminations[env.agent_selection] or env.truncations[env.agent_selection]):
        agent, turn = env.agent_selection, env.turn
        forks = [env.fork() for _ in range(NUM_CANDIDATES)]
        for fork in forks:  # a model would be sampled K times on the one prompt env.messages(agent)
            policy = rng.choice(["oracle", "random"])
            fork.step(fork.scripted_action(agent, policy, rng))
        rewards = [fork.rewards[agent] for fork in forks]
        mean = sum(rewards) / len(rewards)
        best = rewards.index(max(rewards))
        shown = ", ".join(f"{reward:+.2f} ({reward - mean:+.2f})" for reward in rewards)
        print(f"turn {turn + 1} {agent}: rewards (minus mean) {shown}; continues with {best}")
        env = forks[best]
    print(f"solved: {env.infos[env.agent_selection]['success']}")


if __name__ == "__main__":
    main()
