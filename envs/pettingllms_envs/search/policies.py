"""The scripted policies of searcher and answerer."""

from __future__ import annotations

import random
from collections.abc import Sequence

from pettingllms_envs.search.tasks import SearchTask


def query_of(task: SearchTask, found: Sequence[int], policy: str, rng: random.Random) -> str:
    """Return what a scripted searcher searches for.

    Args:
        task: The task.
        found: The documents found so far.
        policy: `"oracle"`: the title of the next document that is needed; `"question"` and
            `"guess"`: the question, each turn; `"random"`: the title of any document.
        rng: Source of chance.
    """
    if policy == "random":
        return rng.choice(task.documents).title
    needed = [one for one in task.supporting if one not in found]
    if policy == "oracle" and needed:
        return task.documents[needed[0]].title
    return task.question


def answer_of(
    task: SearchTask, found: Sequence[int], policy: str, rng: random.Random
) -> str | None:
    """Return what a scripted answerer answers; None: another search.

    Args:
        task: The task.
        found: The documents found so far.
        policy: `"oracle"`: the answer, once all documents that are needed have been found;
            `"question"` and `"random"`: in two of three turns another search, else the title of a
            found document; `"guess"`: the title of any document, at once.
        rng: Source of chance.
    """
    if policy == "oracle":
        return task.answers[0] if set(task.supporting) <= set(found) else None
    if policy == "guess":
        return rng.choice(task.documents).title
    if not found or rng.random() < 2 / 3:
        return None
    return task.documents[rng.choice(found)].title
