"""Recorded answers as rows: what is in them, the views, and the files."""

import json

import pytest

import pettingllms
from pettingllms.errors import InvalidArgument, ReplayDivergence
from pettingllms.evaluation import EvaluationPlan, RunFolder, RunFolderError, evaluate
from pettingllms.evaluation.rows import read_rows, rows_of, write_rows


@pytest.fixture
def evaluated(guess_id, tmp_path):
    """Return the folder of an evaluation in which only the first level is solved."""
    variants = {"main": {"teller": "oracle", "guesser": "oracle"}}
    variants["bad"] = {"teller": "oracle", "guesser_0": "noise"}
    kwargs = {"max_turns": 2, "observation_mode": "delta"}
    plan = EvaluationPlan(env_id=guess_id, env_kwargs=kwargs, variants=variants, num_levels=2)
    evaluate(RunFolder.create(tmp_path / "run", plan))
    return tmp_path / "run"


@pytest.fixture
def trained(guess_id, tmp_path):
    """Return the folder of a training run with one recorded tree, and its line."""
    folder = tmp_path / "trained"
    folder.mkdir()
    (folder / "config.toml").write_text(f'[env]\nid = "{guess_id}"\n[roles]\n[policies]\n')
    env = pettingllms.make(guess_id, checks=False)
    env.reset(seed=3)
    secret = str(env.state().secret)
    line = {"set": "training", "step": 1, "episode": 0, "env": {}, "env_seed": 3}
    line |= {"initial_state_hash": env.state_hash(), "decisions": []}
    for texts, advantages in (((secret, "?", "1"), (1.0, -1.0, 0.0)), ((secret, "2"), (0.5, 0.5))):
        agent = env.agent_selection
        observation = str(env.observe(agent))
        env.step(texts[0])
        candidates = [
            {"text": text, "reward": 0.0, "advantage": advantage, "num_tokens": 1}
            | {"finish_reason": "stop", "parse_error": None, "success": False}
            for text, advantage in zip(texts, advantages, strict=True)
        ]
        candidates[0] |= {"reward": env.rewards[agent], "success": env.infos[agent]["success"]}
        decision = {"agent": agent, "turn": 0, "policy": "p", "observation": observation}
        decision |= {"num_prompt_tokens": 1, "chosen": 0, "candidates": candidates}
        line["decisions"].append(decision)
    line["outcome"] = {"success": True, "returns": {"teller_0": 1.5, "guesser_0": 1.0}}
    (folder / "rollouts.jsonl").write_text(json.dumps(line) + "\n")
    return folder, line


def test_an_answer_of_an_evaluation_knows_the_chat_it_answered(evaluated):
    rows = [row for row in rows_of(evaluated) if row["episode"] == "bad, level 0, sample 0"]
    assert [row["agent"] for row in rows] == ["teller_0", "guesser_0"] * 2
    assert [row["policy"] for row in rows[:2]] == ["oracle", "noise"]
    first, later = rows[1]["prompt"], rows[3]["prompt"]
    assert later[: len(first)] == first
    assert later[len(first)] == {"role": "assistant", "content": rows[1]["completion"]}
    assert rows[0]["reward"] == 0.5
    assert not rows[0]["success"]


def test_only_answers_of_solved_episodes_are_imitated(evaluated):
    rows = list(rows_of(evaluated, "sft"))
    assert len(rows) == 4, "two levels, two answers each"
    assert rows[0]["prompt"][0]["role"] == "system"
    assert rows[0]["completion"] == [
        {"role": "assistant", "content": rows[1]["completion"][0]["content"]}
    ]
    assert list(rows_of(evaluated, "preference")) == []


def test_preferences_are_between_candidates_that_differ_in_worth(trained):
    folder, line = trained
    (row,) = rows_of(folder, "preference")
    assert (row["chosen"][0]["content"], row["rejected"][0]["content"]) == (
        line["decisions"][0]["candidates"][0]["text"],
        "?",
    )
    assert (row["margin"], row["role"]) == (2.0, "teller")
    rows = list(rows_of(folder))
    assert [row["is_followed"] for row in rows] == [True, False, False, True, False]
    assert {row["return"] for row in rows} == {1.25}
    line["decisions"][0]["candidates"][0]["reward"] = 9.0
    (folder / "rollouts.jsonl").write_text(json.dumps(line) + "\n")
    with pytest.raises(ReplayDivergence):
        list(rows_of(folder))
    (folder / "rollouts.jsonl").write_text(f'{json.dumps(line)[:-9]}\n{{"outcome": {{}}}}\n')
    with pytest.raises(RunFolderError, match="line 2 is damaged"):
        list(rows_of(folder))


@pytest.mark.parametrize("suffix", [".jsonl", ".parquet"])
def test_files_load_back_equal(tmp_path, suffix):
    rows = [
        {"prompt": [{"role": "user", "content": "a"}], "completion": "b\ud800", "advantage": None}
    ]
    path = tmp_path / "new" / f"rows{suffix}"
    assert write_rows(rows, path) == 1
    if suffix == ".jsonl":
        assert read_rows(path) == rows
    else:
        parquet = pytest.importorskip("pyarrow.parquet")
        assert parquet.read_table(path).to_pylist() == [{**rows[0], "completion": "b\ufffd"}]
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_strings_may_hold_any_end_of_a_line_but_a_line_feed(tmp_path):
    path = tmp_path / "rows.jsonl"
    path.write_text('{"completion": "a\u2028b\x85c"}\n\n', encoding="utf-8")
    assert read_rows(path) == [{"completion": "a\u2028b\x85c"}]


def test_what_cannot_be_written_is_refused(tmp_path, evaluated):
    with pytest.raises(InvalidArgument, match=r"\.parquet or \.jsonl"):
        write_rows([{}], tmp_path / "rows.csv")
    with pytest.raises(InvalidArgument, match="rows"):
        write_rows([], tmp_path / "rows.jsonl")
    with pytest.raises(InvalidArgument, match="view"):
        rows_of(evaluated, "dpo")
