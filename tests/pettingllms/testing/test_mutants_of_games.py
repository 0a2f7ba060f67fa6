"""The mutation suite on the built-in games: the faults that an earlier kit did not notice."""

import random

import pytest

from pettingllms import ParseError
from pettingllms.testing.interface import check_other_process
from pettingllms.testing.observations import check_private
from pettingllms_envs.blocksworld import BlocksworldEnv
from pettingllms_envs.dining import DiningEnv
from pettingllms_envs.fireworks import FireworksEnv
from pettingllms_envs.fireworks.rules import Discard, Hint
from pettingllms_envs.panel import PanelEnv
from pettingllms_envs.panel.text import GiveFloor, Statement
from pettingllms_envs.plan_path import PlanPathEnv
from pettingllms_envs.plan_path.rules import maze_of
from pettingllms_envs.queens import QueensEnv
from pettingllms_envs.relay import RelayEnv
from pettingllms_envs.relay.text import Build
from pettingllms_envs.search import SearchEnv
from pettingllms_envs.sokoban import SokobanEnv
from pettingllms_envs.sudoku import SudokuEnv

SINGLE = {"team": "single"}
GAMES = [
    *((game, SINGLE) for game in (BlocksworldEnv, PlanPathEnv, QueensEnv, SokobanEnv, SudokuEnv)),
    (DiningEnv, {"philosophers": 4, "meals": 1}),
    *((game, {}) for game in (FireworksEnv, PanelEnv, RelayEnv, SearchEnv)),
]


def success_on_any_answer(base):
    class Mutant(base):
        def _act(self, state, agent, action):
            done = super()._act(state, agent, action)
            if isinstance(action, ParseError):
                return done
            return done._replace(team=1.0, terminated=True, success=True)

    return Mutant


def pays_every_action(base):
    class Mutant(base):
        def _act(self, state, agent, action):
            return super()._act(state, agent, action)._replace(local=0.1)

    return Mutant


def pays_by_length(base):
    class Mutant(base):
        def step(self, action):
            self.length = len(action or "")
            super().step(action)

        def _act(self, state, agent, action):
            return super()._act(state, agent, action)._replace(local=1e-4 * self.length)

    return Mutant


def ignores_the_split(base):
    class Mutant(base):
        def __init__(self, *, split="train", max_turns=4, **kwargs):
            super().__init__(max_turns=max_turns, **kwargs)

    return Mutant


def counts_timeouts_as_success(base):
    class Mutant(base):
        def step(self, action):
            super().step(action)
            if any(self.truncations.values()):
                self.infos = {a: {**info, "success": True} for a, info in self.infos.items()}

    return Mutant


MUTANTS = [
    (success_on_any_answer, "All [0-9]+ levels are solved by: .*answering other levels"),
    (pays_every_action, r"silence earns \w+ [0-9.]+ without solving anything"),
    (pays_by_length, r"Length is not paid: .* characters earn \w+_0"),
    (ignores_the_split, "the split is ignored or leaks"),
    (counts_timeouts_as_success, "the episode of a silent team is a success"),
]


# By day one game in which one agent acts, and one in which several do; all of them at night.
BY_DAY = {SokobanEnv, DiningEnv}
CASES = [
    pytest.param(*case, id=case[0].__name__, marks=[] if case[0] in BY_DAY else pytest.mark.nightly)
    for case in GAMES
]


@pytest.mark.parametrize(("game", "kwargs"), CASES)
@pytest.mark.parametrize(("mutant", "message"), MUTANTS, ids=lambda v: getattr(v, "__name__", ""))
def test_faults_of_games_are_named(faults, mention, game, kwargs, mutant, message):
    mention(faults(mutant(game), **kwargs), message)


@pytest.mark.parametrize("size", [0.05, 1, 100])
def test_paying_every_step_towards_the_goal(faults, mention, size):
    class Mutant(PlanPathEnv):
        def _act(self, state, agent, action):
            done = super()._act(state, agent, action)
            if isinstance(action, ParseError):
                return done
            maze, cell, towards = maze_of(state.level), state.position, 0
            for move in done.info["executed"]:
                following = maze.step(cell, move)
                towards += maze.distance(following) < maze.distance(cell)
                cell = following
            paid = size * towards / state.level.shortest
            return done._replace(team=paid + done.success)

    found = faults(Mutant, team="single")
    mention(found, "(shuttle|greedy with retreat) and then the oracle's solution earns planner_0")
    if size >= 1:
        mention(found, "40 turns: shuttle earns planner_0 .* without solving anything")


