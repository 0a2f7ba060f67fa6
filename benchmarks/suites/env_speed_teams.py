"""The environments in which roles matter, beside a peer where one has the game; see env_speed.py.

    python benchmarks/suites/env_speed_teams.py --peers-python PYTHON --paper-code CHECKOUT

The paper's code has boards of queens and blocks that are played, reasoning-gym has boards of queens
as tasks. No peer has the dining philosophers or a panel that can be played; searching needs a
service there. Those rows have the time of ours alone.
"""

from __future__ import annotations

from env_speed import GYM, PAPER_AGENT, RESET, STEP, Row, main

ALONE = "`env.step(text)`, `env.last()`"
ROWS = (
    *(
        Row(title, STEP, "paper's code", there, f"{name}_steps", theirs)
        for game, name, state in (
            ("Blocks World, 5 blocks", "blocksworld", "BlocksworldEnvState"),
            ("Queens 8x8", "queens", "EightQueensEnvState"),
        )
        for title, there, theirs in (
            (
                f"{game}, steps; the peer's reads no text",
                f"`{state}.step(action)`, its `observation`",
                f"{name}_steps",
            ),
            (f"{game}, steps, from text to prompt", PAPER_AGENT, f"{name}_agent_steps"),
        )
    ),
    Row(
        "Queens 8x8, 2 queens fixed, all solutions known, levels",
        RESET,
        "reasoning-gym",
        GYM,
        "queens_levels",
        "queens_levels",
    ),
    Row(
        "Blocks World, 5 blocks, shortest plan known, levels",
        RESET,
        "",
        "",
        "blocksworld_levels",
        "",
    ),
    *(
        row
        for title, name in (
            ("Dining philosophers, 3", "dining"),
            ("Search, 24 documents, 2 hops", "search"),
            ("Panel, 3 experts", "panel"),
        )
        for row in (
            Row(f"{title}, steps", ALONE, "", "", f"{name}_steps", ""),
            Row(f"{title}, levels", RESET, "", "", f"{name}_levels", ""),
        )
    ),
)

if __name__ == "__main__":
    main("env_speed_teams", ROWS)
