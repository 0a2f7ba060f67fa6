import json
import pickle

import pytest

import pettingllms
from pettingllms.ends import End
from pettingllms.errors import InvalidArgument, OrderError, ReplayDivergence, TranscriptError
from pettingllms.transcript import RecordTranscripts, Transcript


def recorded(guess_id, folder=None, **kwargs):
    env = RecordTranscripts(pettingllms.make(guess_id, **kwargs), folder)
    env.reset(seed=5)
    for text in ("12", "13", "x", "\ud800\n[1m"):
        env.step(text)
    return env


def finish(env):
    while not any(env.truncations.values()):
        env.step("0")
    for _ in range(2):
        env.step(None)


def test_recording_replays_to_the_same_states(guess_id, tmp_path):
    env = recorded(guess_id, tmp_path, alpha=0.5, prompts={"teller": {"system": "S"}})
    assert list(tmp_path.iterdir()) == []
    finish(env)
    (path,) = tmp_path.iterdir()
    transcript = Transcript.load(path)
    assert len(transcript.steps) == 6
    assert transcript.replay().state_hash() == env.unwrapped.state_hash()
    assert transcript.returns() == pytest.approx({"teller_0": -0.25, "guesser_0": -0.25})


def test_a_seed_played_again_overwrites_nothing(guess_id, tmp_path):
    for _ in range(3):
        finish(recorded(guess_id, tmp_path))
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["guess_v0_5.jsonl", "guess_v0_5_2.jsonl", "guess_v0_5_3.jsonl"]


@pytest.mark.parametrize("key", ["rewards", "state_hash", "observation", "agent", "success"])
def test_divergence_says_where(guess_id, key):
    transcript = recorded(guess_id).transcript
    transcript.steps[2][key] = "something else"
    with pytest.raises(ReplayDivergence, match=f"step 2 in '{key}'") as caught:
        transcript.replay()
    assert (caught.value.step, caught.value.field) == (2, key)


def test_another_level_diverges_at_the_start(guess_id):
    transcript = recorded(guess_id).transcript
    transcript.seed = 6
    with pytest.raises(ReplayDivergence, match="step -1"):
        transcript.replay()


def test_truncated_and_foreign_files_are_told(guess_id, tmp_path):
    path = tmp_path / "episode.jsonl"
    recorded(guess_id).transcript.save(path)
    lines = path.read_text().splitlines()
    cases = {
        "truncated": lines[:-1],
        "not a complete transcript": [lines[0], lines[1][:20]],
        "not a transcript": ['{"a": 1}', *lines[1:]],
        "has version 99": [json.dumps(json.loads(lines[0]) | {"version": 99}), *lines[1:]],
    }
    for message, broken in cases.items():
        path.write_text("\n".join(broken))
        with pytest.raises(TranscriptError, match=message):
            Transcript.load(path)
    with pytest.raises(TranscriptError, match="not a complete transcript"):
        Transcript.load(tmp_path / "missing.jsonl")


def test_forks_record_on_their_own(guess_id):
    env = recorded(guess_id)
    twin = env.fork()
    twin.step("1")
    assert len(twin.transcript.steps) == len(env.transcript.steps) + 1
    twin.transcript.replay()
    moment = env.snapshot()
    env.fork().truncate(End.CONTEXT)
    assert env.transcript.steps[-1]["end"] is None
    env.truncate(End.CONTEXT)
    env.restore(moment)
    assert env.transcript.steps[-1]["end"] is None


def test_objects_that_json_cannot_hold_are_refused_when_recording(guess_id, guess_env):
    def factory(*, source):
        return guess_env()

    pettingllms.register("guess_v7", factory)
    env = RecordTranscripts(pettingllms.make("guess_v7", source=[Transcript("a", {}, 1, {}, "b")]))
    with pytest.raises(InvalidArgument, match="Give a file"):
        env.reset(seed=1)


def test_only_made_environments_can_be_recorded(guess_env):
    with pytest.raises(OrderError, match=r"pettingllms\.make"):
        RecordTranscripts(guess_env())


def test_a_recorder_that_goes_back_forgets_what_followed(guess_id):
    env = recorded(guess_id)
    moment = pickle.loads(pickle.dumps(env.snapshot()))
    for text in ("1", "2"):
        env.step(text)
        env.restore(moment)
    env.step("3")
    assert [step["action"] for step in env.transcript.steps[4:]] == ["3"]
    assert env.transcript.replay().state_hash() == env.unwrapped.state_hash()
    env.restore(env.unwrapped.snapshot())
    assert env.transcript is None
