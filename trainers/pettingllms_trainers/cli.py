"""`pettingllms-train`: which command, run files and flags; errors as messages and exit codes."""

from __future__ import annotations

import argparse
import atexit
import errno
import itertools
import logging
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NoReturn

from pettingllms.errors import PettingLLMsError
from pettingllms_trainers import commands
from pettingllms_trainers.config.loading import load_config
from pettingllms_trainers.errors import (
    ConfigError,
    GenerationError,
    GroupError,
    RankError,
    RolloutError,
    TrainerError,
    UpdateError,
    WorkerLost,
)
from pettingllms_trainers.ranks import num_launched
from pettingllms_trainers.runs.export import export_policy

__all__ = ["main"]

_USAGE = """\
usage: pettingllms-train CONFIG [CONFIG ...] [--resume] [--SECTION.KEY VALUE ...]
       pettingllms-train CONFIG [CONFIG ...] --dry-run [--gpus N] [--gpu-memory GIB]
       pettingllms-train warm-start CONFIG [CONFIG ...] [--SECTION.KEY VALUE ...]
       pettingllms-train export RUN DIRECTORY [--policy NAME] [--step N] [--merge]

Train a team of agents with AT-GRPO as the TOML files CONFIG say; later ones override earlier ones.

  warm-start           only the supervised steps on the environment's scripted policies
  export               write a policy of a checkpoint as an ordinary Hugging Face directory
  --dry-run            check everything and show what the run will need and do, and end; planned
                       for the GPUs here, or for N GPUs of GIB each (80 without a GPU here)
  --resume             go on with the run in its output directory
  --SECTION.KEY VALUE  override a value of CONFIG, for example --optimizer.learning-rate 3e-4
  CONFIG --help        explain every key, with its value after reading CONFIG
"""
_WARM_START, _EXPORT = "warm-start", "export"


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
    try:
        return _run(arguments)
    except (
        GenerationError, GroupError, RankError, RolloutError, UpdateError, WorkerLost
    ) as error:  # fmt: skip
        return _fail(error, 1)
    except PettingLLMsError as error:
        return _fail(error, 2)
    except OSError as error:
        if error.errno != errno.ENOSPC:
            raise
        full = TrainerError(f"the disk is full ({error}). Make room and go on with --resume")
        return _fail(full, 1)


def _run(arguments: Sequence[str]) -> int:
    if list(arguments[:1]) == [_EXPORT]:
        return _export(arguments[1:])
    is_warm_start = list(arguments[:1]) == [_WARM_START]
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False, usage=argparse.SUPPRESS)
    if not is_warm_start:
        parser.add_argument("--resume", action="store_true")
        parser.add_argument("--dry-run", action="store_true")
        parser.add_argument("--gpus", type=int)
        parser.add_argument("--gpu-memory", type=float)
    options, rest = parser.parse_known_args(arguments[is_warm_start:])
    paths = list(itertools.takewhile(lambda argument: not argument.startswith("-"), rest))
    if not paths:
        sys.stdout.write(_USAGE)
        return 0 if {"-h", "--help"} & set(arguments) else 2
    if not (is_warm_start or options.dry_run) and {options.gpus, options.gpu_memory} != {None}:
        raise ConfigError("--gpus and --gpu-memory are what --dry-run plans for; add it")
    config = load_config([Path(path) for path in paths], rest[len(paths) :])
    if is_warm_start:
        return commands.warm_start(config)
    if options.dry_run:
        # Imported here: torch and transformers take seconds.
        from pettingllms_trainers.plan.show import show_plan

        return show_plan(
            config, is_resumed=options.resume, num_gpus=options.gpus, gpu_gib=options.gpu_memory
        )
    return commands.train(config, is_resumed=options.resume)


def _export(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(
        prog=f"pettingllms-train {_EXPORT}",
        description="Write a trained policy of a run as a directory that transformers loads.",
    )
    parser.add_argument("run", metavar="RUN", type=Path, help="output directory of a run")
    parser.add_argument("directory", metavar="DIRECTORY", type=Path, help="new or empty")
    parser.add_argument("--policy", metavar="NAME", help="needed when the run trains several")
    parser.add_argument("--step", metavar="N", type=int, help="default: the newest checkpoint")
    parser.add_argument("--merge", action="store_true", help="add a LoRA adapter to its base model")
    options = parser.parse_args(arguments)
    name, step = export_policy(
        options.run,
        options.directory,
        policy=options.policy,
        step=options.step,
        is_merged=options.merge,
    )
    sys.stdout.write(f"policy {name} after train step {step}: {options.directory}\n")
    return 0


def _fail(error: Exception, code: int) -> int:
    rank = f"rank {os.environ.get('RANK', '?')}: " if num_launched() > 1 else ""
    sys.stderr.write(f"pettingllms-train: {rank}{type(error).__name__}: {error}\n")
    return code


def _leave(code: int) -> NoReturn:
    """End the process, one of several without taking its libraries apart.

    Threads that belong to process groups of DeepSpeed and gloo abort that now and then, and the
    launcher would take a finished run for a failed one.
    """
    if num_launched() > 1:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)
    sys.exit(code)


if __name__ == "__main__":
    _leave(main())
