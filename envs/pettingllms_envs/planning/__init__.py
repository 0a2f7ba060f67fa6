"""Games in which a team-mate proposes a list of moves and the planner decides which are made.

A game of this kind supplies a `Rules` value, pure functions over its own levels and positions, and
the `Words` of its prompts. `PlanningEnv` does the rest: teams, programs, proposals, rewards.
Every move can be undone and the distance to the goal is exact, so that the reward is a potential.
"""
