"""What planning games share: teams, proposals, programs, rewards, costs, prompts."""

import math
import random
import re
import sys
from itertools import product

import numpy as np
import pytest

import pettingllms
from pettingllms.errors import InvalidArgument, MissingDependency, UnreachableRequest
from pettingllms.testing import HOSTILE_TEXTS, play, transcript_of
from pettingllms.testing.play import mixed_actor, scripted_actor
from pettingllms_envs.plan_path.env import VIEWS
from pettingllms_envs.plan_path.rules import maze_of
from pettingllms_envs.sokoban.rules import outlook_of
from pettingllms_envs.sudoku.rules import potential
from pettingllms_envs.team_table import TEAMS

GAMES = ["blocksworld_v0", "queens_v0"]
LEVELS = {"blocksworld_v0": "CAB D -> DC BA", "queens_v0": "Q...\n...F\nQ...\n..Q."}
PLANS = {
    "blocksworld_v0": ['[["B","table"]]', '[["A","B"],["C","D"]]'],
    "queens_v0": ["[[0,1]]", "[]"],
}


def started(env_id, **kwargs):
    env = pettingllms.make(env_id, checks=False, **kwargs)
    env.reset(seed=0, options={"level": LEVELS[env_id]})
    return env


def golden_cases():
    """Arguments of a level and name of its transcript."""
    for env_id, team, mode in product(GAMES, TEAMS, ("full", "delta")):
        suffix = "_delta" if mode == "delta" else ""
        name = f"{env_id.removesuffix('_v0')}_{team}{suffix}"
        yield env_id, {"team": team, "observation_mode": mode}, name
    tools = [(team, "call") for team in TEAMS]
    tools += [("tool-planner", "python"), ("single-tool", "python")]
    for (team, tool), view in product(tools, VIEWS):
        if tool == "call" or view == "board":
            part = {"single-tool": f"{team}_{tool}", "tool-planner": tool}.get(team, team)
            kwargs = {"team": team, "tool": tool, "view": view, "size": 6}
            yield "plan_path_v0", kwargs, f"plan_path_{part}_{view}"


@pytest.mark.parametrize(("env_id", "kwargs", "name"), [*golden_cases()])
def test_golden_transcripts(golden, env_id, kwargs, name):
    rng = random.Random(0)

    def player(env, agent):
        if env.turn == 0:
            return "Let me think about it."
        if env.turn == 1:
            return env.scripted_action(agent, "random", rng)
        if env.turn == 2 and agent == "planner_0":
            return "#### []"
        return env.scripted_action(agent, "oracle", rng)

    more = {"split": "validation", "moves_per_turn": 5, "checks": False}
    golden(name, transcript_of(pettingllms.make(env_id, **more, **kwargs), 3, player))


def exact(state, info):
    left, shortest = info["distance"], info["shortest"]
    return 0.1 * (1 - left / shortest) if left <= shortest else 0.01 * (shortest / left - 1)


# Arguments, the potential of a state, and the range of a team part.
PROGRESS = {
    "blocksworld_v0": ({"moves_per_turn": 2, "max_moves": 8}, exact, 0.01),
    "queens_v0": ({"moves_per_turn": 2, "max_moves": 8}, exact, 0.01),
    "plan_path_v0": (
        {"tool": "call", "moves_per_turn": 6, "size": 7},
        lambda state, info: maze_of(state.level).outlook(state.position).potential,
        0.01,
    ),
    "sokoban_v0": (
        {"boxes": 2, "max_moves": 40},
        lambda state, info: outlook_of(state.level, state.position).potential,
        0.01,
    ),
    "sudoku_v0": ({}, lambda state, info: potential(state.position), 0.1),
}


@pytest.mark.parametrize("env_id", PROGRESS)
@pytest.mark.parametrize("team", TEAMS)
def test_team_parts_add_up_to_the_progress(env_id, team):
    kwargs, worth, loss = PROGRESS[env_id]
    env = pettingllms.make(env_id, checks=False, team=team, max_turns=6, **kwargs)
    for seed in range(12):
        env.reset(seed=seed)
        total, player = 0.0, mixed_actor(random.Random(seed))
        while not any((*env.terminations.values(), *env.truncations.values())):
            before, turn, agent = env.state(), env.turn, env.agent_selection
            env.step(player(env, agent))
            info, state = env.infos[agent], env.state()
            total += info["reward_parts"]["team"]
            assert -0.1 - loss <= info["reward_parts"]["team"] <= 1.1 + loss
            assert -0.05 / 6 - 1e-9 <= info["reward_parts"]["local"] <= 0
            assert 0 <= info.get("optimality", 0) <= info["success"]
            if env.turn > turn:
                assert total == pytest.approx(worth(state, info) + info["success"])
            else:
                assert state.position == before.position


