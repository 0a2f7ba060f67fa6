"""The page in a real browser."""

import json

import pytest
from browser import axe

HOSTILE = (
    "<script>window.hurt = 1</script>",
    "</script><script>window.hurt = 2</script>",
    "<!-- <script> --> ]]> <img src=x onerror='window.hurt = 3'>",
    "```python\n</pre><svg onload='window.hurt = 4'>\n```",
    "{policy}{style}{script}<!-- data -->&lt;&amp;",
)
UNSEEN = "nul \0 escape \x1b[31m lone \ud800 and \udfff reorder \u202e end \u2028 \r."


@pytest.fixture
def three(training, write):
    """A run of three episodes: solved in two turns, unsolved, and one that failed."""
    good, bad = write.candidate("up", 1.0, 0.7), write.candidate("down", -0.5, -0.7)
    broken = write.candidate("??", -0.1, -0.7, parse_error="no list of moves")
    solved = write.candidate("left", 2.0, 1.2, success=True)
    board = "Go.\n\nTurn {}.\n#####\n#P.G#\n#####"
    decisions = [
        write.decision("tool_0", 0, [good, bad, broken], 1, board.format(1)),
        write.decision("planner_0", 0, [bad, good], 1, board.format(1)),
        write.decision(
            "planner_0", 1, [bad, broken, solved], 2, board.format(2).replace("P.", ".P")
        ),
    ]
    failed = write.tree(2, 0, []) | {"end": "server", "cause": "<b>no</b> memory"}
    trees = [
        write.tree(1, 0, decisions, success=True, returns={"tool_0": 1.5, "planner_0": 2.5}),
        write.tree(1, 1, [write.decision("tool_0", 0, [broken], 0)], returns={"tool_0": -0.1}),
        failed | {"outcome": None},
    ]
    metrics = [
        {"step": n, "rollout/success": n / 30, "role/tool/reward": -n, "role/planner/reward": n}
        for n in range(30)
    ]
    return training(trees, metrics)


def test_a_run_opens_on_its_newest_held_out_episode_that_failed(browser, page, training, write):
    trees = [
        write.tree(step, number, [], is_solved, tree_set="held_out")
        for number, (step, is_solved) in enumerate([(0, False), (2, True), (2, False)])
    ]
    browser.open(page(training([write.tree(2, 0, []), *trees])), "#tab=episodes")
    assert browser.js("location.hash").endswith("e=3")


def test_shows_tree_rewards_branch_board_and_prompt(browser, page, three):
    browser.open(page(three), "#tab=episodes")
    assert browser.count("#list .row") == 3
    assert browser.js("location.hash").endswith("e=2"), "the newest that failed"
    browser.open(page(three), "#tab=episodes&e=0")
    assert browser.count(".tree .dot") == 3 + 2 + 3
    assert browser.count(".tree .dot.taken") == 3
    assert browser.count(".tree .edge") == 2 + 3
    assert browser.count(".tree .edge.taken") == 2
    assert browser.text(".candidates tr.taken .action span") == "down"
    assert browser.text(".words .facts").startswith("reward\u22120.5team\u22120.5local0")
    assert browser.count(".strip svg.board.maze") == 2
    assert browser.count(".boards svg.board .player") == 1
    assert "Turn 1." in browser.text(".prompt")
    assert browser.text(".words details .text") == "Go."


def test_a_decision_whose_candidates_all_failed(browser, page, training, write):
    decisions = [
        write.decision("tool_0", 0, [write.candidate("x")]),
        write.decision("tool_0", 1, [], None),
    ]
    failed = {"end": "server", "cause": "no <b>memory</b>", "outcome": None}
    browser.open(page(training([write.tree(1, 0, decisions) | failed])), "#n=1")
    assert browser.text("#detail .notice") == "The rollout failed: no <b>memory</b>"
    assert "All candidates failed." in browser.text(".decision")
    browser.press("ArrowUp", "ArrowDown", "ArrowLeft")
    assert browser.text(".completion") == "x"


