"""Ranking, matching, generated questions and files of tasks; who sees what, rewards, endings."""

import json
import math
import random
import re
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pettingllms
from pettingllms.errors import InvalidArgument, UnreachableRequest
from pettingllms.seeding import SPLITS, split_of
from pettingllms.testing import play
from pettingllms.testing.play import scripted_actor
from pettingllms_envs.search import SearchEnv, tasks

TASK = {
    "question": "Who founded Orvan Mills?",
    "answers": ["Edda Orvan", "Orvan, Edda"],
    "documents": [
        {"title": "Orvan Mills", "text": "It was founded by Edda Orvan."},
        {"title": "Edda Orvan", "text": "She was born in Sorn."},
        {"title": "Sorn", "text": "A town of mills."},
    ],
    "supporting": ["Orvan Mills"],
}
LINE = json.dumps(TASK)
VOCABULARY = ("mill", "river", "town", "the", "old")
texts = st.lists(st.sampled_from(VOCABULARY), max_size=8).map(" ".join)


def reference(query, documents, k1=1.2, b=0.75):
    """BM25 once more, straight from its formula."""
    split = [re.findall(r"\w+", one.lower()) for one in documents]
    mean = sum(map(len, split)) / len(split) or 1
    found = []
    for words in split:
        total = 0.0
        for term in re.findall(r"\w+", query.lower()):
            n = sum(term in other for other in split)
            if n:
                idf = math.log((len(split) - n + 0.5) / (n + 0.5) + 1)
                tf = words.count(term)
                total += idf * tf * (k1 + 1) / (tf + k1 * (1 - b + b * len(words) / mean))
        found.append(total)
    return found


@given(query=texts, documents=st.lists(texts, min_size=1, max_size=6))
def test_scores_are_those_of_the_formula(query, documents):
    expected = reference(query, documents)
    assert tasks.scores(query, tuple(documents)) == pytest.approx(expected)
    order = tasks.best(query, tuple(documents), 3)
    ranked = sorted(range(len(documents)), key=lambda one: (-round(expected[one], 9), one))
    assert [round(expected[n], 9) for n in order] == [
        round(expected[n], 9) for n in ranked[:3] if expected[n] > 0
    ]


@pytest.mark.parametrize(
    ("answer", "is_right"),
    [
        *((one, True) for one in ("edda orvan", "  The Edda  Orvan!", "Orvan Edda", "EDDA-ORVAN")),
        *((one, False) for one in ("Edda", "Edda Orvan or Bo Orvan", "", "the")),
    ],
)
def test_answers_are_right_whatever_their_case_articles_and_signs(answer, is_right):
    assert tasks.is_match(answer, tasks.parse_task(LINE)) == is_right


def test_names_that_are_articles_are_names():
    task = tasks.parse_task(json.dumps({**TASK, "answers": ["A"]}))
    assert tasks.is_match("a", task)
    assert not tasks.is_match("the", task)


@given(st.text(max_size=40))
def test_normalising_is_idempotent_and_raises_nothing(text):
    assert tasks.normalised(tasks.normalised(text)) == tasks.normalised(text)


@pytest.mark.parametrize("style", ["names", "letters"])
@pytest.mark.parametrize("hops", [1, 2, 3])
def test_generated_questions_follow_the_documents(style, hops):
    """The chain is walked again in the texts alone, and every search of a title finds it."""
    request = tasks.Request(hops, 20, 2, style, None).checked()
    phrases = {
        "founder of": "was founded by",
        "birthplace of": "was born in",
        "teacher of": "was taught by",
        "employer of": "works for",
        "river of": "lies on the river",
        "seat of": "has its seat in",
    }
    for seed in range(8):
        task = tasks.generate(random.Random(seed), request)
        assert len(task.documents) == len({one.title for one in task.documents}) == 20
        everything = " ".join(one.text for one in task.documents)
        if style == "letters":
            *relations, name = task.question.split()
            for letter in reversed(relations):
                (name,) = re.findall(rf"\b{name}{letter}([A-Z])\b", everything)
        else:
            asked = task.question.removeprefix("Name ").removesuffix(".")
            steps = re.findall(r"the (\w+ of) ", asked)
            name = asked.rpartition(" of ")[2]
            for step in reversed(steps):
                (name,) = re.findall(rf"{name} {phrases[step]} ([^.]+)\.", everything)
            assert f"also known as {task.answers[1]}." in everything
        assert len(set(steps if style == "names" else relations)) >= 1
        assert name == task.answers[0]
        for number in task.supporting:
            assert number in tasks.best(task.documents[number].title, task.corpus, 2)


@pytest.mark.parametrize("style", ["names", "letters"])
def test_questions_name_no_answer_and_chains_repeat_nothing(style):
    for seed in range(200):
        task = tasks.generate(random.Random(seed), tasks.Request(3, 20, 3, style, None))
        words = f" {tasks.normalised(task.question)} "
        assert not any(f" {tasks.normalised(answer)} " in words for answer in task.answers)
        titles = [task.documents[one].title for one in task.supporting]
        assert len({*titles, task.answers[0]}) == 4


