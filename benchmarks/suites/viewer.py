"""The viewer on runs of 2,000 train steps: time to write, to open and to click through a page.

    python benchmarks/suites/viewer.py RUN

RUN is a training run; its lines are repeated as those of a longer one. Two sizes: its trees as they
are, and with completions of 400 tokens, as much as `logging.max_rollouts_mb` lets a run record.
Needs Chromium.
"""

from __future__ import annotations

import argparse
import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from browser import Browser
from measuring import RESULTS, frame, write

from pettingllms.viewer import write_view

NUM_STEPS = 2000
EVERY = 10
TREES_PER_STEP = 4
MAX_BYTES = 64_000_000
NUM_CLICKS = 20
WORDS = " ".join(f"word{number % 97}" for number in range(400))


def long_completion(candidate: dict[str, Any]) -> dict[str, Any]:
    """Return a candidate that has thought for 400 tokens before it answered."""
    tokens = {
        "text": [f" word{number % 97}" for number in range(400)],
        "logprob": [round(-0.0173 * (number % 83), 4) for number in range(400)],
        "entropy": [round(0.0217 * (number % 71), 4) for number in range(400)],
    }
    text = f"{WORDS}\n{candidate['text']}"
    return {**candidate, "text": text, "num_tokens": 400, "tokens": tokens}


def grown(run: Path, folder: Path, *, is_long: bool) -> None:
    """Write a run of 2,000 train steps that repeats the lines of a short one."""
    lines = {
        name: [json.loads(line) for line in (run / f"{name}.jsonl").read_text().splitlines()]
        for name in ("metrics", "evaluations", "rollouts")
    }
    folder.mkdir()
    (folder / "config.toml").write_text((run / "config.toml").read_text())
    trees = itertools.cycle([t for t in lines["rollouts"] if t["set"] == "training"])
    metrics = itertools.cycle(lines["metrics"][1:])
    with (folder / "metrics.jsonl").open("w") as file:
        for step in range(1, NUM_STEPS + 1):
            file.write(json.dumps({**next(metrics), "step": step}) + "\n")
    (folder / "evaluations.jsonl").write_text((run / "evaluations.jsonl").read_text())
    num_bytes = 0
    with (folder / "rollouts.jsonl").open("w") as file:
        for step, episode in itertools.product(
            [1, *range(EVERY, NUM_STEPS + 1, EVERY)], range(TREES_PER_STEP)
        ):
            tree = {**next(trees), "step": step, "episode": episode}
            if is_long:
                decisions = [
                    {**d, "candidates": [long_completion(c) for c in d["candidates"]]}
                    for d in tree["decisions"]
                ]
                tree["decisions"] = decisions
            line = json.dumps(tree) + "\n"
            num_bytes += len(line)
            if num_bytes > MAX_BYTES:
                return
            file.write(line)


def seconds(work: Callable[[], Any]) -> float:
    """Return the wall time of a call."""
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def clicked(browser: Browser, selector: str, condition: str) -> float:
    """Return the seconds in the page from a click to a condition and the frame that shows it."""
    return browser.js(
        f"""new Promise((done) => {{
          const started = performance.now();
          document.querySelector({json.dumps(selector)}).dispatchEvent(
            new MouseEvent("click", {{ bubbles: true }}));
          const look = () => {condition}
            ? requestAnimationFrame(() => done((performance.now() - started) / 1000))
            : setTimeout(look);
          look();
        }})"""
    )


def measured(run: Path, folder: Path, browser: Browser) -> dict[str, Any]:
    """Return what a run takes."""
    page = folder / "view.html"
    write_s = seconds(lambda: write_view(run, page, max_replays=1000))
    browser.size(1280)
    open_s = [seconds(lambda: browser.open(page, "#tab=episodes")) for _ in range(3)]
    num_episodes = browser.js(
        "Number(document.querySelector('#count').textContent.replace(/\\D/g, ''))"
    )
    episodes_s: list[float] = []
    for click in range(NUM_CLICKS):  # far apart, so that each opens another block
        position = (click * 37 + 11) * num_episodes // (NUM_CLICKS * 37)
        browser.js(f"document.querySelector('#list').scrollTop = {position} * 46")
        selector = f'.row[data-position="{position}"]'
        browser.until(f"document.querySelector('{selector}')")
        browser.js("document.querySelector('.episode h2').textContent = ''")
        condition = "document.querySelector('.episode h2')?.textContent"
        episodes_s.append(clicked(browser, selector, condition))
    candidates_s = [
        clicked(browser, f'.dot[data-n="{n}"]:not(.selected)', "document.querySelector('.dot')")
        for n in range(min(8, browser.count(".tree .turn")))
    ]
    curves_s = clicked(browser, "#tab-figures", "document.querySelector('#figures .chart')")
    find_s = seconds(lambda: browser.open(page, "#find=no such text"))
    assert browser.problems() == []
    return {
        "num_episodes": num_episodes,
        "rollouts_mb": (run / "rollouts.jsonl").stat().st_size / 1e6,
        "page_mb": page.stat().st_size / 1e6,
        "write_s": write_s,
        "open_s": statistics.median(open_s),
        "episode_s": statistics.median(episodes_s),
        "episode_max_s": max(episodes_s),
        "candidate_s": statistics.median(candidates_s),
        "curves_s": curves_s,
        "find_s": find_s,
    }


def main() -> None:
    """Measure both sizes."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("run", type=Path, metavar="RUN")
    run = parser.parse_args().run
    sizes: dict[str, Any] = {}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        browser = Browser(folder / "profile")
        try:
            for size, is_long in (("as trained", False), ("400 tokens", True)):
                grown(run, folder / size, is_long=is_long)
                sizes[size] = measured(folder / size, folder / size, browser)
                print(size, json.dumps(sizes[size]))
        finally:
            browser.close()
    result = frame("viewer", []) | {"num_steps": NUM_STEPS, "sizes": sizes}
    write(result, RESULTS / "viewer.json")


if __name__ == "__main__":
    main()
