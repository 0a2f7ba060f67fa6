"""Names of policies, kinds of installed packages, and the ranges of settings."""

import pytest

from pettingllms import plugins
from pettingllms.errors import EnvironmentNotLoadable, InvalidArgument, MissingDependency
from pettingllms.policies import (
    NoisePolicy,
    PolicySettings,
    Sampling,
    ScriptedPolicy,
    Usage,
    load_policy,
)


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Return a function that installs a package which announces a kind of policies."""

    def install(kind, value, code):
        (tmp_path / "weights_package.py").write_text(code)
        metadata = tmp_path / "weights_package-1.0.dist-info"
        metadata.mkdir()
        (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: weights-package\n")
        (metadata / "entry_points.txt").write_text(f"[pettingllms.policies]\n{kind} = {value}\n")
        monkeypatch.syspath_prepend(str(tmp_path))
        plugins.installed.cache_clear()

    yield install
    plugins.installed.cache_clear()


def test_names_without_a_model():
    assert type(load_policy("noise")) is NoisePolicy
    for name, scripted in (("oracle", "oracle"), ("scripted:noise", "noise")):
        policy = load_policy(name)
        assert type(policy) is ScriptedPolicy
        assert policy.name == scripted


def test_a_kind_of_an_installed_package(installed):
    installed(
        "mine",
        "weights_package:load",
        "def load(argument, settings):\n    return argument, settings",
    )
    settings = PolicySettings(max_concurrency=3)
    assert load_policy("mine:some/path:with:colons", settings) == (
        "some/path:with:colons",
        settings,
    )


def test_a_kind_that_cannot_be_loaded_names_its_cause(installed):
    installed("broken", "weights_package:load", "import no_such_module_at_all")
    with pytest.raises(EnvironmentNotLoadable, match="no_such_module_at_all"):
        load_policy("broken:x")


def test_unknown_kinds_are_refused_with_the_known_ones(installed):
    installed("mine", "weights_package:load", "")
    with pytest.raises(InvalidArgument, match=r'openai, .*mine.*did you mean "openai"'):
        load_policy("opnai:x@http://localhost/v1")


def test_hf_without_the_trainer_says_what_to_install(monkeypatch):
    nothing = plugins.Plugins({}, {})
    monkeypatch.setattr("pettingllms.plugins.installed", lambda group: nothing)
    with pytest.raises(MissingDependency, match=r"pettingllms-trainers.*pip install ./trainers"):
        load_policy("hf:some/path")


@pytest.mark.parametrize("name", ["", ":", "openai:", ":x"])
def test_empty_names_are_refused(name):
    with pytest.raises(InvalidArgument):
        load_policy(name)


@pytest.mark.parametrize(
    ("kind", "name", "values"),
    [
        (Sampling, "temperature", [-0.1, True, "hot"]),
        (Sampling, "top_p", [0, 1.5]),
        (Sampling, "max_completion_tokens", [0, 1.5]),
        (Sampling, "stop", ["END", (1,)]),
        (PolicySettings, "max_concurrency", [0]),
        (PolicySettings, "max_retries", [-1]),
        (PolicySettings, "timeout_s", [0]),
        (PolicySettings, "requests_per_minute", [-1]),
    ],
)
def test_settings_out_of_range_are_refused(kind, name, values):
    for value in values:
        with pytest.raises(InvalidArgument, match=name):
            kind(**{name: value})


def test_usages_add_up():
    assert Usage(*range(1, 8)) + Usage(*range(10, 80, 10)) == Usage(*range(11, 88, 11))
