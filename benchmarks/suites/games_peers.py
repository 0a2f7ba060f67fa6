"""One workload of one peer, run by the interpreter that has the peer; see games.py.

    PYTHON games_peers.py PEER WORKLOAD SEED SECONDS

Prints units per CPU second as the last line. Imports nothing of ours. Peers that honour no seed in
a constructor are driven by the seeded global generators, as their own code is.
"""

import copy
import random
import sys
import time


def gem_sokoban(num_boxes):
    from gem.envs.game_env.sokoban import SokobanEnv

    return SokobanEnv(dim_room=(6, 6), max_turns=10**9, num_boxes=num_boxes)


def gem_levels(num_boxes):
    env = gem_sokoban(num_boxes)

    def work(seed):
        env.reset(seed=seed)

    return work


def gem_steps():
    env = gem_sokoban(1)
    env.reset(seed=0)
    names = [f"\\boxed{{{name}}}" for name in ("up", "down", "left", "right")]

    def work(seed):
        env.step(names[seed * 2654435761 % 4])

    return work


def gem_forks():
    env = gem_sokoban(1)
    env.reset(seed=0)
    return lambda seed: copy.deepcopy(env)


def gem_sudoku(scale, num_empty):
    from gem.envs.game_env.sudoku import SudokuEnv

    # Its argument `clues` is the number of cells that it tries to empty.
    env = SudokuEnv(clues=num_empty, max_turns=10**9, scale=scale)

    def work(seed):
        env.reset(seed=seed)

    return work


def gem_sudoku_steps(scale, num_empty):
    from gem.envs.game_env.sudoku import SudokuEnv

    env = SudokuEnv(clues=num_empty, max_turns=10**9, scale=scale)
    fills = [
        (row, col, env.full_grid[row][col])
        for row in range(scale)
        for col in range(scale)
        if env.board[row][col] == 0
    ]
    board = copy.deepcopy(env.board)

    def work(seed):
        row, col, value = fills[seed % len(fills)]
        if seed % len(fills) == 0:
            env.board = [line[:] for line in board]
        env.step(f"\\boxed{{{row + 1} {col + 1} {value}}}")

    return work


def reasoning_gym(name, **config):
    import reasoning_gym as library

    data = library.create_dataset(name, size=10**9, seed=1, **config)
    return lambda seed: data[seed]


def reasoning_gym_sokoban(boxes):
    walls = {"min_w": 6, "max_w": 6, "min_h": 6, "max_h": 6}
    return reasoning_gym("sokoban", min_boxes=boxes, max_boxes=boxes, **walls)


def gym_sokoban_levels():
    from gym_sokoban.envs.room_utils import generate_room

    def work(seed):
        try:
            generate_room(dim=(6, 6), num_steps=20, num_boxes=1)
        except RuntimeWarning:  # its way to say: no level this time
            return 0
        return 1

    return work


def textarena_sokoban():
    from textarena.envs.Sokoban.env import SokobanEnv

    env = SokobanEnv(dim_room=(6, 6), max_turns=100, num_boxes=1)
    return lambda seed: env.reset(num_players=1, seed=seed)


def textarena_sudoku(clues):
    from textarena.envs.Sudoku.env import SudokuEnv

    env = SudokuEnv(clues=clues)
    return lambda seed: env.reset(num_players=1, seed=seed)


def sudoku_of_reasoning_gym(num_empty):
    return reasoning_gym("sudoku", min_empty=num_empty, max_empty=num_empty)


WORKLOADS = {
    ("gem-llm", "sokoban_6x6_1_box_levels"): lambda: gem_levels(1),
    ("gem-llm", "sokoban_6x6_2_boxes_levels"): lambda: gem_levels(2),
    ("gem-llm", "sokoban_6x6_3_boxes_levels"): lambda: gem_levels(3),
    ("gem-llm", "sokoban_core_steps"): gem_steps,
    ("gem-llm", "sokoban_aec_steps"): gem_steps,
    ("gem-llm", "sokoban_aec_steps_on_one_level"): gem_steps,
    ("gem-llm", "forks"): gem_forks,
    ("gem-llm", "sudoku_4x4_6_clues_levels"): lambda: gem_sudoku(4, 10),
    ("gem-llm", "sudoku_9x9_40_clues_levels"): lambda: gem_sudoku(9, 41),
    ("gem-llm", "sudoku_9x9_31_clues_levels"): lambda: gem_sudoku(9, 50),
    ("gem-llm", "sudoku_4x4_steps"): lambda: gem_sudoku_steps(4, 10),
    ("gem-llm", "sudoku_9x9_steps"): lambda: gem_sudoku_steps(9, 45),
    ("gym-sokoban", "sokoban_6x6_1_box_levels"): gym_sokoban_levels,
    ("textarena", "sokoban_6x6_1_box_levels"): textarena_sokoban,
    ("textarena", "sudoku_9x9_40_clues_levels"): lambda: textarena_sudoku(40),
    ("reasoning-gym", "sokoban_6x6_1_box_levels"): lambda: reasoning_gym_sokoban(1),
    ("reasoning-gym", "sokoban_6x6_2_boxes_levels"): lambda: reasoning_gym_sokoban(2),
    ("reasoning-gym", "sokoban_6x6_3_boxes_levels"): lambda: reasoning_gym_sokoban(3),
    ("reasoning-gym", "sudoku_4x4_6_clues_levels"): lambda: reasoning_gym(
        "mini_sudoku", min_empty=10, max_empty=10
    ),
    ("reasoning-gym", "sudoku_9x9_40_clues_levels"): lambda: sudoku_of_reasoning_gym(41),
    ("reasoning-gym", "sudoku_9x9_31_clues_levels"): lambda: sudoku_of_reasoning_gym(50),
}


def main():
    peer, workload, seed, seconds = sys.argv[1:]
    work = WORKLOADS[peer, workload]()
    first = int(seed) * 1_000_000
    random.seed(first)
    work(first)
    done, number, begin = 0, first, time.process_time()
    while (spent := time.process_time() - begin) < float(seconds):
        number += 1
        result = work(number)
        done += result if isinstance(result, int) else 1
    print(done / spent)


if __name__ == "__main__":
    main()
