"""The protocol of proposals: a team-mate proposes what to do, the planner decides what is done.

All teams of `pettingllms_envs.team_table` play all games: a tool agent or a proposer before the
planner, the planner alone, or the tool agent alone. `PlanningEnv` does what is the same in each of
them: turns, programs and calls, proposals, promises, rewards, prompts, levels from files. A game
gives the rest, in these modules:

- `rules.py`: levels, positions and moves as immutable values, and pure functions over them;
- `generator.py`: a checked `Request`, and `generate(rng, request)`, which certifies the level;
- `text.py`: positions as text, answers and levels read from text;
- `prompts.toml`: the `Words` of its prompts;
- `env.py`: the placeholders of its own, and a subclass of `PlanningEnv`
  whose docstring is the web page, whose hooks are mostly these functions, and whose constructor
  checks the arguments;
- `policies.py` where the scripted policies take more than a few lines, and solvers or helper
  functions of a tool agent where the game has them.

`PlanningEnv` documents every hook. Two rules keep rewards honest: `Trial.potential` depends on the
position alone, 0 at the start and `PROGRESS` when solved, and `_attempt` changes nothing: it
says what an answer would do, and the shell decides whether it is done or only proposed.
"""
