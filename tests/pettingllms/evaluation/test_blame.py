"""Blame and cross-play: figures that are known by hand."""

import asyncio

import pytest

import pettingllms
from pettingllms.env import role_of
from pettingllms.errors import InvalidArgument, ReplayDivergence
from pettingllms.evaluation import (
    BlameSettings,
    EvaluationStopped,
    Interval,
    weighted_sum,
    wilson_interval,
)
from pettingllms.evaluation.blame import Seat, coalitions_of, judge, players_of, shapley_weights
from pettingllms.evaluation.crossplay import Cell, cells_of, cross_play, crossplay_plan
from pettingllms.evaluation.sides import RunTeam
from pettingllms.policies import Answer, Completion, Sampling, Usage
from pettingllms.transcript import RecordTranscripts

AGENTS = ("teller_0", "guesser_0")


class Says:
    """Answers what a function of the prompt says; keeps the prompts."""

    def __init__(self, say):
        self.say, self.prompts = say, []

    async def sample(self, prompts, n, sampling):
        self.prompts += prompts
        texts = [self.say(prompt) for prompt in prompts]
        return [Answer((Completion(text, "stop"),), Usage(1, 0, 3, 2)) for text in texts]


def secret(prompt):
    return str(prompt.env.state().secret)


def hint(prompt):
    return prompt.env.state().hint


def wrong(prompt):
    return "0"


def team(**says):
    return {agent: Seat(Says(says[role_of(agent)])) for agent in AGENTS}


@pytest.fixture
def recorded(guess_id):
    """Return a function that records an episode in which the agents say given texts."""

    def record(*texts, **kwargs):
        recorder = RecordTranscripts(pettingllms.make(guess_id, **{"max_turns": 1} | kwargs))
        recorder.reset(seed=3)
        for text in texts:
            recorder.step(text)
        return recorder.transcript

    return record


def judged(transcript, present, other=None, **settings):
    return asyncio.run(judge(transcript, present, other, BlameSettings(**settings)))


def test_the_sum_is_newcombes_for_two_shares():
    """His example (1998, table II, row a): 56 of 70 against 48 of 80."""
    shares = [Interval(k / n, *wilson_interval(k / n, n)) for k, n in ((56, 70), (48, 80))]
    assert weighted_sum((1, -1), shares) == pytest.approx((0.2, 0.0524, 0.3339), abs=5e-5)


def test_the_answer_that_broke_what_follows_has_the_whole_drop(recorded):
    """A guesser who repeats hints is not to blame for a wrong one."""
    found = judged(recorded("0", "0"), team(teller=secret, guesser=hint), num_replays=24)
    told, guessed = found.answers
    assert (told.before.value, told.after.value, told.drop.value) == (1, 0, 1)
    assert (guessed.drop.value, guessed.drop.low) == (0, 0), "the end is known: it was lost"
    assert (found.top, found.is_clear) == (told, True)
    one, other = (wilson_interval(share, 24, 0.975) for share in (1, 0))
    distance = ((1 - one[0]) ** 2 + other[1] ** 2) ** 0.5
    assert told.drop == pytest.approx((1, 1 - distance, 1)), "Bonferroni over both answers"
    assert found.usage == Usage(72, 0, 216, 144), "24 times two answers, and one"
    assert found.shares == {}


def test_what_policies_always_get_wrong_is_missed_not_dropped(recorded):
    present, expert = team(teller=secret, guesser=wrong), team(teller=secret, guesser=secret)
    found = judged(recorded("1", "0"), present, expert, num_replays=20)
    assert [answer.drop.value for answer in found.answers] == [0, 0]
    assert [answer.missed.value for answer in found.answers] == [0, 1]
    assert [answer.missed.low > 0 for answer in found.answers] == [False, True]
    assert {name: share.value for name, share in found.shares.items()} == {
        "teller": 0,
        "guesser": 1,
    }


def test_a_return_counts_what_was_earned_before(recorded):
    """The right hint pays 0.5 to the teller; the mean over two agents is 0.25."""
    present = team(teller=secret, guesser=wrong)
    found = judged(recorded("0", "0"), present, measure="return", num_replays=2)
    assert found.answers[0].drop == pytest.approx((0.25, 0.25, 0.25))
    assert found.answers[1].drop.value == 0
    assert found.answers[0].after.value == 0


def test_an_unfinished_episode_is_judged_by_what_follows(recorded):
    found = judged(recorded("0"), team(teller=secret, guesser=hint), num_replays=8)
    (told,) = found.answers
    assert told.drop.value == 1
    assert told.after.high > 0, "played on, so not known exactly"


