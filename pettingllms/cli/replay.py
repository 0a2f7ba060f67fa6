"""`pettingllms replay`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click
from rich.console import Console, Group
from rich.panel import Panel

from pettingllms.cli.console import stdout
from pettingllms.cli.options import trust_option
from pettingllms.env import TextEnv
from pettingllms.errors import InvalidArgument
from pettingllms.evaluation.plan import MAIN
from pettingllms.evaluation.rollouts import replay_rollout
from pettingllms.evaluation.run_folder import RunFolder
from pettingllms.evaluation.training_run import TrainingRun, is_training_run
from pettingllms.registry import make
from pettingllms.tables import visible
from pettingllms.transcript import Transcript, action_of


@click.command("replay")
@click.argument("path", metavar="FILE", type=click.Path(exists=True, path_type=Path))
@click.option("--level", type=int, help="Of a run: level.  [default: the first recorded]")
@click.option(
    "--step", type=int, help="Of a training run: train step.  [default: the first recorded]"
)
@click.option("--sample", type=int, default=0, show_default=True, help="Of an evaluation: play.")
@click.option("--variant", default=MAIN, show_default=True, help="Of an evaluation: line-up.")
@click.option("--prompts", is_flag=True, help="Show what the agents read, too.")
@click.option("--quiet", is_flag=True, help="Verify only.")
@trust_option
def replay_command(
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

    FILE is a transcript, the folder of an evaluation, or that of a training run, of which the
    followed path of a recorded rollout tree is played. Ends with 1 if the replay diverges.
    """
    if is_training_run(path):
        transcript = replay_rollout(TrainingRun.open(path, trust=trust), step, level)
    else:
        transcript = (
            _episode(RunFolder.open(path, trust=trust), (variant, level or 0, sample))
            if path.is_dir()
            else Transcript.load(path, trust=trust)
        )
        transcript.replay()
    console = stdout()
    if not quiet:
        _show(console, transcript, prompts)
    num_steps = len(transcript.steps)
    console.print(
        visible(f"replayed exactly: {num_steps} steps, equal states and rewards", "green")
    )
    return 0


def _episode(folder: RunFolder, key: tuple[str, int, int]) -> Transcript:
    plan = folder.plan
    for result in folder.results(with_steps=True):
        if result.key == key:
            return result.transcript(plan.env_id, plan.env_kwargs, plan.options)
    raise InvalidArgument(
        "episode",
        f"variant {key[0]}, level {key[1]}, sample {key[2]}",
        f"finished episodes: variants {', '.join(plan.variants)}, "
        f"levels 0 to {plan.num_levels - 1}, samples 0 to {plan.num_samples - 1}",
    )


def _show(console: Console, transcript: Transcript, prompts: bool) -> None:
    env: TextEnv[Any] = make(transcript.id, checks=False, **transcript.kwargs)
    env.reset(seed=transcript.seed, options=transcript.options)
    env.render_mode = "ansi"
    console.print(visible(str(transcript.id), "bold cyan"), f"seed {transcript.seed}")
    console.print(Panel(visible(str(env.render())), title="start", title_align="left"))
    for step in transcript.steps:
        env.step(action_of(step))
        _show_step(console, step, str(env.render()), prompts)


def _show_step(console: Console, step: dict[str, Any], board: str, prompts: bool) -> None:
    parts: list[Any] = []
    if prompts:
        parts += [visible(step["observation"], "dim"), visible("answers:", "bold magenta")]
    parts.append(visible(step["action"]))
    if step["parse_error"]:
        parts.append(visible(f"not understood: {step['parse_error']}", "yellow"))
    rewards = ", ".join(f"{agent} {reward:+.3f}" for agent, reward in step["rewards"].items())
    parts += [visible(f"\nrewards: {rewards}", "dim"), visible(board)]
    if step["success"]:
        parts.append(visible("solved", "bold green"))
    title = visible(f"turn {step['turn'] + 1}: {step['agent']}")
    console.print(Panel(Group(*parts), title=title, title_align="left"))
