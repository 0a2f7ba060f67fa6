"""Pictures of the viewer and of the live table, for README and documents.

    pettingllms-train recipe:plan_path --output-dir runs/random
    pettingllms-train recipe:plan_path --output-dir runs/greedy \
        --algorithm.branch-choice greedy
    python docs/screenshots.py runs/random runs/greedy

Needs Chromium. Of the first run the page and the live table are taken, of several ones the page
that compares them. The pictures lie in docs/assets.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

from pettingllms.viewer import write_overview, write_view
from pettingllms_trainers.runs.recorder import LiveProgress

ROOT = Path(__file__).resolve().parents[1]
ASSETS = ROOT / "docs" / "assets"
WIDE, NARROW = (1280, 900), (390, 844)

sys.path.insert(0, str(ROOT / "tests"))

from browser import Browser  # noqa: E402  the path comes first


@contextmanager
def opened_browser() -> Iterator[Browser]:
    """Open a browser with an empty profile."""
    with tempfile.TemporaryDirectory() as profile:
        browser = Browser(Path(profile))
        try:
            yield browser
        finally:
            browser.close()


def take(browser: Browser, name: str, page: Path, size: tuple[int, int], scheme: str) -> None:
    """Write a picture of what the browser shows."""
    (ASSETS / f"{name}.png").write_bytes(browser.screenshot())
    sys.stdout.write(f"docs/assets/{name}.png: {page.name}, {size[0]} x {size[1]}, {scheme}\n")


def pictures_of_pages(runs: list[Path]) -> None:
    """Write the pictures of the viewer."""
    with tempfile.TemporaryDirectory() as folder, opened_browser() as browser:
        run = write_view(runs[0], Path(folder) / "view.html", max_replays=1000).path
        several = write_overview(runs, Path(folder) / "runs.html").path
        # A tree whose candidates differ: late in training they do not.
        tree = f"#e={position_of_a_mixed_tree(browser, run)}&n=1"
        shots = (
            ("viewer-overview", run, "", WIDE, "light"),
            ("viewer", run, tree, WIDE, "light"),
            ("viewer-dark", run, tree, WIDE, "dark"),
            ("viewer-phone", run, tree + "&view=detail", NARROW, "light"),
            ("viewer-phone-dark", run, "#tab=figures", NARROW, "dark"),
            ("viewer-curves", run, "#tab=figures", WIDE, "light"),
            *([("viewer-runs", several, "", WIDE, "light")] if len(runs) > 1 else []),
        )
        for name, page, fragment, size, scheme in shots:
            browser.size(*size)
            browser.scheme(scheme)
            browser.open(page, fragment)
            take(browser, name, page, size, scheme)


def position_of_a_mixed_tree(browser: Browser, page: Path) -> int:
    """The position of the first solved tree of training: candidates still differ there."""
    browser.open(page, "#ending=solved&part=training")
    return browser.js("Number(document.querySelector('.row').dataset.position)")


def picture_of_the_live_table(run: Path) -> None:
    """Write the table that the first train steps of a run show on a terminal, as SVG."""
    lines = (run / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    metrics = [line for line in map(json.loads, lines) if line["step"] > 0]
    progress = LiveProgress(Console(width=120), len(metrics))
    for line in metrics[:12]:
        progress.step(line["step"], {k: v for k, v in line.items() if k != "step"})
    console = Console(record=True, width=120, file=open("/dev/null", "w", encoding="utf-8"))  # noqa: SIM115
    console.print(progress._render())
    svg = console.export_svg(title="pettingllms-train")
    # Nothing is fetched from elsewhere, not even a font.
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)
    (ASSETS / "live-table.svg").write_text(svg, encoding="utf-8")
    sys.stdout.write("docs/assets/live-table.svg\n")


def main() -> None:
    """Write all pictures."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN")
    runs = parser.parse_args().runs
    pictures_of_pages(runs)
    picture_of_the_live_table(runs[0])


if __name__ == "__main__":
    main()
