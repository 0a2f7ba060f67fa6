"""The environment: rewards, teams, tools, levels, texts."""

import math
import random
import sys

import numpy as np
import pytest

from pettingllms.errors import (
    InvalidArgument,
    LevelFormatError,
    MissingDependency,
    UnreachableRequest,
)
from pettingllms.testing import HOSTILE_TEXTS, play
from pettingllms.testing.play import mixed_actor, scripted_actor, transcript_of
from pettingllms_envs.planning.env import moves_json
from pettingllms_envs.sokoban import SokobanEnv
from pettingllms_envs.sokoban.rules import outlook_at
from pettingllms_envs.sokoban.text import level_text
from pettingllms_envs.team_table import MAX_MOVES_PER_TURN

TEAMS = [
    {"team": "tool-planner"},
    {"team": "proposer-planner"},
    {"team": "single"},
    {"team": "single-tool"},
]
CORRIDOR = "#######\n#@ $ .#\n#     #\n#######"


def names(kwargs):
    return "-".join(map(str, kwargs.values())) or "default"


def ended(env):
    return any(env.terminations.values()) or any(env.truncations.values())


@pytest.mark.parametrize("kwargs", TEAMS, ids=names)
def test_team_parts_add_up_to_the_real_progress(kwargs):
    for seed in range(25):
        env = SokobanEnv(**kwargs, max_turns=6, boxes=2, max_moves=40)
        env.reset(seed=seed)
        total, player = 0.0, mixed_actor(random.Random(seed))
        while not ended(env):
            before, turn = env.state(), env.turn
            agent = env.agent_selection
            env.step(player(env, agent))
            parts = env.infos[agent]["reward_parts"]
            total += parts["team"]
            assert -0.11 <= parts["team"] <= 1.11
            assert -0.05 / 6 - 1e-9 <= parts["local"] <= 0
            state = env.state()
            if env.turn > turn:
                success = env.infos[agent]["success"]
                reached = outlook_at(state.level, state.position).potential
                assert total == pytest.approx(reached + success)
                assert success == (state.position.boxes == state.level.goals)
            else:
                assert state.position == before.position


@pytest.mark.parametrize("kwargs", TEAMS, ids=names)
def test_solved_beats_unsolved(kwargs):
    rng = random.Random(1)
    solved = 0
    for seed in range(40):
        env = SokobanEnv(**kwargs)
        env.reset(seed=seed)
        players = [mixed_actor(rng), *(scripted_actor(p, rng) for p in ("greedy", "random"))]
        steps = play(env, rng.choice(players))
        for agent in env.possible_agents:
            gained = math.fsum(step["rewards"][agent] for step in steps)
            assert gained >= 1.05 - 1e-9 if steps[-1]["info"]["success"] else gained < 0.1
        env.reset(seed=seed)
        # The worst honest way to the goal: three turns of rubbish, then the solution.
        steps = play(env, _late(scripted_actor("oracle", rng), env.possible_agents[-1]))
        solved += steps[-1]["info"]["success"]
        for agent in env.possible_agents:
            assert math.fsum(step["rewards"][agent] for step in steps) >= 1.05 - 1e-9
    assert solved == 40


def _late(oracle, final):
    return lambda env, agent: oracle(env, agent) if (env.turn, agent) == (3, final) else "rubbish"


def test_no_loop_pays():
    """Walk, push there and back (around the box), in any number of turns: what closes pays 0."""
    env = SokobanEnv(
        team="single", max_turns=12, levels=["########\n#  .   #\n# @$   #\n#      #\n########"]
    )
    env.reset(seed=0)
    start = env.state()
    total = 0.0
    closed = 0
    for moves in ("R", "DRRUL", "DLLU", "LR", "UD", "RDRRULDLLU"):
        env.step(f"#### {list(moves)}")
        total += env.infos["planner_0"]["reward_parts"]["team"]
        state = env.state()
        assert total == pytest.approx(outlook_at(state.level, state.position).potential)
        if state.position == start.position:
            closed += 1
            assert total == pytest.approx(0)
    assert closed == 4


def test_potential_is_bounded_and_rises_along_useful_pushes():
    env = SokobanEnv(team="single", max_turns=30, boxes=2, size=7, max_moves=30)
    rng = random.Random(0)
    for seed in range(20):
        env.reset(seed=seed)
        level = env.state().level
        assert outlook_at(level, env.state().position).potential == 0
        play(env, lambda e, a: e.scripted_action(a, "random", rng))
        state = env.state()
        value = outlook_at(level, state.position).potential
        assert -0.01 <= value <= 0.1
        assert (value == 0.1) == (state.position.boxes == level.goals)


