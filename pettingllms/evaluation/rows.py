"""Recorded answers of runs as rows of a data set, and the views that other trainers read.

Every answer that a run has recorded is a row: of an evaluation the answers of its episodes, of a
training run all candidates of its recorded rollout trees. Prompts are the chat messages that the
agent read: episodes are played again for them, which verifies them too.

- `rollouts`: everything that is known of an answer.
- `sft`: `prompt` and `completion`, as chats, of the answers that solved episodes were played by.
- `preference`: `prompt`, `chosen` and `rejected`, as chats: of every decision the candidate that is
  worth most and the one that is worth least, by advantage where there is one, else by reward.

The last two are the conversational formats of TRL's `SFTTrainer` and `DPOTrainer`; `role` says
whose they are.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any, cast

from pettingllms.env import TextEnv, role_of
from pettingllms.errors import InvalidArgument, MissingDependency, RunFolderError, readable
from pettingllms.evaluation.episode import Chats, prompt_of, remember
from pettingllms.evaluation.run_folder import RunFolder
from pettingllms.evaluation.training_run import TrainingRun, is_training_run, tree_moments
from pettingllms.files import iter_lines, warn_of_damage, whole_file
from pettingllms.parsing import encodable

VIEWS = ("rollouts", "sft", "preference")
FORMATS = (".parquet", ".jsonl")
_OF_CANDIDATE = ("finish_reason", "reward", "parse_error")

Row = dict[str, Any]


def rows_of(path: str | Path, view: str = "rollouts", *, trust: bool = False) -> Iterator[Row]:
    """Yield the rows of a run.

    Args:
        path: Folder of a training run or an evaluation.
        view: One of `VIEWS`.
        trust: Whether the folder may name code; see `pettingllms.trust`.

    Raises:
        UntrustedName: If the folder names a source, and is not trusted.
        InvalidArgument: If there is no such view.
        RunFolderError: If the folder is not a run, or a line is damaged.
        ReplayDivergence: If an episode does not come out as recorded.
    """
    if view not in VIEWS:
        raise InvalidArgument("view", view, ", ".join(VIEWS))
    if is_training_run(path):
        rows = _of_training(TrainingRun.open(path, trust=trust))
    else:
        rows = _of_evaluation(RunFolder.open(path, trust=trust))
    if view == "rollouts":
        return rows
    return _sft(rows) if view == "sft" else _preference(rows)


def write_rows(rows: Iterable[Row], path: str | Path) -> int:
    """Write rows to a `.parquet` or `.jsonl` file; a reader sees the whole file or none.

    Returns:
        The number of rows.

    Raises:
        InvalidArgument: If the file is of another kind, or there are no rows.
        MissingDependency: If Parquet is wanted and pyarrow is not installed.
    """
    target = Path(path)
    if target.suffix not in FORMATS:
        raise InvalidArgument("file", str(path), "a name that ends in " + " or ".join(FORMATS))
    # All of them before there is a file: a damaged line, or a divergence, leaves none behind.
    found = list(rows)
    if not found:
        raise InvalidArgument(
            "rows", "none", "a run with recorded answers of this kind",
            "Training runs record trees by logging.rollouts_every; only trees have preferences.",
        )  # fmt: skip
    target.parent.mkdir(parents=True, exist_ok=True)
    with whole_file(target, "wb") as file:
        if target.suffix == ".parquet":
            library = _parquet()
            from pyarrow import Table

            library.write_table(Table.from_pylist([_encodable(row) for row in found]), file)
        else:
            file.write("".join(json.dumps(row) + "\n" for row in found).encode())
    return len(found)


def read_rows(path: str | Path) -> list[Row]:
    """The rows of a file that `write_rows` has written.

    Raises:
        InvalidArgument: If the file is missing, of another kind, or damaged.
        MissingDependency: If it is a Parquet file and pyarrow is not installed.
    """
    file = Path(path)
    try:
        if file.suffix == ".parquet":
            return _parquet().read_table(file).to_pylist()
        if file.suffix == ".jsonl":
            # By line feeds alone: JSON may hold other ends of lines within a string.
            lines = file.read_text(encoding="utf-8").split("\n")
            return [json.loads(line) for line in lines if line.strip()]
    except (OSError, ValueError, RecursionError) as error:
        raise InvalidArgument("file", str(path), f"a whole file of rows ({error})") from error
    raise InvalidArgument("file", str(path), "a name that ends in " + " or ".join(FORMATS))


def _parquet() -> Any:
    try:
        from pyarrow import parquet
    except ImportError as error:
        raise MissingDependency("Parquet files", "pyarrow", "data") from error
    return parquet


def _encodable(value: Any) -> Any:
    """A value without lone surrogates of model text, which Parquet cannot hold."""
    if isinstance(value, str):
        return encodable(value)
    if isinstance(value, list):
        return [_encodable(part) for part in cast(list[Any], value)]
    if isinstance(value, dict):
        return {key: _encodable(part) for key, part in cast(dict[str, Any], value).items()}
    return value


def _of_training(run: TrainingRun) -> Iterator[Row]:
    path = run.path / "rollouts.jsonl"
    left_out = dict[int, str]()
    for count, line in enumerate(iter_lines(path, on_damage=left_out.__setitem__), 1):
        where = f"{path}, line {count + len(left_out)}"
        with readable(RunFolderError, f"{where} is damaged", "Delete that line."):
            if line["outcome"] is not None:
                yield from _of_tree(run, line)
    warn_of_damage(path, left_out)


def _of_tree(run: TrainingRun, line: Mapping[str, Any]) -> Iterator[Row]:
    key = f"{line['set']}, step {line['step']}, episode {line['episode']}"
    known = _of_episode(str(line.get("env_id", run.env_id)), key, line["env_seed"], line["outcome"])
    chats: Chats = {}
    # One moment more than decisions: the end, if the last one was followed.
    # Played again rather than read: a row's prompt is the whole chat, which no file holds.
    pairs = zip(tree_moments(run, line), line["decisions"], strict=False)
    for number, (recorder, decision) in enumerate(pairs):
        about = {"decision": number, "turn": decision["turn"], "policy": decision["policy"]}
        options = [(i == decision["chosen"], c) for i, c in enumerate(decision["candidates"])]
        yield from _decided(recorder.env, chats, {**known, **about}, options)


def _of_evaluation(folder: RunFolder) -> Iterator[Row]:
    plan = folder.plan
    for result in folder.results(with_steps=True):
        key = f"{result.variant}, level {result.level}, sample {result.sample}"
        outcome = {"success": result.success, "returns": result.returns}
        known = _of_episode(str(plan.env_id), key, result.level_seed, outcome)
        transcript = result.transcript(plan.env_id, plan.env_kwargs, plan.options)
        chats: Chats = {}
        assignment = plan.variants[result.variant]
        pairs = zip(transcript.moments(), transcript.steps, strict=False)
        for number, (env, step) in enumerate(pairs):
            agent = step["agent"]
            policy = assignment.get(agent, assignment.get(role_of(agent)))
            about = {"decision": number, "turn": step["turn"], "policy": policy and str(policy)}
            answer = {**step, "text": step["action"], "reward": step["rewards"][agent]}
            yield from _decided(env, chats, {**known, **about}, [(True, answer)])


def _of_episode(env_id: str, key: str, seed: int, outcome: Mapping[str, Any]) -> Row:
    returns = {"return": sum(outcome["returns"].values()) / max(1, len(outcome["returns"]))}
    return {"env_id": env_id, "episode": key, "seed": seed, "success": outcome["success"]} | returns


def _decided(
    env: TextEnv[Any], chats: Chats, known: Row, options: Iterable[tuple[bool, Mapping[str, Any]]]
) -> Iterator[Row]:
    """Yield the candidates of a decision; the one that was followed is remembered."""
    prompt = prompt_of(env, chats, 0)
    who = {"agent": prompt.agent, "role": role_of(prompt.agent)}
    messages = [dict(message) for message in prompt.messages]
    for is_followed, answer in options:
        if is_followed:
            remember(chats, prompt, answer["text"])
        yield {
            **known,
            **who,
            "prompt": messages,
            "completion": answer["text"],
            **{name: answer.get(name) for name in _OF_CANDIDATE},
            "advantage": answer.get("advantage"),
            "is_followed": is_followed,
        }


def _chat(text: str) -> list[dict[str, str]]:
    return [{"role": "assistant", "content": text}]


def _sft(rows: Iterable[Row]) -> Iterator[Row]:
    for row in rows:
        if row["is_followed"] and row["success"]:
            chat = {"prompt": row["prompt"], "completion": _chat(row["completion"])}
            yield {**chat, "env_id": row["env_id"], "role": row["role"]}


def _preference(rows: Iterable[Row]) -> Iterator[Row]:
    for _, group in groupby(rows, key=itemgetter("env_id", "episode", "decision")):
        candidates = list(group)
        # Of equal ones the first, in the order in which they were drawn.
        best, worst = max(candidates, key=_worth), min(candidates, key=_worth)
        if _worth(best) > _worth(worst):
            yield {
                "prompt": best["prompt"],
                "chosen": _chat(best["completion"]),
                "rejected": _chat(worst["completion"]),
                "margin": _worth(best) - _worth(worst),
                "env_id": best["env_id"],
                "role": best["role"],
            }


def _worth(row: Row) -> float:
    return row["reward"] if row["advantage"] is None else row["advantage"]
