"""The progress of a run: a live table on a terminal, plain lines elsewhere."""

from __future__ import annotations

import contextlib
import threading
import time
from collections import deque
from collections.abc import Callable, Generator, Mapping
from typing import Any, Literal, Self

from rich.box import SIMPLE_HEAD
from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.padding import Padding
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from pettingllms_trainers.runs.evaluate import is_untouched
from pettingllms_trainers.runs.metrics import METRICS, template_of

_NUM_STEPS = 12
_STEP_WIDTH = 8
"""Characters of a train step in the live table."""

Activity = Callable[[], str]
"""Says in a few words what is being done and how far it is."""


class ProgressView:
    """Shows how a run progresses, used as a context; this one shows nothing."""

    quiet_s = float("inf")
    """After this time without a word the view says what is being done."""

    def __enter__(self) -> Self:
        """Start to show."""
        return self

    def __exit__(self, *raised: Any) -> None:
        """Stop to show."""

    def note(self, text: str) -> None:
        """Report what happens outside train steps."""

    def warn(self, text: str) -> None:
        """Report what may be wrong with the run."""

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Show the metrics of a train step that is done."""

    @contextlib.contextmanager
    def busy(self, activity: Activity) -> Generator[None]:
        """Report what is being done, now and then, while the context lasts.

        A thread reports: an update or a call of an engine may take minutes.
        """
        started, done = time.monotonic(), threading.Event()

        def report() -> None:
            while not done.wait(self.quiet_s):
                self.note(f"{activity()}, {time.monotonic() - started:.0f} s")

        thread = threading.Thread(target=report, daemon=True)
        if self.quiet_s != float("inf"):
            thread.start()
        try:
            yield
        finally:
            done.set()
            if thread.is_alive():
                thread.join()


class PlainProgress(ProgressView):
    """One line per train step, and one every half minute within a long one."""

    quiet_s = 30.0

    def __init__(self, console: Console, num_steps: int) -> None:
        self._console = console
        self._clock = _Clock(num_steps)

    def note(self, text: str) -> None:
        """Report what happens outside train steps."""
        self._console.print(text, highlight=False, markup=False, soft_wrap=True)

    def warn(self, text: str) -> None:
        """Report what may be wrong with the run."""
        self.note(f"warning: {text}")

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Show the metrics of a train step that is done."""
        cells = _cells(metrics)
        cells["left"] = self._clock.left(step, metrics)
        parts = [f"{name} {value}" for name, value in cells.items()]
        self.note(f"step {step}/{self._clock.num_steps}: {', '.join(parts)}")


class LiveProgress(ProgressView):
    """A table of the latest train steps that is redrawn in place."""

    quiet_s = 2.0

    def __init__(self, console: Console, num_steps: int) -> None:
        self._live = Live(console=console, refresh_per_second=4)
        self._clock = _Clock(num_steps)
        self._rows: deque[tuple[int, dict[str, str]]] = deque(maxlen=_NUM_STEPS)
        self._note = ""
        self._warnings: list[str] = []
        self._done = 0
        self._left = ""

    def __enter__(self) -> Self:
        """Start to show."""
        self._live.__enter__()
        return self

    def __exit__(self, *raised: Any) -> None:
        """Leave the last table standing."""
        self._live.__exit__(*raised)

    def note(self, text: str) -> None:
        """Report what happens outside train steps."""
        self._note = text
        self._live.update(self._render())

    def warn(self, text: str) -> None:
        """Report what may be wrong with the run; it stays on the screen."""
        self._warnings.append(text)
        self._live.update(self._render())

    def step(self, step: int, metrics: Mapping[str, float]) -> None:
        """Show the metrics of a train step that is done."""
        self._rows.append((step, _cells(metrics)))
        self._done = step
        self._note = ""
        self._left = self._clock.left(step, metrics)
        self._live.update(self._render())

    def _render(self) -> RenderableType:
        headings = list(dict.fromkeys(name for _, cells in self._rows for name in cells))
        # A row for each metric: roles add rows, and a narrow terminal shows fewer steps.
        label = max(map(len, headings), default=0)
        num_shown = max((self._live.console.width - label - 3) // _STEP_WIDTH, 1)
        shown = list(self._rows)[-num_shown:]
        table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=0)
        table.add_column("step")
        for step, _ in shown:
            table.add_column(str(step), justify="right", min_width=_STEP_WIDTH - 1)
        for heading in headings:
            table.add_row(heading, *(cells.get(heading, "") for _, cells in shown))
        total = self._clock.num_steps
        # The padding ends the line, which a bar alone does not.
        bar = Padding(ProgressBar(total=max(total, 1), completed=self._done, width=40), 0)
        line = Text(f"{self._done} of {total} train steps, {self._left or '?'} left. {self._note}")
        warnings = [Text(f"warning: {text}", style="yellow") for text in self._warnings]
        return Group(*([table, bar] if self._rows else []), line, *warnings)


class _Clock:
    """Estimates the time that is left from the latest train steps."""

    def __init__(self, num_steps: int) -> None:
        self.num_steps = num_steps
        self._seconds: deque[float] = deque(maxlen=20)

    def left(self, step: int, metrics: Mapping[str, float]) -> str:
        self._seconds.append(metrics["time/step_s"] + metrics.get("time/evaluate_s", 0.0))
        mean = sum(self._seconds) / len(self._seconds)
        minutes, seconds = divmod(round(mean * (self.num_steps - step)), 60)
        return f"{minutes}:{seconds:02d}"


def _cells(metrics: Mapping[str, float]) -> dict[str, str]:
    """Return heading to text of the metrics that are shown; of an evaluation the first way."""
    cells: dict[str, str] = {}
    played = (name.split("/")[1] for name in metrics if name.startswith("eval/"))
    first = next((name for name in played if not is_untouched(name)), "")
    for name, value in metrics.items():
        template = template_of(name)
        shown = METRICS[template].shown if template else None
        subject = name.split("/")[1]
        if shown is None or (name.startswith("eval/") and subject != first):
            continue
        if name.startswith("eval/"):
            subject = name.split("/")[2] if "<env>" in str(template) else ""
        has_subject = subject and name.startswith(("role/", "loss/", "env/", "eval/"))
        heading = f"{subject} {shown.heading}" if has_subject else shown.heading
        cells[heading] = format(value, shown.style)
    return cells


def progress_view(
    kind: Literal["auto", "live", "plain", "off"], console: Console, num_steps: int
) -> ProgressView:
    """Return the view a configuration asks for; `auto` is live on a terminal, else plain."""
    if kind == "off":
        return ProgressView()
    if kind == "live" or (kind == "auto" and console.is_terminal):
        return LiveProgress(console, num_steps)
    return PlainProgress(console, num_steps)
