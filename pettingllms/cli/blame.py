"""`pettingllms blame`: episodes of runs, transcripts, or played on purpose, and who lost them."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, NamedTuple

import click

from pettingllms.cli import options
from pettingllms.cli.app import print_result
from pettingllms.cli.playing import keep, replay_bar
from pettingllms.env import TextEnv, role_of, roles_of
from pettingllms.errors import InvalidArgument
from pettingllms.evaluation.blame import (
    FILE,
    MEASURES,
    SUCCESS,
    BlameReport,
    BlameSettings,
    JudgedEpisode,
    Seat,
    judge,
)
from pettingllms.evaluation.episode import AnswerLog, play_episode
from pettingllms.evaluation.plan import MAIN, episode_spec, held_out_kwargs, names_of, policy_of
from pettingllms.evaluation.run_folder import RunFolder
from pettingllms.evaluation.sides import RunTeam
from pettingllms.evaluation.statistics import special_functions
from pettingllms.evaluation.training_run import TrainingRun, failed_rollouts, is_training_run
from pettingllms.files import owned
from pettingllms.loops import finish
from pettingllms.policies import Policy, PolicySettings, Sampling, loaded_policies
from pettingllms.registry import make
from pettingllms.sources import run_directory
from pettingllms.transcript import Transcript
from pettingllms.trust import Name

_EXAMPLES = """\b
Examples:
  pettingllms blame runs/eval-plan_path_v0-20260101-120000 -n 20
  pettingllms blame runs/tiny_team --instead planner=oracle
  pettingllms blame episode.jsonl -p openai:qwen3:4b@http://localhost:11434/v1 -m 16
  pettingllms blame workflow:my_team:workflow -p run:runs/team?policy=team