def test_replays_keep_what_was_said_before(recorded):
    """With observations of news only, a fork's chat is that of the recorded episode."""
    transcript = recorded("7", "8", "9", max_turns=2, observation_mode="delta")
    present = team(teller=secret, guesser=wrong)
    judged(transcript, present, num_replays=2)
    chats = {len(p.messages): p.messages for p in present["guesser_0"].policy.prompts}
    longest = [message["content"] for message in chats[max(chats)]]
    assert transcript.steps[1]["observation"].endswith(longest[1])
    assert longest[2] == "8"
    assert longest[3] == "Hint: 9. Last answer: 8."


def test_failed_replays_are_left_out_until_they_are_too_many(recorded):
    calls = []

    def sometimes(prompt):
        calls.append(prompt)
        if len(calls) == 3:
            raise OSError("lost")
        return secret(prompt)

    transcript = recorded("0", "0")
    found = judged(transcript, team(teller=secret, guesser=sometimes), num_replays=4)
    assert found.num_failed == 1
    assert found.answers[0].before.value == found.answers[1].before.value == 1
    calls.clear()
    with pytest.raises(EvaluationStopped, match="lost"):
        judged(transcript, team(teller=secret, guesser=sometimes), max_failures=0)


def test_what_cannot_be_judged_is_refused(recorded):
    present = team(teller=secret, guesser=hint)
    with pytest.raises(InvalidArgument, match="at least one answer"):
        judged(recorded(), present)
    transcript = recorded("0", "0")
    transcript.steps[0]["state_hash"] = "0" * 32
    with pytest.raises(ReplayDivergence):
        judged(transcript, present)
    for num_replays in (1, 2.5):
        with pytest.raises(InvalidArgument, match="num_replays"):
            BlameSettings(num_replays=num_replays)


def test_shapley_shares_of_a_game_by_hand():
    """Three players; only a and b together lose everything, c never matters."""
    value = {kept: float(not {"a", "b"} <= kept) for kept in coalitions_of("abc")}
    shares = {
        player: sum(weight * value[kept] for kept, weight in shapley_weights(player, "abc").items())
        for player in "abc"
    }
    assert shares == pytest.approx({"a": 0.5, "b": 0.5, "c": 0})
    value[frozenset("c")] = 0.4
    c = sum(weight * value[kept] for kept, weight in shapley_weights("c", "abc").items())
    assert c == pytest.approx(0.6 * 2 / 6), "first of three in a third of all orders"


def test_players_are_roles_or_the_agents_of_one_role():
    assert players_of(("a_0", "a_1", "b_0")) == {"a": ("a_0", "a_1"), "b": ("b_0",)}
    assert players_of(("a_0", "a_1")) == {"a_0": ("a_0",), "a_1": ("a_1",)}


SEATS = ("a_0", "b_0")
X, Y = Cell(None, "x", "x"), Cell(None, "y", "y")
X_IN_Y, Y_IN_X = Cell("a", "x", "y"), Cell("a", "y", "x")


@pytest.fixture
def figures(result):
    """Return a function from team -> successes on each level to the figures."""

    def figures(solved):
        return cross_play(
            ["x", "y"],
            SEATS,
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


HALF = [True, False] * 15


@pytest.mark.parametrize(
    ("mixed", "coordinates", "clash"),
    [(HALF, False, -0.5), ([False] * 30, True, 0)],
    ids=["competence adds up", "competence multiplies"],
)
def test_a_strong_run_beside_one_that_never_wins_is_no_convention(
    figures, mixed, coordinates, clash
):
    """Where everybody must be good, the additive contrast is above 0 all the same."""
    found = figures({X: [True] * 30, Y: [False] * 30, X_IN_Y: mixed, Y_IN_X: mixed})
    (pair,) = found.pairs
    assert (pair.coordination.low > 0) == coordinates == (found.coordination.value != 0)
    assert pair.clash.value == clash
    assert found.conventions == []


def test_cells_of_more_players_move_each_of_them():
    agents = ("p_0", "p_1", "p_2")
    cells = cells_of(("x", "y"), agents)
    assert len(cells) == 2 + 3 * 2
    assert len({cell.variant for cell in cells}) == len(cells)
    assert cells_of(("x", "y"), SEATS) == [X, Y, X_IN_Y, Y_IN_X]
    for runs, team in ((("x",), SEATS), (("x", "x"), SEATS), (("x", "y"), ("a_0",))):
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