@pytest.mark.parametrize(
    ("env_id", "kwargs"),
    [
        *((env_id, {}) for env_id in GAMES),
        ("plan_path_v0", {"moves_per_turn": 6}),
        *(("plan_path_v0", {"moves_per_turn": 6, "tool": "call", "size": s}) for s in (5, 30)),
    ],
)
def test_the_oracle_needs_the_shortest_plan(env_id, kwargs):
    for team in TEAMS:
        env = pettingllms.make(env_id, checks=False, team=team, split="test", **kwargs)
        for seed in range(5):
            env.reset(seed=seed)
            info = play(env, scripted_actor("oracle", random.Random(0)))[-1]["info"]
            assert info["success"]
            assert info["optimality"] == 1
            assert info["moves_used"] == info["shortest"]


FAR = {
    **LEVELS,
    "queens_v0": ".F..\nQ...\nF...\nQ...",
    "plan_path_v0": "P....G",
    "sokoban_v0": "#######\n#@ $ .#\n#     #\n#######",
}
"""Levels of several moves."""


@pytest.mark.parametrize("env_id", GAMES)
def test_moves_after_the_solution_are_left_out(env_id):
    env = started(env_id, team="single")
    oracle = env.scripted_action("planner_0", "oracle", random.Random(0))
    env.step(oracle[:-1] + "," + oracle.removeprefix("#### [")[:-1] + "]")
    info = env.infos["planner_0"]
    assert info["success"]
    assert info["moves_used"] == info["shortest"]
    assert info["illegal_moves"] == 0


@pytest.mark.parametrize("env_id", GAMES)
def test_programs_read_the_level_and_their_list_is_the_proposal(env_id):
    env = started(env_id, moves_per_turn=1, max_turns=10)
    env.step("```python\nimport sys\nprint(len(sys.stdin.read()))\n```")
    assert env.infos["tool_0"]["proposed"] == "[]"
    assert env.infos["tool_0"]["reward_parts"]["local"] == pytest.approx(-0.05 / 10)
    env.step("")
    env.step(f"```python\nprint({PLANS[env_id][0]!r})\n```")
    assert env.infos["tool_0"]["proposed"] == PLANS[env_id][0]
    assert env.infos["tool_0"]["reward_parts"]["local"] == 0
    assert PLANS[env_id][0] in env.observe("planner_0").rpartition("What it did:")[2]
    env.step(f"#### {PLANS[env_id][0]}")
    assert env.infos["planner_0"]["executed"] == PLANS[env_id][0]
    assert env.state().tool_call == ""


@pytest.mark.parametrize("stop_when_lost", [True, False])
def test_lost_levels_end_the_episode_if_asked(stop_when_lost):
    level = "#####\n#  ##\n# $.#\n#  @#\n#####"
    env = pettingllms.make(
        "sokoban_v0", checks=False, team="single", levels=[level], stop_when_lost=stop_when_lost
    )
    env.reset(seed=0)
    env.step('#### ["L","U"]')
    info = env.infos["planner_0"]
    assert (info["lost"], info["pushes_left"], info["success"]) == (True, -1, False)
    assert env.terminations["planner_0"] is stop_when_lost
    assert ("loses the level and ends" in env.observe("planner_0")) is stop_when_lost
    assert env.rewards["planner_0"] == pytest.approx(-0.01)


# Sudoku alone refuses more parts of an answer than it would take to cost an empty one.
@pytest.mark.parametrize(
    ("num_refused", "cost"), [(0, 0), (1, 0.04 / 4 / 16), (16, 0.04 / 4), (31, 0.04 / 4)]
)
def test_refusals_cost_by_number_and_at_most_an_empty_answer(num_refused, cost):
    env = pettingllms.make(
        "sudoku_v0", checks=False, team="single", levels=["0234341221434321"], max_turns=4
    )
    env.reset(seed=0)
    env.step(f"#### {[[0, 0, 1], *[[0, 1, 1]] * num_refused]}")
    assert env.infos["planner_0"]["reward_parts"]["local"] == pytest.approx(-cost)


@pytest.mark.parametrize(
    ("call", "cost"), [("neighbours(0, 0)", 0), ("path(0, 1)", 0), ("path(9, 9)", 0.04 / 4)]
)
def test_refused_calls_cost_an_empty_answer_and_useful_ones_nothing(call, cost):
    level = {"tool": "call", "levels": ["P..\n...\n..G"], "max_turns": 4}
    env = pettingllms.make("plan_path_v0", checks=False, **level)
    env.reset(seed=0)
    env.step(f"#### {call}")
    assert env.infos["tool_0"]["reward_parts"]["local"] == pytest.approx(-cost)


