"""Playing a plan: results, failures, interruptions, going on."""

import asyncio
import json
import logging
import re

import pytest

import pettingllms
from pettingllms.ends import End
from pettingllms.errors import InvalidArgument
from pettingllms.evaluation import (
    EvaluationPlan,
    EvaluationStopped,
    RunFolder,
    RunFolderError,
    evaluate,
    summarise,
)
from pettingllms.evaluation.report import variant_rows
from pettingllms.policies import Answer, Completion, PolicyFailure, PolicyUnavailable, Usage


@pytest.fixture
def begin(guess_id, tmp_path):
    """Return a function that begins an evaluation of the small environment."""

    def begin(teller="oracle", guesser="oracle", folder="run", **changes):
        variants = {"main": {"teller": teller, "guesser": guesser}}
        plan = EvaluationPlan(
            **{"env_id": guess_id, "variants": variants, "num_levels": 12, **changes}
        )
        return RunFolder.create(tmp_path / folder, plan)

    return begin


def secret(prompt):
    return str(prompt.env.state().secret)


def test_the_oracle_solves_everything(begin):
    folder = begin()
    seen = []
    progress = evaluate(folder, on_progress=lambda p: seen.append(p.num_finished))
    assert progress.is_complete
    assert (progress.num_finished, progress.num_success) == (12, 12)
    assert sorted(set(seen)) == list(range(13))
    assert progress.num_answers <= 12 * progress.most_answers
    results = list(folder.results())
    assert sorted(result.level for result in results) == list(range(12))
    assert all(result.success and result.end == "answered" for result in results)
    assert all(result.returns == {"teller_0": 1.5, "guesser_0": 1.0} for result in results)
    assert all(result.roles["teller"].reward == 0.5 for result in results)


@pytest.mark.parametrize("concurrency", [1, 5, 100])
def test_results_do_not_depend_on_how_many_play_at_a_time(begin, concurrency):
    def outcomes(folder):
        found = []
        for result in folder.results(with_steps=True):
            data = result.to_json()
            del data["wall_s"]
            found.append(data)
        return sorted(found, key=lambda data: data["level"])

    one, other = begin("random", "random", "one"), begin("random", "random", "other")
    evaluate(one, max_concurrency=1)
    evaluate(other, max_concurrency=concurrency)
    assert outcomes(one) == outcomes(other)


def test_usage_unreadable_texts_and_returns_are_kept_per_role(begin, scripted):
    scripted("mine", lambda prompt: "no number" if prompt.agent == "teller_0" else "7777")
    folder = begin("mine", "mine", num_levels=2)
    evaluate(folder)
    for result in folder.results():
        teller, guesser = result.roles["teller"], result.roles["guesser"]
        assert (teller.num_actions, teller.parse_errors, teller.reward) == (3, 3, -0.75)
        assert (guesser.num_actions, guesser.parse_errors, guesser.reward) == (3, 0, 0)
        assert teller.usage == Usage(3, 0, 30, 9)
        assert (result.end, result.success, result.num_turns) == ("turns", False, 3)


def test_every_episode_replays_exactly(begin):
    folder = begin("random", "oracle", options={"secret": 42})
    evaluate(folder)
    plan = folder.plan
    for result in folder.results(with_steps=True):
        transcript = result.transcript(plan.env_id, plan.env_kwargs, plan.options)
        transcript.replay()
        assert transcript.steps[-1]["action"] == "42"


def test_every_prompt_is_built_once(begin, guess_id, monkeypatch):
    moments = []
    guess_class = type(pettingllms.make(guess_id).unwrapped)
    fields = guess_class._fields

    def counted(self, state, agent, turn):
        moments.append((agent, turn))
        return fields(self, state, agent, turn)

    monkeypatch.setattr(guess_class, "_fields", counted)
    folder = begin("random", "oracle", num_levels=1)
    evaluate(folder)
    (result,) = folder.results()
    assert len(moments) == sum(role.num_actions for role in result.roles.values()) > 1


@pytest.mark.parametrize(("mode", "lengths"), [("delta", [2, 4, 6]), ("full", [2, 2, 2])])
def test_chats_grow_in_delta_mode_only(begin, scripted, mode, lengths):
    policy = scripted("mine", lambda prompt: str(prompt.env.turn))
    evaluate(begin("oracle", "mine", num_levels=1, env_kwargs={"observation_mode": mode}))
    assert [len(prompt.messages) for prompt in policy.prompts] == lengths
    said = [(m["role"], m["content"]) for m in policy.prompts[-1].messages[2::2]]
    assert said == [("assistant", "0"), ("assistant", "1")][: len(said)]
    assert policy.is_closed


def test_what_a_policy_reads_of_its_own_answers_can_be_sent(begin, scripted):
    policy = scripted("mine", lambda prompt: "\ud800 1")
    evaluate(begin("oracle", "mine", num_levels=1, env_kwargs={"observation_mode": "delta"}))
    assert policy.prompts[-1].messages[2]["content"] == "\ufffd 1"