def test_promising_without_doing_pays_nothing():
    env = SokobanEnv(team="proposer-planner")
    env.reset(seed=0)
    promise = env.scripted_action("proposer_0", "oracle", random.Random(0))
    total = 0.0
    for _ in range(4):
        for text in (promise, "#### []"):
            agent = env.agent_selection
            env.step(text)
            total += env.infos[agent]["reward_parts"]["team"]
    assert total == pytest.approx(0)


def test_candidates_of_a_proposer_are_told_apart():
    env = SokobanEnv(team="proposer-planner", levels=[CORRIDOR])
    env.reset(seed=0)
    gains = {}
    for moves in ("RRR", "RR", "R", "L", ""):
        twin = env.fork()
        twin.step("#### " + moves_json(moves))
        gains[moves] = twin.rewards["proposer_0"]
    assert gains["RRR"] > gains["RR"] > gains["R"] > 0 > gains["L"] >= gains[""]


def test_moves_after_the_solution_do_not_count():
    env = SokobanEnv(team="single", levels=[CORRIDOR])
    env.reset(seed=0)
    env.step('#### ["R","R","R","D","D","U","L"]')
    info = env.infos["planner_0"]
    assert info["success"]
    assert info["executed"] == ("R", "R", "R")
    assert info["illegal_moves"] == 0
    assert info["reward_parts"]["team"] == pytest.approx(1.1)
    assert all(env.terminations.values())


def test_illegal_and_cut_moves():
    env = SokobanEnv(team="single", levels=[CORRIDOR], moves_per_turn=5, max_moves=20)
    env.reset(seed=0)
    env.step('#### ["U","U","L","D","D","R","R"]')
    info = env.infos["planner_0"]
    assert info["illegal_moves"] == 4
    assert info["cut_moves"] == 2
    assert info["executed"] == ("D",)
    assert info["reward_parts"]["local"] == pytest.approx(-4 * 0.04 / (4 * 5))


def test_lost_levels_end_or_go_on():
    text = "#####\n#  ##\n# $.#\n#  @#\n#####"
    for stop in (True, False):
        env = SokobanEnv(team="single", levels=[text], stop_when_lost=stop)
        env.reset(seed=0)
        env.step('#### ["L","U"]')
        info = env.infos["planner_0"]
        assert info["lost"]
        assert info["pushes_left"] == -1
        assert not info["success"]
        assert env.terminations["planner_0"] == stop
        assert env.rewards["planner_0"] == pytest.approx(-0.01)
        told = "loses the level and ends the episode." in env.observe("planner_0")
        assert told == stop


def test_what_a_program_prints_is_proposed():
    env = SokobanEnv(levels=[CORRIDOR])
    env.reset(seed=0)
    program = (
        "import sys, json\n"
        "rows = sys.stdin.read().split('\\n')\n"
        "row = next(r for r, line in enumerate(rows) if '@' in line)\n"
        "col = rows[row].index('@')\n"
        "print('at', row, col)\n"
        "print(json.dumps(['R'] * (rows[row].index('.') - col - 1)))\n"
    )
    env.step(f"```python\n{program}```")
    assert env.state().proposal == "RRR"
    assert env.infos["tool_0"]["proposed"] == ("R", "R", "R")
    assert env.rewards["tool_0"] == pytest.approx(0.1)
    text = env.observe("planner_0")
    assert "at 1 1" in text
    assert "rows[row].index" in text


@pytest.mark.parametrize("program", ["print(1/0)", "def", "pass", "print('hello')"])
def test_programs_without_an_answer_cost(program):
    env = SokobanEnv()
    env.reset(seed=0)
    env.step(f"```python\n{program}\n```")
    assert env.infos["tool_0"]["reward_parts"] == {"team": 0.0, "local": -0.0125}


@pytest.mark.parametrize("failing", ["1 / 0", "sys.exit(1)", "os.abort()", "def"], ids=str)
def test_a_program_that_fails_proposes_nothing(failing):
    env = SokobanEnv(levels=[CORRIDOR])
    env.reset(seed=0)
    answer = '["R","R","R"]'
    env.step(f"```python\nimport os, sys\nprint({answer!r}, flush=True)\n{failing}\n```")
    assert env.infos["tool_0"]["reward_parts"] == {"team": 0.0, "local": -0.0125}
    assert env.infos["tool_0"]["proposed"] == ()
    assert not env.state().proposal


