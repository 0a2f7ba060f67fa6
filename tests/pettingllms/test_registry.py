"""Ids and what strangers announce under them; nothing is loaded that is not asked for."""

import copy
import pickle
import subprocess
import sys

import gymnasium
import pettingzoo
import pytest

import pettingllms
from pettingllms.adapters.gymnasium import gymnasium_id
from pettingllms.errors import EnvironmentNotLoadable, InvalidArgument, UnknownEnvironment
from pettingllms.plugins import installed
from pettingllms.registry import refused_ids


def test_builtin_ids_come_from_entry_points():
    assert "plan_path_v0" in pettingllms.registered_ids()
    found = pettingllms.spec("plan_path_v0")
    assert found.package == "pettingllms"
    assert found.entry_point == "pettingllms_envs.plan_path:PlanPathEnv"


@pytest.fixture
def odd_ids(guess_id, guess_env):
    """Environments of which some arguments, or all, cannot be used."""

    class Unsolved(guess_env):
        scripted_policies = ("random",)

    pettingllms.register("unsolved_v0", Unsolved)
    pettingllms.register("needy_v0", lambda *, game: guess_env())
    pettingllms.register("lost_v0", "no_such_module_at_all:Env")
    pettingllms.register("nameless_v0", "json:NoSuchName")


@pytest.mark.parametrize(
    ("env_id", "kwargs", "kind", "message"),
    [
        ("plan_pth_v0", {}, UnknownEnvironment, 'did you mean "plan_path_v0"'),
        ("zzz", {}, LookupError, "zzz.\\. Installed: "),
        ("PLAN-path_v0", {}, UnknownEnvironment, 'did you mean "plan_path_v0"'),
        ("lost_v0", {}, EnvironmentNotLoadable, "lost_v0.*announced as.*cannot be loaded"),
        ("nameless_v0", {}, EnvironmentNotLoadable, "nameless_v0.*announced as.*cannot be loaded"),
        ("needy_v0", {}, InvalidArgument, "a value for 'game'"),
        ("guess_v0", {"max_turn": 2}, InvalidArgument, 'did you mean "max_turns"'),
        ("guess_v0", {"difficulty": "hard"}, InvalidArgument, "none: it has no difficulties"),
        ("unsolved_v0", {"solved_share": 0.5}, InvalidArgument, "no scripted policy oracle"),
        ("sokoban_v0", {"difficulty": "hrad"}, InvalidArgument, "hrad.*did you mean .hard"),
        ("sokoban_v0", {"difficulty": 8}, InvalidArgument, "0 to 7, or easy, paper"),
        ("sokoban_v0", {"difficulty": -1}, InvalidArgument, "0 to 7"),
        ("sokoban_v0", {"difficulty": True}, InvalidArgument, "0 to 7"),
        ("sokoban_v0", {"difficulty": 1.0}, InvalidArgument, "0 to 7"),
    ],
)
def test_what_cannot_be_made_says_why(odd_ids, env_id, kwargs, kind, message):
    with pytest.raises(kind, match=message):
        pettingllms.make(env_id, **kwargs)


def test_no_environment_installed_is_explained(monkeypatch):
    monkeypatch.setattr("pettingllms.registry._announced", dict)
    monkeypatch.setattr("pettingllms.registry._registered", {})
    with pytest.raises(UnknownEnvironment, match="pip install -e"):
        pettingllms.make("plan_path_v0")


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda env: pickle.loads(pickle.dumps(env))])
def test_made_environments_can_be_copied_and_sent_to_other_processes(copied):
    env = pettingllms.make("plan_path_v0", checks=False)
    env.reset(seed=3)
    twin = copied(env)
    env.step("x")
    assert twin.agent_selection == env.possible_agents[0]
    twin.step("x")
    assert twin.state_hash() == env.state_hash()


def test_registered_defaults_are_overridden_by_arguments(guess_id, guess_env):
    pettingllms.register("guess_v1", guess_env, kwargs={"max_turns": 7, "alpha": 0.5})
    env = pettingllms.make("guess_v1", alpha=2.0)
    assert (env.max_turns, env.alpha) == (7, 2.0)


