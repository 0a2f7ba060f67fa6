"""The environment: who sees what, rewards, endings, tasks from files."""

import json
import random
from pathlib import Path

import pytest

import pettingllms
from pettingllms.errors import InvalidArgument, UnreachableRequest
from pettingllms.seeding import SPLITS
from pettingllms.testing import play
from pettingllms.testing.play import scripted_actor
from pettingllms_envs.search import SearchEnv

CASES = json.loads(Path(__file__).with_name("answers.json").read_text("utf-8"))

LINE = json.dumps(
    {
        "question": "Who founded Orvan Mills?",
        "answers": ["Edda Orvan", "Orvan, Edda"],
        "documents": [
            {"title": "Orvan Mills", "text": "It was founded by Edda Orvan."},
            {"title": "Edda Orvan", "text": "She was born in Sorn."},
            {"title": "Sorn", "text": "A town of mills."},
        ],
        "supporting": ["Orvan Mills"],
    }
)


def started(**kwargs):
    env = pettingllms.make("search_v0", checks=False, results=1, **kwargs)
    env.reset(seed=0, options={"level": LINE})
    return env


def parts(env, agent):
    return env.infos[agent]["reward_parts"]


@pytest.mark.parametrize("level", [None, *SearchEnv.difficulties.names])
@pytest.mark.parametrize("split", SPLITS)
def test_the_oracle_answers_after_as_many_searches_as_documents_are_needed(level, split):
    env = pettingllms.make("search_v0", checks=False, difficulty=level, split=split)
    for seed in range(5):
        env.reset(seed=seed)
        needed = len(env.state().task.supporting)
        steps = play(env, scripted_actor("oracle", random.Random(0)))
        assert steps[-1]["info"]["success"]
        assert steps[-1]["info"]["turn"] + 1 <= needed
        assert sum(step["info"]["reward_parts"]["team"] for step in steps) == pytest.approx(1.1)


@pytest.mark.parametrize("answer", ["Edda Orvan", "the orvan edda.", '"Edda Orvan"'])
def test_a_right_answer_pays_whether_or_not_it_was_looked_up(answer):
    env = started()
    env.step("#### Sorn")
    env.step(f"I know it.\n#### {answer}")
    assert env.infos["answerer_0"]["success"]
    assert parts(env, "answerer_0")["team"] == pytest.approx(1.1)


def test_a_wrong_answer_is_final_and_takes_back_what_was_found():
    env = started()
    env.step("#### Orvan Mills")
    assert parts(env, "searcher_0")["team"] == pytest.approx(0.05)
    env.step("#### Sorn")
    assert all(env.terminations.values())
    assert not env.infos["answerer_0"]["success"]
    assert parts(env, "answerer_0")["team"] == pytest.approx(-0.06)


def test_searches_that_find_nothing_new_cost():
    env = started()
    for query, cost in [("Orvan Mills", 0), ("Orvan Mills", 0.04), ("zzz", 0.04)]:
        env.step(f"#### {query}")
        assert parts(env, "searcher_0")["local"] == pytest.approx(-cost / 4)
        env.step("#### more")
        assert parts(env, "answerer_0") == {"team": 0, "local": 0}
    env.step("Orvan Mills")
    assert env.infos["searcher_0"]["parse_error"] == "no ####"
    assert parts(env, "searcher_0")["local"] == pytest.approx(-0.05 / 4)


@pytest.mark.parametrize("text", ["", "####", "#### !;", "#### " + "x" * 301, "so Edda Orvan"])
def test_what_is_no_answer(text):
    env = started()
    env.step("#### Sorn")
    env.step(text)
    assert env.infos["answerer_0"]["parse_error"]
    assert not any(env.terminations.values())


def returns_of(steps):
    agents = steps[0]["rewards"]
    return {agent: sum(step["rewards"][agent] for step in steps) for agent in agents}