def test_boards_of_every_game_and_what_is_no_board(browser, page, training, write):
    texts = {
        "boxes": "Turn 1.\n  ####\n###  #\n#@$. #\n######\nPush.",
        "boxes of today": "Turn 1.\n  0 1 2 3\n0 # # # #\n1 # @ $ .\n2 # _ _ #\nPush.",
        "maze": "  0 1 2\n0 P . #\n1 # . .\n2 . . G\n#### path(1, 2)",
        "numbers": "1 2 0 0\n0 0 1 2\n2 1 0 0\n0 0 2 1",
        None: "Input\n3 4\n1 2 3\n4 5 6\n-\n#####\n| x |\n#### []",
    }
    trees = [
        write.tree(1, n, [write.decision("planner_0", 0, [write.candidate("x")], 0, text)])
        for n, text in enumerate(texts.values())
    ]
    path = page(training(trees))
    for number, kind in enumerate(texts):
        browser.open(path, f"#e={number}")
        drawn = browser.js("document.querySelector('.boards svg')?.dataset.kind ?? null")
        assert drawn == (kind and kind.split()[0])
        assert browser.text(".prompt") == texts[kind]
    browser.open(path, "#e=0")
    assert browser.count(".boards .box") == browser.count(".boards .goal") == 1
    assert browser.count(".boards .wall") == 4 + 3 + 1 + 1 + 1 + 6
    browser.open(path, "#e=3")
    assert browser.count(".boards .number") == 8


def test_needs_nothing_but_itself(browser, page, three):
    path = page(three)
    browser.open(path, "#tab=episodes")
    browser.press("2", "1", "3")
    assert [url.partition("#")[0] for url in browser.requests()] == [path.resolve().as_uri()]


@pytest.mark.parametrize("text", [*HOSTILE, UNSEEN])
def test_texts_are_shown_and_never_run(browser, page, training, write, text):
    decisions = [
        write.decision(
            f"tool{text}_0", 0, [write.candidate(text, parse_error=text)], 0, f"{text}\n\n{text}"
        ),
        write.decision("planner_0", 0, [write.candidate(text)], 0, text),
    ]
    returns = {f"tool{text}_0": 1.0, "planner_0": 2.0}
    run = training(
        [write.tree(1, 0, decisions, returns=returns) | {"cause": text}],
        [{"step": 1, f"role/{text}/x": 1.0}, {"step": 2, f"role/{text}/x": 2.0}],
    )
    (run / "config.toml").write_text(
        f"[env]\nid = {json.dumps(text.encode('utf-8', 'replace').decode())}\n"
    )
    browser.open(page(run), "#tab=episodes")
    shown = text.replace("```python\n", "").replace("\n```", "")
    for code in ("\0", "\x1b", "\ud800", "\udfff", "\u202e", "\u2028", "\r"):
        shown = shown.replace(code, f"\\u{ord(code):04x}")
    assert shown in browser.text(".completion")
    assert shown in browser.text(".error").replace("```python\n", "").replace("\n```", "")
    browser.press("1")
    browser.until("document.querySelector('#overview .failures')")
    browser.press("3")
    browser.until("document.querySelector('#figures .chart')")
    browser.js("document.querySelectorAll('details').forEach((box) => { box.open = true; })")
    browser.until("document.querySelectorAll('.chart').length > 2")
    browser.press("4")
    assert browser.js("window.hurt") is None
    assert browser.count("img") == 0
    assert browser.count("script:not([type])") == 1


def test_a_page_without_the_policy_would_not_run_texts_either(browser, page, training, write):
    decisions = [
        write.decision("tool_0", 0, [write.candidate(text) for text in HOSTILE], 0, HOSTILE[0])
    ]
    path = page(training([write.tree(1, 0, decisions)]))
    head, _, rest = path.read_text(encoding="utf-8").partition('<meta http-equiv="Content-Security')
    path.write_text(head + rest.partition(">")[2], encoding="utf-8")
    browser.open(path, "#tab=episodes")
    browser.press("ArrowDown", "ArrowDown", "ArrowDown", "ArrowDown")
    assert browser.js("window.hurt") is None
    assert browser.count("#detail img") == 0


