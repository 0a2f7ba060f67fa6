"""A real headless Chromium, and runs to look at."""

import json
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from pettingllms.viewer import write_view

# The helper is shared with the pictures of the documents.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from browser import CHROMIUM, Browser


@pytest.fixture(scope="session")
def _chromium(tmp_path_factory):
    if CHROMIUM is None:
        pytest.skip("no chromium on this machine (Debian: apt-get install chromium)")
    browser = Browser(tmp_path_factory.mktemp("profile"))
    yield browser
    browser.close()


@pytest.fixture
def browser(_chromium):
    """The browser, at desk size and in light colours; a page must cause no problem in it."""
    _chromium.size(1280)
    _chromium.scheme("light")
    yield _chromium
    assert _chromium.problems() == []


def candidate(text, reward=0.0, advantage=None, **other):
    """Return a candidate as the trainer writes it."""
    values = {"num_tokens": len(text), "finish_reason": "stop", "team": reward, "local": 0.0}
    values |= {"parse_error": None, "success": False, "end": None, "cause": None}
    values |= {"tokens": tokens(text), **other}
    return {"text": text, "reward": reward, "advantage": advantage, **values}


def tokens(text):
    """Return the tokens of a completion as the trainer writes them: one per character."""
    logprobs = [-0.1 * (i % 7) for i in range(len(text))]
    return {"text": list(text), "logprob": logprobs, "entropy": [2 * -p for p in logprobs]}


def decision(agent, turn, candidates, chosen=0, observation="a prompt"):
    """Return a decision as the trainer writes it."""
    policy = agent.partition("_")[0]
    values = {"agent": agent, "turn": turn, "policy": policy, "observation": observation}
    return {**values, "temperature": 1.0, "chosen": chosen, "candidates": candidates}


def tree(step, episode, decisions, success=False, returns=None, tree_set="training"):
    """Return a rollout tree as the trainer writes it."""
    outcome = {"success": success, "terminated": success, "truncated": not success}
    outcome |= {"returns": returns or {"tool_0": 0.0}, "num_turns": 1}
    return {
        "step": step,
        "set": tree_set,
        "env": {},
        "episode": episode,
        "env_seed": episode,
        "initial_state_hash": "0" * 32,
        "end": "answered" if success else "turns",
        "cause": None,
        "outcome": outcome,
        "decisions": decisions,
    }


@pytest.fixture
def write():
    """Functions that write parts of rollout trees: `candidate`, `decision` and `tree`."""
    return SimpleNamespace(candidate=candidate, decision=decision, tree=tree)


@pytest.fixture
def training(tmp_path):
    """Return a function that writes a training run of given rollout trees."""

    def training(trees, metrics=(), name="run"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "config.toml").write_text('[env]\nid = "plan_path_v0"\n[env.kwargs]\n')
        for file, lines in (("rollouts", trees), ("metrics", metrics)):
            text = "".join(json.dumps(line) + "\n" for line in lines)
            (folder / f"{file}.jsonl").write_text(text)
        return folder

    return training


@pytest.fixture
def page(tmp_path):
    """Return a function that writes the page of a run and returns its path."""

    def page(run, max_replays=0):
        return write_view(run, tmp_path / "view.html", max_replays=max_replays).path

    return page
