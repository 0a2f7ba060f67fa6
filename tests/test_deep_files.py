"""A file that nests deeper than can be read is damage that a message names, not a traceback."""

import pytest

from pettingllms.cli.app import run
from pettingllms.errors import PettingLLMsError
from pettingllms.evaluation.rows import read_rows
from pettingllms.transcript import Transcript
from pettingllms_trainers.backends.hf.chat import read_chat
from pettingllms_trainers.config.loading import load_config
from pettingllms_trainers.config.sections import base_of_adapter

DEEP = 100_000 * "["
DEEP_TOML = f"env = {DEEP}"


def called(*arguments):
    def read(path):
        assert run([*arguments, str(path.parent)]) in (1, 2)
        raise ValueError

    return read


@pytest.mark.parametrize(
    ("name", "read"),
    [
        ("bench.json", called("bench", "--resume")),
        ("run.json", called("eval", "--resume")),
        ("config.toml", called("eval")),
        ("config.toml", called("view")),
        ("run.toml", load_config),
        ("rows.jsonl", read_rows),
        ("game.jsonl", Transcript.load),
        ("adapter_config.json", lambda path: base_of_adapter(path.parent)),
        ("pettingllms.json", lambda path: read_chat(path.parent)),
    ],
)
def test_what_nests_too_deep_to_be_read_is_damage(tmp_path, name, read):
    (tmp_path / name).write_text(DEEP_TOML if name.endswith("toml") else DEEP)
    with pytest.raises((ValueError, PettingLLMsError)):
        read(tmp_path / name)