def test_failed_episodes_are_left_out_counted_and_made_up_for(begin, scripted):
    failing = {3, 7}
    by_seed = {}

    def say(prompt):
        level = by_seed[prompt.env.episode_seed]
        return PolicyFailure("the server coughed") if level in failing else secret(prompt)

    scripted("mine", say)
    folder = begin("oracle", "mine")
    by_seed.update({spec.level_seed: spec.level for spec in folder.plan.episodes()})
    progress = evaluate(folder)
    assert not progress.is_complete
    assert progress.failures == {"PolicyFailure: the server coughed": 2}
    assert {result.level for result in folder.results()} == set(range(12)) - failing
    assert not summarise(folder.plan, folder.results()).is_complete
    failing.clear()
    played_before = folder.episodes_path.read_bytes()
    again = RunFolder.open(folder.path)
    assert evaluate(again).is_complete
    assert folder.episodes_path.read_bytes().startswith(played_before)
    assert len(list(again.results())) == 12


@pytest.mark.parametrize("error", [ZeroDivisionError, ConnectionError])
def test_an_environment_that_raises_on_an_answer_ends_its_episode_unless_the_machine_fails(
    begin, monkeypatch, guess_env, caplog, error
):
    act = guess_env._act

    def broken(self, state, agent, action):
        if state.secret % 2:
            raise error("a bug of the environment")
        return act(self, state, agent, action)

    monkeypatch.setattr(guess_env, "_act", broken)
    caplog.set_level(logging.INFO)
    folder = begin()
    progress = evaluate(folder)
    num_failed = progress.failures.total()
    assert (num_failed > 0) == (error is ConnectionError)
    assert num_failed == 12 - progress.num_finished
    assert any(record.exc_info for record in caplog.records)
    report, causes = summarise(folder.plan, folder.results()).variants["main"], progress.failures
    if error is ZeroDivisionError:
        assert report.num_success == report.ends["answered"] == 12 - report.ends["code"] < 12
        causes = report.causes
        plan = folder.plan
        for played in folder.results(with_steps=True):
            played.transcript(plan.env_id, plan.env_kwargs, plan.options).replay()
        assert any(f"; most often {next(iter(causes))}" in row[1] for row in variant_rows(report))
    (cause,) = causes
    place = rf"\({re.escape(__file__)}, line \d+\)"
    assert re.fullmatch(rf"{error.__name__}: a bug of the environment {place}", cause)


@pytest.mark.parametrize("end", [End.CONTEXT, End.TIME])
def test_a_prompt_that_meets_a_limit_is_an_episode_that_is_not_solved(begin, scripted, end):
    """Left out, a policy that grows long would look better than it is."""
    scripted("mine", lambda prompt: PolicyFailure("too much", end))
    folder = begin("oracle", "mine")
    assert evaluate(folder, max_failures=0).is_complete
    report = summarise(folder.plan, folder.results())
    assert report.variants["main"].ends == {end: 12}
    assert report.variants["main"].num_success == 0
    assert any("12 episodes cut off" in str(part) for part in report.parts()[3].rows)
    for played in folder.results(with_steps=True):
        assert played.steps[-1]["end"] == end
        plan = folder.plan
        played.transcript(plan.env_id, plan.env_kwargs, plan.options).replay()


def test_answers_that_are_hidden_reasoning_are_named_as_the_cause(begin, scripted):
    mine = scripted("mine", secret)

    async def reason(prompts, n, sampling):
        return [Answer((Completion("", "stop", "7777 it is"),), Usage(1, 0, 10, 3))]

    mine.sample = reason
    folder = begin("oracle", "mine")
    evaluate(folder)
    report = summarise(folder.plan, folder.results())
    ((_, told),) = [row for row in report.parts()[3].rows if row[0] == "warning"]
    assert told.startswith("100 % of the answers of guesser are empty: all of their text is hidden")


NO_ANSWERS = {
    "nothing": None,
    "a text": ["7"],
    "no text": [Answer((Completion(None, "stop"),))],
    "two texts": [Answer((Completion("7", "stop"),) * 2)],
    "absurd tokens": [Answer((Completion("7", "stop"),), Usage(1, 0, -5, 3))],
}


@pytest.mark.parametrize("answers", NO_ANSWERS.values(), ids=NO_ANSWERS)
def test_what_is_no_answer_fails_before_it_is_recorded(begin, scripted, answers):
    async def sample(prompts, n, sampling):
        return answers

    scripted("mine", secret).sample = sample
    folder = begin("oracle", "mine")
    with pytest.raises(EvaluationStopped, match=r"PolicyFailure: .* gave .*; allowed: \[Answer\("):
        evaluate(folder, max_failures=0)
    assert not [*folder.answers(), *folder.results()]


