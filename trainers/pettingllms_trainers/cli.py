"""`pettingllms-train CONFIG... [--resume] [flags]`: parse, set up, train, report."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from rich.console import Console

from pettingllms.errors import PettingLLMsError
from pettingllms_trainers.config import Config
from pettingllms_trainers.config.run_file import load_config
from pettingllms_trainers.environments import make_environments
from pettingllms_trainers.errors import GenerationError, GroupError, RolloutError, UpdateError
from pettingllms_trainers.progress import progress_view
from pettingllms_trainers.report import report_table
from pettingllms_trainers.run_files import RunFiles
from pettingllms_trainers.stopping import StopRequest, StopRequested

__all__ = ["main"]

_USAGE = """\
usage: pettingllms-train CONFIG [CONFIG ...] [--resume] [--SECTION.KEY VALUE ...]

Train a team of agents with AT-GRPO as the TOML files CONFIG say; later ones override earlier ones.

  --resume             go on with the run in its output directory
  --SECTION.KEY VALUE  override a value of CONFIG, for example --optimizer.learning-rate 3e-4
  CONFIG --help        explain every key, with its value after reading CONFIG
"""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        arguments: Without the program's name; None for those of the process.

    Returns:
        Exit code: 0 done, 1 the run failed, 2 bad input, 128 + n stopped by signal n (with a
        checkpoint to resume from).
    """
    arguments = list(sys.argv[1:] if arguments is None else arguments)
    logging.basicConfig(level=logging.WARNING, format="%(levelname)s %(name)s: %(message)s")
    paths, is_resumed, flags = _parse(arguments)
    if not paths:
        sys.stdout.write(_USAGE)
        return 0 if {"-h", "--help"} & set(arguments) else 2
    try:
        return _train(load_config(paths, flags), is_resumed=is_resumed)
    except (GenerationError, GroupError, RolloutError, UpdateError) as error:
        return _fail(error, 1)
    except PettingLLMsError as error:
        return _fail(error, 2)


def _parse(arguments: Sequence[str]) -> tuple[list[Path], bool, list[str]]:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, usage=argparse.SUPPRESS)
    parser.add_argument("--resume", action="store_true")
    known, rest = parser.parse_known_args(arguments)
    paths = [Path(name) for name in itertools.takewhile(lambda x: not x.startswith("-"), rest)]
    return paths, known.resume, rest[len(paths) :]


def _fail(error: Exception, code: int) -> int:
    sys.stderr.write(f"pettingllms-train: {type(error).__name__}: {error}\n")
    return code


def _train(config: Config, *, is_resumed: bool) -> int:
    environments = make_environments(config)
    files = RunFiles(Path(config.output_dir))
    files.check(config, is_resumed=is_resumed)
    # Imported here: torch and transformers take seconds, and bad input needs neither.
    import torch
    from transformers.utils import logging as transformers_logging

    from pettingllms_trainers.assembly import build_policies, build_pool, build_trainer

    transformers_logging.disable_progress_bar()
    if config.num_threads:
        torch.set_num_threads(config.num_threads)
    policies = build_policies(config)
    pool = build_pool(config, policies)
    files.open(config)
    console = Console()
    progress = progress_view(config.logging.progress, console, config.num_steps)
    with StopRequest() as stop, asyncio.Runner() as runner, progress:
        trainer = build_trainer(
            config, environments, pool, files, progress=progress, stop=stop, runner=runner
        )
        try:
            report = trainer.run()
        except StopRequested:
            report = None
    if report is None:
        assert stop.signal is not None
        console.print(f"stopped; go on with --resume ({files.checkpoints})", soft_wrap=True)
        return 128 + stop.signal
    console.print(report_table(report))
    console.print(f"written to {files.directory}", soft_wrap=True)
    return 0


if __name__ == "__main__":
    sys.exit(main())
