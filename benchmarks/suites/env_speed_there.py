"""One workload of one peer, run by the interpreter that has the peer; see env_speed.py.

    PYTHON env_speed_there.py PEER WORKLOAD SEED SECONDS [CHECKOUT OF THE PAPER'S CODE]

Prints units per CPU second as the last line. Imports nothing of ours. Steps are timed as ours are:
on a fresh level in every episode, without the time of `reset`. Peers that honour no seed are driven
by the seeded global generator, as their own code is.
"""

import contextlib
import copy
import importlib
import itertools
import json
import random
import sys
import time


def timed(setup, act):
    """Yield (steps, CPU seconds) of episodes: `setup(seed)` gives (state, actions)."""

    def work(seed):
        for episode in itertools.count(seed):
            state, actions = setup(episode)
            num_steps, begin = 0, time.process_time()
            for action in actions:
                num_steps += 1
                if act(state, action):
                    break
            yield num_steps, time.process_time() - begin

    return work


def each(make):
    """Yield (1, CPU seconds) of calls."""

    def work(seed):
        for number in itertools.count(seed):
            begin = time.process_time()
            done = make(number)
            yield (0 if done is None else 1), time.process_time() - begin

    return work


def gem_act(env, text):
    _, _, terminated, truncated, _ = env.step(text)
    return terminated or truncated


def gem_prompts(env):
    """Wrap an environment so that it returns all that an agent reads: rules, history and board."""
    from gem.wrappers.observation_wrapper import ObservationWrapper

    return ObservationWrapper(env, include_action=False, include_chat_template=False)


def gem_sokoban_env():
    from gem.envs.game_env.sokoban import SokobanEnv

    return SokobanEnv(dim_room=(6, 6), max_turns=10**9, num_boxes=1)


def gem_sokoban_steps(wrap=lambda env: env):
    env = wrap(gem_sokoban_env())
    # Their parsers want a box; ours want four hashes.
    names = [f"\\boxed{{{name}}}" for name in ("up", "down", "left", "right")]

    def setup(seed):
        env.reset(seed=seed)
        return env, random.Random(seed).choices(names, k=50)

    return timed(setup, gem_act)


def gem_sudoku_env(scale, num_empty):
    from gem.envs.game_env.sudoku import SudokuEnv

    # Its argument `clues` is the number of cells that it tries to empty.
    return SudokuEnv(clues=num_empty, max_turns=10**9, scale=scale)


def gem_sudoku_steps(scale, num_empty, wrap=lambda env: env):
    game = gem_sudoku_env(scale, num_empty)
    env = wrap(game)

    def setup(seed):
        env.reset(seed=seed)
        cells = [(r, c) for r in range(scale) for c in range(scale) if game.board[r][c] == 0]
        random.Random(seed).shuffle(cells)
        return env, [f"\\boxed{{{r + 1} {c + 1} {game.full_grid[r][c]}}}" for r, c in cells]

    return timed(setup, gem_act)


def gem_levels(env):
    return each(lambda seed: env.reset(seed=seed))


def gem_copies():
    env = gem_sokoban_env()
    env.reset(seed=0)
    return each(lambda seed: copy.deepcopy(env))


def paper_states():
    sys.path.insert(0, sys.argv[5])
    return importlib.import_module("pettingllms.multi_agent_env.stateful.env_state")


def paper_step(state, action):
    state.step(action)
    str(state.observation)  # `step` builds the text
    return state.done


def paper_plan_path_step(state, action):
    state.step(action)
    state.text_observation()  # `step` does not build it
    return state.done


def paper_moves(seed):
    return [[move] for move in random.Random(seed).choices("UDLR", k=50)]


def paper_agent(benchmark, setup):
    """Play as its rollouts do: an agent that reads a text, plays it, and builds the next prompt."""
    paper_states()  # the path of the checkout
    stateful = importlib.import_module("pettingllms.multi_agent_env.stateful.stateful_env")
    agents = importlib.import_module("pettingllms.multi_agent_env.stateful.agents.plan_agent")

    def setup_agent(seed):
        state, actions = setup(seed)
        env = stateful.StatefulEnv(env_idx=0, rollout_idx=0, max_turns=10**9)
        env.state, agent = state, agents.PlanAgent(benchmark=benchmark)
        env.reset()  # sets what the tool agent would write
        agent.update_from_env(0, env)
        return (agent, env), [f"#### {json.dumps(action)}" for action in actions]

    def act(pair, text):
        agent, env = pair
        agent.update_from_model(text)
        with contextlib.suppress(StopIteration):
            agent.step(env).send(None)  # a coroutine that waits for nothing
        agent.update_from_env(1, env)
        return env.state.done

    return timed(setup_agent, act)


def paper_plan_path():
    states = paper_states()

    def setup(seed):
        return states.PlanPathGridEnvState(seed=seed % 2**31), paper_moves(seed)

    return setup