def test_too_many_failures_stop_the_evaluation(begin, scripted):
    scripted("mine", lambda prompt: PolicyFailure("the server coughed"))
    folder = begin("oracle", "mine")
    with pytest.raises(EvaluationStopped, match=r"4 episodes failed.*3 allowed.*coughed"):
        evaluate(folder, max_failures=3, max_concurrency=2)
    with pytest.raises(InvalidArgument, match="max_failures"):
        evaluate(folder, max_failures=-1)


def test_what_fails_beside_the_last_failure_is_not_counted(begin, scripted):
    policy = scripted("mine", lambda prompt: "")
    both_asked = asyncio.Barrier(2)

    async def fail(prompts, n, sampling):
        await asyncio.wait_for(both_asked.wait(), 60)
        raise PolicyFailure("the server coughed")

    policy.sample = fail
    seen = []
    with pytest.raises(EvaluationStopped, match="1 episode failed"):
        evaluate(
            begin("oracle", "mine"), max_failures=0, max_concurrency=2, on_progress=seen.append
        )
    assert seen[-1].failures.total() == 1


def test_a_policy_that_dies_stops_at_once_and_keeps_what_was_played(begin, scripted):
    num_said = 0

    def say(prompt):
        nonlocal num_said
        num_said += 1
        return secret(prompt) if num_said <= 5 else PolicyUnavailable("the server died")

    policy = scripted("mine", say)
    folder = begin("oracle", "mine")
    with pytest.raises(PolicyUnavailable, match="died"):
        evaluate(folder, max_concurrency=3)
    assert len(list(folder.results())) == 5
    assert policy.is_closed
    num_said = -100
    assert evaluate(folder).is_complete


def test_a_cancelling_that_nobody_asked_for_is_told_as_what_its_policy_raised(begin, scripted):
    def say(prompt):
        raise asyncio.CancelledError

    scripted("mine", say)
    (cause,) = evaluate(begin("oracle", "mine"), max_failures=12).failures
    assert re.search(rf"raised CancelledError: .*{re.escape(__file__)}, line \d+\)$", cause)


def test_a_policy_that_cannot_play_is_told_before_anything_is_played(begin):
    folder = begin("oracle", "orakle")
    with pytest.raises(InvalidArgument, match='did you mean "oracle"'):
        evaluate(folder)
    assert not folder.episodes_path.exists()


def test_a_finished_evaluation_loads_no_policy(begin, scripted):
    folder = begin("oracle", "oracle")
    evaluate(folder)
    scripted("oracle", lambda prompt: AssertionError("must not be asked"))
    assert evaluate(folder).num_finished == 12


@pytest.mark.parametrize("cut", [1, 40, 200])
def test_a_line_cut_by_a_crash_is_played_again(begin, cut, caplog):
    folder = begin()
    evaluate(folder)
    whole = folder.episodes_path.read_bytes()
    folder.episodes_path.write_bytes(whole[:-cut])
    assert len(list(folder.results())) == 11
    assert evaluate(RunFolder.open(folder.path)).is_complete
    lines = folder.episodes_path.read_bytes().splitlines()
    assert sorted(json.loads(line)["level"] for line in lines) == list(range(12))
    assert "unfinished last line" in caplog.text


def test_a_damaged_line_is_told_with_its_number(begin):
    folder = begin()
    evaluate(folder)
    lines = folder.episodes_path.read_bytes().splitlines(keepends=True)
    lines[4] = b'{"variant": 3\n'
    folder.episodes_path.write_bytes(b"".join(lines))
    with pytest.raises(RunFolderError, match="line 5 is damaged"):
        evaluate(folder)
    older = json.loads(lines[3])
    del older["crc"], older["steps"][0]["end"]
    lines[4] = json.dumps(older).encode() + b"\n"
    folder.episodes_path.write_bytes(b"".join(lines))
    with pytest.raises(RunFolderError, match=r"line 5 is damaged \(it has no key 'end'"):
        list(folder.results(with_steps=True))


def test_folders_that_are_none_are_refused(begin, tmp_path):
    folder = begin()
    RunFolder.create(folder.path, folder.plan)
    evaluate(folder)
    with pytest.raises(RunFolderError, match="--resume"):
        RunFolder.create(folder.path, folder.plan)
    with pytest.raises(RunFolderError, match="not the folder of an evaluation"):
        RunFolder.open(tmp_path / "nothing")
    run = folder.path / "run.json"
    for text, message in (
        (run.read_text().replace(": 12", ': "many"'), "run.json cannot .*num_levels: got 'many'"),
        ("{", "cannot be read"),
        ("[]", "cannot be read"),
        ('{"format": 1}', "not that"),
    ):
        run.write_text(text)
        with pytest.raises(RunFolderError, match=message):
            RunFolder.open(folder.path)


def test_any_text_of_a_model_survives_the_files(begin, scripted):
    text = "\ud800 \x00 \u2028 \n \r \U0001f600"
    scripted("mine", lambda prompt: text)
    folder = begin("mine", "oracle", num_levels=1)
    evaluate(folder)
    (result,) = folder.results(with_steps=True)
    assert result.steps[0]["action"] == text
    result.transcript(folder.plan.env_id, {}, {}).replay()
