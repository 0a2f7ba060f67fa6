"""Arguments, options, seeds and levels work, whatever they are, or are refused in clear words."""

import inspect
import json
import random
import re
from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import pettingllms
from pettingllms import PromptTemplate
from pettingllms.errors import (
    InvalidArgument,
    LevelFormatError,
    PettingLLMsError,
    UnreachableRequest,
)
from pettingllms.testing import play
from pettingllms.testing.play import scripted_actor
from pettingllms_envs.blocksworld.env import parse_level as blocksworld
from pettingllms_envs.datasets import CodeProblem, MathProblem
from pettingllms_envs.dining.env import parse_level as dining
from pettingllms_envs.plan_path import PlanPathEnv
from pettingllms_envs.plan_path.env import parse_level as plan_path
from pettingllms_envs.queens.env import parse_level as queens
from pettingllms_envs.search.tasks import parse_task as search
from pettingllms_envs.sokoban import SokobanEnv
from pettingllms_envs.sokoban.env import read_level as sokoban
from pettingllms_envs.sudoku import SudokuEnv
from pettingllms_envs.sudoku.env import read_puzzle as sudoku

NUMPY = [
    (SokobanEnv, {"size": np.int64(7), "boxes": np.uint8(2), "wall_ratio": np.float32(0.25)}),
    (SokobanEnv, {"max_turns": np.int32(3), "moves_per_turn": np.int8(15), "alpha": np.float32(2)}),
    (SudokuEnv, {"size": np.int64(9), "clues": np.int16(40), "singles_only": np.bool_(True)}),
    (PlanPathEnv, {"rows": np.int8(9), "cols": np.int64(12), "obstacle_ratio": np.float64(0.2)}),
    (PlanPathEnv, {"min_moves": np.int8(5), "max_moves": np.uint8(20)}),
]
IDS = pettingllms.registered_ids()
MESSAGES = json.loads(Path(__file__).with_name("messages.json").read_text("utf-8"))
PARAMETERS = [
    (env_id, name)
    for env_id in IDS
    for name in inspect.signature(pettingllms.spec(env_id).load()).parameters
]
ONE_OF_EACH = [(env_id, name) for name, env_id in dict(p[::-1] for p in PARAMETERS[::-1]).items()]
"""Every name once: what games share takes one path, and each game has the odd values below."""
OPTIONS = [(env_id, name) for env_id in IDS for name in ("level", "family", "problem")]
TASK = '{"question": "q?", "answers": ["x"], "documents": [{"title": "a", "text": ""}]}'
LEVELS = {
    "blocksworld_v0": ["AB C -> CBA", "AB -> BA"],
    "queens_v0": ["Q...\n...F\nQ...\n..Q.", ".F..\nQ...\nF...\nQ..."],
    "plan_path_v0": ["P.G", "P..#\n##..\n...G"],
    "search_v0": [TASK, TASK.replace("q?", "Who?")],
    "sokoban_v0": ["#######\n#@ $ .#\n#     #\n#######", "#####\n#@$.#\n#####"],
    "sudoku_v0": ["12..34..2143432.", "..34341221434321"],
}
"""The first is given where nothing else depends on it, so that none has to be searched."""
DINING = ["1 1 1 / . . .", "1 2 1 / . 0 ."]


class Odd:
    """Neither a number nor a text nor a collection."""

    def __repr__(self):
        return "Odd()"


VALUES = [
    *(True, False, -1, 0, 1, 3, 10**9, 10**400, 2.5, 6.0, float("nan"), float("inf"), 1j),
    *("", "x", "4", "\0", "{", "P", b"x", Odd(), Odd, iter("x"), range(3), lambda: 3),
    *([], [4], ["x"], ("x",), [["x"]], [None], (2.5, 3), (3, 1), (True, 2), (1, 2, 3), {"a"}),
    *({}, {"a": ["a"]}, {3: {}}, {"planner": 3}, {"planner": {"user": 3}}),
    {"planner": {3: ""}},
    {"planner": {"user": "{"}},
    {"planner": {"user": "{board!z}"}},
    {"planner": {"user": "{board:>q}"}},
    {"planner": {"user": "{board.size}"}},
    {"planner": PromptTemplate("", None)},
    MathProblem("a", "b", "c"),
    [MathProblem("a", "b", "c")],
    [CodeProblem("a", "b", ())],
]
PLAIN = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(max_size=6), st.binary(max_size=3)
)
ANY = st.recursive(
    PLAIN,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.tuples(inner, inner),
        st.dictionaries(st.text(max_size=4) | st.integers(), inner, max_size=2),
    ),
    max_leaves=4,
)


def begin(env_id, kwargs, options=None, seed=0):
    """Make an environment and read what its first agent reads."""
    levels = {} if "size" in kwargs else {"levels": LEVELS[env_id][:1]} if env_id in LEVELS else {}
    env = pettingllms.make(env_id, **{**levels, **kwargs})
    env.reset(seed=seed, options=options)
    env.observe(env.agent_selection)


def refusal(*args, **kwargs):
    """Return the error of the library with which `begin` ends, or None; others are failures."""
    try:
        begin(*args, **kwargs)
    except PettingLLMsError as error:
        return error
    return None


def works_or_is_refused(name, *args, **kwargs):
    error = refusal(*args, **kwargs)
    if isinstance(error, LevelFormatError):
        assert "level" in name, error
    elif isinstance(error, InvalidArgument):
        assert re.search(rf"{name}.*: got .*; allowed: .", str(error), re.DOTALL), error
    elif error is not None:
        assert name in str(error), error