@pytest.mark.parametrize("env_id", GAMES)
def test_terse_prompts_get_terse_scripted_answers(env_id):
    prompts = {"planner": {"system": "", "user": "{proposal_compact}?"}}
    env = started(env_id, team="proposer-planner", prompts=prompts)
    rng = random.Random(0)
    assert env.scripted_action("proposer_0", "oracle", rng).startswith("#### [")
    terse = env.scripted_action("planner_0", "oracle", rng)
    env.step(f"#### {terse}")
    assert env.observe("planner_0") == f"{terse}?"
    env.step(terse)
    assert env.infos["planner_0"]["success"]


@pytest.mark.parametrize("env_id", FAR)
def test_levels_beyond_the_budget_are_refused(env_id):
    with pytest.raises(UnreachableRequest, match=r"max_moves=9 asks? for levels .* 4 (can|of)"):
        pettingllms.make(env_id, max_moves=9, max_turns=2, moves_per_turn=2)
    env = pettingllms.make(env_id, max_turns=1, moves_per_turn=1, min_moves=1, checks=False)
    with pytest.raises(InvalidArgument, match="Raise max_turns or moves_per_turn"):
        env.reset(seed=0, options={"level": FAR[env_id]})


ALL = ["blocksworld_v0", "plan_path_v0", "queens_v0", "sokoban_v0", "sudoku_v0"]
every_game = pytest.mark.parametrize("env_id", ALL)
every_team = pytest.mark.parametrize("team", TEAMS)


def made(env_id, **kwargs):
    return pettingllms.make(env_id, checks=False, **kwargs)


@every_game
@every_team
def test_solved_beats_unsolved(env_id, team):
    roomy = {"moves_per_turn": 40} if env_id == "plan_path_v0" else {}
    rng, env = random.Random(1), made(env_id, team=team, **roomy)
    oracle, final = scripted_actor("oracle", rng), env.possible_agents[-1]

    def late(env, agent):
        """The worst honest way to the goal: three turns of rubbish, then the solution."""
        return oracle(env, agent) if (env.turn, agent) == (3, final) else "rubbish"

    players = [mixed_actor(rng), *(scripted_actor(p, rng) for p in ("greedy", "random"))]
    for seed in range(15):
        for player in (rng.choice(players), late):
            env.reset(seed=seed)
            steps = play(env, player)
            success = steps[-1]["info"]["success"]
            assert success or player is not late
            for agent in env.possible_agents:
                gained = math.fsum(step["rewards"][agent] for step in steps)
                assert gained >= 1.05 - 1e-9 if success else gained < 0.1


FAILING = [
    ("print('hello')", "hello"),
    ("import os\nprint({right!r}, flush=True)\nos.abort()", ""),
    ("print(1/0)", "ZeroDivisionError"),
    ("def", "SyntaxError"),
    ("pass", "nothing was printed"),
    ("open('/etc/passwd').read()", "status: "),
    ("print('x' * 50_000)", "characters left out"),
    *((f"print({{right!r}}, flush=True)\n{end}", "") for end in ("1 / 0", "exit(1)", "def")),
]


# Games differ in what they read, not in how a program ends: one of each kind is enough for most.
@pytest.mark.parametrize(
    ("env_id", "program", "said"),
    [(env_id, *case) for env_id in ALL for case in FAILING[: None if env_id == ALL[0] else 2]],
)
def test_programs_that_fail_or_have_no_answer_propose_nothing_and_cost(env_id, program, said):
    env, planner = made(env_id), made(env_id, team="single")
    for one in (env, planner):
        one.reset(seed=0)
    right = planner.scripted_action("planner_0", "oracle", random.Random(0))
    env.step(f"```python\n{program.replace('{right!r}', repr(right))}\n```")
    assert env.infos["tool_0"]["reward_parts"] == {"team": 0.0, "local": -0.05 / env.max_turns}
    assert not env.state().proposal
    prompt = env.observe("planner_0")
    assert said in prompt
    assert len(prompt) < 5000