def test_the_policy_forbids_other_scripts(browser, page, three):
    path = page(three)
    path.write_text(
        path.read_text(encoding="utf-8").replace("</body>", "<script>window.hurt = 1</script>")
    )
    browser.open(path, "#tab=episodes")
    assert browser.js("window.hurt") is None
    assert any("Content Security Policy" in str(problem) for problem in browser.problems())
    browser.events.clear()


def test_filters(browser, page, three):
    path = page(three)

    def labels(fragment):
        browser.open(path, fragment)
        return browser.texts(".row b")

    first, second, third = "step 1 · episode 0", "step 1 · episode 1", "step 2 · episode 0"
    assert labels("#tab=episodes") == [first, second, third]
    assert labels("#ending=solved") == [first]
    assert labels("#ending=unsolved") == [second, third]
    assert labels("#ending=failed") == [third]
    assert labels("#role=planner") == [first]
    assert labels("#min=-0.1") == [first, second]
    assert labels("#min=-0.1&max=0") == [second]
    assert labels("#role=tool&max=-0.3") == [first]
    assert labels("#role=tool&min=-0.3") == [second]
    assert labels("#errors=1") == [second]
    assert labels("#step=2") == [third]
    assert labels("#part=training") == [first, second, third]
    assert labels("#part=held-out") == []
    assert labels("#find=left") == [first]
    assert labels("#find=no-such-text") == []
    assert browser.text("#detail") == "No episode passes the filters."
    assert labels("#sort=worst") == [third, second, first]
    assert labels("#e=0&n=-1&sort=junk&tab=junk&min=junk") == [first, second, third]


def test_filters_by_hand(browser, page, three):
    browser.open(page(three), "#tab=episodes")
    browser.js(
        "(() => { const s = document.querySelector('[name=ending]'); s.value = 'unsolved';"
        "s.dispatchEvent(new Event('change')); })()"
    )
    browser.until("document.querySelectorAll('.row').length === 2")
    assert browser.text("#count") == "2 of 3 episodes"
    assert browser.js("location.hash") == "#tab=episodes&e=2&ending=unsolved"
    browser.press("x")
    browser.until("document.querySelectorAll('.row').length === 3")
    browser.js("document.querySelector('[name=find]').focus()")
    browser.press("l", "e", "f", "t", "Enter")
    browser.until("document.querySelectorAll('.row').length === 1")


def test_a_role_filter_shows_the_decisions_of_the_role(browser, page, three):
    browser.open(page(three), "#role=planner")
    assert browser.count(".tree .dot") == 2 + 3
    assert browser.text("#list .reward") == "+3"


def test_keyboard(browser, page, three):
    browser.open(page(three), "#tab=episodes&e=0")

    def place():
        return browser.js(
            "[document.querySelector('.row[aria-selected=true]').dataset.position,"
            "document.querySelector('.dot.selected')?.dataset.n,"
            "document.querySelector('.dot.selected')?.dataset.k]"
        )

    assert place() == ["0", "0", "1"]  # the branch taken
    browser.press("ArrowUp")
    assert place() == ["0", "0", "0"]
    browser.press("ArrowUp")
    assert place() == ["0", "0", "0"]
    browser.press("Enter")
    assert place() == ["0", "0", "1"]
    browser.press("ArrowRight", "ArrowRight", "ArrowRight")
    assert place() == ["0", "2", "2"]
    browser.press("ArrowLeft", "ArrowUp")
    assert place() == ["0", "1", "0"]
    browser.press("n")
    assert place() == ["1", "0", "0"]
    browser.press("End")
    assert place()[0] == "2"
    browser.press("j", "k", "Home")
    assert place()[0] == "0"
    browser.press("3")
    assert browser.js("document.getElementById('figures').hidden") is False
    browser.press("ArrowRight", "2")
    assert place() == ["0", "0", "1"]
    browser.press("?")
    assert browser.js("document.getElementById('help').open") is True
    browser.press("n", "Escape")
    assert browser.js("document.getElementById('help').open") is False
    assert place()[0] == "0"
    browser.press("/")
    assert browser.js("document.activeElement.name") == "ending"
    browser.press("Escape", "n")
    assert place()[0] == "1"


