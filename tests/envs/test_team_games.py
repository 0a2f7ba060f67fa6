"""What the games of a team promise alike: examples, transcripts, certificates, what is read."""

import random
import re

import pytest

import pettingllms
from pettingllms.testing import play, transcript_of
from pettingllms.testing.play import scripted_actor
from pettingllms_envs.fireworks.rules import COLOURS

GAMES = ("dining_v0", "fireworks_v0", "panel_v0", "relay_v0", "search_v0")
PROPOSALS = ("blocksworld_v0", "plan_path_v0", "queens_v0", "sokoban_v0", "sudoku_v0")


@pytest.mark.parametrize("env_id", [*GAMES, *PROPOSALS])
def test_the_documented_example_solves_its_level(env_id):
    doc = type(pettingllms.make(env_id).unwrapped).__doc__
    scope = {}
    exec(compile(doc.split("```python\n")[-1].split("```")[0], "example", "exec"), scope)
    assert scope["info"]["success"]


HM = "Let me think about it."
QUESTION = "#### ? what is in row 1"
TRANSCRIPTS = {
    # The seed, arguments, what is said first (texts and policies), and the policy of the rest.
    "dining": (
        3,
        {"philosophers": 5, "sight": 1},
        [HM] * 5 + ["random"] * 5 + ["talk"] * 5,
        "oracle",
    ),
    "fireworks": (4, {}, ["conventions"] * 2 + [HM] * 2 + ["random"] * 2, "conventions"),
    "panel": (4, {}, [HM] + ["random"] * 3, "oracle"),
    "relay": (4, {}, ["Hm.", QUESTION, "random", "random"], "oracle"),
    "search_names": (3, {"style": "names", "documents": 12}, [HM] * 2, "oracle"),
    "search_letters": (3, {"style": "letters", "documents": 12}, [HM] * 2, "oracle"),
}


@pytest.mark.parametrize("mode", ["full", "delta"])
@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_golden_transcripts(golden, name, mode):
    seed, kwargs, first, policy = TRANSCRIPTS[name]
    env_id = f"{name.partition('_')[0]}_v0"
    env = pettingllms.make(
        env_id, checks=False, split="validation", observation_mode=mode, **kwargs
    )
    rng, said = random.Random(0), iter(first)

    def actor(env, agent):
        text = next(said, policy)
        is_policy = text in env.scripted_policies
        return env.scripted_action(agent, text, rng) if is_policy else text

    golden(f"{name}_{mode}", transcript_of(env, seed, actor))


CERTIFICATES = {
    "dining_v0": lambda steps: (steps[-1]["info"]["turn"] + 1, "shortest"),
    "fireworks_v0": lambda steps: (len(steps), "witness"),
    "panel_v0": lambda steps: (len(steps), "shortest"),
    "relay_v0": lambda steps: (steps[-1]["info"]["turn"] + 1, "turns_needed"),
}


@pytest.mark.parametrize(
    ("env_id", "level"),
    [
        (env_id, level)
        for env_id in CERTIFICATES
        for level in (None, *pettingllms.spec(env_id).load().difficulties.names)
    ],
)
def test_levels_are_solved_in_the_time_that_the_certificate_says(env_id, level):
    # What is certified of fireworks is a team whose players see what players see.
    policy = "conventions" if env_id == "fireworks_v0" else "oracle"
    env = pettingllms.make(env_id, checks=False, difficulty=level, split="test")
    for seed in range(4):
        env.reset(seed=seed)
        steps = play(env, scripted_actor(policy, random.Random(0)))
        taken, certificate = CERTIFICATES[env_id](steps)
        assert steps[-1]["info"]["success"]
        assert taken == steps[-1]["info"][certificate]
        assert not any(step["info"].get("num_cut") for step in steps)


TERSE = {
    # A policy, arguments, prompts that ask for no mark, and the form of what is then written.
    "fireworks_v0": ("conventions", {}, {"player": "{own_compact}"}, rf"[PDH].*[123{COLOURS}]"),
    "panel_v0": ("oracle", {}, dict.fromkeys(("moderator", "expert"), "{question}"), r"=?\d*\w\d*"),
    "relay_v0": (
        "oracle",
        {"max_chars": 11},
        {"witness": "{target_compact}", "builder": "{last_message}:"},
        r"[123].*",
    ),
    "search_v0": ("oracle", {}, dict.fromkeys(("searcher", "answerer"), "{question}"), r"[^#]+"),
}


@pytest.mark.parametrize("env_id", TERSE)
def test_terse_prompts_need_no_mark(env_id):
    policy, kwargs, users, form = TERSE[env_id]
    prompts = {role: {"system": "", "user": user} for role, user in users.items()}
    env, rng = pettingllms.make(env_id, checks=False, prompts=prompts, **kwargs), random.Random(0)
    env.reset(seed=0)
    while env.acting():
        agent = env.agent_selection
        said = env.scripted_action(agent, policy, rng)
        assert re.fullmatch(form, said)
        env.step(said)
        assert env.infos[agent]["parse_error"] is None
    assert env.infos[agent]["success"] or env_id == "fireworks_v0"
