"""How hard are the levels of difficulty? Different test levels, lengths, and who solves them.

    python benchmarks/suites/games_levels.py [--draws 500] [--levels 200] [--games ID ...]

Levels of a game differ if they differ up to symmetry. Test levels whose hash or first prompts are
among as many drawn of the training split are counted: there should be none. Lengths are those of
the certified shortest solutions, where a game has them. Policies play alone (`team="single"`) where
one agent can play, else every agent of the team plays the same one; the fixed program is the tool
agent's. Rows of other games than `--games` stay as they are; each says when and at which commit it
was measured.
"""

from __future__ import annotations

import json
import random
import statistics
from collections.abc import Callable
from typing import Any

from measuring import frame, parser_of, timed, write

import pettingllms
from pettingllms.policies.loading import program_action
from pettingllms.testing import play
from pettingllms.testing.play import Actor, scripted_actor

RULES = {
    "blocksworld_v0": "greedy",
    "dining_v0": "alternate",
    "fireworks_v0": "conventions",
    "panel_v0": "guess",
    "plan_path_v0": "greedy",
    "queens_v0": "greedy",
    "relay_v0": "greedy",
    "search_v0": "question",
    "sokoban_v0": "greedy",
    "sudoku_v0": "greedy",
}
"""Game -> the scripted policy that plays by a simple rule."""
TEAMS = ("dining_v0", "fireworks_v0", "panel_v0", "relay_v0", "search_v0")
"""Games that no agent can play alone."""
LENGTHS = {
    "blocksworld_v0": "shortest",
    "dining_v0": "shortest",
    "fireworks_v0": "witness",
    "panel_v0": "shortest",
    "plan_path_v0": "shortest",
    "queens_v0": "shortest",
    "sokoban_v0": "level_moves",
}
"""Game -> the info key with the length of a shortest solution."""


def main() -> None:
    parser = parser_of("games_levels", __doc__)
    parser.add_argument("--draws", type=int, default=500)
    parser.add_argument("--levels", type=int, default=200)
    parser.add_argument("--games", nargs="+", choices=list(RULES), default=list(RULES))
    options = parser.parse_args()
    result = frame("games_levels", [])
    result |= {"num_draws": options.draws, "num_levels": options.levels, "levels": []}
    made = {"date": result["date"], "commit": result["git"]["commit"]}
    if len(options.games) < len(RULES):
        old = json.loads(options.output.read_text(encoding="utf-8"))["levels"]
        result["levels"] = [row for row in old if row["env_id"] not in options.games]
    for env_id in options.games:
        for number in range(len(pettingllms.spec(env_id).load().difficulties)):
            row = measured(env_id, number, options.draws, options.levels) | made
            result["levels"].append(row)
            print(row, flush=True)
    result["levels"].sort(key=lambda row: (row["env_id"], row["level"]))
    result["seeds"] = f"0 to {options.draws - 1}"
    write(result, options.output)


def measured(env_id: str, number: int, num_draws: int, num_levels: int) -> dict[str, Any]:
    """The figures of one level of difficulty."""
    # Alone, so that a share is that of one policy.
    team = {} if env_id in TEAMS else {"team": "single"}
    known = in_training(env_id, number, num_draws, team)
    env = pettingllms.make(env_id, checks=False, difficulty=number, split="test", **team)
    hashes: set[str] = set()
    num_known, seconds = 0, 0.0
    for seed in range(num_draws):
        spent, _ = timed(lambda seed=seed: env.reset(seed=seed))
        seconds += spent.cpu_s
        # Equal up to symmetry is equal: a mirrored level teaches nothing new.
        hashes.add(env.level_hash())
        num_known += not known.isdisjoint((env.level_hash(), first_prompts(env)))
    row: dict[str, Any] = {
        "env_id": env_id,
        "level": number,
        "names": env.difficulties.names_of(number),
        "arguments": env.difficulties.attributes[number],
        "num_distinct": len(hashes),
        "num_in_training": num_known,
        "ms_per_level": round(1000 * seconds / num_draws, 2),
        "rule_name": RULES[env_id],
    }
    if env_id in LENGTHS:
        lengths = [_length(env, seed, LENGTHS[env_id]) for seed in range(num_levels)]
        row["length"] = [min(lengths), statistics.median(lengths), max(lengths)]
    for name, policy in (("rule", RULES[env_id]), ("random", "random")):
        row[name] = share(env, lambda rng, policy=policy: scripted_actor(policy, rng), num_levels)
    if env.fixed_program:
        paper = {"team": "tool-planner", "split": "test"}
        env = pettingllms.make(env_id, checks=False, difficulty=number, **paper)
        row["program"] = share(env, lambda _: program_action, num_levels)
    return row


def in_training(env_id: str, number: int, num_draws: int, team: dict[str, str]) -> set[str]:
    """The hashes and first prompts of drawn training levels."""
    env = pettingllms.make(env_id, checks=False, difficulty=number, split="train", **team)
    known: set[str] = set()
    for seed in range(num_draws):
        env.reset(seed=seed)
        known |= {env.level_hash(), first_prompts(env)}
    return known


def first_prompts(env: Any) -> str:
    """What the agents read first, as one text."""
    return json.dumps([env.observe(agent) for agent in env.possible_agents])


def _length(env: Any, seed: int, key: str) -> int:
    env.reset(seed=seed)
    return play(env, lambda _env, _agent: "")[-1]["info"][key]


def share(env: Any, actor_of: Callable[[random.Random], Actor], num_levels: int) -> float:
    """The share of levels that a policy solves."""
    num_solved = 0
    for seed in range(num_levels):
        env.reset(seed=seed)
        num_solved += bool(play(env, actor_of(random.Random(seed)))[-1]["info"]["success"])
    return num_solved / num_levels


if __name__ == "__main__":
    main()
