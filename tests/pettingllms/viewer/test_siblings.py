"""What pages show of a decision's candidates, and what blame and cross-play have found."""

import json
from pathlib import Path

import pytest

import pettingllms
from pettingllms.types import ParseError
from pettingllms.viewer import ViewerError, write_view

ENV = {"size": 5, "team": "single"}
FILES = json.loads(Path(__file__).with_name("files.json").read_text(encoding="utf-8"))


@pytest.fixture
def alike(training, write):
    """A run of one decision: candidates 1, 3 and 4 are identical, 3 was taken; 2 is another one."""
    same, other = write.candidate("go up now", 1.0, 0.5), write.candidate("go left", 0.0, -1.5)
    other |= {"value": 0.25, "continuation": -2.0}
    decision = write.decision("planner_0", 0, [same, other, same, same], 2) | {"value": 0.125}
    return training([write.tree(1, 0, [decision], returns={"planner_0": 1.0})])


def test_identical_candidates_are_one_with_a_count(browser, page, alike):
    browser.open(page(alike), "#tab=episodes")
    assert browser.count(".tree .dot") == 2
    assert browser.text(".tree .count") == "\u00d73"
    assert browser.count(".candidates tbody tr") == 2
    assert browser.text(".candidates tr.taken td").startswith("3 \u00d73")
    assert (
        browser.js("document.querySelector('.candidates tr.taken td').title")
        == "identical: 1, 3, 4"
    )
    browser.press("ArrowDown")
    assert browser.text(".completion") == "go left"
    browser.press("ArrowDown", "ArrowUp")
    assert browser.text(".completion") == "go up now"
    browser.open(page(alike), "#k=3")
    assert browser.js("document.querySelector('.dot.selected').dataset.k") == "2"


def test_the_table_shows_the_whole_answer(browser, page, training, write):
    long = "so " * 300 + '#### ["U", "L"]'
    code = "First.\n```python\nprint(7)\n```\nThat is all."
    decisions = [write.decision("planner_0", 0, [write.candidate(t) for t in (long, code, "")])]
    browser.open(page(training([write.tree(1, 0, decisions)])), "#tab=episodes")
    shown = browser.texts(".action span:first-child")
    assert shown[0].endswith('#### ["U", "L"]')
    assert shown[1:] == ["print(7)", "(nothing)"]


def test_the_difference_between_two_siblings(browser, page, alike):
    browser.open(page(alike), "#tab=episodes")
    assert browser.count(".comparison") == 0
    browser.press("d")
    browser.until("document.querySelector('.comparison')")
    assert browser.text(".comparison h4") == "From 3 to 2"
    assert browser.text(".comparison .text") == "go up nowleft"
    assert browser.text(".comparison del") == "up now"
    assert browser.text(".comparison ins") == "left"
    assert "reward+1 \u2192 0" in browser.text(".comparison .facts")
    assert browser.js("location.hash.includes('c=1')")
    browser.press("d")
    browser.until("!document.querySelector('.comparison')")
    browser.press("ArrowDown", "d")
    browser.until("document.querySelector('.comparison h4')?.textContent === 'From 2 to 3'")


@pytest.mark.parametrize(
    ("one", "other"),
    [("", ""), ("", "a"), ("a b c", "a c"), ("x\n" * 3000, "y\n" * 3000), ("a" * 9000, "b" * 9000)],
)
def test_a_difference_leads_from_one_text_to_the_other(browser, page, training, write, one, other):
    candidates = [write.candidate(one, 0.5, 1.0), write.candidate(other, 0.25, -1.0)]
    run = training([write.tree(1, 0, [write.decision("planner_0", 0, candidates)])])
    browser.open(page(run), "#k=0&c=1")
    for mark, text in (("ins", one), ("del", other)):
        shown = browser.js(
            f"[...document.querySelectorAll('.comparison .text > :not({mark})')]"
            ".map((e) => e.textContent).join('')"
        )
        assert shown == text


def test_tokens_are_shown_on_demand(browser, page, alike):
    browser.open(page(alike), "#tab=episodes")
    assert browser.text(".tokens summary") == "9 tokens"
    assert browser.count(".token") == 0
    browser.js("document.querySelector('.tokens').open = true")
    browser.until("document.querySelectorAll('.token').length === 9")
    assert browser.text(".token-box") == "go up now"
    levels = "[...document.querySelectorAll('.token')].map((e) => Number(e.dataset.level))"
    assert browser.js(levels)[:4] == [0, -1, -2, -3]
    browser.click('.token[data-i="3"]')
    readout = browser.text(".readout")
    assert readout.startswith('token 4 of 9 "u" \u00b7 log-probability \u22120.3 (74.1 %)')
    assert readout.endswith("entropy 0.6 nats \u00b7 advantage +0.5")
    browser.press("ArrowRight")
    assert browser.text(".readout").startswith("token 5 of 9")
    for figure, level in (("entropy", 5), ("advantage", 5)):
        browser.js(
            f"(() => {{ const s = document.querySelector('.tokens select'); s.value = '{figure}';"
            "s.dispatchEvent(new Event('change')); })()"
        )
        assert browser.js(levels)[6] == level