def test_paying_for_promises_that_are_not_kept(faults, mention):
    class Mutant(PlanPathEnv):
        def _act(self, state, agent, action):
            done = super()._act(state, agent, action)
            if agent == "proposer_0":
                self.promised = done.team
                return done
            return done._replace(team=done.team + self.promised)

    found = faults(Mutant, team="proposer-planner")
    mention(found, "(shuttle|greedy with retreat) and then the oracle's solution earns")


@pytest.mark.parametrize(("game", "kwargs"), CASES)
def test_levels_that_depend_on_hash(faults, mention, game, kwargs):
    class Mutant(game):
        def _generate(self, rng, options):
            return super()._generate(random.Random(hash(f"level {rng.random()}")), options)

    found = faults(lambda: Mutant(**kwargs), [check_other_process])
    mention(found, "depend on `hash\\(\\)`")


@pytest.mark.parametrize("told", ["all", "one value", "what was asked for"])
def test_private_texts_of_others_are_named(faults, mention, told):
    class Mutant(PanelEnv):
        def _fields(self, state, agent, turn):
            shown = super()._fields(state, agent, turn)
            pairs = [f"{name} = {value}" for own in state.level.values for name, value in own]
            if told == "one value":
                pairs = pairs[1:2]
            if told == "what was asked for" and state.request:
                pairs = [pair for pair in pairs if pair.startswith(state.request)]
            return {**shown, "board": ", ".join(pairs)} if agent == "moderator_0" else shown

    assert not faults(PanelEnv, [check_private])
    mention(faults(Mutant, [check_private]), r"moderator_0 reads '\w = \d' of the field 'own'")


def pays_turns_that_were_survived(state, action, done):
    """Doing nothing keeps clear of deadlocks, which is how a team learns it (arXiv 2606.07845)."""
    return 0.2 * (done.state.turns_left < state.turns_left and not done.common["deadlock"])


def pays_forks_that_are_taken(state, action, done):
    return 0.3 * (done.info["choice"] in ("left", "right") and done.local == 0)


def pays_documents_that_are_not_needed(state, action, done):
    return 0.5 * (len(done.state.found) - len(state.found))


def pays_searches_without_a_cost(state, action, done):
    return 0.4 * ("hits" in done.info and isinstance(action, str))


def pays_statements_again(state, action, done):
    return 0.2 * (isinstance(action, Statement) and done.local == 0)


def pays_giving_the_floor(state, action, done):
    return 0.2 * isinstance(action, GiveFloor)


def pays_hints(state, action, done):
    return 0.4 * (isinstance(action, Hint) and done.local == 0)


def pays_discards(state, action, done):
    return 0.2 * (isinstance(action, Discard) and done.local == 0)


def pays_messages(state, action, done):
    return 0.4 * isinstance(action, str)


def pays_painting(state, action, done):
    return 0.2 * (isinstance(action, Build) and done.local == 0)


@pytest.mark.parametrize(
    ("game", "bonus", "message"),
    [
        (DiningEnv, pays_turns_that_were_survived, "silence earns philosopher_. .* without"),
        (DiningEnv, pays_forks_that_are_taken, "earns philosopher_. .* without solving"),
        (FireworksEnv, pays_hints, "without solving anything"),
        (FireworksEnv, pays_discards, "then the oracle's solution earns"),
        (RelayEnv, pays_messages, "then the oracle's solution earns"),
        (RelayEnv, pays_painting, "then the oracle's solution earns"),
        (SearchEnv, pays_documents_that_are_not_needed, "then the oracle's solution earns"),
        (SearchEnv, pays_searches_without_a_cost, "then the oracle's solution earns"),
        (PanelEnv, pays_statements_again, "then the oracle's solution earns"),
        (PanelEnv, pays_giving_the_floor, "then the oracle's solution earns"),
    ],
)
def test_paying_teams_for_something_else_than_success(faults, mention, game, bonus, message):
    class Mutant(game):
        def _act(self, state, agent, action):
            done = super()._act(state, agent, action)
            return done._replace(team=done.team + bonus(state, action, done))

    mention(faults(Mutant), message)