@pytest.mark.parametrize("answer", ["#### more", "I need to think."])
def test_gathering_without_ever_answering_pays_no_more_than_the_worst_wrong_answer(answer):
    """However much the one finds, and however badly the other writes."""
    found, wrong = started(max_turns=3), started(max_turns=3)
    texts = [["#### Orvan Mills", answer], ["#### Edda", answer], ["#### Sorn", answer]]
    unread = [["", ""], ["", ""], ["", "#### Sorn"]]
    steps = play(found, lambda env, agent: texts[env.turn][agent == "answerer_0"])
    worst = play(wrong, lambda env, agent: unread[env.turn][agent == "answerer_0"])
    assert steps[-1]["truncated"]
    assert worst[-1]["terminated"]
    for agent, paid in returns_of(worst).items():
        assert returns_of(steps)[agent] <= paid + 1e-9
    assert returns_of(steps)["searcher_0"] == pytest.approx(-0.06)


def test_snapshots_of_other_settings_are_refused():
    env = pettingllms.make("search_v0", checks=False)
    env.reset(seed=0)
    for kwargs in [{"hops": 1}, {"documents": 12}, {"results": 1}, {"style": "letters"}]:
        other = pettingllms.make("search_v0", checks=False, **{"documents": 24, **kwargs})
        with pytest.raises(InvalidArgument, match="snapshot"):
            other.restore(env.snapshot())


RIGHT = "Edda Orvan"


@pytest.mark.parametrize("text", CASES["meant"])
def test_the_answer_that_was_meant_is_read(text):
    env = started()
    env.step("#### Sorn")
    env.step("#### " + text.replace("A", RIGHT, 1))
    assert env.infos["answerer_0"]["answer"] == RIGHT
    assert env.infos["answerer_0"]["success"]


@pytest.mark.parametrize("text", CASES["none"])
def test_what_is_no_name_of_the_documents_ends_nothing(text):
    env = started()
    env.step("#### Sorn")
    env.step("#### " + text.replace("A", RIGHT, 1))
    assert not any(env.terminations.values())
    assert bool(env.infos["answerer_0"]["parse_error"]) != ("more" in text)
    assert env.infos["answerer_0"]["answer"] == ""


def test_answers_that_no_document_holds_can_be_given():
    env = started()
    level = json.loads(LINE) | {"question": "Is it old?", "answers": ["yes"]}
    for text, success in [("no", False), ("Yes.", True)]:
        env.reset(options={"level": json.dumps(level)})
        env.step("#### Sorn")
        env.step(f"#### {text}")
        assert all(env.terminations.values())
        assert env.infos["answerer_0"]["success"] == success


@pytest.mark.parametrize(("text", "query"), CASES["queries"])
def test_queries_are_what_was_meant(text, query):
    env = started()
    env.step(f"#### {text}")
    assert env.infos["searcher_0"]["query"] == query


def test_tasks_of_files_are_divided_into_splits(tmp_path):
    lines = [LINE.replace("Mills?", f"Mills {number}?") for number in range(40)]
    (tmp_path / "tasks.jsonl").write_text("\n".join(lines))
    seen = {}
    for split in SPLITS:
        env = pettingllms.make("search_v0", levels=str(tmp_path / "*.jsonl"), split=split)
        env.reset(seed=0)
        seen[split] = set()
        for seed in range(60):
            env.reset(seed=seed)
            seen[split].add(env.state().task.question)
    assert not seen["train"] & seen["test"]
    assert not seen["train"] & seen["validation"]
    (own,) = (split for split in SPLITS if json.loads(lines[0])["question"] in seen[split])
    with pytest.raises(UnreachableRequest, match="none of the 1 tasks in levels is in split="):
        pettingllms.make("search_v0", levels=[lines[0]], split=SPLITS[SPLITS.index(own) - 1])


def test_more_hops_than_turns_are_refused():
    with pytest.raises(UnreachableRequest, match="hops=3 asks for 3 searches"):
        pettingllms.make("search_v0", hops=3, max_turns=2)
    with pytest.raises(UnreachableRequest, match="hops=3 asks for 6 searches"):
        pettingllms.make("search_v0", hops=3, max_turns=5, style="drawn", documents=50)


def test_drawn_words_are_explained_to_both_and_their_searches_fit_the_turns():
    env = pettingllms.make("search_v0", style="drawn", hops=3, documents=50, max_turns=6)
    for seed in range(5):
        env.reset(seed=seed)
        assert "a document about such a word says which word means the same" in env.observe(
            "searcher_0"
        )
        steps = play(env, scripted_actor("oracle", random.Random(0)))
        assert steps[-1]["info"]["success"]
        assert len(steps) <= 12
