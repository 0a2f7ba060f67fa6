"""SuperSuit: wrappers on texts, and on the numbers that `TextCodec` makes of them."""

import supersuit

import pettingllms
from pettingllms.adapters.tokenised import TextCodec, TokenisedEnv

env = pettingllms.make("plan_path_v0", team="single")
clipped = supersuit.clip_reward_v0(env, lower_bound=0, upper_bound=0.5)
clipped.reset(seed=7)
print(clipped.observe("planner_0")[:60])

moves = [f'#### ["{letter}"]' for letter in "UDLR"]
numbers = TokenisedEnv(pettingllms.make("plan_path_v0", team="single"), TextCodec(256, moves))
stacked = supersuit.frame_stack_v1(numbers, 2)
stacked.reset(seed=7)
stacked.step(2)  # the third move
print("observation", stacked.observe("planner_0").shape)