def test_all_figures_of_a_credit_are_shown(browser, page, alike):
    browser.open(page(alike), "#k=1")
    assert browser.text(".decision > .facts") == "temperature1value0.125"
    head = browser.texts(".candidates th")
    assert head[-2:] == ["value", "continuation"]
    assert browser.text(".candidates tr.selected").endswith("0.25\u22122")
    assert "value0.25continuation\u22122" in browser.text(".words .facts")


@pytest.fixture
def moves(training, write):
    """A run of one followed move, with siblings that go elsewhere, cannot be read, or ran code."""
    env = pettingllms.make("plan_path_v0", **ENV)
    env.reset(seed=0)
    texts = ['#### ["U"]', '#### ["D"]', "no move", '```python\n1\n```\n#### ["L"]', '#### ["R"]']
    rewards, errors = [], []
    for text in texts:
        fork = env.fork()
        fork.step(text)
        rewards.append(fork.rewards["planner_0"])
        errors.append(fork.infos["planner_0"]["parse_error"])
    rewards[4] += 1  # recorded by another version of the environment: not shown
    candidates = [
        write.candidate(text, reward, parse_error=error)
        for text, reward, error in zip(texts, rewards, errors, strict=True)
    ]
    assert isinstance(env.unwrapped.parse("planner_0", "no move"), ParseError)
    decision = write.decision("planner_0", 0, candidates, 1, str(env.observe("planner_0")))
    tree = write.tree(1, 0, [decision], returns={"planner_0": 0.0}) | {
        "initial_state_hash": env.unwrapped.state_hash(),
        "env": ENV,
    }
    return training([tree])


def test_every_sibling_has_its_board_and_its_action(browser, moves, tmp_path):
    path = write_view(moves, tmp_path / "view.html").path
    browser.open(path, "#tab=episodes")
    assert browser.count(".siblings svg.board") == 3
    actions = browser.texts(".action span:first-child")
    assert actions == ["U", "D", "no move", "1", '#### ["R"]']
    browser.press("ArrowUp")
    players = browser.js(
        "[...document.querySelectorAll('.boards .player, .siblings .player')]"
        ".map((e) => [e.getAttribute('cx'), e.getAttribute('cy')].join())"
    )
    before, after, *siblings = [*players[-2:], *players[:-2]]
    assert after == siblings[0]
    assert siblings[2] == before, "what cannot be read moves nothing"
    assert len(set(siblings)) > 1


def test_reasoning_and_served_model_of_an_evaluation(browser, page, tmp_path):
    run = tmp_path / "evaluation"
    run.mkdir()
    (run / "run.json").write_text(json.dumps(FILES["evaluation"]))
    (run / "episodes.jsonl").write_text(json.dumps(FILES["episode"]) + "\n")
    browser.open(page(run), "#tab=episodes")
    assert browser.text(".decision h3").endswith("played by openai:x, answered by served-7b")
    assert browser.text(".reasoning summary") == "Reasoning, 13 characters"
    assert browser.text(".reasoning .text") == "Hm <b>so</b>."


@pytest.fixture
def judged(tmp_path):
    """Return a function that writes the folder of `pettingllms blame`."""

    def judged(measure="success", **changes):
        settings = FILES["blame"]["settings"] | {"measure": measure}
        data = {**FILES["blame"], "settings": settings, **changes}
        (tmp_path / "blame.json").write_text(json.dumps(data))
        return tmp_path

    return judged


@pytest.mark.parametrize("measure", ["success", "return"])
def test_blame_shows_who_lost_and_leads_to_the_answer(browser, judged, measure):
    folder = judged(measure)
    browser.open(write_view(folder, folder / "view.html").path)
    text = browser.js("document.getElementById('overview').innerText")
    assert text.count("Lost by answer 1.") == 2
    assert text.count("lost it") == 2
    assert "a_0 said <b>this</b>" in text
    assert "75 [55, 95] points" in text if measure == "success" else "points" not in text
    browser.js("[...document.querySelectorAll('.blamed a')].at(-1).click()")
    browser.until("document.body.dataset.tab === 'episodes'")
    browser.until("document.querySelector('#detail h3')?.innerText.includes('b_0')")
    shown = browser.js("document.getElementById('detail').innerText")
    assert "missed\n0.5" in shown
    assert "advantage\n\u22120.25" in shown


def test_blame_of_another_version_is_refused(judged):
    folder = judged(version=2)
    with pytest.raises(ViewerError, match="version 2"):
        write_view(folder, folder / "view.html")


def test_crossplay_shows_a_matrix(browser, tmp_path):
    for name in ("run", "crossplay"):
        (tmp_path / f"{name}.json").write_text(json.dumps(FILES[name]))
    browser.open(write_view(tmp_path, tmp_path / "view.html").path)
    text = browser.js("document.getElementById('overview').innerText")
    assert "Clearly different conventions: x and y." in text
    assert "a of the row, b of the column" in text
    rows = browser.js("[...document.querySelectorAll('.heat tr')].map((row) => row.innerText)")
    assert [row.split() for row in rows[1:]] == [
        ["x", "100.0", "%", "0.0", "%"],
        ["y", "31.0", "%", "90.0", "%"],
    ]
    (tmp_path / "crossplay.json").write_text("{}")
    summary = write_view(tmp_path, tmp_path / "view.html")
    assert any("crossplay.json: cannot be shown" in notice for notice in summary.notices)
