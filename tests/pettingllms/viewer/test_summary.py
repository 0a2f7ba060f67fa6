"""What the page of a run opens on: computed from recorded episodes, then drawn."""

import json

import pytest

from pettingllms.viewer.runs import open_run
from pettingllms.viewer.summary import RunSummary, training_table

BOARD = "#####\n#P.G#\n#####"


@pytest.fixture
def run(training, write):
    """A run that learnt: four trees, and its held-out level before and after."""

    def answer(agent, turn, *candidates, chosen=0):
        return write.decision(agent, turn, list(candidates), chosen, BOARD)

    bad = write.candidate("down", -0.5, -0.7)
    good = write.candidate("up", 0.5, 0.9)
    best = write.candidate("left", 1.0, 1.3, success=True)
    broken = write.candidate("??", -0.1, -0.7, parse_error="17 is not a move, '??' neither")
    longest = write.candidate("?" * 9, -0.1, -0.7, parse_error="cut", finish_reason="length")
    untrained = write.candidate("down", -0.5)
    solved = {"success": True, "returns": {"tool_0": 1.0}}
    trees = [
        write.tree(0, 0, [answer("tool_0", n, untrained) for n in range(9)], tree_set="held_out"),
        write.tree(0, 1, [], success=True, tree_set="held_out"),
        write.tree(1, 2, [answer("tool_0", 0, bad, best)], **solved),
        write.tree(
            1,
            3,
            [answer("tool_0", 0, broken), answer("planner_0", 0, bad, best, chosen=1)],
            **solved,
        ),
        write.tree(1, 4, [answer("tool_0", n, longest, broken, chosen=1) for n in range(3)]),
        write.tree(1, 5, [answer("tool_0", 0, bad, good), answer("planner_0", 0, good)]),
        write.tree(2, 0, [answer("tool_0", 0, best)], success=True, tree_set="held_out"),
        write.tree(2, 1, [], success=True, tree_set="held_out"),
    ]
    folder = training(trees, [{"step": n, "role/tool/reward": n} for n in range(3)])
    config = folder / "config.toml"
    config.write_text("num_steps = 2\n" + config.read_text())
    lines = [
        {"step": step, "variants": {name: figures(value) for name, value in variants.items()}}
        for step, variants in (
            (0, {"greedy": 0.25, "untouched:greedy": 0.0, "scripted:oracle": 1.0}),
            (1, {"greedy": 0.5}),
            (2, {"greedy": 0.75}),
        )
    ]
    (folder / "evaluations.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return folder


def figures(success):
    """Return figures of a held-out evaluation in which two of ten rollouts failed."""
    values = {"success": success, "success_low": max(0, success - 0.1), "success_high": 1.0}
    failed = {"num_episodes": 10, "num_failed": 2, "failures": {"the engine coughed": 2}}
    return {**values, **failed, "num_turns": 3.0}


@pytest.fixture
def summary(run):
    """The summary of the run, as the page takes it."""
    opened = open_run(run)
    found = RunSummary(opened)
    for episode in opened.episodes():
        found.add(episode)
    return json.loads(json.dumps(found.to_json()))


def test_success_at_every_milestone(summary):
    table = summary["milestones"]
    assert table["columns"] == ["before training", "after warm start", "after training"]
    shares = {r["name"]: [cell["success"] for cell in r["cells"]] for r in table["rows"]}
    assert shares == {"policies, greedy": [0.0, 0.25, 0.75], "scripted policy oracle": [1.0]}
    cell = table["rows"][0]["cells"][2]
    assert (cell["num_episodes"], cell["num_expected"]) == (8, 10)


def test_milestones_of_a_run_that_has_just_begun():
    columns = {name: [value] for name, value in figures(0.5).items()}
    columns |= {"step": [0], "num_expected": [10]}
    table = training_table({"sampled": columns}, 5)
    assert table["columns"] == ["before training"]
    later = {name: column * 2 for name, column in columns.items()} | {"step": [0, 3]}
    table = training_table({"sampled": later}, 5)
    assert table["columns"] == ["before training", "after train step 3"]
    assert training_table({}, 5) == {"columns": [], "rows": []}


def test_decisions_of_three_kinds_in_three_episodes(summary):
    places = {
        one["title"]: (one["episode"], one["decision"], one["candidate"], one["other"])
        for one in summary["instructive"]
    }
    assert places == {
        "A role saves another": (3, 1, 1, None),
        "A failure that repeats": (4, 0, 1, None),
        "The answers differ most": (2, 0, 1, 0),
    }
    texts = " ".join(one["text"] for one in summary["instructive"])
    assert "tool_0 could not be read; planner_0 solved the level" in texts
    assert "same bad answer 3 times" in texts
    assert "from \N{MINUS SIGN}0.70 to +1.30" in texts


def test_the_level_that_changed_is_shown_twice(summary):
    assert summary["pair"] == [
        {"name": "held-out, after warm start", "episode": 0},
        {"name": "held-out, after training", "episode": 6},
    ]


def test_failures_with_causes_counts_and_places(summary):
    table = summary["failures"]
    names = ("held-out, after warm start", "in training", "held-out, after training")
    assert tuple(table["columns"]) == names
    rows = {(row["of"], row["cause"]): row for row in table["rows"]}
    alike = rows["tool", "unreadable: N is not a move, '…' neither"]
    assert (alike["counts"], alike["totals"]) == ([0, 4, 0], [9, 11, 1])
    assert alike["place"] == [3, 0, 0]
    limit = rows["tool", "truncated at the token limit"]
    assert limit["counts"] == [0, 3, 0], "and not as unreadable, too"
    assert rows["episodes", "out of turns"]["counts"] == [1, 2, 0]
    assert len(rows) == 3
    assert table["num_others"] == 0


def test_the_page_opens_on_it_and_every_place_is_one_press_away(browser, page, run):
    path = page(run)
    browser.open(path)
    browser.until("document.querySelectorAll('#overview .card').length === 5")
    assert browser.text(".milestones b") == "0.0 %"
    mark = "incomplete: 8 of 10 episodes2 failed: the engine coughed"
    assert browser.text(".milestones .incomplete") == mark
    for size in (390, 1280):
        browser.size(size)
        assert browser.js("document.getElementById('overview').scrollWidth") <= size
    browser.js("document.querySelector('.card .more a').click()")
    browser.until("document.querySelector('.dot.selected')?.dataset.n === '1'")
    assert browser.text("#detail h2").startswith("training \u00b7 step 1 \u00b7 episode 3")
    browser.js("history.back()")
    browser.until("!document.getElementById('overview').hidden")
    browser.open(path, "#e=2")
    assert browser.js("document.getElementById('overview').hidden"), "older addresses hold"