@every_game
def test_promises_that_are_not_kept_pay_nothing(env_id):
    env = made(env_id, team="proposer-planner")
    env.reset(seed=0)
    promise = env.scripted_action("proposer_0", "oracle", random.Random(0))
    for _ in range(3):
        env.step(promise)
        info = env.infos["proposer_0"]
        promised = info["reward_parts"]["team"]
        assert 0.01 < promised < 0.1 + 1e-9
        assert env_id not in GAMES or (promised, info["distance"]) == (pytest.approx(0.1), 0)
        assert not info["success"]
        env.step("#### []")
        assert env.infos["planner_0"]["reward_parts"]["team"] == pytest.approx(-promised)
        assert "The last turn changed nothing: the answer had no" in env.observe("proposer_0")


LONG = [
    "#### move([" + "R," * 200_000 + "R])",
    "#### " + ("check([" + "[16,16,16]," * 512 + "]) ") * 9,
    "#### walk(1,1) walk(1," + " " * 200_000 + "2)",
    "#### [" + "R," * 200_000 + "R]",
    "#### [" + "[-9999,-9999,-9999]," * 512 + "]",
    "#### [" + "[1,1,1]," * 100_000 + "]",
    "```python\n#" + "x" * 19_000 + "\nprint(['R'] * 200_000)\n```",
    "```python\n#" + "x" * 19_000 + "\nprint([[-9999, -9999, -9999]] * 512)\n```",
    "```python\nimport sys\nsys.stderr.write('x' * 10**6)\nsys.exit(1)\n```",
    "```python\n" + "x" * 200_000 + "\n```",
    "R" * 200_000,
    *(unit * 50_000 for unit in ("push(", "walk(1, ", 'move(["U",', "[U,", "``` ", "[[1,")),
]


@every_game
@pytest.mark.parametrize("team", ["tool-planner", "proposer-planner"])
@pytest.mark.parametrize("text", LONG, ids=range(len(LONG)))
def test_long_texts_are_read_in_linear_time_and_prompts_stay_bounded(env_id, team, text):
    env = made(env_id, team=team)
    env.reset(seed=0)
    for agent in env.possible_agents:
        env.step(text)
        assert len(env.observe(agent)) < 20_000
        assert len(env.state().tool_call) + len(env.state().tool_result) < 8_000
    assert env.observation_space("planner_0").contains(env.observe("planner_0"))


@every_game
@every_team
def test_every_placeholder_has_a_value_and_prompts_are_short(env_id, team):
    env = made(env_id, team=team)
    env.reset(seed=0)
    assert all(len(env.observe(agent).split()) < 400 for agent in env.possible_agents)
    # Limits are written into prompts once, in whatever layout: no observation formats them again.
    assert not re.search(r"\{(max_turns|moves_per_turn|costs)", str([*env.prompts.values()]))
    names = type(env).prompt_fields
    everything = {"system": "", "user": "".join(f"«{{{name}}}»" for name in names)}
    prompts = {role: everything for role in env.prompts}
    env = made(env_id, team=team, prompts=prompts)
    env.reset(seed=0)
    while env.acting():
        agent = env.agent_selection
        assert env.observe(agent).count("»") == len(names)
        env.step(env.scripted_action(agent, "random", random.Random(0)))


@every_game
def test_many_steps_keep_nothing(env_id):
    env, rng = made(env_id, team="proposer-planner", max_turns=3), random.Random(0)
    texts = [*HOSTILE_TEXTS, "#### [U,R]", "#### [[1,1,1],[2,2,2]]", "#### [[0,2]]", "LLL"]
    for seed in range(30):
        env.reset(seed=seed)
        play(env, lambda _env, _agent: rng.choice(texts))
    assert len(str(env.state())) < 3000


@pytest.mark.parametrize("env_id", ["plan_path_v0", "sokoban_v0", "sudoku_v0"])
def test_pictures_change_with_the_game_and_need_the_render_extra(env_id, monkeypatch):
    env = made(env_id, team="single", render_mode="rgb_array")
    env.reset(seed=0)
    image = env.render()
    assert (image.dtype, image.shape[2]) == (np.uint8, 3)
    env.step(env.scripted_action("planner_0", "oracle", random.Random(0)))
    assert (env.render() != image).any()
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(MissingDependency, match="pillow"):
        env.render()


@pytest.mark.parametrize("env_id", ["sokoban_v0", "sudoku_v0"])
@every_team
def test_golden_transcripts_of_mixed_play(golden, env_id, team):
    game, rng = env_id.removesuffix("_v0"), random.Random(5)
    more = {"boxes": 2} if game == "sokoban" else {}
    greedy = transcript_of(made(env_id, team=team, **more), 3, scripted_actor("greedy", rng))
    mixed = transcript_of(made(env_id, team=team), 4, mixed_actor(rng))
    golden(f"{game}_{team}".replace("-", "_"), greedy + "\n" + mixed)
