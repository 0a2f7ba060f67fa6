"""`pettingllms replay` and `pettingllms view`."""

from __future__ import annotations

import os
import webbrowser
from contextlib import suppress
from pathlib import Path
from typing import Any

import click
from rich.console import Console, Group
from rich.panel import Panel

from pettingllms.cli import options
from pettingllms.cli.app import stderr, stdout
from pettingllms.env import TextEnv
from pettingllms.errors import InvalidArgument, counted
from pettingllms.evaluation.plan import MAIN
from pettingllms.evaluation.run_folder import RunFolder
from pettingllms.evaluation.training_run import TrainingRun, is_training_run, replay_rollout
from pettingllms.registry import make
from pettingllms.tables import visible
from pettingllms.transcript import Transcript, action_of, play_recorded
from pettingllms.viewer import LiveServer, ViewSummary, runs_below, write_overview, write_view


@click.command("replay")
@click.argument("path", metavar="FILE", type=options.RunPath(exists=True, path_type=Path))
@options.number(
    "--level",
    least=0,
    help="Level, for a run.  [default: the first failed one of a training run; 0 of an evaluation]",
)
@options.number("--step", least=0, help="Train step, for a training run.  [default: the newest]")
@options.number("--sample", default=0, least=0, help="Play of the level, for an evaluation.")
@click.option("--variant", default=MAIN, show_default=True, help="Variant, for an evaluation.")
@options.flag("--prompts", help="Also show what the agents read.")
@options.flag("--quiet", help="Only verify the recording.")
@options.trust_option
@click.pass_context
def replay_command(
    context: click.Context,
    path: Path,
    level: int | None,
    step: int | None,
    sample: int,
    variant: str,
    prompts: bool,
    quiet: bool,
    trust: bool,
) -> int:
    """Play a recorded episode again, compare every state and reward, and show it.

    FILE is a transcript, or the folder of an evaluation or a training run. Of a training run, the
    followed path of a recorded rollout tree is played. The exit status is 1 if the replay diverges.
    """
    if is_training_run(path):
        options.refuse_given(context, "a training run", "sample", "variant")
        transcript = replay_rollout(TrainingRun.open(path, trust=trust), step, level)
    else:
        if path.is_dir():
            options.refuse_given(context, "an evaluation", "step")
            folder = RunFolder.open(path, trust=trust)
            plan, played = folder.plan, folder.episode(variant, level or 0, sample)
            transcript = played.transcript(plan.env_id, plan.env_kwargs, plan.options)
        else:
            options.refuse_given(context, "a transcript", "level", "step", "sample", "variant")
            transcript = Transcript.load(path, trust=trust)
        # Before anything is shown: a recording that diverges is not to be believed.
        transcript.replay()
    console = stdout()
    if not quiet:
        _show(console, transcript, prompts)
    num_steps = counted(len(transcript.steps), "step")
    console.print(visible(f"replayed exactly: {num_steps}, equal states and rewards", "green"))
    return 0


def _show(console: Console, transcript: Transcript, prompts: bool) -> None:
    env: TextEnv[Any] = make(transcript.id, checks=False, **transcript.kwargs)
    env.reset(seed=transcript.seed, options=transcript.options)
    env.render_mode = "ansi"
    console.print(visible(str(transcript.id), "bold cyan"), f"seed {transcript.seed}")
    console.print(Panel(visible(str(env.render())), title="start", title_align="left"))
    for step in transcript.steps:
        # With how the completion ended and what it cost: games may price that.
        play_recorded(env, action_of(step), step)
        _show_step(console, step, str(env.render()), prompts)


