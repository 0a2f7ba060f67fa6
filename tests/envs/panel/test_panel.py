"""Who has the floor, what is said, rewards, levels."""

import random
import re
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

import pettingllms
from pettingllms.testing import play
from pettingllms.testing.play import mixed_actor
from pettingllms_envs.panel import rules
from pettingllms_envs.panel.env import Statement, own_text, read_expert, statement_text


def started(seed=0, **kwargs):
    env = pettingllms.make("panel_v0", checks=False, **kwargs)
    env.reset(seed=seed)
    return env


def parts(env, agent):
    return env.infos[agent]["reward_parts"]


def asked(env, place=0):
    """Return (expert, name, value) of a quantity of the question."""
    level = env.state().level
    name = level.needed[place]
    return level.owner(name), name, dict(level.values[level.owner(name)])[name]


def test_the_moderator_chooses_who_speaks():
    env = started()
    assert env.agent_selection == "moderator_0"
    for expert in (2, 0, 2):
        name = env.state().level.values[expert][0][0]
        env.step(f"#### {expert} {name}")
        assert env.agent_selection == f"expert_{expert}"
        assert env.acting() == (f"expert_{expert}",)
        assert f"The moderator asks you for {name}." in env.observe(f"expert_{expert}")
        env.step("#### pass")
        assert env.agent_selection == "moderator_0"


def test_an_unreadable_moderator_keeps_the_floor_and_an_unreadable_expert_loses_it():
    env = started()
    env.step("hm")
    assert env.agent_selection == "moderator_0"
    assert parts(env, "moderator_0")["local"] == pytest.approx(-0.05 / 12)
    expert, name, _ = asked(env)
    env.step(f"#### {expert} {name}")
    env.step("hm")
    assert env.agent_selection == "moderator_0"
    assert parts(env, f"expert_{expert}")["local"] == pytest.approx(-0.05 / 12)


def test_values_are_read_by_their_experts_only():
    env = started()
    own = dict(env.state().level.values[1])
    shown = ", ".join(f"{name} = {value}" for name, value in own.items())
    assert f"You know: {shown}." in env.observe("expert_1")
    assert shown not in env.observe("moderator_0")
    assert shown not in env.observe("expert_0")
    prompts = {"moderator": {"system": "", "user": "{own}|{own_compact}"}}
    assert started(prompts=prompts).observe("moderator_0") == "|"


def test_statements_pay_what_they_are_worth():
    env = started()
    expert, name, value = asked(env)
    for said, team, local in [
        ((value + 1) % 10, 0, 0.04),
        (value, 0.1 / 3, 0),
        (value, 0, 0),
        ((value + 1) % 10, -0.1 / 3, 0.04),
    ]:
        env.step(f"#### {expert} {name}")
        assert parts(env, "moderator_0") == {"team": 0, "local": 0}
        env.step(f"#### {name} is {said}")
        assert parts(env, f"expert_{expert}")["team"] == pytest.approx(team)
        assert parts(env, f"expert_{expert}")["local"] == pytest.approx(-local / 12)
    assert f"Said so far: {name} = {(value + 1) % 10} (expert {expert})." in env.observe(
        "moderator_0"
    )


def test_asking_an_expert_who_cannot_know_costs():
    env = started()
    expert, name, _ = asked(env)
    env.step(f"#### {(expert + 1) % 3} {name}")
    assert parts(env, "moderator_0")["local"] == pytest.approx(-0.04 / 12)


@pytest.mark.parametrize("offset", [0, 1])
def test_an_answer_is_final(offset):
    env = started()
    env.step(f"#### = {env.state().level.answer + offset}")
    assert all(env.terminations.values())
    assert env.infos["moderator_0"]["success"] == (offset == 0)
    assert parts(env, "moderator_0")["team"] == pytest.approx(-0.01 if offset else 1.1)


def test_asking_without_ever_answering_pays_no_more_than_the_worst_wrong_answer():
    """However much the one finds, and however badly the other writes."""

    def ask_on(env, agent):
        state = env.state()
        name = next(iter(state.level.needed))
        return (
            env.scripted_action(agent, "oracle", random.Random(0))
            if agent != "moderator_0"
            else (f"#### {state.level.owner(name)} {name}")
        )

    def answer_last(env, agent):
        return "" if env.state().actions_left > 1 else f"#### = {env.state().level.answer + 1}"

    steps, worst = play(started(), ask_on), play(started(), answer_last)
    assert steps[-1]["truncated"]
    assert worst[-1]["terminated"]
    for agent in steps[0]["rewards"]:
        paid, least = (sum(step["rewards"][agent] for step in run) for run in (steps, worst))
        assert paid == pytest.approx(-0.06)
        assert paid <= least


def test_actions_left_are_those_of_the_episode():
    for seed in range(20):
        env = started(seed)
        total = env.state().actions_left
        assert total == env.max_turns * len(env.possible_agents)
        steps = play(env, mixed_actor(random.Random(seed)))
        assert env.state().actions_left == total - len(steps)


def test_experts_may_copy_what_they_read():
    env = started()
    expert, name, value = asked(env)
    env.step(f"#### {expert} {name}")
    own = env.observe(f"expert_{expert}").partition("You know: ")[2].partition(".")[0].split(", ")
    (said,) = (one for one in own if one.startswith(f"{name} = "))
    env.step(f"#### {said}")
    assert f"Said so far: {name} = {value} (expert {expert})." in env.observe("moderator_0")


