"""TextArena: one of its games as an environment of this package, with forks."""

from pettingllms.adapters.textarena import TextArenaEnv

env = TextArenaEnv("TicTacToe-v0")
env.reset(seed=0)
print(env.messages("player_0")[0]["content"].splitlines()[0])
for cell in (0, 3, 1, 4):
    env.step(f"[{cell}]")
for cell in (2, 8):  # two answers to one position, each in a fork of its own
    fork = env.fork()
    fork.step(f"[{cell}]")
    print(f"cell {cell}: rewards {fork.rewards}")
