"""Do returns order policies by success? The ladder of every game, on test levels.

    python benchmarks/suites/games_ladder.py [--levels 250]

All policies of a game play the same levels, alone (`team="single"`) where one agent can play, else
every agent of the team plays the same one; the return is the mean over agents. The fixed program is
the tool agent's, in the paper's team.
"""

from __future__ import annotations

import statistics
from typing import Any

from games_levels import TEAMS, program_share
from measuring import frame, parser_of, write

import pettingllms
from pettingllms.testing.ladder import measure_ladder, misordered

GAP = 0.03
CASES: dict[str, tuple[str, dict[str, Any]]] = {
    "Sokoban": ("sokoban_v0", {}),
    "Sokoban, 2 boxes": ("sokoban_v0", {"boxes": 2}),
    "Sokoban, 3 boxes": ("sokoban_v0", {"boxes": 3}),
    "Sudoku 4x4": ("sudoku_v0", {}),
    "Sudoku 9x9": ("sudoku_v0", {"size": 9}),
    "Plan-Path": ("plan_path_v0", {}),
    "Search": ("search_v0", {}),
    "Panel": ("panel_v0", {}),
    "Dining": ("dining_v0", {}),
    "Fireworks": ("fireworks_v0", {}),
    "Relay": ("relay_v0", {}),
}


def main() -> None:
    """Measure all ladders and write the result."""
    parser = parser_of("games_ladder", __doc__)
    parser.add_argument("--levels", type=int, default=250)
    options = parser.parse_args()
    result = frame("games_ladder", range(options.levels))
    result |= {"gap": GAP, "ladders": {}, "misordered": {}, "programs": {}}
    for name, (env_id, kwargs) in CASES.items():
        alone = {} if env_id in TEAMS else {"team": "single"}
        env = pettingllms.make(env_id, checks=False, split="test", **alone, **kwargs)
        rungs = measure_ladder(env, range(options.levels))
        result["ladders"][name] = [
            {
                "policy": rung.policy,
                "success": round(rung.success, 4),
                "return": round(statistics.fmean(rung.returns.values()), 4),
            }
            for rung in rungs
        ]
        result["misordered"][name] = misordered(rungs, GAP)
        if env.fixed_program:
            result["programs"][name] = program_share(env_id, options.levels, **kwargs)
        print(name, result["ladders"][name], result["misordered"][name], flush=True)
    result["seeds"] = f"0 to {options.levels - 1}"
    write(result, options.output)


if __name__ == "__main__":
    main()