HOSTILE_TOOL_TEXTS = [
    "#### move([" + "R," * 200_000 + "R])",
    "#### " + "move([" + "R " * 50_000 + "]) ",
    "#### " + ("move([" + "L,R," * 20_000 + "R]) ") * 9,
    "#### " + "walk(1,1) walk(1," + " " * 200_000 + "2)",
    "#### [" + "R," * 200_000 + "R]",
    "```python\n#" + "x" * 19_000 + "\nprint(['R'] * 200_000)\n```",
    "```python\nimport sys\nsys.stderr.write('x' * 10**6)\nsys.exit(1)\n```",
    "```python\n" + "x" * 200_000 + "\n```",
    "R" * 200_000,
]


@pytest.mark.parametrize("kwargs", TEAMS[:2], ids=names)
@pytest.mark.parametrize("text", HOSTILE_TOOL_TEXTS, ids=range(len(HOSTILE_TOOL_TEXTS)))
def test_the_planner_reads_a_bounded_prompt(kwargs, text):
    env = SokobanEnv(**kwargs, size=16, boxes=2, moves_per_turn=100)
    env.reset(seed=0)
    env.step(text)
    assert env.agent_selection == "planner_0"
    assert len(env.observe("planner_0")) < 10_000
    assert len(env.state().tool_call) + len(env.state().tool_result) < 8_000


def huge_level():
    """Return the largest board that can be read: 64 rows and columns, 10 boxes."""
    row = "#" + " " * 62 + "#"
    boxes, goals = ("#" + " " * 40 + f" {symbol}" * 10 + "  #" for symbol in "$.")
    rows = ["#" * 64, "#@" + row[2:], *[row] * 58, goals, boxes, row, "#" * 64]
    return "\n".join(rows)


@pytest.mark.parametrize("kwargs", TEAMS[:2], ids=names)
def test_prompts_of_the_largest_levels_are_in_the_space(kwargs):
    env = SokobanEnv(**kwargs, levels=[huge_level()], moves_per_turn=MAX_MOVES_PER_TURN)
    env.reset(seed=0)
    for text in (moves_json("RL" * 200_000), *HOSTILE_TOOL_TEXTS):
        branch = env.fork()
        branch.step(text)
        prompt = branch.observe("planner_0")
        assert len(prompt) < 64 * 65 + 4 * MAX_MOVES_PER_TURN + 10_000
        assert branch.observation_space("planner_0").contains(prompt)


def test_larger_levels_and_longer_turns_are_refused():
    with pytest.raises(LevelFormatError, match="at most 64 rows and columns"):
        SokobanEnv(levels=["#" * 65 + "\n" + huge_level().replace("\n", "#\n") + "#"])
    with pytest.raises(InvalidArgument, match=r"moves_per_turn: .* from 1 to 10000"):
        SokobanEnv(moves_per_turn=MAX_MOVES_PER_TURN + 1)


def test_levels_from_texts_files_and_options(tmp_path):
    other = "#####\n#@$.#\n#####"
    (tmp_path / "a.txt").write_text(f"; 0\n{CORRIDOR}\n\n; 1\n{other}\n")
    for levels in ([CORRIDOR, other], tmp_path / "*.txt", str(tmp_path / "a.txt")):
        env = SokobanEnv(levels=levels, team="single")
        seen = set()
        for seed in range(20):
            env.reset(seed=seed)
            seen.add(level_text(env.state().level))
        assert seen == {CORRIDOR, other}
    env = SokobanEnv(team="single")
    env.reset(seed=0, options={"level": other})
    assert level_text(env.state().level) == other
    with pytest.raises(LevelFormatError):
        env.reset(seed=0, options={"level": "#@$.#"})
    with pytest.raises(InvalidArgument, match=r"a level of 3 moves.*at most 2 moves"):
        SokobanEnv(levels=[CORRIDOR], max_turns=1, moves_per_turn=2)
    (tmp_path / "b.txt").write_text("#####\n#@$ #\n#####\n")
    with pytest.raises(LevelFormatError, match=r"b\.txt.*line 1"):
        SokobanEnv(levels=str(tmp_path / "*.txt"))
    for wrong in ([], [3], str(tmp_path / "nothing*")):
        with pytest.raises(InvalidArgument, match="levels"):
            SokobanEnv(levels=wrong)


