"""Several runs on one page."""

import json
import os

import pytest

from pettingllms.cli.app import run as command
from pettingllms.evaluation import run_folder
from pettingllms.viewer import ViewerError, runs_below, write_overview


@pytest.fixture
def two(training, tmp_path):
    """A folder of two training runs of different size; returns the folder."""
    for number, (name, rate) in enumerate((("first", 0.1), ("second", 0.2))):
        metrics = [{"step": n, "rollout/success": n * rate / 9} for n in range(1000)]
        run = training([], metrics, name=name)
        text = (run / "config.toml").read_text()
        more = f'output_dir = "{name}"\nnum_steps = 999\n[optimizer]\nlearning_rate = {rate}\n'
        (run / "config.toml").write_text(more + text)
        variant = {"success": rate, "success_low": 0.0, "success_high": 1.0, "num_turns": 3}
        variant |= {"num_episodes": 8, "num_failed": 0, "failures": {}}
        lines = [
            {"step": n, "variants": {"greedy": variant | {"success": rate * n}}}
            for n in (0, number + 1)
        ]
        (run / "evaluations.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    return tmp_path


def test_an_evaluation_that_was_stopped_is_marked(browser, tmp_path, monkeypatch):
    common = ["eval", "plan_path_v0", "-e", "size=5", "-n", "3", "--swap"]
    common += ["-p", "tool=oracle", "-p", "planner=greedy", "--out"]
    assert command([*common, str(tmp_path / "whole")]) == 0
    play = run_folder.play_episode

    async def play_but_the_first(env, spec, *rest):
        if spec.level == 0:
            raise RuntimeError("no oil")
        return await play(env, spec, *rest)

    monkeypatch.setattr(run_folder, "play_episode", play_but_the_first)
    assert command([*common, str(tmp_path / "stopped")]) == 1
    overview = write_overview(runs_below(tmp_path), tmp_path / "runs.html")
    assert "main: 2, swapped: 2. 2 failed: " in "".join(overview.notices)
    browser.open(overview.path)
    rows = browser.texts(".variant tbody tr")
    shown = {row.partition("plan_path")[0]: row for row in rows}
    assert shown["stopped"].count("incomplete: 2 of 3 episodes2 failed: RuntimeError: no oil") == 2
    assert "incomplete" not in shown["whole"]


def test_the_page(browser, two):
    path = write_overview(runs_below(two), two / "runs.html").path
    browser.open(path)
    first, second = browser.texts(".variant tbody tr")[:2]
    assert first.startswith("firstplan_path_v0999 of 999")
    assert "40.0 % after train step 2" in second
    assert browser.texts(".differences tbody tr") == ["optimizer.learning_rate0.10.2"]
    links = browser.js("[...document.querySelectorAll('a')].map((a) => a.getAttribute('href'))")
    assert links == ["first/view.html", "second/view.html"]
    browser.until("document.querySelectorAll('.chart').length === 3")
    colours = browser.js(
        "[...document.querySelectorAll('.key')].map((e) => e.textContent.split(' ')[0] + "
        "e.style.getPropertyValue('--key'))"
    )
    drawn = [one for one in colours if one.startswith("first")]
    assert len(drawn) == 3
    assert len(set(drawn)) == 1, "a run has one colour in every chart"
    assert browser.texts(".chart .step")[-1] == "train step 999"
    for scheme in ("light", "dark"):
        browser.scheme(scheme)
        for width in (1280, 390):
            browser.size(width)
            assert browser.js("document.documentElement.scrollWidth") <= width
    assert [url for url in browser.requests() if not url.startswith(path.as_uri())] == []


def test_seeds_are_one_curve_and_the_table_is_sorted_and_searched(browser, two):
    for number, name in enumerate(("first", "second")):
        config = two / name / "config.toml"
        text = config.read_text().partition("[optimizer]")[0]
        config.write_text(f"seed = {number}\n{text}[env]\nid = 'plan_path_v0'\n")
    browser.open(write_overview(runs_below(two), two / "runs.html").path)
    means = [key for key in browser.texts(".chart .key") if key.startswith("one")]
    assert means[0] == "one configuration (2 seeds) 40.0 % (40.0 % to 40.0 %)"
    browser.js("document.querySelectorAll('.runs th button')[5].click()")
    assert [row[:6] for row in browser.texts(".runs tbody tr")] == ["second", "firstp"]
    browser.js(
        "(() => { const e = document.querySelector('.runs input'); e.value = 'FIRST';"
        "e.dispatchEvent(new Event('input')); })()"
    )
    assert len(browser.texts(".runs tbody tr")) == 1
    assert browser.texts(".differences th") == ["key", "first"]


@pytest.mark.parametrize("name", [b"a#b", b"a?b=c", b"50%41", b"c:d", b"e f", b"\xffg"])
def test_links_lead_to_folders_of_any_name(browser, two, name):
    folder = (two / "second").rename(two / os.fsdecode(name))
    browser.open(write_overview([two / "first", folder], two / "runs.html").path)
    links = browser.js("[...document.querySelectorAll('a')].map((a) => a.href)")
    assert links == [(run / "view.html").as_uri() for run in (two / "first", folder)]


def test_a_run_may_be_evaluated_by_sampling_alone(browser, two):
    evaluations = two / "second" / "evaluations.jsonl"
    evaluations.write_text(evaluations.read_text().replace("greedy", "sampled"))
    browser.open(write_overview(runs_below(two), two / "runs.html").path)
    assert "40.0 % after train step 2" in browser.texts(".variant tbody tr")[1]


def test_command_writes_every_page(two, capsys):
    assert command(["view", str(two)]) == 0
    for name in ("first/view.html", "second/view.html", "runs.html"):
        assert (two / name).is_file()
    assert "runs.html: 2 runs" in capsys.readouterr().out
    page = (two / "runs.html").read_bytes()
    names = [str(two / name) for name in ("first", "second")]
    assert command(["view", *names, "--out", str(two / "x.html")]) == 0
    assert (two / "x.html").read_bytes() == page


def test_what_is_no_run_is_refused(two, capsys):
    (two / "third").mkdir()
    with pytest.raises(ViewerError, match="is not a run"):
        write_overview([two / "third"], two / "runs.html")
    assert [path.name for path in runs_below(two)] == ["first", "second"]
    assert runs_below(two / "first") == []
    (two / "file.jsonl").write_text("")
    assert command(["view", str(two / "first"), str(two / "file.jsonl")]) == 2
    assert "folders, when several are named" in capsys.readouterr().err
