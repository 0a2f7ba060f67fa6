"""What `blame` and `crossplay` have found, on their pages."""

import json
from pathlib import Path

import pytest

from pettingllms.viewer import ViewerError, write_view

FILES = json.loads(Path(__file__).with_name("files.json").read_text(encoding="utf-8"))


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
