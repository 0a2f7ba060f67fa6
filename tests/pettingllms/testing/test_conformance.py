"""`check_env` and its report: what passes, what is skipped and said so, and what is refused."""

import itertools
import random
import re
import threading
import warnings

import pytest

from pettingllms import testing
from pettingllms.errors import ConformanceError, UnreachableRequest
from pettingllms.testing.conformance import finding_of
from pettingllms.testing.incentives import check_alignment
from pettingllms.testing.interface import check_parallel
from pettingllms.testing.observations import check_answers_hidden, check_private
from pettingllms.testing.play import scripted_actor
from pettingllms.testing.report import NotPromised, Subject
from pettingllms.testing.states import check_splits, check_state_key, check_variety


def statuses(report):
    return {finding.check: finding.status for finding in report.findings}


def test_the_report_lists_every_check_and_what_was_measured(corridor_env):
    report = testing.check_env(corridor_env, longest=20)
    assert report.env == "CorridorEnv(longest=20)"
    assert [finding.promise for finding in report.findings] == [
        *map(testing.promise_of, testing.CHECKS)
    ]
    not_kept = [f.check for f in report.findings if f.status is not testing.CheckStatus.KEPT]
    assert not_kept == [
        *("parallel", "rendering", "difficulties", "shortest"),
        *("same_moment", "private", "state_key"),
    ]
    assert report.figures["different levels among 300 of train"] > 200
    assert report.figures["mean return of the oracle"] == pytest.approx(2.0)
    assert report.figures["highest return of a degenerate policy in an unsolved episode"] < 1
    table = str(report)
    assert all(finding.promise in table for finding in report.findings)
    assert "The roles act one after another." in table
    assert "mean return of the oracle" in table
    data = report.to_json()
    assert data["env"] == report.env
    assert [finding["status"] for finding in data["findings"]] == [
        finding.status for finding in report.findings
    ]


def test_an_id_that_is_registered_in_this_process_is_checked_in_others_too(guess_id):
    report = testing.check_env(guess_id, max_turns=4)
    assert report.env == "guess_v0(max_turns=4)"
    assert statuses(report)["other_process"] is testing.CheckStatus.KEPT


def test_what_is_no_text_env_is_refused():
    class Other:
        unwrapped = object()

    with pytest.raises(ConformanceError, match="is not a pettingllms"):
        testing.check_env(Other)


def test_all_broken_promises_are_listed_and_the_cause_is_chained(corridor_env):
    class Faulty(corridor_env):
        def _act(self, state, agent, action):
            return super()._act(state, agent, action)._replace(info={"mood": 1}, local=1e9)

    with pytest.raises(ConformanceError, match=r"broken promises:(.|\n)*mood") as error:
        testing.check_env(Faulty)
    assert str(error.value).count("\n- ") > 2
    assert error.value.__cause__ is not None


def unsolved(kind):
    return type("Unsolved", (kind,), {"__doc__": kind.__doc__, "scripted_policies": ("random",)})


def without_test_levels(kind):
    class Tiny(kind):
        __doc__ = kind.__doc__

        def _generate(self, rng, options):
            if self.split == "test":
                raise UnreachableRequest("no levels of this kind")
            return super()._generate(rng, options)

    return Tiny


def held_by_a_lock(kind):
    lock = threading.Lock()

    def make(split=None, max_turns=4, reward="shaped"):
        with lock:
            return kind(split=split, max_turns=max_turns, reward=reward)

    return make


def over_in_a_turn(kind):
    class Short(kind):
        __doc__ = kind.__doc__

        def _act(self, state, agent, action):
            done = super()._act(state, agent, action)
            return done._replace(terminated=done.terminated or agent == "walker_0")

    return Short


OF_ARGUMENTS = {"splits", "long_episodes", "outcome", "max_turns"}
INCENTIVES = {
    *("unsolved", "long_episodes", "detours", "giving_up", "other_answers", "length"),
    *("cheap_policies", "one_answer", "whole_answer", "answers_hidden"),
}


@pytest.mark.parametrize(
    ("change", "kwargs", "checks", "why"),
    [
        (lambda kind: lambda: kind(split="test"), {}, OF_ARGUMENTS, "pass the class and its arg"),
        (unsolved, {}, INCENTIVES, "no scripted policy 'oracle'"),
        (lambda kind: kind, {"alpha": 0.0}, INCENTIVES, "alpha=0"),
        (without_test_levels, {}, {"splits"}, "no levels of this kind"),
        (held_by_a_lock, {}, {"other_process"}, "cannot be sent to another process"),
        (
            over_in_a_turn,
            {"longest": 8},
            {"timeouts"},
            "No episode could be made to last max_turns",
        ),
    ],
    ids=["no arguments", "no oracle", "no team reward", "no levels", "a lock", "short"],
)
def test_what_cannot_be_checked_is_skipped_and_said(corridor_env, change, kwargs, checks, why):
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        report = testing.check_env(change(corridor_env), **kwargs)
    reasons = {finding.check: finding.message for finding in report.of(testing.CheckStatus.SKIPPED)}
    texts = [str(w.message) for w in caught if w.category is testing.ConformanceWarning]
    for text, reason in zip(texts, reasons.values(), strict=True):
        assert "not checked" in text
        assert reason in text
    assert checks == {check for check, reason in reasons.items() if why in reason}
    assert reasons.keys() - checks <= {"detours"}


