"""Recorded answers as demonstrations."""

import json
from types import SimpleNamespace

import pytest

from pettingllms.errors import InvalidArgument
from pettingllms_trainers.errors import ConfigError
from pettingllms_trainers.rollout.demonstrations import recorded_demonstrations

ROW = {
    "prompt": [{"role": "user", "content": "ab"}],
    "completion": [{"role": "assistant", "content": "c"}],
    "role": "caller",
    "env_id": "toy_v0",
}
TEACHABLE = SimpleNamespace(
    encode=lambda chat: tuple(ord(c) for message in chat for c in message["content"]),
    encode_answer=lambda text: (*map(ord, text), 0),
)


@pytest.fixture
def file(tmp_path):
    def file(*rows):
        path = tmp_path / "rows.jsonl"
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
        return str(path)

    return file


def test_every_role_learns_its_own_rows_of_its_environment(file):
    others = ({**ROW, "env_id": "other_v0"}, {**ROW, "role": "fixed"})
    bare = {name: ROW[name] for name in ("prompt", "completion", "role")}
    path = file(ROW, *others, {**bare, "role": "echo"}, {**ROW, "prompt": []})
    found = recorded_demonstrations(path, "toy_v0", {"caller": TEACHABLE, "echo": TEACHABLE})
    assert found == {"caller": [((97, 98), (99, 0)), ((), (99, 0))], "echo": [((97, 98), (99, 0))]}


def test_files_that_teach_nothing_are_refused(file, tmp_path):
    both = {"caller": TEACHABLE, "echo": TEACHABLE}
    with pytest.raises(ConfigError, match="no answer of echo in toy_v0"):
        recorded_demonstrations(file(ROW), "toy_v0", both)
    for row in ({**ROW, "completion": []}, {"role": "caller"}, {**ROW, "completion": "c"}):
        with pytest.raises(ConfigError, match=r"row 2 of .* is not a prompt with one answer"):
            recorded_demonstrations(file(ROW, row), "toy_v0", {"caller": TEACHABLE})
    with pytest.raises(InvalidArgument, match="whole file"):
        recorded_demonstrations(str(tmp_path / "none.jsonl"), "toy_v0", both)
    with pytest.raises(InvalidArgument, match="ends in"):
        recorded_demonstrations(str(tmp_path / "rows.csv"), "toy_v0", both)