@pytest.mark.parametrize("role", ["moderator", "expert"])
def test_examples_of_prompts_end_no_episode(role):
    """Who copies what the prompt shows, line by line or as a whole, has not answered."""
    env = started()
    expert, name, _ = asked(env)
    agent = "moderator_0"
    if role == "expert":
        env.step(f"#### {expert} {name}")
        agent = f"expert_{expert}"
    prompt = env.observe(agent)
    shown = [line for line in prompt.split("\n") if line.startswith("####")]
    assert shown
    for text in [*shown, "\n".join(shown), prompt]:
        fork = env.fork()
        fork.step(text)
        assert not any(fork.terminations.values())
        assert fork.infos[agent]["parse_error"] is None or text == prompt


LINKED = rules.Request(6, 4, 3, None, 3)
linked = st.integers(0, 10**6).map(lambda seed: rules.generate(random.Random(seed), LINKED))


def told(texts):
    """Return the values that follow from statements, by putting in what is known."""
    known, open_texts = {}, dict(one.split(" = ") for one in texts)
    while open_texts:
        for name, text in list(open_texts.items()):
            terms = re.findall(r"([+-]?) ?(\w+)", text)
            if all(term.isdigit() or term in known for _, term in terms):
                signed = [(sign == "-", int(known.get(term, term))) for sign, term in terms]
                known[name] = sum(-value if is_less else value for is_less, value in signed)
                del open_texts[name]
    return known


@given(level=linked)
def test_the_answer_follows_from_what_experts_know_and_from_no_less(level):
    own = [own_text(rules.PanelState(level, 9), expert).split(", ") for expert in range(6)]
    known = told([text for texts in own for text in texts])
    assert known == level.true
    assert all(0 <= value < 100 for value in known.values())
    assert sum(known[name] for name in level.needed) == level.answer
    facts = {text[0]: text for texts in own for text in texts}
    assert told([facts[name] for name in level.wanted]).items() <= known.items()
    for name in level.needed:
        chain = re.findall("[a-x]", facts[name])
        while len(more := re.findall("[a-x]", facts[chain[-1]])) == 2:
            chain += set(more) - {chain[-1]}
        chain = list(dict.fromkeys(chain))
        assert len(chain) == 4, "each of them follows from three others in turn"
        assert all(level.owner(a) != level.owner(b) for a, b in pairwise(chain))
        assert set(chain) <= set(level.wanted)
    assert level.shortest == 2 * len(level.wanted) + 1 == 25


@given(
    name=st.sampled_from("bx"),
    value=st.integers(-99, 198),
    other=st.sampled_from(["", "a", "i"]),
    sign=st.sampled_from([1, -1]),
)
def test_statements_with_links_are_read_back(name, value, other, sign):
    said = Statement(name, value if other and sign > 0 else abs(value), other, sign if other else 1)
    for text in (statement_text(said), statement_text(said).replace(" ", "")):
        assert read_expert(f"#### {text}", "c", True, True) == said


def test_links_are_facts_that_are_true_or_false():
    env = started(difficulty="extreme")
    level = env.state().level
    name = level.needed[0]
    fact = level.fact(name)
    for said, team, local in [
        (fact._replace(value=fact.value + 1), 0, 0.04),
        (Statement(name, level.true[name]), 0.1 / 13, 0),
        (fact, 0, 0),
        (fact._replace(sign=-fact.sign, value=abs(fact.value)), -0.1 / 13, 0.04),
        (fact, 0.1 / 13, 0),
    ]:
        env.step(f"#### {level.owner(name)} {name}")
        env.step(f"#### {statement_text(said)}")
        assert parts(env, f"expert_{level.owner(name)}")["team"] == pytest.approx(team)
        assert parts(env, f"expert_{level.owner(name)}")["local"] == pytest.approx(-local / 28)
        shown = f"Said so far: {statement_text(said)} (expert {level.owner(name)})."
        assert shown in env.observe("moderator_0")


plain = st.integers(0, 10**6).map(
    lambda seed: rules.generate(random.Random(seed), rules.Request(3, 2, 2, None))
)


@given(level=plain | linked, data=st.data())
def test_names_and_seats_do_not_matter_to_form_and_split(level, data):
    names = str.maketrans("abcdefghijklmnopqrstuvwx", "xwvutsrqponmlkjihgfedcba")
    order = data.draw(st.permutations(range(len(level.values))))
    seated = level._replace(
        values=tuple(level.values[number] for number in order), needed=level.needed[::-1]
    )
    assert rules.content_of(seated) == rules.content_of(level)
    image = rules.Level(
        tuple(tuple(sorted((n.translate(names), v) for n, v in own)) for own in seated.values),
        tuple(name.translate(names) for name in seated.needed),
        tuple((a.translate(names), b.translate(names), sign) for a, b, sign in level.links),
    )
    assert rules.canonical_form(image) == rules.canonical_form(level)
    assert image.answer == level.answer


@given(level=linked)
def test_links_and_their_signs_are_part_of_the_canonical_form(level):
    first, *rest = level.links
    other = level._replace(links=((*first[:2], -first[2]), *rest))
    assert rules.canonical_form(other) != rules.canonical_form(level)
    assert rules.canonical_form(level._replace(links=tuple(rest))) != rules.canonical_form(level)
