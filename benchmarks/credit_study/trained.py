"""Cells of the tiny layer: runs of the trainer in processes of their own, at equal sampled tokens.

Warm starts are shared by all cells that begin alike: variants differ in what comes afterwards. The
figure is Figure 1 of the paper and its ablation at laptop scale: who is trained, and with whom.
Roles that are trained apart begin with the weights of the team, whose warm start is run first; each
is then trained alone from there, the planner in `team="single"`, the tool agent in
`team="single-tool"`, with the prompts of the team. So both can read what the team reads, and differ
from the team's policies in the training alone. Afterwards they play as a team.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import json
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import tomli_w
from learning import transcripts

from credit_study import distractors
from pettingllms.evaluation import EvaluationPlan, RunFolder, evaluate, summarise
from pettingllms.evaluation.plan import swapped
from pettingllms.evaluation.training_run import TrainingRun
from pettingllms.files import read_lines
from pettingllms.types import flat_table
from pettingllms_trainers.config.loading import load_config
from pettingllms_trainers.config.sections import LoraConfig

_SHARE = 0.7
_GRACE_S = 10


def train(
    file: Path, flags: Mapping[str, Any], directory: Path, tokens: int, limit_s: int
) -> dict[str, Any]:
    """Train until the tokens are used up; return what `training_cell` returns of the run itself.

    Args:
        file: Run file.
        flags: Keys that override its own.
        directory: Output directory; a run that was killed there goes on. Its last checkpoint is of
            the last train step.
        tokens: Sampled tokens.
        limit_s: Limit of processor time, whole seconds; other load on the machine does not count.

    Raises:
        RuntimeError: See `training_cell`.
    """
    log, every = directory.with_name(f"{directory.name}.log"), flags["evaluation.every"]
    spent, found = _children_seconds(), _read(directory, tokens)
    while not found.pop("complete"):
        # Counts alone decide how far it goes, so that a busy machine trains no more than an idle
        # one: most of the way that is left, and evaluation by evaluation in the end.
        steps = found["steps"]
        left = (tokens / found["tokens"] - 1) * steps / every if steps else 0
        flags = {**flags, "num_steps": steps + every * max(1, int(_SHARE * left))}
        left_s = int(limit_s - (_children_seconds() - spent))
        limits = max(1, left_s), max(1, left_s) + _GRACE_S
        with log.open("a") as output:
            done = subprocess.run(
                [*command_of([file], {**flags, "output_dir": directory}), "--resume"],
                stdout=output,
                stderr=output,
                # At the hard limit it would be killed, as by anybody else.
                preexec_fn=partial(resource.setrlimit, resource.RLIMIT_CPU, limits),
                check=False,
            )
        found = _read(directory, tokens)
        if done.returncode or found["steps"] == steps:
            is_slow = done.returncode in (0, -signal.SIGXCPU)
            last = (log.read_text().strip().splitlines() or ["no output"])[-1]
            raise RuntimeError(f"not at its tokens within {limit_s} s" if is_slow else last)
    return found


def _children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def command_of(files: Sequence[Path], flags: Mapping[str, Any], *kind: str) -> list[str]:
    """The command line of a run of the trainer."""
    command = [sys.executable, "-m", "pettingllms_trainers.cli", *kind, *map(str, files)]
    return command + flag_lines(flags)


def flag_lines(flags: Mapping[str, Any]) -> list[str]:
    """Keys of a run file as flags of the command line."""
    return [
        f"--{key}={str(value).lower() if isinstance(value, bool) else value}"
        for key, value in flags.items()
    ]


def played(
    directory: Path, folder: Path, policies: Mapping[str, Mapping[str, str]]
) -> dict[str, float]:
    """The success on the held-out levels of a run by variant; see `evaluated`."""
    plan, played_run = evaluated(directory, folder, policies)
    found = summarise(plan, played_run.results()).variants
    return {name: found[name].success.value for name in policies}


def evaluated(
    directory: Path, folder: Path, policies: Mapping[str, Mapping[str, str]]
) -> tuple[EvaluationPlan, RunFolder]:
    """Play the held-out levels of a run; return how, and what came out.

    Args:
        directory: Output directory of the run.
        folder: In which the evaluation is kept; one that was killed there begins anew.
        policies: Variant -> role -> policy; the other roles are played by what the run trained.
    """
    run = TrainingRun.open(directory)
    assignment = run.assignment()
    numbers = run.levels()
    plan = EvaluationPlan(
        env_id=run.env_id,
        variants={name: {**assignment, **others} for name, others in policies.items()},
        env_kwargs=run.held_out_kwargs(),
        sampling=run.sampling(assignment),
        seed=numbers["seed"],
        num_levels=numbers["episodes"],
    )
    # As the trainer's own evaluation does.
    plan = plan.with_distinct_levels(plan.make_env())
    shutil.rmtree(folder, ignore_errors=True)
    kept = RunFolder.create(folder, plan)
    with contextlib.redirect_stderr(io.StringIO()):  # how the models sample is no news
        evaluate(kept, max_concurrency=plan.num_levels)
    return plan, kept


def _read(directory: Path, tokens: int) -> dict[str, Any]:
    metrics = {line["step"]: line for line in read_lines(directory / "metrics.jsonl")}
    used, at_step = 0.0, {0: 0.0}
    for step in sorted(metrics):
        # Counted as sampled, not as trained on: that is what a run pays for.
        used += metrics[step].get("rollout/num_completion_tokens", 0)
        at_step[step] = used
    evaluations = [e for e in read_lines(directory / "evaluations.jsonl") if e["step"] in at_step]
    curve = [
        [at_step[e["step"]], e["variants"]["sampled"]["success"], e["num_episodes"]]
        for e in evaluations
    ]
    first = evaluations[0]["variants"] if evaluations else {}
    return {
        "curve": curve,
        "steps": evaluations[-1]["step"] if evaluations else 0,
        "tokens": curve[-1][0] if curve else 0.0,
        "complete": bool(curve) and curve[-1][0] >= tokens,
        "scripted": {
            name.partition(":")[2]: arm["success"]
            for name, arm in first.items()
            if name.startswith("scripted:")
        },
    }


_LATER = ("algorithm", "rollout", "loss", "rewards", "logging")
"""Sections that decide nothing before the first train step."""


def warm_start(shared: Path, files: Sequence[Path], flags: Mapping[str, Any]) -> Path:
    """The directory of a run's warm start, which is run if none of its kind has been.

    Two cells that begin at the same time both run it, and one is kept: they are equal.

    Args:
        shared: Folder of the warm starts of a study, each named after all that decides it.
        files: Run files.
        flags: Keys that override theirs.
    """
    directory = shared / _identity(files, flags)
    if not directory.is_dir():
        with tempfile.TemporaryDirectory(dir=shared) as folder:
            own = Path(folder) / "run"
            command = command_of(files, {**flags, "output_dir": own}, "warm-start")
            subprocess.run(command, capture_output=True, check=True)
            try:
                own.rename(directory)
            except OSError:
                if not directory.is_dir():
                    raise  # else another cell was faster
    return directory


def weights_of(directory: Path) -> dict[str, Path]:
    """Policy -> directory of its weights after a warm start."""
    return {path.name: path for path in sorted((directory / "policies").iterdir())}


def begin_with(shared: Path, files: Sequence[Path], flags: Mapping[str, Any]) -> dict[str, Any]:
    """The flags of the same run with the weights of its warm start in its place.

    The run is the same bit by bit. See `warm_start` for the arguments; flags of a run without a
    warm start are returned as they are.
    """
    if not load_config(files, flag_lines(flags)).warm_start.num_steps:
        return dict(flags)
    begun = {"policies": begun_with(weights_of(warm_start(shared, files, flags)))}
    return {**flags, **flat_table(begun), "warm_start.num_steps": 0}


def begun_with(weights: Mapping[str, Path]) -> dict[str, Any]:
    """The section `policies` of a run that begins with weights: adapters are trained further."""
    # No new adapter: a scale that a recipe gives one would be refused, as it changes nothing.
    lora = {"rank": 0, "alpha": LoraConfig().alpha}
    return {name: {"model": str(path), "lora": lora} for name, path in weights.items()}


def _identity(files: Sequence[Path], flags: Mapping[str, Any]) -> str:
    # All that the warm start reads, whether it matters or not: a false hit would be worse.
    config = load_config(files, flag_lines(flags)).model_dump(mode="json", exclude=set(_LATER))
    del config["env"]["kwargs"]["reward"], config["optimizer"]["learning_rate"]
    del config["optimizer"]["completions_per_minibatch"], config["optimizer"]["shuffle"]
    return _hash(config)


def _hash(data: Any) -> str:
    return hashlib.sha256(json.dumps(data, sort_keys=True).encode()).hexdigest()[:16]


ROOT = Path(__file__).resolve().parents[2]
_RATE = 1e-3


def flags_of(
    task: Mapping[str, Any],
    algorithm: Mapping[str, Any],
    num_levels: int,
    reward: str,
    bonus: str,
    seed: int,
) -> dict[str, Any]:
    """The keys of a run file that make it a run of the study; see `training_cell`."""
    paid = {f"rewards.{bonus}.function": f"{distractors.__file__}:{bonus}"} if bonus else {}
    return {
        **task["keys"],
        **flat_table({"algorithm": algorithm}),
        **paid,
        "env.kwargs.reward": reward,
        "rollout.num_levels": num_levels,
        "optimizer.learning_rate": task.get("rate", _RATE),
        "optimizer.final_fraction": 1.0,  # nobody knows beforehand how many steps there are
        "seed": seed,
        "evaluation.every": task["every"],
        "evaluation.decoding": "sampled",
        "evaluation.swap_roles": False,
        "checkpoint.every": task["every"],
        "logging.progress": "off",
        "logging.tensorboard": False,
        "logging.rollouts_every": 0,
    }


def training_cell(
    plays: str,
    task: Mapping[str, Any],
    algorithm: Mapping[str, Any],
    num_levels: int,
    reward: str,
    bonus: str,
    seed: int,
    limit_s: int,
    shared: Path,
    shows: bool = False,
) -> dict[str, Any]:
    """Train until the task's sampled tokens are used up; return held-out success along the way.

    Args:
        plays: `""`: the run file as it is; `"single"`: one role alone, with a warm start of its
            own; `"team"`: both roles, with a policy each; `"shared"`: with one policy; `"apart"`:
            each role alone, from the team's warm start, with the task's tokens each.
        task: Run file, tokens, rate, further keys; `every`: train steps between evaluations.
            `alone`: role -> the team in which it plays alone; the first one plays `"single"`.
            `demonstrators`: of roles that need others there than in the team. `single_prompt`: of
            the one that plays `"single"`, where its prompt in the team leaves out what mates tell.
        algorithm: The way: section of a run file.
        num_levels: Levels of a train step.
        reward: Argument of the environment.
        bonus: A function of `distractors` that is paid beside it; "": none.
        seed: Of the run; the held-out levels are always the same.
        limit_s: Limit of the processor time of a training, seconds.
        shared: Folder of the study's warm starts.
        shows: Whether the cell has an episode for people, too.

    Returns:
        `curve`: (sampled tokens, share of held-out levels solved by sampling, levels), the last one
        after the task's tokens; `scripted`: shares of the scripted rules; `tokens`, `steps`: of
        the whole run. `"team"` has `swapped` besides: its success with policies exchanged.
        `"apart"` has the same for each role instead, and `joined`: the success of both as a team
        `after` training, and that of the same team `before`. A cell that `shows` has `said`: the
        episodes before and after training on the first held-out level that only the latter solves.

    Raises:
        RuntimeError: A run failed, or did not use up its tokens within the limit.
    """
    flags = flags_of(task, algorithm, num_levels, reward, bonus, seed)
    if shows:
        flags |= {"logging.rollouts_every": flags["evaluation.every"], "logging.num_held_out": 64}
    folder = shared / "unfinished" / _hash([plays, task, flags])
    is_continued = folder.is_dir()
    folder.mkdir(parents=True, exist_ok=True)
    if plays == "apart":
        found = _apart(folder, task, flags, limit_s, shared)
    else:
        path = run_file(folder, task, plays)
        begun = begin_with(shared, [path], flags)
        found = train(path, begun, folder / "run", task["tokens"], limit_s)
    if plays == "team":
        assignment = TrainingRun.open(folder / "run").assignment()
        exchanged = {"swapped": swapped(assignment)}
        found |= played(folder / "run", folder / "run" / "swapped", exchanged)
    if shows:
        found["said"] = _said(folder / "run")
    shutil.rmtree(folder)
    # Of its processor time, what a process had used that was killed is not known.
    return found | ({"continued": True} if is_continued else {})


def run_file(folder: Path, task: Mapping[str, Any], plays: str) -> Path:
    """The run file of one role alone, of the team, or of the team with one policy.

    Args:
        folder: In which it is written, if it is not there already.
        task: See `training_cell`.
        plays: `""`, `"single"`, `"team"` or `"shared"`.
    """
    path = ROOT / task["config"]
    if plays == "single":
        role = next(iter(task["alone"]))
        return _alone(folder, task, role, {}, task.get("single_prompt"))
    # Tiny models have one of its own: their vocabulary is that of both roles.
    shared = path.with_name(f"{path.stem}_shared.toml")
    if plays != "shared" or shared.is_file():
        return shared if plays == "shared" else path
    config = tomllib.loads(path.read_text(encoding="utf-8"))
    config["roles"] = dict.fromkeys(config["roles"], "team")
    path = folder / shared.name
    path.write_text(tomli_w.dumps(config), encoding="utf-8")
    return path


def _said(directory: Path) -> list[dict[str, Any]]:
    """The exchanges of one level before and after training; none if no level is newly solved."""
    before, *_, after = transcripts(directory)
    pairs = zip(before, after, strict=True)
    return next(([a, b] for a, b in pairs if b["success"] and not a["success"]), [])


def _apart(
    folder: Path, task: Mapping[str, Any], flags: Mapping[str, Any], limit_s: int, shared: Path
) -> dict[str, Any]:
    """Train each role alone, from the weights of the team's warm start, and join them."""
    team = warm_start(shared, [ROOT / task["config"]], flags)
    begun = weights_of(team)
    found: dict[str, Any] = {}
    for role in task["alone"]:
        path = _alone(folder, task, role, {"policies": begun_with({role: begun[role]})})
        alone = {**flags, "warm_start.num_steps": 0}
        found[role] = train(path, alone, folder / role, task["tokens"], limit_s)
    teams = {
        "before": {role: f"hf:{begun[role]}" for role in task["alone"]},
        "after": {role: f"run:{folder / role}?policy={role}" for role in task["alone"]},
    }
    return {**found, "joined": played(team, folder / "joined", teams)}


def _alone(
    folder: Path,
    task: Mapping[str, Any],
    role: str,
    changes: Mapping[str, Any],
    prompt: Mapping[str, str] | None = None,
) -> Path:
    """Write the run file in which a role of the team plays alone; return its path.

    Args:
        prompt: Of the role; that of the team by default.
    """
    config = tomllib.loads((ROOT / task["config"]).read_text(encoding="utf-8"))
    kwargs, warm_start = config["env"]["kwargs"], config["warm_start"]
    kwargs["team"] = task["alone"][role]
    kwargs["prompts"] = {role: prompt or kwargs["prompts"][role]}
    shown = {**warm_start["demonstrators"], **task.get("demonstrators", {})}
    warm_start["demonstrators"] = {role: shown[role]}
    if "policies" in config:
        config["policies"] = {role: config["policies"][config["roles"][role]]}
    config["roles"] = {role: role}
    path = folder / f"{role}.toml"
    path.write_text(tomli_w.dumps({**config, **changes}), encoding="utf-8")
    return path
