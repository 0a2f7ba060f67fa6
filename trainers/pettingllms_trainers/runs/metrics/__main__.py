"""Writes the table of metrics into the page that is named on the command line."""

import re
import sys
from pathlib import Path

from pettingllms.files import write_whole
from pettingllms_trainers.runs.metrics.table import metrics_table

page = Path(sys.argv[1])
text = page.read_text(encoding="utf-8")
write_whole(page, re.sub(r"(?m)(^\|.*\n?)+", lambda _: metrics_table() + "\n", text, count=1))