"""


@click.command("blame", epilog=_EXAMPLES)
@click.argument("source", metavar="SOURCE")
@options.policy_option
@options.repeated(
    "--instead",
    "instead_values",
    metavar="[ROLE=]POLICY",
    help="The other policy, instead of that of the run: an expert, an untrained model, any.  "
    "[default: the first scripted policy of the environment, if it has any]",
)
@options.env_option
@options.reset_option
@options.sampling_option
@options.number(
    "-m",
    "--replays",
    default=BlameSettings().num_replays,
    least=2,
    help="Replays of every state, of every answer by the other policy, and of every coalition.",
)
@options.number("-n", "--episodes", default=1, help="Failed episodes to judge, at most.")
@click.option(
    "--of",
    "measure",
    type=click.Choice(MEASURES),
    default=SUCCESS,
    show_default=True,
    help="What is divided among the answers.",
)
@options.number("--level", least=0, help="Judge the episode of this level, for an evaluation.")
@options.number("--sample", default=0, least=0, help="Which play of --level.")
@click.option("--variant", default=MAIN, show_default=True, help="Variant, for an evaluation.")
@options.environment_option
@options.seed_option
@options.policy_settings_options
@options.max_failures_option("Replays of an episode", BlameSettings().max_failures)
@options.path("--out", help="Where blame.json and view.html go.  [default: runs/blame-ID-TIME]")
@options.json_option
@click.pass_context
def blame_command(context: click.Context, source: str, **values: Any) -> int:
    """Say which answer of which role lost an episode, by playing on from every answer.

    SOURCE is an evaluation or a training run, whose failed recorded episodes are judged, a
    transcript, or an environment such as workflow:my_team:workflow, which is played until episodes
    fail. The policies are those of the run, unless --policy names others.
    """
    special_functions()  # raises now, not at the end of a long run
    settings = options.policy_settings(values)
    found = open_source(source, values)
    is_training = is_training_run(source)
    if not run_directory(source).is_dir() or is_training:
        options.refuse_given(context, source, "level", "sample", "variant")
    elif values["level"] is None:
        options.refuse_given(context, "a search for failed episodes, without --level,", "sample")
    if not is_training:
        options.refuse_given(context, source, "environment")
    env: TextEnv[Any] = make(found.team.env_id, checks=False, **found.team.env_kwargs)
    roles = roles_of(env)
    team = _with_options(found.team, roles, values)
    instead = _instead(env, roles, values["instead_values"])
    wanted = BlameSettings(
        num_replays=values["replays"],
        measure=values["measure"],
        seed=values["seed"],
        max_concurrency=settings.max_concurrency,
        max_failures=values["max_failures"],
    )
    episodes = finish(
        _judged(found._replace(team=team), env, instead, wanted, settings, values["episodes"])
    )
    if not episodes:
        raise InvalidArgument("source", source, "one with an episode that failed")
    report = BlameReport(
        env_id=str(team.env_id),
        policies=names_of(team.policies),
        instead=instead,
        settings=wanted,
        episodes=episodes,
    )
    folder = values["out"] or options.free_folder("blame", report.env_id)
    with owned(folder):
        keep(folder, FILE, report)
    print_result(values["output"], report)
    return 0


async def _judged(
    source: Source,
    env: TextEnv[Any],
    instead: Mapping[str, str],
    wanted: BlameSettings,
    settings: PolicySettings,
    num_episodes: int,
) -> list[JudgedEpisode]:
    team, found = source.team, list[JudgedEpisode]()
    names = (*team.policies.values(), *instead.values())
    async with loaded_policies(names, settings) as policies:
        for policy in policies.values():
            await policy.check(env)
        seats = _seats(env, team.policies, team.sampling, policies)
        others = _seats(env, instead, {}, policies) if instead else None
        # One after another: the replays of one episode already fill what may run at a time.
        async for name, transcript in _episodes(source, env, policies, wanted.seed):
            with replay_bar(name) as on_progress:
                blame = await judge(transcript, seats, others, wanted, on_progress)
            found.append(JudgedEpisode(name, transcript, blame))
            if len(found) == num_episodes:
                break
    return found


async def _episodes(
    source: Source, env: TextEnv[Any], policies: Mapping[str, Policy], seed: int
) -> AsyncIterator[Named]:
    """Yield the episodes to judge; where none is recorded, those of played levels that fail."""
    for named in source.recorded or ():
        yield named
    if source.recorded is not None:
        return
    team, log = source.team, AnswerLog((), lambda record: None)
    assignment = {role: policies[str(team.policies[role])] for role in roles_of(env)}
    for level in range(MAX_TRIES):
        spec = episode_spec(seed, MAIN, level, 0)
        result = await play_episode(env, spec, assignment, team.sampling, team.options, log)
        if not result.success:
            transcript = result.transcript(team.env_id, team.env_kwargs, team.options)
            yield f"level {level}", transcript


def _seats(
    env: TextEnv[Any],
    assignment: Mapping[str, Name],
    sampling: Mapping[str, Sampling],
    policies: Mapping[str, Policy],
) -> dict[str, Seat]:
    """Agent -> who answers for it."""
    return {
        agent: Seat(
            policies[str(policy_of(assignment, agent))], sampling.get(role_of(agent), Sampling())
        )
        for agent in env.possible_agents
    }


def _with_options(team: RunTeam, roles: Sequence[str], values: Mapping[str, Any]) -> RunTeam:
    """The team with the policies and the sampling that were asked for."""
    policies = {**team.policies, **options.read_policies(values["policy_values"], roles)}
    # The team of a run is whole by itself; a transcript does not know who played.
    missing = [role for role in roles if role not in policies] if not team.policies else []
    if missing:
        raise click.UsageError(
            f"no policy for {', '.join(missing)}; name those that play on (--policy POLICY)"
        )
    sampling = options.read_sampling(values["sampling_values"], roles, team.sampling)
    return replace(team, policies=policies, sampling=sampling)


def _instead(env: TextEnv[Any], roles: Sequence[str], values: Sequence[str]) -> dict[str, str]:
    """Role -> the other policy: what was named, else the best scripted one."""
    named = options.read_policies(values, roles)
    best = env.scripted_policies[:1]
    if not named and not best:
        return {}
    missing = [role for role in roles if role not in named]
    if missing and not best:
        raise click.UsageError(f"no policy instead of {', '.join(missing)}; name one (--instead)")
    return {role: named.get(role) or best[0] for role in roles}


# Levels that are played, at most, to find episodes that fail.
MAX_TRIES = 1000

Named = tuple[str, Transcript]


class Source(NamedTuple):
    """Where the episodes come from, and who played them."""

    team: RunTeam
    """The team that played them, with its environment; without policies where nobody is known."""
    recorded: Iterable[Named] | None = None
    """The episodes to judge; None: levels are played until episodes fail."""


def open_source(source: str, values: Mapping[str, Any]) -> Source:
    """The episodes that a text names.

    Raises:
        UsageError: If options do not fit the source.
        RunFolderError: If a folder is not a run, or is damaged.
        TranscriptError: If a file is not a transcript.
        UnknownEnvironment: If the text names neither a recording nor an environment.
    """
    path = run_directory(source)
    # A Python file names an environment; everything else that exists is a recording.
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
    # Its recorded trees, not new episodes: blame is about what has happened.
    run = options.run_environment(
        TrainingRun.open(path, trust=values["trust"]), values["environment"]
    )
    return Source(RunTeam.of_training(run), failed_rollouts(run))


def _of_evaluation(path: Path, values: Mapping[str, Any]) -> Source:
    folder, variant = RunFolder.open(path, trust=values["trust"]), values["variant"]
    team = RunTeam.of_evaluation(folder, variant)
    chosen = (result for result in folder.results(with_steps=True) if not result.success)
    if values["level"] is not None:
        chosen = iter([folder.episode(variant, values["level"], values["sample"])])
    recorded = (
        (
            f"level {result.level}, sample {result.sample}",
            result.transcript(team.env_id, team.env_kwargs, team.options),
        )
        for result in chosen
        if result.variant == variant
    )
    return Source(team, recorded)


def _of_transcript(path: Path, *, trust: bool) -> Source:
    found = Transcript.load(path, trust=trust)
    return Source(_nobody(found.id, found.kwargs, found.options), [(path.name, found)])


def _of_environment(env_id: str, values: Mapping[str, Any]) -> Source:
    kwargs = held_out_kwargs(env_id, options.read_pairs(values["env_values"], "--env"))
    of_reset = options.read_reset(values["option_values"], make(env_id, checks=False, **kwargs))
    return Source(_nobody(env_id, kwargs, of_reset))


def _nobody(env_id: Name, kwargs: Mapping[str, Any], options: Mapping[str, Any]) -> RunTeam:
    """A team whose policies are still to be named."""
    return RunTeam(
        env_id=env_id, env_kwargs=kwargs, options=options, policies={}, sampling={}, levels={}
    )
