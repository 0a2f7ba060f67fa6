"""Who asked for which card, and who holds what on it: a file that all simulated processes share.

Imports nothing of torch: the processes of an engine need no more than this.
"""

import fcntl
import json
import os
from pathlib import Path

LOG = Path(os.environ["SIMULATED_LOG"])
NUM_CARDS = int(os.environ["SIMULATED_CARDS"])
CARD_BYTES = int(os.environ["SIMULATED_CARD_BYTES"])
WEIGHTS_SCALE = int(os.environ.get("SIMULATED_SCALE", "1"))
"""As if every weight of a trainer were so many."""

_seen: list[str] | None = None


def cards():
    """The numbers of the cards that this process sees; as CUDA, it looks once."""
    global _seen
    if _seen is None:
        visible = os.environ.get("CUDA_VISIBLE_DEVICES")
        every = map(str, range(NUM_CARDS))
        _seen = list(every) if visible is None else [c for c in visible.split(",") if c.strip()]
    return _seen


def ask(what):
    """Record that this process asks CUDA something; it sees the same cards from then on."""
    cards()
    _write({"what": what})


def claim(what, num_bytes, index=0):
    """Take memory of the card that this process calls `index`, or give it back; False: no room."""
    card = cards()[index]
    return _write({"what": what, "card": card, "bytes": num_bytes})


def held(card):
    """The bytes that living processes hold on a card of this machine."""
    return sum(
        e["bytes"]
        for e in map(json.loads, LOG.read_text().splitlines())
        if e.get("card") == card and not e.get("refused")
        and _lives(e["pid"])
    )  # fmt: skip


def _write(entry):
    entry |= {
        "pid": os.getpid(),
        "rank": os.environ.get("RANK"),
        "visible": os.environ.get("CUDA_VISIBLE_DEVICES"),
    }
    with LOG.open("a") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        if "card" in entry:
            entry["total"] = held(entry["card"]) + entry["bytes"]
            entry["refused"] = entry["bytes"] > 0 and entry["total"] > CARD_BYTES
        file.write(json.dumps(entry) + "\n")
    return not entry.get("refused")


def _lives(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