def test_every_key_of_the_page_is_documented_in_it(browser, page, three):
    browser.open(page(three), "#tab=about")
    keys = browser.texts("#about kbd")
    assert {"n", "j", "p", "k", "Home", "End", "→", "←", "↓", "↑", "Enter", "/"} <= set(keys)
    assert {"x", "1", "2", "3", "4", "t", "?", "Esc"} <= set(keys)


def test_curves(browser, page, three):
    browser.open(page(three), "#tab=figures")
    titles = browser.texts("#figures .chart figcaption")
    assert titles == ["rollout/success", "role/reward"]
    assert browser.texts("#figures .chart .step") == ["train step 29"] * 2
    browser.js("document.querySelectorAll('.plot')[1].focus()")
    browser.press("Home")
    browser.until("document.querySelectorAll('.chart .step')[1].textContent === 'train step 0'")
    browser.press("ArrowRight")
    keys = browser.texts(".chart .key")
    assert keys[1:3] == ["tool \N{MINUS SIGN}1", "planner 1"]


CHOOSE = """((label, value) => {
    const field = [...document.querySelectorAll(".tools label")]
        .find((e) => e.textContent.startsWith(label)).querySelector("input, select");
    if (field.type === "checkbox") field.click(); else field.value = value;
    for (const kind of ["input", "change"]) field.dispatchEvent(new Event(kind));
})"""


def test_a_reader_chooses_axis_smoothing_and_metrics(browser, page, training):
    lines = [
        {
            "step": n,
            "loss/tool/loss": 100.0 if n == 3 else 1.0 * n,
            "rollout/num_completion_tokens": 1000,
            "time/step_s": 90,
        }
        for n in range(1, 5)
    ]
    browser.open(page(training([], lines)), "#tab=figures")

    def reading(label, value=""):
        browser.js(f"{CHOOSE}({json.dumps(label)}, {json.dumps(value)})")
        return browser.texts(".chart .legend")

    assert reading("Metric", "loss") == ["train step 4tool 4"]
    assert reading("Over", "tokens") == ["sampled tokens 4 ktool 4"]
    assert reading("Over", "time") == ["minutes 6tool 4"]
    assert reading("Smoothing", 0.5) != reading("Smoothing", 0)
    assert reading("log axis") == ["minutes 6tool 4"]
    assert browser.js("document.querySelectorAll('canvas').length") == 1
    assert reading("Metric", "no such") == []
    assert browser.text("#figures .hint") == "No metric has this in its name."


def test_what_is_searched_for_is_opened_and_marked(browser, page, three):
    browser.open(page(three), "#find=left")
    assert "left" in browser.text(".completion")
    marked = "r.startContainer.data.slice(r.startOffset, r.endOffset)"
    assert "left" in browser.js(f"[...CSS.highlights.get('found')].map((r) => {marked})")


