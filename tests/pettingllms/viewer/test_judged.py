"""What `blame` and `crossplay` have found, on their pages."""

import json

import pytest

from pettingllms.viewer import ViewerError, write_view


def figure(value, low, high):
    return {"value": value, "low": low, "high": high}


def step(agent, ended):
    return {
        "agent": agent,
        "observation": "a prompt",
        "action": f"{agent} said <b>this</b>",
        "rewards": {"a_0": 0.0, "b_0": 0.0},
        "reward_parts": {"team": 0.0, "local": 0.0},
        "parse_error": None,
        "success": False,
        "turn": 0,
        "ended": ended,
    }


@pytest.fixture
def judged(tmp_path):
    """Return a function that writes the folder of `pettingllms blame`."""

    def judged(measure="success", **changes):
        unit = figure(1.0, 0.8, 1.0), figure(0.25, 0.1, 0.5), figure(0.0, 0.0, 0.0)
        answers = [
            {
                "index": index,
                "turn": 0,
                "agent": agent,
                "before": unit[index],
                "after": unit[index + 1],
                "drop": figure(drop, drop - 0.2, drop + 0.2),
                "instead": unit[0],
                "missed": figure(0.5, None, None),
            }
            for index, (agent, drop) in enumerate((("a_0", 0.75), ("b_0", 0.25)))
        ]
        blame = {
            "answers": answers,
            "shares": {"a": figure(0.6, 0.4, 0.8), "b": figure(0.1, -0.1, 0.3)},
            "coalitions": [{"kept": ["a"], "value": unit[1]}],
            "top": 0,
            "is_clear": True,
            "verdict": "Lost by answer 1.",
        }
        header = {"id": "g_v0", "kwargs": {}, "options": {}, "seed": 3, "state_hash": "0" * 32}
        steps = [step("a_0", ended=False), step("b_0", ended=True)]
        data = {
            "format": "pettingllms-blame",
            "version": 1,
            "env_id": "g_v0",
            "policies": {"a": "x", "b": "y"},
            "instead": {},
            "settings": {"num_replays": 8, "measure": measure, "seed": 0},
            "players": {"a": {"num_top": 1, "drop": figure(0.75, None, None), "share": None}},
            "episodes": [{"name": n, **header, "blame": blame, "steps": steps} for n in ("p", "q")],
        }
        (tmp_path / "blame.json").write_text(json.dumps({**data, **changes}))
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
    plan = {"env_id": "g_v0", "variants": {"x": {"a": "p", "b": "q"}}}
    run = {"format": "pettingllms-evaluation", "version": 1, "plan": plan}
    (tmp_path / "run.json").write_text(json.dumps(run))
    share = figure(0.5, 0.25, 0.75)
    cells = [
        (None, "x", "x", 1.0),
        (None, "y", "y", 0.9),
        ("a", "x", "y", 0.0),
        ("a", "y", "x", 0.31),
    ]
    data = {
        "format": "pettingllms-crossplay",
        "version": 1,
        "runs": ["x", "y"],
        "cells": [
            {"player": p, "member": m, "team": t, "success": figure(v, 0.0, 1.0)}
            for p, m, t, v in cells
        ],
        "within": share,
        "cross": share,
        "coordination": share,
        "competence": {"a": {"x": share, "y": share}, "b": {"x": share, "y": share}},
        "pairs": [{"runs": ["x", "y"], "cross": share, "coordination": share, "clash": share}],
        "conventions": [["x", "y"]],
    }
    (tmp_path / "crossplay.json").write_text(json.dumps(data))
    browser.open(write_view(tmp_path, tmp_path / "view.html").path)
    text = browser.js("document.getElementById('overview').innerText")
    assert "Different conventions, surely: x and y." in text
    assert "a of the row, b of the column" in text
    rows = browser.js("[...document.querySelectorAll('.heat tr')].map((row) => row.innerText)")
    assert [row.split() for row in rows[1:]] == [
        ["x", "100.0", "%", "0.0", "%"],
        ["y", "31.0", "%", "90.0", "%"],
    ]
    (tmp_path / "crossplay.json").write_text("{}")
    summary = write_view(tmp_path, tmp_path / "view.html")
    assert any("crossplay.json: cannot be shown" in notice for notice in summary.notices)
