"""Runs as one self-contained HTML page: `write_view`, or `pettingllms view` on the command line.

```
folder or file ──► runs.py ──► OpenedRun (facts, curves, episodes one by one)
                                 │  boards.py: boards that prompts do not show
                                 ▼
                  page.py: assets/* + data in compressed blocks ──► one HTML file
```
"""

from pettingllms.viewer.errors import ViewerError
from pettingllms.viewer.page import ViewSummary, write_view

__all__ = ["ViewSummary", "ViewerError", "write_view"]
