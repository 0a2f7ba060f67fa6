"""Rollout trees that a training run has recorded: the followed path, played again."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from pettingllms.env import TextEnv
from pettingllms.errors import InvalidArgument, ReplayDivergence, RunFolderError
from pettingllms.evaluation.training_run import TrainingRun
from pettingllms.files import read_lines
from pettingllms.registry import make
from pettingllms.transcript import RecordTranscripts, Transcript
from pettingllms.trust import FoundName
from pettingllms.types import Action, TokenCounts

_COMPARED = ("reward", "parse_error", "success")


def replay_rollout(run: TrainingRun, step: int | None, episode: int | None) -> Transcript:
    """Play the followed path of a rollout tree again, and compare it with the recorded one.

    Args:
        run: The run.
        step: Train step; None for the first one of which such a tree is recorded.
        episode: Number of the tree within its train step; None for the first one recorded.

    Returns:
        The episode as it was played again.

    Raises:
        InvalidArgument: If no such tree is recorded.
        RunFolderError: If its line is damaged.
        ReplayDivergence: If the game does not come out as recorded.
    """
    lines = _lines(run)
    found = [key for key in lines if step in (None, key[0]) and episode in (None, key[1])]
    if not found:
        known = ", ".join(f"{a}:{b}" for a, b in lines) or "none (logging.rollouts_every)"
        wanted = ", ".join(
            f"{name} {'any' if value is None else value}"
            for name, value in (("step", step), ("level", episode))
        )
        raise InvalidArgument("rollout", wanted, f"recorded STEP:LEVEL: {known}")
    return _checked(run, lines[min(found)])


def failed_rollouts(run: TrainingRun) -> Iterator[tuple[str, Transcript]]:
    """Yield name and transcript of the trees whose followed path was played and did not succeed.

    Args:
        run: The run; of one of several environments, the trees of that one.

    Raises:
        RunFolderError: If a line is damaged.
        ReplayDivergence: If a game does not come out as recorded.
    """
    for (step, episode), line in sorted(_lines(run).items()):
        is_of_run = _environment(run, line) == run.env_id
        if is_of_run and line.get("outcome") and not line["outcome"]["success"]:
            yield f"step {step}, level {episode}", _checked(run, line)


def _lines(run: TrainingRun) -> dict[tuple[int, int], dict[str, Any]]:
    """Return (train step, episode) -> tree of the trees that were trained on."""
    trees = read_lines(run.path / "rollouts.jsonl")
    return {(line["step"], line["episode"]): line for line in trees if line["set"] == "training"}


def _checked(run: TrainingRun, line: Mapping[str, Any]) -> Transcript:
    try:
        return _replayed(run, line)
    except (KeyError, TypeError, IndexError) as error:
        raise RunFolderError(
            f"{run.path / 'rollouts.jsonl'}: step {line['step']}, episode {line['episode']} is "
            f"damaged ({type(error).__name__}: {error})"
        ) from error


def _replayed(run: TrainingRun, line: Mapping[str, Any]) -> Transcript:
    *_, recorder = tree_moments(run, line)
    assert recorder.transcript is not None
    return recorder.transcript


def tree_moments(run: TrainingRun, line: Mapping[str, Any]) -> Iterator[RecordTranscripts]:
    """Play the followed path of a tree again; yield before every decision, and after the last.

    Args:
        run: The run.
        line: The tree, as a line of `rollouts.jsonl`.

    Yields:
        One recorder, which goes on; it ends at a decision that no candidate was followed from.

    Raises:
        ReplayDivergence: If the game does not come out as recorded.
    """
    env: TextEnv[Any] = make(_environment(run, line), checks=False, **line["env"])
    recorder = RecordTranscripts(env)
    recorder.reset(seed=line["env_seed"])
    _compare(-1, "state_hash", line["initial_state_hash"], env.state_hash())
    yield recorder
    for index, decision in enumerate(line["decisions"]):
        if decision["chosen"] is None:
            return
        followed, agent = decision["candidates"][decision["chosen"]], decision["agent"]
        _compare(index, "agent", agent, env.agent_selection)
        _compare(index, "observation", decision["observation"], str(env.observe(agent)))
        counts = TokenCounts(decision["num_prompt_tokens"], followed["num_tokens"])
        recorder.step(Action(followed["text"], followed["finish_reason"], counts))
        played = {**env.infos[agent], "reward": env.rewards[agent]}
        recorded = {**followed, "reward": followed.get("env_reward", followed["reward"])}
        for key in _COMPARED:
            _compare(index, key, recorded[key], played[key])
        yield recorder


def _environment(run: TrainingRun, line: Mapping[str, Any]) -> FoundName:
    """Return the environment of a tree; trees of a run with several say which one it is."""
    return run.found(line["env_id"]) if "env_id" in line else run.env_id


def _compare(step: int, key: str, recorded: object, replayed: object) -> None:
    if recorded != replayed:
        raise ReplayDivergence(step, key, recorded, replayed)