@pytest.mark.parametrize(
    ("id", "entry_point", "message"),
    [
        ("Guess", "a:b", "_v<number>"),
        ("plan_path_v0", "a:b", "not taken"),
        ("guess_v9", "no colon", "module:attribute"),
    ],
)
def test_ill_formed_registrations_are_refused(guess_id, id, entry_point, message):
    with pytest.raises(InvalidArgument, match=message):
        pettingllms.register(id, entry_point)


def test_unknown_names_of_the_package_are_refused():
    with pytest.raises(AttributeError, match="no attribute 'mak'"):
        pettingllms.mak  # noqa: B018


def test_importing_the_package_reads_the_entry_points_of_no_other():
    code = (
        "import importlib.metadata as metadata\n"
        "def refuse(*args, **kwargs): raise AssertionError('entry points were read')\n"
        "metadata.entry_points = metadata.EntryPoint.load = refuse\n"
        "import gymnasium, pettingllms\n"
        "assert 'pettingllms/Sokoban-v0' in gymnasium.registry\n"
        "from pettingllms.plugins import installed\n"
        "assert not installed.cache_info().currsize\n"
        "try: pettingllms.registered_ids()\n"
        "except AssertionError: pass\n"
        "else: raise SystemExit('the trap does not work')\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_level_stands_for_arguments_and_others_win():
    hard = pettingllms.make("sokoban_v0", difficulty="hard", checks=False)
    again = pettingllms.make("sokoban_v0", checks=False, **hard.spec.kwargs)
    assert "level" not in hard.spec.kwargs
    hard.reset(seed=1)
    again.reset(seed=1)
    assert hard.state_hash() == again.state_hash()
    assert hard.state().level.boxes.bit_count() == 3
    assert hard.difficulty == again.difficulty == 3
    fewer = pettingllms.make("sokoban_v0", difficulty=3, boxes=2, checks=False)
    fewer.reset(seed=1)
    assert fewer.state().level.boxes.bit_count() == 2
    assert fewer.difficulty is None


def test_a_file_that_has_no_none_can_ask_for_all_splits():
    levels = []
    for split in ("all", None, "test"):
        env = pettingllms.make("queens_v0", split=split, checks=False)
        levels.append([env.reset(seed=seed) or env.state_hash() for seed in range(9)])
    assert levels[0] == levels[1] != levels[2]


BIG = ("torch", "transformers", "pettingllms_envs", "pydantic", "numpy", "gymnasium", "pettingzoo")
TOOLS = ("click", "rich", "scipy", "openai", "aiolimiter", "torch")
OURS = ("pettingllms.cli", "pettingllms.policies", "pettingllms.evaluation")
LIBRARIES = ("openenv", "ray", "tianshou", "trl", "verifiers", "textarena", "supersuit", "torch")
ADAPTERS = ("gymnasium", "pettingzoo", "tokenised", "trl", "rllib", "tianshou", "textarena")


@pytest.mark.parametrize(
    ("code", "absent"),
    [
        ("import pettingllms", BIG),
        ("import pettingllms.sandbox", BIG),
        ("import pettingllms; pettingllms.make('plan_path_v0').reset(seed=0)", (*TOOLS, *OURS)),
        ("".join(f"import pettingllms.adapters.{name};" for name in ADAPTERS), LIBRARIES),
    ],
    ids=["core", "sandbox", "an episode", "adapters"],
)
def test_what_is_imported_loads_nothing_that_it_does_not_need(code, absent):
    code += f"\nimport sys; print(*{set(absent)} & sys.modules.keys())"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_a_package_without_arrays_is_complete_when_gymnasium_is_there():
    code = (
        "import sys, pettingllms, gymnasium\n"
        "assert 'make' in dir(pettingllms) and pettingllms.registered_ids()\n"
        "assert 'pettingllms/Sokoban-v0' in gymnasium.registry"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


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