def test_what_is_not_promised_is_said(guess_env):
    class Alike(guess_env):
        metadata = {**guess_env.metadata, "seed_shows": False}

        def _generate(self, rng, options):
            return super()._generate(rng, {"secret": 5})

    given = Subject("plan_path_v0", {"team": "single", "levels": ["P..#\n##..\n...G"] * 2})
    for check, subject, message in (
        (check_variety, Subject(Alike, {}), ""),
        (check_splits, given, "The levels are given; they have no splits."),
        (check_splits, Subject(guess_env, {}), "The environment has no argument 'split'."),
        (check_parallel, Subject(guess_env, {}), "The roles act one after another."),
        (check_answers_hidden, Subject(guess_env, {"max_turns": 1}), "Nothing was looked for"),
    ):
        finding = finding_of(check, subject)
        assert finding.status is testing.CheckStatus.NOT_PROMISED
        assert message in finding.message


def test_what_was_not_looked_for_is_said(guess_env):
    class Short(guess_env):
        """Its numbers have two digits, which any prompt may show by chance."""

        private_fields = ("secret",)

    skipped, partial = testing.CheckStatus.SKIPPED, testing.CheckStatus.KEPT
    for env, status, missed in ((Short, skipped, "secret"), ("dining_v0", partial, "need_compact")):
        finding = finding_of(check_private, Subject(env, {}))
        assert (finding.status, finding.message.split(" was ")[0]) == (
            status,
            f"Nothing of {missed}",
        )


def test_undocumented_environments_are_found(guess_env):
    with pytest.raises(ConformanceError, match="sections"):
        testing.check_documentation(guess_env())


def test_transcripts_tell_all(guess_env):
    text = testing.transcript_of(guess_env(), 1, scripted_actor("oracle", random.Random(0)))
    assert text.startswith("seed 1 agents teller_0, guesser_0\n---- step 0 turn 0 teller_0 reads\n")
    assert text.endswith("terminated\n")


def test_examining_raises_nothing_of_what_it_finds(corridor_env):
    class Faulty(corridor_env):
        def _parse(self, state, agent, text):
            raise RuntimeError("no reader today")

    broken = testing.examine_env(Faulty).of(testing.CheckStatus.BROKEN)
    told = [one.message for one in broken if one.message != "As pettingzoo."]
    assert f"RuntimeError: no reader today ({__file__}, line " in told[0]
    assert len(told) == len(set(told)) < len(broken)
    assert not any("\n" in one for one in told), "no traceback"


def test_outcome_alignment_tells_a_shaped_reward_from_a_sparse_one(corridor_env):
    def figures(**kwargs):
        return check_alignment(Subject(corridor_env, kwargs))

    assert (
        figures()["outcome alignment of these"]
        > figures(reward="outcome")["outcome alignment of these"]
    )
    assert 0 < figures()["decisions whose answer decides the outcome"] <= 1


def test_it_is_said_where_agents_read_more_than_what_counts(corridor_env):
    class Placed(corridor_env):
        def _key_json(self, state):
            return state.position

    with pytest.raises(NotPromised, match="the whole state counts"):
        check_state_key(Subject(corridor_env, {}))
    finding = finding_of(check_state_key, Subject(Placed, {}))
    figures, (shown,) = finding.figures, finding.message.splitlines()
    assert figures["states met again"] > 0
    # The walker reads the advice, which the key leaves out; the scout does not.
    assert figures["walker reads more than the key"] > figures["scout reads more than the key"] == 0
    assert re.fullmatch(
        r"Seed 0, key \d+: walker reads '.*says: [LR]+' or '.*says: [LR]+'\.", shown
    )


def test_who_never_reads_the_same_twice_reads_more_every_time(corridor_env):
    class Numbered(corridor_env):
        numbers = itertools.count()

        def _key_json(self, state):
            return "anywhere"

        def _fields(self, state, agent, turn):
            return {**super()._fields(state, agent, turn), "where": f"No. {next(self.numbers)}"}

    figures = check_state_key(Subject(Numbered, {}))
    assert [figures[f"{role} reads more than the key"] for role in ("scout", "walker")] == [1, 1]