def test_both_colour_schemes(browser, page, three):
    path = page(three)
    grounds = {}
    for scheme in ("light", "dark"):
        browser.scheme(scheme)
        browser.open(path, "#tab=episodes")
        grounds[scheme] = browser.js("getComputedStyle(document.body).backgroundColor")
    assert len(set(grounds.values())) == 2
    browser.press("t")
    assert browser.js("getComputedStyle(document.body).backgroundColor") == grounds["light"]
    browser.press("t")
    assert browser.js("getComputedStyle(document.body).backgroundColor") == grounds["dark"]


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("width", [1280, 390])
def test_no_tab_keeps_anybody_out(browser, page, three, scheme, width):
    if axe() is None:
        pytest.skip("axe-core cannot be fetched here (npm)")
    path = page(three)
    browser.size(width)
    browser.scheme(scheme)
    for tab in ("overview", "episodes", "figures", "about"):
        browser.open(path, f"#tab={tab}&view=detail")
        assert browser.barriers() == [], tab


@pytest.mark.parametrize("tab", ["episodes", "figures", "about"])
@pytest.mark.parametrize("view", ["list", "detail"])
def test_a_phone_needs_no_scrolling_sideways(browser, page, training, write, view, tab):
    long = "word" * 200
    candidates = [write.candidate(long, k / 7, k / 9) for k in range(8)]
    decisions = [write.decision(f"planner{long}_0", n, candidates, 3, long) for n in range(9)]
    metrics = [{"step": n, f"role/{long}/reward": n, "loss/tool/loss": -n} for n in range(9)]
    run = training(
        [write.tree(1, 0, decisions, returns={f"planner{long}_0": 1.0})], metrics, long[:90]
    )
    browser.size(390, 844)
    browser.open(page(run), f"#view={view}&tab={tab}")
    for box in ("document.documentElement", "document.querySelector('.view:not([hidden])')"):
        assert browser.js(f"{box}.scrollWidth <= 390"), box
    wide = browser.js(
        "[...document.querySelectorAll('#main *')].filter((e) => !e.closest('.tree-box, .table-box,"
        " .strip, svg, .row') && e.getBoundingClientRect().right > 391).map((e) => e.outerHTML)"
    )
    assert wide == []


def test_a_phone_goes_from_list_to_episode_and_back(browser, page, three):
    browser.size(390, 844)
    browser.open(page(three), "#tab=episodes")
    shown = "getComputedStyle(document.querySelector('{}')).display !== 'none'"
    assert browser.js(shown.format("#side"))
    assert not browser.js(shown.format("#detail"))
    browser.click('.row[data-position="1"]')
    browser.until(shown.format("#detail"))
    assert "episode 1" in browser.text("#detail h2")
    browser.click(".back")
    browser.until(shown.format("#side"))
    browser.click('.row[data-position="0"]')
    browser.until(shown.format("#detail"))
    browser.js("history.back()")
    browser.until(shown.format("#side"))


def test_ten_thousand_episodes_open_few_blocks_and_rows(browser, page, training, write):
    trees = (
        write.tree(
            n // 100,
            n % 100,
            [
                write.decision(
                    agent, turn, [write.candidate(f"{agent} {n} {turn}", n / 1e4)], 0, "x" * 99
                )
                for turn in range(2)
                for agent in ("tool_0", "planner_0")
            ],
            success=n % 3 == 0,
            returns={"tool_0": n / 1e4, "planner_0": n / 1e4},
        )
        for n in range(10_000)
    )
    path = page(training(trees))
    browser.open(path, "#tab=episodes")
    num_blocks = browser.count('script[id^="block-"]')
    assert num_blocks > 20
    assert browser.text("#count") == "10,000 episodes"
    assert browser.count(".row") < 60
    assert browser.js("document.body.dataset.blocks") == "1"
    assert browser.count("*") - num_blocks < 1500
    browser.press("End")
    browser.until("document.querySelector('.completion')?.textContent.includes('tool_0 9999 0')")
    assert browser.count(".row") < 60
    assert browser.js("document.body.dataset.blocks") == "2"
    browser.open(path, "#sort=best")
    assert browser.text(".completion").strip() == "tool_0 9999 0"
    browser.open(path, "#find=planner_0 5000 1")
    assert browser.text("#count") == "1 of 10,000 episodes"
    assert browser.js("document.querySelector('.row').dataset.position") == "5000"
