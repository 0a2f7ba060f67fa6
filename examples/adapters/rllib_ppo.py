"""RLlib: an iteration of PPO on numbers; each role has a policy of its own."""

from ray.rllib.algorithms.ppo import PPOConfig

from pettingllms.adapters.rllib import policy_mapping, register_env
from pettingllms.adapters.tokenised import TextCodec

moves = [f'#### ["{letter}"]' for letter in "UDLR"]
codec = TextCodec(64, moves, dtype="float32")
register_env("plan_path_v0", codec, size=6, team="proposer-planner", max_turns=3)
algorithm = (
    PPOConfig()
    .environment("plan_path_v0")
    .multi_agent(policies={"proposer", "planner"}, policy_mapping_fn=policy_mapping)
    .env_runners(num_env_runners=0)
    .training(train_batch_size=60, minibatch_size=20, num_epochs=1)
    .build_algo()
)
result = algorithm.train()
print("mean return", result["env_runners"]["episode_return_mean"])
algorithm.stop()
