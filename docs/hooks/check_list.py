"""The checks of `check_env`, as the kit itself lists them."""

from __future__ import annotations

from markdown_text import code, table

from pettingllms.testing import CHECKS, promise_of


def check_list() -> str:
    """A table of all checks in the order in which they run."""
    rows = [[code(check.__name__.removeprefix("check_")), promise_of(check)] for check in CHECKS]
    return table(["check", "promise"], rows)