def followed(task, results):
    """Return the name at the end of the chain, read from what honest searches find alone."""

    def searched(query, fits):
        texts = [task.documents[n].text for n in tasks.best(query, task.corpus, results)]
        (text,) = (one for one in texts if fits(one))
        return text

    name = task.question.rpartition(" of ")[2].removesuffix(".")
    for word in reversed(re.findall(r"the (\w+) of ", task.question)):
        here = searched(name, lambda text, name=name: name in text.split(".")[0])
        same = searched(word, lambda text, word=word: re.search(rf"\b{word}\b", text))
        (told,) = set(re.findall(r"\w+", same)) - {
            *(word, "means", "the", "same", "as", "is", "another"),
            *("word", "for", "Some", "say", "instead", "of"),
        }
        found = re.findall(
            rf"The {told} of \w+ \w+ is (\w+ \w+)\.|has (\w+ \w+) as its {told}\.|"
            rf"As {told}, \w+ \w+ has (\w+ \w+)\.|(\w+ \w+) is the {told} of",
            here,
        )
        (name,) = (one for groups in found for one in groups if one)
    return name


@settings(max_examples=20)
@given(
    seed=st.integers(0, 10**6),
    hops=st.integers(1, 8),
    documents=st.integers(40, 200),
    split=st.sampled_from(SPLITS),
)
def test_questions_in_drawn_words_are_answered_by_honest_searches(seed, hops, documents, split):
    task = tasks.generate(
        random.Random(seed), tasks.Request(hops, documents, 3, "drawn", split).checked()
    )
    assert split_of(tasks.content_of(task)) == split
    assert len({one.title for one in task.documents}) == len(task.documents) == documents
    assert followed(task, 3) in task.answers
    assert not tasks.names_answer(task.question, task)
    names = re.findall(r"([A-Z]\w+ \w+) is also called (\w+ \w+) or (\w+ \w+)\.", str(task))
    assert len({name for three in names for name in three}) == 3 * (documents - 8)
    relations = set(re.findall(r"the (\w+) of ", task.question))
    assert len(task.supporting) == len(set(task.supporting)) == hops + len(relations)


def test_searching_for_the_question_does_not_lead_to_drawn_answers():
    """Among 1,000 documents: it finds where the chain begins and the words, and no more."""
    for seed in range(5):
        task = tasks.generate(
            random.Random(seed), tasks.Request(5, 1000, 2, "drawn", "test").checked()
        )
        hits = set(tasks.best(task.question, task.corpus, 20))
        chain = [n for n in task.supporting if " " in task.documents[n].title]
        assert chain[0] in hits
        assert len(hits & set(chain[1:])) <= 1


def test_aliases_belong_to_one_entity():
    for seed in range(20):
        task = tasks.generate(random.Random(seed), tasks.Request(1, 64, 3, "names", None))
        found = re.findall(r"also known as ([^.]+)\.", " ".join(d.text for d in task.documents))
        assert len({*map(tasks.normalised, found)}) == 64


CASES = json.loads(Path(__file__).with_name("answers.json").read_text("utf-8"))


def started(**kwargs):
    env = pettingllms.make("search_v0", checks=False, results=1, **kwargs)
    env.reset(seed=0, options={"level": LINE})
    return env


def parts(env, agent):
    return env.infos[agent]["reward_parts"]


@pytest.mark.parametrize("level", [None, *SearchEnv.difficulties.names])
def test_the_oracle_answers_after_as_many_searches_as_documents_are_needed(level):
    env = pettingllms.make("search_v0", checks=False, difficulty=level)
    for seed in range(3):
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
    level = json.loads(LINE) | {"question": "Is it old?"}
    said = [("yes", "no", False), ("yes", "Yes.", True), ("Nothing", "nothing", True)]
    said += [("Thomas More", "Thomas More", True), ("More", "more", True), ("More", "More.", True)]
    for answer, text, success in said:
        env.reset(options={"level": json.dumps(level | {"answers": [answer]})})
        env.step("#### Sorn")
        env.step(f"#### {text}")
        assert all(env.terminations.values())
        assert env.infos["answerer_0"]["success"] == success
    env.reset(options={"level": json.dumps(level | {"answers": ["More"]})})
    for agent in ("searcher_0", "answerer_0"):
        env.step(env.scripted_action(agent, "oracle", random.Random(0)))
    assert env.turn == 1, "who has not found what is needed asks for another search"


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


def test_all_documents_found_count_in_any_order():
    def key_after(*queries):
        env = started().unwrapped
        for query in queries:
            env.step(f"#### {query}")
            env.step("#### more")
        return env.state_key()

    key = key_after("mills founded", "born")
    assert key == key_after("was born", "orvan mills founded")
    assert key != key_after("mills founded", "town"), "of no use, and read"
    assert key != key_after("mills founded"), "turns differ"
