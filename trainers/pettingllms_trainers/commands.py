"""What the commands of `pettingllms-train` do with a checked configuration."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import os
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast

import tomli_w

from pettingllms.errors import counted
from pettingllms.sources import WORKFLOW_PREFIX, absolute, load_source
from pettingllms_trainers.config import Config, LoggingConfig
from pettingllms_trainers.config.root import start_advice
from pettingllms_trainers.config.sections import RewardConfig
from pettingllms_trainers.config.vetting import ALGORITHM, ENVIRONMENT, POLICY, named_code
from pettingllms_trainers.errors import ConfigError
from pettingllms_trainers.policies.fixed import FixedPolicy, open_fixed_policies
from pettingllms_trainers.policies.pool import PolicyPool
from pettingllms_trainers.ranks import (
    SERVERS,
    Ranks,
    StopRequest,
    StopRequested,
    joined_ranks,
    num_launched,
)
from pettingllms_trainers.rollout.environments import RunEnvironment, make_environments, played_by
from pettingllms_trainers.rollout.judging import (
    AnswerFunction,
    FunctionScorer,
    Ledger,
    PolicyScorer,
    Reward,
    Rewards,
    Scorer,
)
from pettingllms_trainers.runs.folder import RunDirectory
from pettingllms_trainers.runs.machines import Machines, open_machines
from pettingllms_trainers.runs.recorder import (
    Doing,
    Recorder,
    RunConsole,
    SilentRecorder,
    progress_view,
)
from pettingllms_trainers.runs.report import no_gain, report_table
from pettingllms_trainers.runs.trackers import Trackers, check_trackers


def train(
    config: Config,
    *,
    is_resumed: bool,
    on_step: Callable[[int, Mapping[str, float]], None] | None = None,
    stop: StopRequest | None = None,
) -> int:
    """Train from the start, or from the newest checkpoint; show the report.

    Args:
        on_step: Called with the number and the metrics of each train step, from 1.
        stop: Listens to signals already; None: those of this thread.

    Returns:
        Exit code: 0; 1 if `stalled_after` train steps or more have updated no policy; 128 + n after
        signal n.

    Raises:
        PettingLLMsError: Bad input, or the run failed.
    """
    environments, files = _check(config, is_resumed=is_resumed)
    try:
        # Imported here: transformers takes seconds, and bad input that needs no tokenizer is first.
        from pettingllms_trainers.runs.prompts import checked_prompts

        prompts = checked_prompts(config, environments)
        with _begun(config, files, is_resumed=is_resumed) as (config, ranks, on_gpu):
            if not on_gpu:
                # Not before: it imports peft, peft bitsandbytes, and that asks for a device.
                from pettingllms_trainers.runs.prompts import with_cpu_cache

                config = with_cpu_cache(config, prompts)
            with (
                open_fixed_policies(config, played_by(environments)) as (runner, fixed_policies),
                open_machines(config, ranks) as machines,
            ):
                pool = machines.build_pool(fixed_policies)
                listening = contextlib.nullcontext(stop) if stop else StopRequest(pool.ranks)
                trackers = Trackers(files.directory, config, on_step)
                return _train(
                    config, environments, files, machines, pool, runner, listening, trackers
                )
    except StopRequested as request:
        return _stopped(request, config, files)


def _train(
    config: Config,
    environments: Sequence[RunEnvironment],
    files: RunDirectory,
    machines: Machines,
    pool: PolicyPool,
    runner: asyncio.Runner,
    listening: contextlib.AbstractContextManager[StopRequest],
    trackers: Trackers,
) -> int:
    episodes = machines.build_episodes(environments)
    changes = files.changes(config)
    pool.ranks.barrier()
    _open(files, config, pool.ranks)
    machines.check_directory(files.directory)
    # Imported here: torch and transformers take seconds, and bad input needs neither.
    from pettingllms_trainers.runs.prompts import first_exchanges, template_advice
    from pettingllms_trainers.runs.train import build_trainer

    console = RunConsole(quiet=not pool.ranks.is_main)
    progress = progress_view(config.logging.progress, console, config.num_steps)
    verdicts = files.verdicts(pool.ranks.rank) if config.rewards else None
    rewards = build_rewards(config, pool.fixed_policies, verdicts, pool.ranks)
    with listening as stop, trackers, progress:
        kind = Recorder if pool.ranks.is_main else SilentRecorder
        recorder = kind(files, config, progress, trackers)
        for change in changes:
            recorder.note(change)
        trainer = build_trainer(
            config,
            environments,
            pool,
            recorder,
            files,
            episodes=episodes,
            stop=stop,
            runner=runner,
            rewards=rewards,
        )
        advice = *start_advice(config), *template_advice(config, environments)
        for one in (*advice, *trainer.held_out.advice()):
            progress.warn(one)
        first = first_exchanges(config, environments) if pool.ranks.is_main else {}
        runner.run(rewards.tried(first))
        try:
            with _long_lived():
                report = trainer.run()
        except StopRequested as request:
            # Here, before any of several ranks has left: their launcher would end the others.
            return _stopped(request, config, files)
    if pool.ranks.is_main:
        console.print(report_table(report, console))
        if told := no_gain(report):
            console.print(told, markup=False, highlight=False, soft_wrap=True)
        for warning in report["warnings"]:
            console.print(f"warning: {warning}", style="yellow", markup=False, soft_wrap=True)
        console.print(f"written to {files.directory}; next:", soft_wrap=True)
        # What is printed has to work as it stands, for a run that names code, too.
        table = config.model_dump(mode="json")
        trust, code = (
            " --trust" if named_code(table, *kinds) else ""
            for kinds in ((ENVIRONMENT, POLICY), (ALGORITHM,))
        )
        place = shlex.quote(str(files.directory))
        for command in (
            f"pettingllms view {place} --open",
            f"pettingllms eval {place}{trust}",
            f"pettingllms-train export {place} DIRECTORY{code}",
        ):
            console.print(f"  {command}", markup=False, highlight=False, soft_wrap=True)
        if config.num_steps >= config.stalled_after and not report["num_optimizer_steps"]:
            # A script that continues with untrained policies must ask for it.
            console.print(
                "nothing was learnt: no train step has updated a policy", style="bold red"
            )
            return 1
    return 0


def _stopped(request: StopRequested, config: Config, files: RunDirectory) -> int:
    """Say what is saved and how to go on, as it can be typed anywhere; return the exit code."""
    step = files.last_step()
    kept = "nothing is saved; the same command starts again"
    if step is not None:
        kept = f"train step {step} is saved; continue with: pettingllms-train "
        servers = os.environ.get(SERVERS, "")
        kept += "launch " * (bool(servers) or num_launched() > 1)
        kept += shlex.quote(str(files.directory)) + f" --servers {servers}" * bool(servers)
        kept += " --resume"
        kept += " --trust" * bool(named_code(config.model_dump(mode="json")))
    console = RunConsole(quiet=os.environ.get("RANK", "0") != "0")
    console.print(f"stopped; {kept}", markup=False, highlight=False, soft_wrap=True)
    return 128 + request.signal


@contextlib.contextmanager
def _long_lived() -> Iterator[None]:
    """Keep what has been built out of garbage collections: each would take tenths of a second."""
    gc.collect()
    gc.freeze()
    try:
        yield
    finally:
        gc.unfreeze()


def propose(source: str, task: str) -> int:
    """Play a program that no run file knows, and print one that trains who asks in it.

    Args:
        source: ``workflow:file.py:function``.

    Returns:
        Exit code: 0.
    """
    from pettingllms.workflows.proposal import seen_agents

    source = absolute(source)
    agents = seen_agents(source.removeprefix(WORKFLOW_PREFIX), task)
    number = counted(len(agents), "agent")
    names = ", ".join(one.sender.agent or one.role for one in agents)
    sys.stderr.write(f"{number}: {names}. Map them, and write the reward:\n\n")
    program = {
        "reward": "reward.py:reward",
        "clock": datetime.now(UTC).isoformat(timespec="minutes"),
        "tasks": {"train": [task], "test": [task]},
        "roles": {one.role: one.told_by for one in agents},
    }
    run = {
        "env": {"id": source, "kwargs": {"program": program}},
        "policies": {"team": {"model": "Qwen/Qwen3-4B"}},
        "roles": {one.role: "team" for one in agents},
        "algorithm": {"name": "reinforce"},
    }
    sys.stdout.write(
        "# reward.py holds a function reward(task, outcome) -> number; 1 or more is success.\n"
        f"{tomli_w.dumps(run)}"
    )
    return 0


def warm_start(config: Config) -> int:
    """Take only the supervised steps on demonstrations and write the policies.

    Returns:
        Exit code.

    Raises:
        PettingLLMsError: Bad input, or the loss is not finite.
    """
    if not config.warm_start.num_steps:
        raise ConfigError(
            "there is nothing to imitate: warm_start.num_steps is 0. Set it, and name scripted "
            "policies of the environment in [warm_start.demonstrators], or a file (warm_start.data)"
        )
    environments, files = _check(config, is_resumed=False)
    with _begun(config, files, is_resumed=False) as (config, ranks, _):
        # Nothing is generated, so no engine is started and any attention will do.
        engine = config.engine.model_copy(update={"kind": "transformers", "attention": "expanded"})
        with open_machines(config.model_copy(update={"engine": engine}), ranks) as machines:
            return _warm_start(config, environments, files, machines)


def _warm_start(
    config: Config,
    environments: Sequence[RunEnvironment],
    files: RunDirectory,
    machines: Machines,
) -> int:
    from pettingllms_trainers.rollout.demonstrations import WarmStart

    pool = machines.build_pool({})
    _open(files, config, pool.ranks)
    machines.check_directory(files.directory)
    console = RunConsole(quiet=not pool.ranks.is_main)
    view = "off" if config.logging.progress == "off" else "plain"
    progress = progress_view(view, console, 0)
    with StopRequest(pool.ranks) as stop, Trackers(files.directory, config) as trackers, progress:
        kind = Recorder if pool.ranks.is_main else SilentRecorder
        recorder = kind(files, config, progress, trackers)
        recorder.start_at(-1)
        try:
            start = WarmStart(config, environments, pool, stop)
            with recorder.busy(lambda: Doing(*start.doing)):
                metrics = start.run(recorder.note, recorder.imitation)
        except StopRequested as request:
            return _stopped(request, config, files)
        recorder.metrics(0, metrics)
        recorder.policies(pool)
    for name, value in metrics.items():
        console.print(f"{name} {value:.4f}")
    console.print(f"written to {files.policies}", soft_wrap=True)
    return 0


@contextlib.contextmanager
def _begun(
    config: Config, files: RunDirectory, *, is_resumed: bool
) -> Iterator[tuple[Config, Ranks, bool]]:
    """Join the ranks, hold the directory, and choose the precision; yields whether it is a GPU."""
    from pettingllms_trainers.backends.device import computes_on_gpu, for_device

    with (
        joined_ranks(lambda request: _stopped(request, config, files)) as ranks,
        # The main rank alone: a directory has one lock, and the run is one.
        files.owned() if ranks.is_main else contextlib.nullcontext(),
    ):
        if ranks.is_main:
            # Again: until it was held, another run may have written into it.
            files.check(config, is_resumed=is_resumed)
        else:
            logging = LoggingConfig(progress="off", tensorboard=False)
            config = config.model_copy(update={"logging": logging})
        # Not before: asking for a device starts CUDA, on GPUs that this rank is not to see.
        on_gpu = computes_on_gpu(config, ranks.size)
        config, chosen = for_device(files.settled(config), ranks, on_gpu=on_gpu)
        if chosen and ranks.is_main:
            RunConsole().print(chosen, highlight=False, markup=False, soft_wrap=True)
        yield config, ranks, on_gpu


def _open(files: RunDirectory, config: Config, ranks: Ranks) -> None:
    if ranks.is_main:
        files.open(config)
    ranks.barrier()
    if not files.config.is_file():
        raise ConfigError(
            f"rank {ranks.rank} does not see the output directory {files.directory}, which the "
            "main one has written into. Choose an output_dir on a file system that all machines "
            "share"
        )


def _check(config: Config, *, is_resumed: bool) -> tuple[Sequence[RunEnvironment], RunDirectory]:
    """The environments and files of a run; nothing is loaded or written."""
    check_trackers(config.logging)
    environments = make_environments(config)
    files = RunDirectory(Path(config.output_dir))
    files.check(config, is_resumed=is_resumed)
    return environments, files


def build_rewards(
    config: Config,
    fixed_policies: Mapping[str, FixedPolicy],
    verdicts: Path | None = None,
    ranks: Ranks | None = None,
) -> Rewards:
    """Build what answers of a run earn beside the environments' rewards.

    Args:
        fixed_policies: Opened ones, the judges among them.
        verdicts: File that keeps all verdicts; None keeps them in memory.
        ranks: The processes that share the budgets; None for this one alone.

    Raises:
        PettingLLMsError: A function or a model cannot be loaded.
    """
    num_shares = 1 if ranks is None else ranks.size
    return Rewards(
        [
            Reward(
                name,
                reward,
                _scorer(name, reward, fixed_policies),
                Ledger(verdicts, name, reward, num_shares),
            )
            for name, reward in config.rewards.items()
        ]
    )


def _scorer(name: str, reward: RewardConfig, fixed_policies: Mapping[str, FixedPolicy]) -> Scorer:
    if reward.judge:
        fixed = fixed_policies[reward.judge]
        kwargs = fixed.template_kwargs
        return PolicyScorer(
            fixed.policy, reward, {"chat_template_kwargs": kwargs} if kwargs else {}
        )
    if reward.model:
        # Imported here: torch and transformers take seconds.
        from pettingllms_trainers.backends.hf.reward_model import RewardModel

        return RewardModel.from_pretrained(reward.model)
    function: Any = load_source(reward.function, f"rewards.{name}.function")
    if not callable(function):
        raise ConfigError(
            f"rewards.{name}.function = {reward.function!r} is a {type(function).__name__}; name a "
            "function (messages, answer) that returns a number"
        )
    return FunctionScorer(cast(AnswerFunction, function))