@pytest.mark.parametrize(("env_id", "name"), PARAMETERS)
def test_arguments_of_wrong_kinds(env_id, name):
    for value in VALUES:
        works_or_is_refused(name, env_id, {name: value})


@pytest.mark.parametrize(("env_id", "name"), ONE_OF_EACH)
@settings(max_examples=20)
@given(value=ANY)
def test_arguments_of_any_kind(env_id, name, value):
    is_pattern = isinstance(value, str) and set(value) & set("*?[/")  # reads files, or the hub
    assume(not (is_pattern and name in ("levels", "source")))
    works_or_is_refused(name, env_id, {name: value})


@pytest.mark.parametrize(("env_id", "name"), OPTIONS)
def test_options_of_wrong_kinds(env_id, name):
    for value in VALUES:
        works_or_is_refused(name, env_id, {}, options={name: value})


@pytest.mark.parametrize("env_id", IDS)
def test_what_are_no_options_and_no_seeds(env_id):
    for value in VALUES:
        works_or_is_refused("options", env_id, {}, options=value)
        works_or_is_refused("seed", env_id, {}, seed=value)


@pytest.mark.parametrize("value", VALUES, ids=lambda value: type(value).__name__)
def test_what_is_no_id(value):
    with pytest.raises(PettingLLMsError, match=r"invalid id: got|no environment"):
        pettingllms.make(value)
    with pytest.raises(InvalidArgument, match="invalid id: got"):
        pettingllms.register(value, Odd)


@pytest.mark.parametrize(
    ("env_id", "kwargs", "message"),
    [*MESSAGES, ("code_v0", {"source": [CodeProblem("a", "b", ())]}, "Problem 0: no tests")],
)
def test_messages(env_id, kwargs, message):
    with pytest.raises((InvalidArgument, UnreachableRequest)) as caught:
        pettingllms.make(env_id, **kwargs)
    assert message in str(caught.value)


@pytest.mark.parametrize(("cls", "kwargs"), NUMPY)
def test_numbers_of_numpy_are_numbers(cls, kwargs):
    """Made directly or by id, they give the same episodes as Python's numbers, and JSON data."""
    plain = {name: value.item() for name, value in kwargs.items()}
    made = pettingllms.make(cls.metadata["name"], checks=False, **kwargs)
    assert json.loads(json.dumps(made.spec.kwargs)) == plain
    envs = [cls(**plain), cls(**kwargs), made]
    episodes = []
    for env in envs:
        env.reset(seed=np.int64(3))
        steps = play(env, scripted_actor("random", random.Random(0)))
        assert json.dumps(steps[-1]["info"])
        episodes.append(steps)
    assert episodes[0] == episodes[1] == episodes[2]


@pytest.mark.parametrize("value", [np.float64(6.0), np.bool_(True), np.array([6]), np.int64(3)])
def test_other_values_of_numpy_are_refused(value):
    with pytest.raises(InvalidArgument, match="size"):
        SokobanEnv(size=value)


@pytest.mark.parametrize(("env_id", "levels"), {**LEVELS, "dining_v0": DINING}.items())
def test_levels_come_from_texts_files_and_options(env_id, levels, tmp_path):
    one, other = levels
    fits = {"philosophers": 3} if env_id == "dining_v0" else {}
    (tmp_path / "a.txt").write_text("\n\n".join(levels) + "\n")
    (tmp_path / "b.txt").write_text(f"\n\n{one}\n")
    (tmp_path / "[1]").write_text("\n\n".join(levels))
    for given_levels in (levels, tmp_path / "*.txt", str(tmp_path / "a.txt"), tmp_path / "[1]"):
        env = pettingllms.make(env_id, checks=False, levels=given_levels, split=None, **fits)
        seen = set()
        for seed in range(20):
            env.reset(seed=seed)
            seen.add(env.level_hash())
        assert len(seen) == 2
    env.reset(seed=0, options={"level": one})
    first = env.level_hash()
    env.reset(seed=0, options={"level": other})
    assert {first, env.level_hash()} == seen
    (tmp_path / "c.txt").write_text(f"{one}\n\n?!\n")
    (tmp_path / "d.txt").write_text("\n")
    for wrong, kind, word in [
        ([], InvalidArgument, "levels"),
        ([3], InvalidArgument, "levels"),
        (str(tmp_path / "nothing*"), InvalidArgument, "No file matches"),
        ("#" * 5000, InvalidArgument, "No file matches"),
        (tmp_path / "c.txt", LevelFormatError, rf"c\.txt.*line {one.count(chr(10)) + 3}"),
        (tmp_path / "d.txt", LevelFormatError, r"d\.txt.* holds no level"),
    ]:
        with pytest.raises(kind, match=word):
            pettingllms.make(env_id, levels=wrong, **fits)
    for level, kind in ((5, InvalidArgument), ("?!", LevelFormatError)):
        with pytest.raises(kind):
            env.reset(seed=0, options={"level": level})


READERS = {
    "blocksworld": blocksworld,
    "dining": dining,
    "plan_path": plan_path,
    "queens": queens,
    "search": search,
    "sokoban": sokoban,
    "sudoku": sudoku,
}
CASES = json.loads(Path(__file__).with_name("ill_formed_levels.json").read_text("utf-8"))
"""By game: the text, the line and column that the error names (null: not asked), its words."""


@pytest.mark.parametrize(
    ("game", "text", "line", "column", "problem"),
    [(game, *case) for game, cases in CASES.items() for case in cases],
)
def test_ill_formed_levels_are_refused_with_their_place(game, text, line, column, problem):
    with pytest.raises(LevelFormatError, match=problem) as caught:
        READERS[game](text)
    assert line in (None, caught.value.line)
    assert column in (None, caught.value.column)
