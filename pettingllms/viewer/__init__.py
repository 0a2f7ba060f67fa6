"""Runs as self-contained HTML pages: `write_view`, or `pettingllms view` on the command line.

```
folder or file ──► runs.py ──► OpenedRun (facts, curves, episodes one by one)
                                 │  boards.py: what only playing again shows
                                 │  summary.py: what the page opens on
                                 │  overview.py: several runs side by side
                                 ▼
                  page.py: assets/* + data in compressed blocks ──► one HTML file
                                 ▲
                  live.py: the same page, served while the run runs
```
"""

from pettingllms.viewer.live import LiveServer
from pettingllms.viewer.page import ViewSummary, write_overview, write_parts, write_view
from pettingllms.viewer.runs import ViewerError, runs_below

__all__ = [
    "LiveServer",
    "ViewSummary",
    "ViewerError",
    "runs_below",
    "write_overview",
    "write_parts",
    "write_view",
]
