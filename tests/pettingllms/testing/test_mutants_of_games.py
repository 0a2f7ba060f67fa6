"""The mutation suite on the built-in games: the faults that an earlier kit did not notice."""

import random

import pytest

from pettingllms import ParseError
from pettingllms.testing.processes import check_other_process
from pettingllms_envs.blocksworld import BlocksworldEnv
from pettingllms_envs.plan_path import PlanPathEnv
from pettingllms_envs.plan_path.rules import maze_of
from pettingllms_envs.queens import QueensEnv
from pettingllms_envs.sokoban import SokobanEnv
from pettingllms_envs.sudoku import SudokuEnv

GAMES = [BlocksworldEnv, PlanPathEnv, QueensEnv, SokobanEnv, SudokuEnv]


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
        def __init__(self, *, split="train", max_turns=4, team="single"):
            super().__init__(max_turns=max_turns, team=team)

    return Mutant


def counts_timeouts_as_success(base):
    class Mutant(base):
        def step(self, action):
            super().step(action)
            if any(self.truncations.values()):
                self.infos = {a: {**info, "success": True} for a, info in self.infos.items()}

    return Mutant


MUTANTS = [
    (success_on_any_answer, "All 6 levels are solved by: .*answering other levels"),
    (pays_every_action, "silence earns planner_0 4.000 without solving anything"),
    (pays_by_length, "Length is not paid: .* characters earn planner_0"),
    (ignores_the_split, "the split is ignored or leaks"),
    (counts_timeouts_as_success, "the episode of a silent team is a success"),
]


@pytest.mark.parametrize("game", GAMES)
@pytest.mark.parametrize(("mutant", "message"), MUTANTS, ids=lambda v: getattr(v, "__name__", ""))
def test_faults_of_games_are_named(faults, mention, game, mutant, message):
    mention(faults(mutant(game), team="single"), message)


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
                towards += maze.to_goal[following] < maze.to_goal[cell]
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


@pytest.mark.parametrize("game", GAMES)
def test_levels_that_depend_on_hash(faults, mention, game):
    class Mutant(game):
        def _generate(self, rng, options):
            return super()._generate(random.Random(hash(f"level {rng.random()}")), options)

    found = faults(lambda: Mutant(team="single"), [check_other_process])
    mention(found, "depend on `hash\\(\\)`")
