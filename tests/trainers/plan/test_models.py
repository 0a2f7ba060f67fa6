"""First contact: what cannot work is one line before anything is played or loaded."""

import json

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
        tmp_path_factory.mktemp("model"),
        hidden_size=16,
        num_layers=1,
        num_heads=2,
        max_length=8192,
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


def without_config(directory):
    (directory / "config.json").unlink()


def without_template(directory):
    (directory / "chat_template.jinja").unlink(missing_ok=True)
    path = directory / "tokenizer_config.json"
    settings = json.loads(path.read_text())
    settings.pop("chat_template", None)
    path.write_text(json.dumps(settings))


def copied(model, tmp_path, change):
    directory = tmp_path / "model"
    directory.mkdir()
    for path in model.iterdir():
        (directory / path.name).write_bytes(path.read_bytes())
    change(directory)
    return directory


@pytest.mark.parametrize("flags", [(), ("--dry-run",)])
@pytest.mark.parametrize(
    ("change", "message"),
    [
        (without_config, "the directory has no config.json"),
        (without_template, "its tokenizer has no chat template"),
    ],
)
def test_a_directory_that_is_no_chat_model(model, tmp_path, run, change, message, flags):
    directory = copied(model, tmp_path, change)
    code, out, err = run(directory, *flags)
    assert (code, out) == (2, "")
    assert f"[policies.p] model = {str(directory)!r}: {message}" in err
    assert len(err.splitlines()) == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize("flags", [(), ("--dry-run",)])
@pytest.mark.parametrize("path", ["/no/such/model", "./model", "some/where/else"])
def test_a_path_that_does_not_exist(run, path, flags):
    code, _, err = run(path, *flags)
    assert code == 2
    assert f"[policies.p] model = {path!r}: there is no such directory" in err
    assert len(err.splitlines()) == 1


def test_a_model_that_is_not_fetched_yet(run, tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    code, _, err = run("fetched:smollm2")
    assert code == 2
    assert "it is not here yet; run: pettingllms-train fetch-model smollm2" in err


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
    def thinking(directory):
        without_template(directory)
        template = "{% if enable_thinking is not defined %}<think>{% endif %}"
        (directory / "chat_template.jinja").write_text(template)

    directory = copied(model, tmp_path, thinking)
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