def paper_sokoban():
    states, config = paper_states(), {"env": {"map_size": 6}}

    def setup(seed):
        state = states.SokobanGridEnvState(seed=seed % 2**31, config=config)
        return state, paper_moves(seed)

    return setup


def paper_sudoku(size, num_clues):
    states, box = paper_states(), round(size**0.5)

    def setup(seed):
        rng = random.Random(seed)
        # A valid grid without a search: rows are shifts, and symbols change places.
        names = rng.sample(range(1, size + 1), size)
        full = [
            [names[(row % box * box + row // box + col) % size] for col in range(size)]
            for row in range(size)
        ]
        cells = [(row, col) for row in range(size) for col in range(size)]
        empty = rng.sample(cells, size * size - num_clues)
        puzzle = [row[:] for row in full]
        for row, col in empty:
            puzzle[row][col] = 0
        state = states.SudukuEnvState(puzzle=puzzle, size=size)
        return state, [[[row, col, full[row][col]]] for row, col in empty]

    return setup


def reasoning_gym(name, **config):
    import reasoning_gym as library

    # Items are made when they are asked for, each from its number.
    data = library.create_dataset(name, size=10**9, seed=1, **config)
    return each(lambda seed: data[seed % 10**9])


def reasoning_gym_sokoban(boxes):
    walls = {"min_w": 6, "max_w": 6, "min_h": 6, "max_h": 6}
    return reasoning_gym("sokoban", min_boxes=boxes, max_boxes=boxes, **walls)


def reasoning_gym_paths():
    size = {"min_rows": 10, "max_rows": 10, "min_cols": 10, "max_cols": 10}
    return reasoning_gym("shortest_path", p_blocked=0.22, **size)


def textarena_levels(name, **kwargs):
    env = getattr(importlib.import_module(f"textarena.envs.{name}.env"), f"{name}Env")(**kwargs)

    def level(seed):
        env.reset(num_players=1, seed=seed)
        return env

    return each(level)


WORKLOADS = {
    ("gem-llm", "sudoku_4x4_steps"): lambda: gem_sudoku_steps(4, 10),
    ("gem-llm", "sudoku_9x9_steps"): lambda: gem_sudoku_steps(9, 45),
    ("gem-llm", "sudoku_4x4_prompt_steps"): lambda: gem_sudoku_steps(4, 10, gem_prompts),
    ("gem-llm", "sudoku_9x9_prompt_steps"): lambda: gem_sudoku_steps(9, 45, gem_prompts),
    ("gem-llm", "sokoban_prompt_steps"): lambda: gem_sokoban_steps(gem_prompts),
    ("paper's code", "sudoku_16x16_steps"): lambda: timed(paper_sudoku(16, 150), paper_step),
    ("paper's code", "plan_path_steps"): lambda: timed(paper_plan_path(), paper_plan_path_step),
    ("paper's code", "sokoban_steps"): lambda: timed(paper_sokoban(), paper_step),
    ("paper's code", "sudoku_16x16_agent_steps"): lambda: paper_agent(
        "suduku", paper_sudoku(16, 150)
    ),
    ("paper's code", "plan_path_agent_steps"): lambda: paper_agent("plan_path", paper_plan_path()),
    ("paper's code", "sokoban_agent_steps"): lambda: paper_agent("sokoban", paper_sokoban()),
    ("gem-llm", "sokoban_steps"): gem_sokoban_steps,
    ("gem-llm", "sokoban_1_box_levels"): lambda: gem_levels(gem_sokoban_env()),
    ("reasoning-gym", "sokoban_2_boxes_levels"): lambda: reasoning_gym_sokoban(2),
    ("reasoning-gym", "sokoban_3_boxes_levels"): lambda: reasoning_gym_sokoban(3),
    ("reasoning-gym", "sudoku_4x4_levels"): lambda: reasoning_gym(
        "mini_sudoku", min_empty=10, max_empty=10
    ),
    ("TextArena", "sudoku_9x9_40_clues_levels"): lambda: textarena_levels("Sudoku", clues=40),
    ("gem-llm", "sudoku_9x9_31_clues_levels"): lambda: gem_levels(gem_sudoku_env(9, 50)),
    ("reasoning-gym", "plan_path_levels"): reasoning_gym_paths,
    ("gem-llm", "forks"): gem_copies,
}


def rate(units, seconds):
    """Units per CPU second; the first three yields warm up."""
    done, spent = 0, 0.0
    # Caches, imports and first levels are not what a run spends its time on.
    for num_units, took in itertools.islice(units, 3, None):
        done += num_units
        spent += took
        if spent >= seconds:
            return done / spent
    return 0.0


def main():
    peer, workload, seed, seconds = sys.argv[1:5]
    work = WORKLOADS[peer, workload]()
    first = int(seed) * 1_000_000
    random.seed(first)
    print(rate(work(first), float(seconds)))


if __name__ == "__main__":
    main()
