"""What strangers announce harms nobody who does not ask for it."""

import gymnasium
import pettingzoo
import pytest

import pettingllms
from pettingllms.adapters.gymnasium import gymnasium_id
from pettingllms.errors import EnvironmentNotLoadable, InvalidArgument
from pettingllms.plugins import installed
from pettingllms.registry import refused_ids

STRANGER = """
from pettingllms_envs.plan_path import PlanPathEnv

class Walk(PlanPathEnv):
    pass

NUMBER = 3

def dictionary():
    return {}
"""


@pytest.fixture
def install(distribution, monkeypatch):
    """Install a made-up distribution of environments: name, id -> value, modules."""

    def install(name, points, **modules):
        monkeypatch.syspath_prepend(distribution(name, "pettingllms.envs", points, **modules))
        installed.cache_clear()

    yield install
    installed.cache_clear()


def test_a_strangers_environment_is_made_and_reaches_gymnasium_and_pettingzoo(install):
    install("stranger_a", {"walk_a_v0": "stranger_a:Walk"}, stranger_a=STRANGER)
    assert "pettingllms/WalkA-v0" not in gymnasium.registry
    assert "walk_a_v0" in pettingllms.registered_ids()
    assert pettingllms.spec("walk_a_v0").package == "stranger_a"
    single = gymnasium.make("pettingllms/WalkA-v0", size=5)
    single.reset(seed=0)
    assert type(single.unwrapped.env).__name__ == "Walk"
    env = pettingzoo.make("aec", "pettingllms/walk_a-v0", size=5)
    assert env.unwrapped.spec.id == "walk_a_v0"


def test_an_ill_formed_id_is_refused_when_it_is_asked_for(install):
    install("stranger_b", {"Bad-Walk": "stranger_b:Walk"}, stranger_b=STRANGER)
    assert "Bad-Walk" not in pettingllms.registered_ids()
    assert pettingllms.make("plan_path_v0", size=5)
    with pytest.raises(EnvironmentNotLoadable, match=r"'Bad-Walk'.*stranger_b.*_v<number>"):
        pettingllms.make("Bad-Walk")


@pytest.mark.parametrize("env_id", ["Walk_v0", "walk", "walk_v", "walk_v01", "walk__v0", "w/v_v0"])
def test_forms_of_ids(install, env_id):
    install("stranger_c", {env_id: "stranger_c:Walk"})
    assert env_id in refused_ids()
    with pytest.raises(InvalidArgument, match="_v<number>"):
        pettingllms.register(env_id, "a:b")


def test_an_id_that_two_packages_announce_is_refused_with_both_named(install):
    install("stranger_d", {"sokoban_v0": "stranger_d:Walk"}, stranger_d=STRANGER)
    both = r"'sokoban_v0'.*pettingllms and stranger_d.*Uninstall one"
    with pytest.raises(EnvironmentNotLoadable, match=both):
        pettingllms.make("sokoban_v0")
    assert "sokoban_v0" not in pettingllms.registered_ids()
    assert pettingllms.make("plan_path_v0", size=5)


@pytest.mark.parametrize(
    ("value", "text", "message"),
    [
        ("stranger_e:Walk", "import no_such_module_at_all", "ModuleNotFoundError"),
        ("stranger_e:Walk", "raise RuntimeError('on strike')", "RuntimeError: on strike"),
        ("stranger_e:Walk", "class :", "SyntaxError"),
        ("stranger_e:Missing", STRANGER, "AttributeError"),
        ("stranger_e:NUMBER", STRANGER, "3 is not a class or function"),
        ("stranger_e:dictionary", STRANGER, "returned a dict"),
        ("stranger_e", STRANGER, "module:attribute"),
    ],
)
def test_a_broken_plug_in_is_reported_when_it_is_asked_for(
    install, monkeypatch, value, text, message
):
    monkeypatch.delitem(__import__("sys").modules, "stranger_e", raising=False)
    install("stranger_e", {"broken_e_v0": value}, stranger_e=text)
    assert pettingllms.make("plan_path_v0", size=5)
    with pytest.raises(EnvironmentNotLoadable, match=rf"(?s)'broken_e_v0'.*stranger_e.*{message}"):
        pettingllms.make("broken_e_v0")


def test_ids_that_are_registered_later_reach_gymnasium_and_pettingzoo(guess_id, guess_env):
    pettingllms.register("late_guess_v3", guess_env)
    assert gymnasium_id("late_guess_v3") in gymnasium.registry
    partners = {"teller": "oracle"}
    env = gymnasium.make("pettingllms/LateGuess-v3", agent="guesser_0", partners=partners)
    env.reset(seed=0)
    assert pettingzoo.make("aec", "pettingllms/late_guess-v3").possible_agents == [
        "teller_0",
        "guesser_0",
    ]


def test_different_ids_have_different_gymnasium_ids():
    ids = ["a_1_v0", "a1_v0", "a_b_v0", "ab_v0", "a_b_v1", "a_1b_v0", "a1_b_v0"]
    assert len({gymnasium_id(env_id) for env_id in ids}) == len(ids)
