"""How large and how hard are the presets? Different test levels, lengths, scripted policies.

    python benchmarks/suites/games_presets.py [--draws 2000] [--levels 200] [--games ID ...]

Levels differ if they differ up to symmetry. Lengths are those of the certified shortest solutions,
where a game has them. Policies play alone (`team="single"`) where one agent can play, else every
agent of the team plays the same one.
"""

from __future__ import annotations

import random
import statistics
from typing import Any

from measuring import frame, parser_of, timed, write

import pettingllms
from pettingllms.testing import play
from pettingllms.testing.play import scripted_actor

RULES = {
    "blocksworld_v0": "greedy",
    "dining_v0": "greedy",
    "panel_v0": "guess",
    "plan_path_v0": "greedy",
    "queens_v0": "greedy",
    "search_v0": "question",
    "sokoban_v0": "greedy",
    "sudoku_v0": "greedy",
}
"""Game -> the scripted policy that plays by a simple rule."""
TEAMS = ("dining_v0", "panel_v0", "search_v0")
"""Games that no agent can play alone."""
LENGTHS = {
    "blocksworld_v0": "shortest",
    "dining_v0": "shortest",
    "panel_v0": "shortest",
    "plan_path_v0": "shortest",
    "queens_v0": "shortest",
    "sokoban_v0": "level_moves",
}
"""Game -> the info key with the length of a shortest solution."""


def main() -> None:
    """Measure all presets and write the result."""
    parser = parser_of("games_presets", __doc__)
    parser.add_argument("--draws", type=int, default=2000)
    parser.add_argument("--levels", type=int, default=200)
    parser.add_argument("--games", nargs="+", choices=list(RULES), default=list(RULES))
    options = parser.parse_args()
    result = frame("games_presets", [])
    result |= {"num_draws": options.draws, "num_levels": options.levels, "presets": []}
    for env_id in options.games:
        for preset in pettingllms.spec(env_id).load().presets:
            row = measured(env_id, preset, options.draws, options.levels)
            result["presets"].append(row)
            print(row, flush=True)
    result["seeds"] = f"0 to {options.draws - 1}"
    write(result, options.output)


def measured(env_id: str, preset: str, num_draws: int, num_levels: int) -> dict[str, Any]:
    """Return the figures of one preset."""
    team = {} if env_id in TEAMS else {"team": "single"}
    env = pettingllms.make(env_id, checks=False, preset=preset, split="test", **team)
    hashes: set[str] = set()
    seconds = 0.0
    for seed in range(num_draws):
        spent, _ = timed(lambda seed=seed: env.reset(seed=seed))
        seconds += spent.cpu_s
        hashes.add(env.level_hash())
    row: dict[str, Any] = {
        "env_id": env_id,
        "preset": preset,
        "arguments": env.spec.load().presets[preset],
        "num_distinct": len(hashes),
        "ms_per_level": round(1000 * seconds / num_draws, 2),
        "rule_name": RULES[env_id],
    }
    lengths: list[int] = []
    for name, policy in (("rule", RULES[env_id]), ("random", "random")):
        num_solved = 0
        for seed in range(num_levels):
            env.reset(seed=seed)
            info = play(env, scripted_actor(policy, random.Random(seed)))[-1]["info"]
            num_solved += bool(info["success"])
            if env_id in LENGTHS and name == "rule":
                lengths.append(info[LENGTHS[env_id]])
        row[name] = num_solved / num_levels
    if lengths:
        row["length"] = [min(lengths), statistics.median(lengths), max(lengths)]
    return row


if __name__ == "__main__":
    main()
