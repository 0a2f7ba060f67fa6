"""What planning games share: teams, proposals, programs, rewards, costs, prompts."""

import random

import pytest

import pettingllms
from pettingllms.errors import InvalidArgument, UnreachableRequest
from pettingllms.testing import play, transcript_of
from pettingllms.testing.play import mixed_actor, scripted_actor
from pettingllms_envs.blocksworld import BlocksworldEnv
from pettingllms_envs.queens import QueensEnv
from pettingllms_envs.team_table import TEAMS

GAMES = ["blocksworld_v0", "queens_v0"]
LEVELS = {"blocksworld_v0": "CAB D -> DC BA", "queens_v0": "Q...\n...F\nQ...\n..Q."}
FAR = {**LEVELS, "queens_v0": ".F..\nQ...\nF...\nQ..."}
PLANS = {
    "blocksworld_v0": ['[["B","table"]]', '[["A","B"],["C","D"]]'],
    "queens_v0": ["[[0,1]]", "[]"],
}


def started(env_id, **kwargs):
    env = pettingllms.make(env_id, checks=False, **kwargs)
    env.reset(seed=0, options={"level": LEVELS[env_id]})
    return env


@pytest.mark.parametrize("env_id", GAMES)
@pytest.mark.parametrize("team", TEAMS)
@pytest.mark.parametrize("observation_mode", ["full", "delta"])
def test_golden_transcripts(golden, env_id, team, observation_mode):
    rng = random.Random(0)

    def player(env, agent):
        if env.turn == 0:
            return "Let me think about it."
        if env.turn == 1:
            return env.scripted_action(agent, "random", rng)
        if env.turn == 2 and agent == "planner_0":
            return "#### []"
        return env.scripted_action(agent, "oracle", rng)

    kwargs = {"team": team, "observation_mode": observation_mode, "moves_per_turn": 5}
    env = pettingllms.make(env_id, checks=False, split="validation", **kwargs)
    suffix = "_delta" if observation_mode == "delta" else ""
    golden(f"{env_id.removesuffix('_v0')}_{team}{suffix}", transcript_of(env, 3, player))


@pytest.mark.parametrize("env", [BlocksworldEnv, QueensEnv])
def test_the_documented_example_runs(env):
    example = (env.__doc__ or "").split("```python\n")[1].split("```")[0]
    lines = [line.removeprefix("    ") for line in example.split("\n")]
    scope = {}
    exec(compile("\n".join(lines), "example", "exec"), scope)
    assert scope["info"]["success"]


@pytest.mark.parametrize("env_id", GAMES)
@pytest.mark.parametrize("team", TEAMS)
def test_team_parts_add_up_to_the_progress(env_id, team):
    env = pettingllms.make(env_id, checks=False, team=team, moves_per_turn=2, max_moves=8)
    for seed in range(12):
        env.reset(seed=seed)
        steps = play(env, mixed_actor(random.Random(seed)))
        team_parts = sum(step["info"]["reward_parts"]["team"] for step in steps)
        left, shortest = steps[-1]["info"]["distance"], steps[-1]["info"]["shortest"]
        if steps[-1]["agent"] == "planner_0":
            away = 0.1 * (1 - left / shortest) if left <= shortest else 0.01 * (shortest / left - 1)
            assert team_parts == pytest.approx(away + steps[-1]["info"]["success"])


@pytest.mark.parametrize("env_id", GAMES)
def test_the_oracle_needs_the_shortest_plan(env_id):
    for team in TEAMS:
        env = pettingllms.make(env_id, checks=False, team=team)
        for seed in range(5):
            env.reset(seed=seed)
            info = play(env, scripted_actor("oracle", random.Random(0)))[-1]["info"]
            assert info["success"]
            assert info["optimality"] == 1
            assert info["moves_used"] == info["shortest"]


@pytest.mark.parametrize("env_id", GAMES)
def test_promises_that_are_not_kept_pay_nothing(env_id):
    env = started(env_id, team="proposer-planner")
    env.step(env.scripted_action("proposer_0", "oracle", random.Random(0)))
    promised = env.infos["proposer_0"]["reward_parts"]["team"]
    assert promised == pytest.approx(0.1)
    assert env.infos["proposer_0"]["distance"] == 0
    assert not env.infos["proposer_0"]["success"]
    env.step("#### []")
    assert env.infos["planner_0"]["reward_parts"]["team"] == pytest.approx(-promised)
    assert "The last turn changed nothing: the answer had no moves." in env.observe("proposer_0")


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
    assert info["lost"]
    assert not info["success"]
    assert env.terminations["planner_0"] is stop_when_lost
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
    env.step(f"#### {[[1, 1, 1], *[[1, 2, 1]] * num_refused]}")
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


@pytest.mark.parametrize("env_id", GAMES)
def test_levels_beyond_the_budget_are_refused(env_id):
    with pytest.raises(
        UnreachableRequest, match=r"max_moves=9 asks for levels .* at most 4 can be"
    ):
        pettingllms.make(env_id, max_moves=9, max_turns=2, moves_per_turn=2)
    env = pettingllms.make(env_id, max_turns=1, moves_per_turn=1, min_moves=1, checks=False)
    with pytest.raises(InvalidArgument, match="Raise max_turns or moves_per_turn"):
        env.reset(seed=0, options={"level": FAR[env_id]})