def _show_step(console: Console, step: dict[str, Any], board: str, prompts: bool) -> None:
    parts: list[Any] = []
    if prompts:
        parts += [visible(step["observation"], "dim"), visible("answers:", "bold magenta")]
    parts.append(visible(step["action"]))
    if step["parse_error"]:
        parts.append(visible(f"not understood: {step['parse_error']}", "yellow"))
    if step.get("cause"):
        parts.append(visible(f"not played: {step['cause']}", "yellow"))
    rewards = ", ".join(f"{agent} {reward:+.3f}" for agent, reward in step["rewards"].items())
    parts += [visible(f"\nrewards: {rewards}", "dim"), visible(board)]
    if step["end"]:
        end = ("solved", "bold green") if step["success"] else (f"over: {step['end']}", "bold")
        parts.append(visible(*end))
    title = visible(f"turn {step['turn'] + 1}: {step['agent']}")
    console.print(Panel(Group(*parts), title=title, title_align="left"))


@click.command("view")
@click.argument(
    "runs", metavar="RUN...", nargs=-1, required=True, type=options.RunPath(path_type=Path)
)
@options.path(
    "--out",
    metavar="FILE",
    help="The page to write.  [default: RUN/view.html; of several runs: runs.html beside them]",
)
@options.flag("--open", "is_opened", help="Open the page in a browser.")
@options.flag(
    "--live",
    "is_live",
    help="Write nothing; serve a page that refreshes itself while the run runs, on this machine "
    "only, until Ctrl+C.",
)
@click.option(
    "--port",
    type=click.IntRange(0, 65535),
    default=0,
    metavar="N",
    help="Port of 127.0.0.1 for --live; 0 takes a free one.  [default: 0]",
)
@options.number(
    "--replays",
    default=1000,
    least=0,
    help="Maximum number of episodes to play again, to draw where every candidate led.",
)
@click.pass_context
def view_command(
    context: click.Context,
    runs: tuple[Path, ...],
    out: Path | None,
    is_opened: bool,
    is_live: bool,
    port: int,
    replays: int,
) -> int:
    """Write runs as self-contained HTML pages that work offline.

    RUN is a folder that `pettingllms-train` or `pettingllms eval` wrote, a recorded episode, or a
    folder of recorded episodes. For several runs, or a folder of runs, another page compares
    them: overlaid curves, and the keys that differ in their configurations.
    """
    options.refuse_given(context, *(("--live", "out") if is_live else ("a page in a file", "port")))
    # A folder that is not a run itself stands for the runs in it.
    paths = [path for run in runs for path in (runs_below(run) or [run])]
    if is_live:
        return _serve(paths, port, replays, is_opened=is_opened)
    if len(paths) == 1:
        (run,) = paths
        target = out or (run.with_suffix(".html") if run.is_file() else run / "view.html")
        summary = _reported(write_view(run, target, max_replays=replays))
    else:
        if files := [str(path) for path in paths if path.is_file()]:
            raise InvalidArgument("runs", ", ".join(files), "folders, when several are named")
        for run in paths:
            _reported(write_view(run, run / "view.html", max_replays=replays))
        # Links between the pages are relative, so that the folder can be moved as a whole.
        beside = Path(os.path.commonpath([path.resolve().parent for path in paths]))
        summary = write_overview(paths, out or beside / "runs.html")
        stdout().print(visible(f"{summary.path}: {counted(len(paths), 'run')}"), soft_wrap=True)
    return _open(summary.path.resolve().as_uri()) if is_opened else 0


def _serve(runs: list[Path], port: int, replays: int, *, is_opened: bool) -> int:
    server = LiveServer(runs, port=port, max_replays=replays)
    stdout().print(visible(f"{server.url} (Ctrl+C ends it)"), soft_wrap=True)
    code = _open(server.url) if is_opened else 0
    with suppress(KeyboardInterrupt):
        server.serve()
    return code


def _reported(summary: ViewSummary) -> ViewSummary:
    for notice in summary.notices:
        stderr().print(visible(notice, "yellow"))
    size = summary.num_bytes / 1e6
    text = f"{summary.path}: {counted(summary.num_episodes, 'episode')}, {size:.1f} MB"
    stdout().print(visible(text), soft_wrap=True)
    return summary


def _open(address: str) -> int:
    if not webbrowser.open(address):
        stderr().print(visible("no browser could be opened on this machine", "yellow"))
        return 1
    return 0
