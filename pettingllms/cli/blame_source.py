"""What `pettingllms blame` judges: episodes of runs, transcripts, or played for the purpose."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import click

from pettingllms.cli.options import read_pairs, run_environment
from pettingllms.env import TextEnv
from pettingllms.evaluation.answer_log import AnswerLog
from pettingllms.evaluation.episode import play_episode
from pettingllms.evaluation.levels import episode_spec
from pettingllms.evaluation.plan import MAIN, held_out_kwargs, roles_of
from pettingllms.evaluation.rollouts import failed_rollouts
from pettingllms.evaluation.run_folder import RunFolder
from pettingllms.evaluation.run_team import RunTeam
from pettingllms.evaluation.training_run import TrainingRun, is_training_run
from pettingllms.policies import Policy
from pettingllms.registry import make
from pettingllms.transcript import Transcript
from pettingllms.trust import Name

MAX_TRIES = 1000
"""Levels that are played, at most, to find episodes that fail."""

Named = tuple[str, Transcript]


class Source(NamedTuple):
    """Where the episodes come from, and who played them."""

    team: RunTeam
    failed: Callable[[Mapping[str, Policy], RunTeam], AsyncIterator[Named]]
    """Yields names and transcripts of episodes to judge; given name -> policy and the team."""


def open_source(source: str, values: Mapping[str, Any]) -> Source:
    """Return the episodes that a text names.

    Args:
        source: A run, a transcript, or an environment.
        values: Parameters of the command.

    Raises:
        UsageError: If options do not fit the source.
        RunFolderError: If a folder is no run, or is damaged.
        TranscriptError: If a file is no transcript.
        UnknownEnvironment: If it is none of them.
    """
    path = Path(source)
    is_recorded = path.exists() and path.suffix != ".py"
    if is_recorded and (values["env_values"] or values["option_values"]):
        raise click.UsageError("--env and --option are as recorded; leave them out")
    if path.is_dir() and is_training_run(path):
        return _of_training(path, values)
    if path.is_dir():
        return _of_evaluation(path, values)
    if is_recorded:
        return _of_transcript(path, trust=values["trust"])
    return _of_environment(source, values)


def _of_training(path: Path, values: Mapping[str, Any]) -> Source:
    run = run_environment(TrainingRun.open(path, trust=values["trust"]), values["environment"])

    async def failed(policies: Mapping[str, Policy], team: RunTeam) -> AsyncIterator[Named]:
        for named in failed_rollouts(run):
            yield named

    return Source(RunTeam.of_training(run), failed)


def _of_evaluation(path: Path, values: Mapping[str, Any]) -> Source:
    folder, variant = RunFolder.open(path, trust=values["trust"]), values["variant"]
    team = RunTeam.of_evaluation(folder, variant)
    wanted = None if values["level"] is None else (variant, values["level"], values["sample"])

    async def failed(policies: Mapping[str, Policy], team: RunTeam) -> AsyncIterator[Named]:
        for result in folder.results(with_steps=True):
            has_failed = result.variant == variant and not result.success
            if result.key == wanted or (wanted is None and has_failed):
                name = f"level {result.level}, sample {result.sample}"
                yield name, result.transcript(team.env_id, team.env_kwargs, team.options)

    return Source(team, failed)


def _of_transcript(path: Path, *, trust: bool) -> Source:
    transcript = Transcript.load(path, trust=trust)

    async def failed(policies: Mapping[str, Policy], team: RunTeam) -> AsyncIterator[Named]:
        yield path.name, transcript

    return Source(_nobody(transcript.id, transcript.kwargs, transcript.options), failed)


def _of_environment(env_id: str, values: Mapping[str, Any]) -> Source:
    kwargs = held_out_kwargs(env_id, read_pairs(values["env_values"], "--env"))
    options = read_pairs(values["option_values"], "--option")

    async def failed(policies: Mapping[str, Policy], team: RunTeam) -> AsyncIterator[Named]:
        env: TextEnv[Any] = make(env_id, checks=False, **kwargs)
        line_up = {role: policies[str(team.policies[role])] for role in roles_of(env)}
        log = AnswerLog((), lambda record: None)
        for level in range(MAX_TRIES):
            spec = episode_spec(values["seed"], MAIN, level, 0)
            result = await play_episode(env, spec, line_up, team.sampling, options, log)
            if not result.success:
                yield f"level {level}", result.transcript(env_id, kwargs, options)

    return Source(_nobody(env_id, kwargs, options), failed)


def _nobody(env_id: Name, kwargs: Mapping[str, Any], options: Mapping[str, Any]) -> RunTeam:
    """Return a team whose policies are still to be named."""
    return RunTeam(
        env_id=env_id, env_kwargs=kwargs, options=options, policies={}, sampling={}, levels={}
    )
