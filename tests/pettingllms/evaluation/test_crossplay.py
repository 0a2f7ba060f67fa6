"""Cross-play: figures that are known by hand, and who plays in which team."""

import pytest

from pettingllms.errors import InvalidArgument
from pettingllms.evaluation.crossplay import Cell, cells_of, cross_play, crossplay_plan
from pettingllms.evaluation.sides import RunTeam
from pettingllms.policies import Sampling

AGENTS = ("a_0", "b_0")
X, Y = Cell(None, "x", "x"), Cell(None, "y", "y")
X_IN_Y, Y_IN_X = Cell("a", "x", "y"), Cell("a", "y", "x")


@pytest.fixture
def figures(result):
    """Return a function from team -> successes on each level to the figures."""

    def figures(solved):
        return cross_play(
            ["x", "y"],
            AGENTS,
            [
                result(level, success, variant=cell.variant)
                for cell, levels in solved.items()
                for level, success in enumerate(levels)
            ],
        )

    return figures


def test_the_figures_of_two_conventions(figures):
    many = [True] * 20
    found = figures({X: many, Y: many, X_IN_Y: [False] * 20, Y_IN_X: [False, True] * 10})
    assert (found.within.value, found.cross.value, found.coordination.value) == (1, 0.25, 0.75)
    assert found.cells[Y_IN_X].value == 0.5
    (pair,) = found.pairs
    assert (pair.coordination.value, pair.clash.value) == (0.75, 0.75)
    assert found.conventions == [("x", "y")]
    competence = {
        p: {run: f.value for run, f in own.items()} for p, own in found.competence.items()
    }
    assert competence == {"a": {"x": 0, "y": 0.5}, "b": {"x": 0.5, "y": 0}}
    data = found.to_json()
    assert data["conventions"] == [("x", "y")]
    assert data["cells"][2]["success"]["value"] == 0


def test_competence_that_adds_up_is_no_coordination(figures):
    """A strong run beside one that never wins: mixed teams win half of the time."""
    half = [True, False] * 15
    found = figures({X: [True] * 30, Y: [False] * 30, X_IN_Y: half, Y_IN_X: half})
    assert found.coordination.value == 0
    assert found.pairs[0].clash.value == -0.5
    assert found.conventions == []


def test_competence_that_multiplies_is_no_clash(figures):
    """Everybody must be good: the additive contrast is above 0, and no convention is claimed."""
    found = figures({X: [True] * 30, Y: [False] * 30, X_IN_Y: [False] * 30, Y_IN_X: [False] * 30})
    assert found.pairs[0].coordination.low > 0
    assert found.pairs[0].clash.value == 0
    assert found.conventions == []


def test_cells_of_more_players_move_each_of_them():
    agents = ("p_0", "p_1", "p_2")
    cells = cells_of(("x", "y"), agents)
    assert len(cells) == 2 + 3 * 2
    assert len({cell.variant for cell in cells}) == len(cells)
    assert cells_of(("x", "y"), AGENTS) == [X, Y, X_IN_Y, Y_IN_X]
    for runs, team in ((("x",), AGENTS), (("x", "x"), AGENTS), (("x", "y"), ("a_0",))):
        with pytest.raises(InvalidArgument):
            cells_of(runs, team)


def test_every_agent_is_played_by_the_run_it_comes_from(guess_id):
    def team(name, **changes):
        values = {"env_id": guess_id, "env_kwargs": {"max_turns": 2}, "sampling": {}, "levels": {}}
        policies = {"teller": f"mine:{name}", "guesser_0": f"mine:{name}2"}
        return RunTeam(**{**values, "policies": policies, **changes})

    agents = ("teller_0", "guesser_0")
    sizes = {"seed": 1, "num_levels": 4, "num_samples": 1}
    plan = crossplay_plan({"x": team("x"), "y": team("y")}, agents, **sizes)
    assert plan.variants == {
        "x": {"teller_0": "mine:x", "guesser_0": "mine:x2"},
        "y": {"teller_0": "mine:y", "guesser_0": "mine:y2"},
        "y, teller of x": {"teller_0": "mine:x", "guesser_0": "mine:y2"},
        "x, teller of y": {"teller_0": "mine:y", "guesser_0": "mine:x2"},
    }
    for changes, key in (
        ({"env_kwargs": {"max_turns": 3}}, "env.max_turns"),
        ({"sampling": {"teller": Sampling(temperature=0.5)}}, "sampling"),
    ):
        with pytest.raises(InvalidArgument, match=f"y, whose {key} differs"):
            crossplay_plan({"x": team("x"), "y": team("y", **changes)}, agents, **sizes)
