"""`pettingllms blame`."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from pettingllms.cli.blame_source import Source, open_source
from pettingllms.cli.console import print_json, stderr, stdout
from pettingllms.cli.options import (
    env_option,
    format_option,
    free_folder,
    max_failures_option,
    policy_option,
    policy_settings,
    policy_settings_options,
    read_policies,
    read_sampling,
    reset_option,
    sampling_option,
)
from pettingllms.cli.progress import replay_bar
from pettingllms.env import TextEnv, role_of
from pettingllms.errors import InvalidArgument
from pettingllms.evaluation.blame import judge
from pettingllms.evaluation.blame_report import FILE, BlameReport, JudgedEpisode, blame_parts
from pettingllms.evaluation.judgement import MEASURES, SUCCESS, BlameSettings
from pettingllms.evaluation.plan import MAIN, names_of, policy_of, roles_of
from pettingllms.evaluation.replays import Seat
from pettingllms.evaluation.run_team import RunTeam
from pettingllms.evaluation.statistics import special_functions
from pettingllms.files import write_whole
from pettingllms.loops import finish
from pettingllms.policies import Policy, PolicySettings, Sampling, loaded_policies
from pettingllms.registry import make
from pettingllms.tables import print_blocks, visible
from pettingllms.trust import Name
from pettingllms.viewer import write_view

_EXAMPLES = """\b
Examples:
  pettingllms blame runs/eval-plan_path_v0-20260101-120000 -n 20
  pettingllms blame runs/tiny_team --instead planner=oracle
  pettingllms blame episode.jsonl -p openai:qwen3:4b@http://localhost:11434/v1 -m 16
  pettingllms blame workflow:my_team:workflow -p run:runs/team?policy=team
"""


@click.command("blame", epilog=_EXAMPLES)
@click.argument("source", metavar="SOURCE")
@policy_option
@click.option(
    "--instead",
    "instead_values",
    multiple=True,
    metavar="[ROLE=]POLICY",
    help="Who takes a place instead: an expert, an untaught or another policy.  [default: the "
    "first scripted policy of the environment, if it has any]",
)
@env_option
@reset_option
@sampling_option
@click.option(
    "-m",
    "--replays",
    type=click.IntRange(min=2),
    default=BlameSettings().num_replays,
    show_default=True,
    help="Replays of every state, of every answer by the other policy, and of every coalition.",
)
@click.option(
    "-n",
    "--episodes",
    type=click.IntRange(min=1),
    default=1,
    show_default=True,
    help="Failed episodes to judge, at most.",
)
@click.option(
    "--of",
    "measure",
    type=click.Choice(MEASURES),
    default=SUCCESS,
    show_default=True,
    help="What was lost.",
)
@click.option("--level", type=int, help="Of an evaluation: the episode of this level.")
@click.option("--sample", type=int, default=0, show_default=True, help="Of --level: which play.")
@click.option("--variant", default=MAIN, show_default=True, help="Of an evaluation: line-up.")
@click.option("--environment", metavar="NAME", help="Of a training run of several environments.")
@click.option("--seed", type=int, default=0, show_default=True, help="Decides all chance.")
@policy_settings_options
@max_failures_option("Replays of an episode", BlameSettings().max_failures)
@click.option(
    "--out",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Where blame.json and view.html go.  [default: runs/blame-ID-TIME]",
)
@format_option("result is", "json")
def blame_command(source: str, **values: Any) -> int:
    """Say which answer of which role lost an episode, by playing on from every answer.

    SOURCE is a run (an evaluation or a training run, of which recorded episodes that failed are
    judged), a transcript, or an environment such as workflow:my_team:workflow, which is played
    until episodes fail. Who answers is as in the run; --policy names others.
    """
    special_functions()  # raises now, not at the end of a long run
    settings = policy_settings(values)
    found = open_source(source, values)
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
    _keep(report, values["out"] or free_folder("blame", report.env_id))
    if values["output"] == "json":
        print_json(report.to_json())
    else:
        print_blocks(stdout(), blame_parts(report))
    return 0


def _keep(report: BlameReport, folder: Path) -> None:
    """Write the result, and its page."""
    folder.mkdir(parents=True, exist_ok=True)
    text = json.dumps(report.to_json(), allow_nan=False)
    write_whole(folder / FILE, text + "\n")
    page = write_view(folder, folder / "view.html")
    stderr().print(visible(f"kept in {folder}; its page is {page.path}", "dim"), soft_wrap=True)


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
        async for name, transcript in source.failed(policies, team):
            with replay_bar(name) as on_progress:
                blame = await judge(transcript, seats, others, wanted, on_progress)
            found.append(JudgedEpisode(name, transcript, blame))
            if len(found) == num_episodes:
                break
    return found


def _seats(
    env: TextEnv[Any],
    line_up: Mapping[str, Name],
    sampling: Mapping[str, Sampling],
    policies: Mapping[str, Policy],
) -> dict[str, Seat]:
    """Return agent -> who answers for it."""
    return {
        agent: Seat(
            policies[str(policy_of(line_up, agent))], sampling.get(role_of(agent), Sampling())
        )
        for agent in env.possible_agents
    }


def _with_options(team: RunTeam, roles: Sequence[str], values: Mapping[str, Any]) -> RunTeam:
    """Return the team with the policies and the sampling that were asked for."""
    policies = {**team.policies, **read_policies(values["policy_values"], roles)}
    missing = [role for role in roles if role not in policies] if not team.policies else []
    if missing:
        raise click.UsageError(
            f"no policy for {', '.join(missing)}; name those that play on (--policy POLICY)"
        )
    sampling = read_sampling(values["sampling_values"], roles, team.sampling)
    return replace(team, policies=policies, sampling=sampling)


def _instead(env: TextEnv[Any], roles: Sequence[str], values: Sequence[str]) -> dict[str, str]:
    """Return role -> the other policy: what was named, else the best scripted one."""
    named = read_policies(values, roles)
    best = env.scripted_policies[:1]
    if not named and not best:
        return {}
    missing = [role for role in roles if role not in named]
    if missing and not best:
        raise click.UsageError(f"no policy instead of {', '.join(missing)}; name one (--instead)")
    return {role: named.get(role) or best[0] for role in roles}