def test_boxoban_levels_play(shared_data):
    path = shared_data("boxoban/medium_valid.txt")
    env = SokobanEnv(levels=path, moves_per_turn=200)
    solved = 0
    for seed in range(5):
        env.reset(seed=seed)
        steps = play(env, scripted_actor("oracle", random.Random(0)))
        solved += steps[-1]["info"]["success"]
        assert steps[-1]["info"]["certificate"] in ("none", "optimal")
    assert solved == 5


@pytest.mark.parametrize(
    ("kwargs", "error"),
    [
        ({"size": 4}, InvalidArgument),
        ({"boxes": 0}, InvalidArgument),
        ({"boxes": "2"}, InvalidArgument),
        ({"moves_per_turn": 0}, InvalidArgument),
        ({"max_moves": 3, "min_moves": 5}, InvalidArgument),
        ({"max_moves": 81}, UnreachableRequest),
        ({"min_moves": 90}, UnreachableRequest),
        ({"team": "duo"}, InvalidArgument),
        ({"split": "dev"}, InvalidArgument),
        ({"render_mode": "svg"}, InvalidArgument),
    ],
)
def test_bad_arguments(kwargs, error):
    with pytest.raises(error):
        SokobanEnv(**kwargs)


def test_compact_placeholders():
    names = ("board_flat", "places_compact", "proposal_compact")
    user = "/".join(f"{{{name}}}" for name in names)
    prompts = {"planner": {"system": "", "user": user}}
    env = SokobanEnv(team="proposer-planner", prompts=prompts)
    env.reset(seed=0, options={"level": "######\n#@$ .#\n######"})
    env.step('#### ["R","R"]')
    assert env.observe("planner_0") == "#######@$_.#######/111214/RR"
    env.reset(seed=0, options={"level": f"{'#' * 12}\n#@$.{' ' * 7}#\n{'#' * 12}"})
    assert env.observe("planner_0").split("/")[1] == "010101020103"


def test_every_placeholder_has_a_value():
    everything = " ".join("{" + name + "}" for name in SokobanEnv.prompt_fields)
    env = SokobanEnv(prompts={role: {"user": everything} for role in ("tool", "planner")})
    env.reset(seed=0)
    while not ended(env):
        assert env.observe(env.agent_selection)
        env.step(env.scripted_action(env.agent_selection, "random", random.Random(0)))


@pytest.mark.parametrize("kwargs", TEAMS, ids=names)
def test_prompts_are_short(kwargs):
    env = SokobanEnv(**kwargs)
    env.reset(seed=0)
    for agent in env.possible_agents:
        assert len(env.observe(agent).split()) < 320 + 6 * 8  # a word for each cell and label


@pytest.mark.parametrize("kwargs", TEAMS, ids=names)
def test_golden_transcripts(golden, kwargs):
    name = "_".join(["sokoban", *kwargs.values()]).replace("-", "_")
    rng = random.Random(5)
    first = transcript_of(SokobanEnv(**kwargs, boxes=2), 3, scripted_actor("greedy", rng))
    second = transcript_of(SokobanEnv(**kwargs), 4, mixed_actor(rng))
    golden(name, first + "\n" + second)


def test_many_steps_keep_nothing():
    env = SokobanEnv(team="proposer-planner", max_turns=3)
    rng = random.Random(0)
    texts = [*HOSTILE_TEXTS, "#### [U,R]", "#### [D,D,L]", "LLL"]
    for seed in range(30):
        env.reset(seed=seed)
        play(env, lambda _env, _agent: rng.choice(texts))
    assert len(str(env.state())) < 3000


@pytest.mark.parametrize(
    "unit", ["push(", "walk(1, ", 'move(["U",', "push(1, 1, R, 1) ", "U", "[U,", "``` "]
)
def test_very_long_texts_are_read_in_linear_time(unit):
    env = SokobanEnv()
    env.reset(seed=0)
    env.step(unit * 50_000)
    env.step(unit * 50_000)
    assert len(env.observe("tool_0")) < 20_000


def test_pictures():
    env = SokobanEnv(team="single", render_mode="rgb_array", levels=[CORRIDOR])
    env.reset(seed=0)
    image = env.render()
    assert image.shape == (4 * 24 + 1, 7 * 24 + 1, 3)
    assert image.dtype == np.uint8
    env.step("#### [R, R, R]")
    assert (env.render() != image).any()


def test_a_picture_without_pillow(monkeypatch):
    env = SokobanEnv(team="single", render_mode="rgb_array")
    env.reset(seed=0)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingDependency, match=r"pettingllms\[render\]"):
        env.render()
