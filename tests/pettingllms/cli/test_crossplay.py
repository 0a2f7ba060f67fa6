"""`crossplay` of two dining teams of opposite habits, from end to end."""

import json

import pytest

import pettingllms
from pettingllms.policies import Answer, Completion


class Habit:
    """Philosophers who eat one after another, so that everybody waits for the one before.

    Args:
        first: `min` or `max`: which of the hungry eats first.
    """

    def __init__(self, first):
        self.first = first

    async def check(self, env):
        pass

    async def aclose(self):
        pass

    async def sample(self, prompts, n, sampling):
        return [Answer((Completion(self.choice(prompt), "stop"),)) for prompt in prompts]

    def choice(self, prompt):
        table, seat = prompt.env.state().table, int(prompt.agent[-1])
        hungry = [other for other, meals in enumerate(table.hunger) if meals]
        if seat != self.first(hungry):
            return "#### release" if seat in table.forks else "#### wait"
        return "#### right" if table.forks[seat] == seat else "#### left"


@pytest.fixture
def habits(monkeypatch):
    original = pettingllms.policies.load_policy
    made = {"mine:low": Habit(min), "mine:high": Habit(max)}

    def load(name, settings=None):
        return made[str(name)] if str(name) in made else original(name, settings)

    monkeypatch.setattr("pettingllms.policies.loading.load_policy", load)


def test_planted_conventions_are_found(call, habits, tmp_path):
    task = ("dining_v0", "-e", "philosophers=3", "-e", "meals=2", "-e", "max_turns=16", "-n", 1)
    for name in ("low", "high"):
        done = call("eval", *task, "-p", f"mine:{name}", "--out", name)
        assert "1 solved" in done.stdout, done.stderr
    done = call("crossplay", "low", "high", "-n", 8, "--out", "out", "--format", "json")
    assert done.returncode == 0, done.stderr
    found = json.loads(done.stdout)
    assert found == json.loads((tmp_path / "out" / "crossplay.json").read_text())
    assert found["within"]["value"] == 1
    assert found["cross"]["value"] < 0.7
    assert found["conventions"] == [["low", "high"]]
    assert (tmp_path / "out" / "view.html").exists()
    again = " ".join(call("crossplay", "--resume", "out").stdout.split())
    assert "Clearly different conventions: low and high." in again
    assert "philosopher_2 of the row, all others of the column" in again
    # A run beside itself has no conventions of its own.
    call("eval", *task, "-p", "mine:low", "--out", "twin")
    same = json.loads(call("crossplay", "low", "twin", "-n", 4, "--format", "json").stdout)
    assert same["coordination"]["value"] == 0
    assert same["conventions"] == []


def test_what_cannot_be_mixed_is_refused(call, tmp_path):
    for name, size in (("a", 5), ("b", 6)):
        call("eval", "plan_path_v0", "-e", f"size={size}", "-p", "oracle", "-n", 1, "--out", name)
    assert "env.size differs" in call("crossplay", "a", "b").stderr
    assert call("crossplay", "a").returncode == 2
    assert call("crossplay", "a", "a").returncode == 2
    assert call("crossplay", "a:swapped", "b").returncode == 2
    assert call("crossplay").returncode == 2
    assert "not the folder of a cross-play" in call("crossplay", "--resume", "a").stderr
