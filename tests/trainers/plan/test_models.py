"""First contact: what cannot work is one line before anything is played or loaded."""

import shutil

import pytest

from pettingllms_trainers.backends.hf.shapes import model_problem
from pettingllms_trainers.backends.hf.tiny import build_tiny
from pettingllms_trainers.cli import main
from pettingllms_trainers.config import Config
from pettingllms_trainers.plan.view import answer_warnings

RUN = """
[env]
id = "plan_path_v0"
kwargs = {{ size = 4, team = "tool-planner", tool = "{tool}" }}
[policies.p]
model = '{model}'
[roles]
tool = "p"
planner = "p"
[rollout]
max_completion_tokens = {limit}
"""


@pytest.fixture(scope="session")
def model(tmp_path_factory):
    return build_tiny(
        tmp_path_factory.mktemp("model"), hidden_size=16, num_layers=1, num_heads=2, max_length=8192
    )


@pytest.fixture
def run(tmp_path, capsys):
    def call(model, *flags, tool="call", limit=64):
        path = tmp_path / "run.toml"
        path.write_text(RUN.format(model=model, tool=tool, limit=limit))
        code = main([str(path), "--output-dir", str(tmp_path / "run"), *flags])
        captured = capsys.readouterr()
        return code, " ".join(captured.out.split()), captured.err

    return call


@pytest.mark.parametrize("flags", [(), ("--dry-run",)])
@pytest.mark.parametrize(
    ("model", "message"),
    [
        ("./empty", "/empty': the directory has no config.json"),
        ("some/where/else", "model = 'some/where/else': there is no such directory"),
        ("fetched:smollm2", "it is not here yet; run: pettingllms-train fetch-model smollm2"),
    ],
)
def test_what_is_not_there_is_one_line(run, tmp_path, monkeypatch, model, message, flags):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    code, out, err = run(model, *flags)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_the_dry_run_warns_of_answers_that_will_be_truncated(run, model):
    """A program takes more than 64 tokens, a call does not; limits of a role count."""
    _, out, _ = run(model, "--dry-run", tool="python")
    assert "warning: answers of tool will be truncated" in out
    assert "rollout.max_completion_tokens = 64" in out
    assert "answers of planner" not in out
    assert "truncated" not in run(model, "--dry-run", tool="call")[1]
    more = ("--rollout.per-role.tool.max-completion-tokens", "1000")
    assert "truncated" not in run(model, "--dry-run", *more, tool="python")[1]


@pytest.mark.parametrize(
    ("kwargs", "limit", "warns"),
    [({}, 64, True), ({"enable_thinking": False}, 64, False), ({}, 4096, False)],
)
def test_thinking_needs_room_or_must_be_turned_off(model, tmp_path, kwargs, limit, warns):
    directory = shutil.copytree(model, tmp_path / "model")
    template = "{% if enable_thinking is not defined %}<think>{% endif %}"
    (directory / "chat_template.jinja").write_text(template)
    config = Config.model_validate(
        {
            "env": {"id": "plan_path_v0"},
            "policies": {"p": {"model": str(directory), "chat_template_kwargs": kwargs}},
            "roles": {"planner": "p"},
            "rollout": {"max_completion_tokens": limit},
        }
    )
    assert model_problem(config.policies["p"]) is None
    found = list(answer_warnings(config, {"planner": 9}))
    assert len(found) == warns
    assert not warns or "enable_thinking = false" in found[0]
