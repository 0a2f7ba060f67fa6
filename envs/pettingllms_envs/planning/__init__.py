"""The protocol of proposals: a team-mate proposes what to do, the planner decides what is done.

All teams of `pettingllms_envs.team_table` play all games: a tool agent or a proposer before the
planner, the planner alone, or the tool agent alone. `PlanningEnv` does what is the same in each of
them: turns, programs and calls, proposals, promises, rewards, prompts, levels from files. A game
gives the rest, in these modules:

- `rules.py`: levels, positions and moves as immutable values, pure functions over them, a checked
  `Request`, and `generate(rng, request)`, which certifies the level;
- `prompts.toml`: the `Words` of its prompts; `program.txt`: what a tool agent could write once for
  all levels;
- `env.py`: positions as text, answers and levels read from text, scripted policies, placeholders,
  and a subclass of `PlanningEnv` whose docstring is the web page, whose hooks are mostly these
  functions, and whose constructor checks the arguments; what takes more has a module of its own.

`PlanningEnv` documents every hook. Two rules keep rewards honest: `Trial.potential` depends on the
position alone, 0 at the start and `PROGRESS` when solved, and `_attempt` changes nothing: it
says what an answer would do, and the shell decides whether it is done or only proposed.
"""
