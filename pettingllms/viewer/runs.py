"""What a path holds: a training run, an evaluation, or recorded episodes."""

from __future__ import annotations

import shlex
import tomllib
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import partial
from itertools import accumulate
from pathlib import Path
from typing import Any

from pettingllms.errors import MALFORMED, PettingLLMsError, TranscriptError, counted, data_problem
from pettingllms.files import parse_json
from pettingllms.registry import check_kwargs
from pettingllms.sources import nearby
from pettingllms.transcript import FORMAT as TRANSCRIPT_FORMAT
from pettingllms.transcript import Transcript
from pettingllms.trust import FoundName
from pettingllms.types import flat_table
from pettingllms.viewer.episodes import (
    LineFile,
    Setting,
    ShownEpisode,
    ending_of,
    evaluation_episode,
    steps_decisions,
    tree_episode,
)

JUDGED, CROSSPLAY = "blame.json", "crossplay.json"
# Of all formats that are read here.
VERSION = 1


def open_run(path: Path) -> OpenedRun:
    """Open a run for viewing.

    Raises:
        ViewerError: The path is not a run, or more of it than single lines is damaged.
    """
    if path.is_dir():
        # Before config.toml: an evaluation may lie in the folder of the run that it is of.
        if (path / "run.json").is_file():
            return _evaluation(path)
        if (path / "config.toml").is_file():
            return _training(path)
        if (path / JUDGED).is_file():
            return open_judged(path)
        files = [file for file in sorted(path.glob("*.jsonl")) if _is_transcript(file)]
        if files:
            return _transcripts(path, files)
    elif path.is_file() and _is_transcript(path):
        return _transcripts(path, [path])
    raise ViewerError(
        f"{path} is not a run: there is neither config.toml (of pettingllms-train), nor run.json "
        "(of pettingllms eval), nor blame.json (of pettingllms blame), nor a transcript (*.jsonl "
        "of RecordTranscripts). Name the folder that one of them wrote."
        if path.exists()
        else f"{path} does not exist{nearby(path) or '.'} Name the folder of a run."
    )


def runs_below(path: Path) -> list[Path]:
    """The folders of training runs and evaluations in a folder that is not a run itself."""
    if not path.is_dir() or _is_run(path):
        return []
    return [folder for folder in sorted(path.iterdir()) if folder.is_dir() and _is_run(folder)]


def _is_run(path: Path) -> bool:
    return (path / "run.json").is_file() or (path / "config.toml").is_file()


def _training(path: Path) -> OpenedRun:
    config_path = path / "config.toml"
    try:
        text = config_path.read_text(encoding="utf-8")
        config = tomllib.loads(text)
        tables = config["env"] if isinstance(config["env"], list) else [config["env"]]
        env_id = ", ".join(dict.fromkeys(str(table["id"]) for table in tables))
        # Trees of several environments say of which one they are.
        setting = Setting(
            FoundName(str(tables[0]["id"]), str(config_path)), tables[0].get("kwargs", {}), {}
        )
        facts = [("Environment", env_id), *_training_facts(config)]
    except (OSError, *MALFORMED) as error:
        raise damaged(config_path, "the configuration of a training run", error) from error
    notices: list[str] = []
    metrics, evaluations = LineFile(path / "metrics.jsonl"), LineFile(path / "evaluations.jsonl")
    columns = metric_columns(metrics)
    axes = {name: columns.get(of, [[], []]) for name, of in _AXES.items()}
    curves = {
        "metrics": columns,
        "axes": {
            name: [steps, list(accumulate(v if isinstance(v, int | float) else 0 for v in values))]
            for name, (steps, values) in axes.items()
        },
        "evaluations": variant_columns(evaluations),
    }
    # Notices are known only when a file was read to its end.
    notices += metrics.notices() + evaluations.notices()
    rollouts = LineFile(path / "rollouts.jsonl")
    run = OpenedRun(
        kind="training",
        path=path,
        env_id=env_id,
        setting=setting,
        labels=("set", "step", "episode"),
        facts=facts,
        config=text,
        settings=flat_table(config),
        curves=curves,
        episodes=partial(_read, rollouts, partial(tree_episode, setting.env_id), notices),
        notices=notices,
    )
    if not rollouts.path.exists():
        notices.append(
            "rollouts.jsonl: not there, so no rollout trees are shown; logging.rollouts_every of "
            "the configuration says how often they are written."
        )
    return run


def _evaluation(path: Path) -> OpenedRun:
    run_path = path / "run.json"
    try:
        text = run_path.read_text(encoding="utf-8")
        data = _of_format("evaluation", text)
        plan = data["plan"]
        kwargs, options = plan.get("env_kwargs", {}), plan.get("options", {})
        check_kwargs(kwargs, options)
        env_id, variants = str(plan["env_id"]), dict(plan["variants"])
        facts = _evaluation_facts(data, plan)
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(run_path, "the plan of an evaluation", error) from error
    notices: list[str] = []
    return OpenedRun(
        kind="evaluation",
        path=path,
        env_id=env_id,
        setting=Setting(FoundName(env_id, str(run_path)), kwargs, options),
        labels=("variant", "level", "sample"),
        facts=facts,
        config=text,
        settings=flat_table(plan),
        figures=_report(path / "report.json", plan, notices),
        crossplay=read_crossplay(path, notices),
        episodes=partial(
            _read,
            LineFile(path / "episodes.jsonl"),
            partial(evaluation_episode, variants=variants),
            notices,
        ),
        notices=notices,
    )


def _of_format(name: str, content: str | bytes) -> Any:
    """The JSON data of a file; raises ValueError if they are of another format or version."""
    data = parse_json(content)
    if (data["format"], data["version"]) != (f"pettingllms-{name}", VERSION):
        raise ValueError(
            f"it has format {data['format']!r}, version {data['version']!r}; this viewer reads "
            f"pettingllms-{name}, version {VERSION}"
        )
    return data


def _transcripts(path: Path, files: list[Path]) -> OpenedRun:
    # First lines alone: episodes are read one by one, when the page takes them.
    headers = [parse_json(_first_line(file)) for file in files]
    first, env_ids = headers[0], sorted({str(header.get("id")) for header in headers})
    notices: list[str] = []
    return OpenedRun(
        kind="transcripts",
        path=path,
        env_id=", ".join(env_ids),
        setting=Setting(
            FoundName(str(first.get("id")), str(files[0])),
            first.get("kwargs", {}),
            first.get("options", {}),
        ),
        labels=("file",),
        facts=[("Environment", ", ".join(env_ids)), ("Files", str(len(files)))],
        episodes=partial(_recorded, files, notices),
        notices=notices,
    )


def _read(
    file: LineFile, convert: Callable[[Any], ShownEpisode], notices: list[str]
) -> Iterator[ShownEpisode]:
    """Yield the episodes of a file, each once: a resumed run may have played one again."""
    seen: set[tuple[str | int, ...]] = set()
    for episode in file.read(convert):
        if episode.key not in seen:
            seen.add(episode.key)
            yield episode
    notices += file.notices()


def _recorded(files: list[Path], notices: list[str]) -> Iterator[ShownEpisode]:
    for file in files:
        try:
            transcript = Transcript.load(file)
            episode = _transcript_episode(file.name, file.name, transcript, {})
        except (TranscriptError, KeyError, TypeError, AttributeError) as error:
            notices.append(f"{file.name}: cannot be shown ({data_problem(error)})")
        else:
            yield episode


def _transcript_episode(
    name: str, file: str, transcript: Transcript, policies: Mapping[str, str]
) -> ShownEpisode:
    steps = transcript.steps
    last: Mapping[str, Any] = steps[-1] if steps else {"success": False, "end": None, "turn": -1}
    return ShownEpisode(
        key=(name,),
        setting=Setting(FoundName(str(transcript.id), file), transcript.kwargs, transcript.options),
        seed=transcript.seed,
        state_hash=transcript.state_hash,
        success=bool(last["success"]),
        ending=ending_of(last["success"], last["end"]),
        num_turns=last["turn"] + 1,
        returns=transcript.returns(),
        decisions=steps_decisions(steps, policies),
    )


def _first_line(path: Path) -> bytes:
    with path.open("rb") as file:
        return file.readline()


def _is_transcript(path: Path) -> bool:
    try:
        first = parse_json(_first_line(path))
    except ValueError:
        return False
    return isinstance(first, dict) and first.get("format") == TRANSCRIPT_FORMAT


def _report(path: Path, plan: Mapping[str, Any], notices: list[str]) -> Mapping[str, Any] | None:
    """Variant -> figures, with `failures` of the evaluation: cause -> episodes."""
    if not path.exists():
        notices.append(
            "report.json: not there (the evaluation is not finished), so the figures "
            "are plain counts without intervals."
        )
        return None
    try:
        report = parse_json(path.read_bytes())
        variants, failures = dict(report["variants"]), dict(report.get("failures", {}))
        for one in variants.values():
            _check_figures(one)
        if not report["is_complete"]:
            notices.append(_stopped(path.parent, plan, variants, failures))
        return {name: {**one, "failures": failures} for name, one in variants.items()}
    except (ValueError, KeyError, TypeError) as error:
        notices.append(f"report.json: cannot be read ({data_problem(error)})")
        return None


def _check_figures(figures: Mapping[str, Any]) -> None:
    """Raise KeyError or TypeError where a figure that the page needs is missing."""
    for name in ("num_episodes", "num_expected"):
        _ = figures[name]
    for bound in ("value", "low", "high"):
        _ = figures["success"][bound]


def _stopped(
    folder: Path, plan: Mapping[str, Any], variants: Mapping[str, Any], failures: Mapping[str, Any]
) -> str:
    counts = ", ".join(f"{name}: {one['num_episodes']}" for name, one in variants.items())
    wanted = counted(plan["num_levels"] * plan["num_samples"], "episode")
    causes = "".join(f" {count} failed: {cause}." for cause, count in failures.items())
    command = f"pettingllms eval --resume {shlex.quote(str(folder))}"
    return (
        f"The evaluation is incomplete: of {wanted} of each variant "
        f"there are {counts or 'none'}.{causes} `{command}` plays the others."
    )


def _training_facts(config: Mapping[str, Any]) -> list[tuple[str, str]]:
    algorithm, policies = config.get("algorithm", {}), config.get("policies", {})
    facts = [
        ("Roles", _team(config.get("roles", {}))),
        ("Policies", ", ".join(f"{name}: {p.get('model')}" for name, p in policies.items())),
        ("Train steps", config.get("num_steps")),
        ("Algorithm", algorithm.get("name")),
        ("Candidates", algorithm.get("num_candidates")),
        ("Branch choice", algorithm.get("branch_choice")),
        ("Seed", config.get("seed")),
    ]
    return [(name, str(value)) for name, value in facts if value not in (None, "")]


def _evaluation_facts(data: Mapping[str, Any], plan: Mapping[str, Any]) -> list[tuple[str, str]]:
    return [
        ("Environment", str(plan["env_id"])),
        *((f"Variant {variant}", _team(roles)) for variant, roles in plan["variants"].items()),
        ("Levels", f"{plan.get('num_levels')} x {plan.get('num_samples')} plays"),
        ("Seed", str(plan.get("seed"))),
        ("Begun", str(data.get("created"))),
        ("Versions", ", ".join(f"{n} {v}" for n, v in data.get("versions", {}).items())),
    ]


def _team(assignment: Mapping[str, str]) -> str:
    return ", ".join(f"{role}: {name}" for role, name in assignment.items())


@dataclass(kw_only=True, slots=True)
class OpenedRun:
    """A run, opened; its episodes are read one by one."""

    kind: str
    """`training`, `evaluation`, `blame` or `transcripts`."""
    path: Path
    """Its folder, or the file of a transcript."""
    env_id: str
    """Id of its environment, for display; of several, all of them."""
    setting: Setting
    """The environment of its episodes, unless they have their own."""
    labels: tuple[str, ...]
    """Names of the parts of an episode's key."""
    facts: list[tuple[str, str]]
    """(name, value) of the facts at the top of the page."""
    config: str = ""
    """The text of its configuration, or of its plan."""
    settings: Mapping[str, Any] = field(default_factory=dict[str, Any])
    """The values of `config` by dotted keys."""
    curves: dict[str, Any] = field(default_factory=dict[str, Any])
    """`metrics`: name -> steps and values; `axes`: `tokens` and `time` (s) -> steps and sums;
    `evaluations`: variant -> steps, success, interval."""
    figures: Mapping[str, Any] | None = None
    """Variant -> figures with intervals, of an evaluation with a report."""
    episodes: Callable[[], Iterator[ShownEpisode]]
    """Reads the episodes; afterwards `notices` names lines that could not be read."""
    blame: Mapping[str, Any] | None = None
    """The results of `pettingllms blame`; None: not its folder."""
    crossplay: Mapping[str, Any] | None = None
    """The results of `pettingllms crossplay`; None: not its folder."""
    notices: list[str] = field(default_factory=list[str])
    """What is missing on the page and why."""


def damaged(path: Path, what: str, error: Exception) -> ViewerError:
    """The error about a file of a run that cannot be read."""
    return ViewerError(
        f"{path} cannot be read as {what} ({data_problem(error)}). "
        "Restore the file, or name another run."
    )


class ViewerError(PettingLLMsError, ValueError):
    """A path is not a run, a run has nothing to show, or the page cannot be written."""


_COLUMNS = (
    "success", "success_low", "success_high", "num_turns", "num_episodes", "num_expected",
    "failures",
)  # fmt: skip


# What curves may be drawn over, beside train steps: the sum of a metric so far.
_AXES = {"tokens": "rollout/num_completion_tokens", "time": "time/step_s"}


def metric_columns(file: LineFile) -> dict[str, list[list[Any]]]:
    """Name of a metric -> its steps and its values, of a `metrics.jsonl`."""
    columns: dict[str, list[list[Any]]] = {}
    for step, values in file.read(lambda line: (int(line["step"]), dict(line))):
        del values["step"]
        for name, value in values.items():
            steps, column = columns.setdefault(name, [[], []])
            steps.append(step)
            column.append(value)
    return columns


def variant_name(variant: str) -> str:
    """Who played, in the words of all pages and tables."""
    kind, _, rest = variant.partition(":")
    if kind in ("scripted", "reference"):
        return f"scripted policy {rest}"
    if kind == "untouched":
        return f"policies, {rest}, before training"
    return "roles swapped" if variant == "swapped" else f"policies, {variant}"


def variant_columns(file: LineFile) -> dict[str, dict[str, Any]]:
    """Variant -> columns of an `evaluations.jsonl`: `name`, steps, and figures at each.

    They are success with its interval, turns, episodes that did not fail, all episodes, and
    cause -> rollouts that failed.
    """
    found: dict[str, dict[str, Any]] = {}
    for step, variants in file.read(_evaluation_line):
        for variant, figures in variants.items():
            columns = found.setdefault(
                variant,
                {"name": variant_name(variant), **{name: [] for name in ("step", *_COLUMNS)}},
            )
            for name, value in zip(("step", *_COLUMNS), (step, *figures), strict=True):
                columns[name].append(value)
    return found


def _evaluation_line(line: Mapping[str, Any]) -> tuple[int, dict[str, list[Any]]]:
    found: dict[str, list[Any]] = {}
    for variant, figures in line["variants"].items():
        found[variant] = _of_variant(figures)
        for env, own in figures.get("environments", {}).items():
            found[f"{variant}, {env}"] = _of_variant(own)
    return int(line["step"]), found


def _of_variant(figures: Mapping[str, Any]) -> list[Any]:
    num_expected = figures["num_episodes"]
    return [
        *(figures[name] for name in ("success", "success_low", "success_high", "num_turns")),
        num_expected - figures["num_failed"],
        num_expected,
        figures.get("failures", {}),  # older runs name no causes
    ]


_OF_ANSWER = ("before", "after", "drop", "instead", "missed")

_OF_CROSSPLAY = (
    "runs", "cells", "within", "cross", "coordination", "competence", "pairs", "conventions"
)  # fmt: skip


def open_judged(path: Path) -> OpenedRun:
    """Open the folder of `pettingllms blame`.

    Raises:
        ViewerError: If it is damaged, or of another version.
    """
    file = path / JUDGED
    try:
        data = _of_format("blame", file.read_bytes())
        episodes = [_episode(data, one) for one in data["episodes"]]
        return OpenedRun(
            kind="blame",
            path=path,
            env_id=str(data["env_id"]),
            setting=Setting(FoundName(str(data["env_id"]), str(file)), {}, {}),
            labels=("episode",),
            facts=_facts(data),
            blame={
                "measure": data["settings"]["measure"],
                "players": data["players"],
                "episodes": [{"name": e["name"], **e["blame"]} for e in data["episodes"]],
            },
            episodes=lambda: iter(episodes),
        )
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(file, "what pettingllms blame has found", error) from error


def read_crossplay(path: Path, notices: list[str]) -> Mapping[str, Any] | None:
    """The figures of a cross-play in the folder of an evaluation; None if it is none."""
    file = path / CROSSPLAY
    if not file.is_file():
        return None
    try:
        data = _of_format("crossplay", file.read_bytes())
        return {key: data[key] for key in _OF_CROSSPLAY}
    except (OSError, ValueError, KeyError, TypeError) as error:
        notices.append(f"{CROSSPLAY}: cannot be shown ({data_problem(error)})")
        return None


def _facts(data: Mapping[str, Any]) -> list[tuple[str, str]]:
    settings = data["settings"]
    return [
        ("Environment", str(data["env_id"])),
        ("Current policies", _team(data["policies"])),
        ("The other policy", _team(data["instead"]) or "none"),
        ("Replays", f"{settings['num_replays']} of every state"),
        ("What is lost", str(settings["measure"])),
        ("Seed", str(settings["seed"])),
    ]


def _episode(data: Mapping[str, Any], judged: Mapping[str, Any]) -> ShownEpisode:
    recorded = {key: judged[key] for key in ("id", "kwargs", "seed", "options", "steps")}
    transcript = Transcript(**recorded, state_hash=str(judged["state_hash"]))
    episode = _transcript_episode(str(judged["name"]), JUDGED, transcript, data["policies"])
    for decision, answer in zip(episode.decisions, judged["blame"]["answers"], strict=True):
        (candidate,) = decision["candidates"]
        # What an answer changes of what can be expected is its advantage, by definition.
        candidate["advantage"] = -answer["drop"]["value"]
        candidate["figures"] = dict(_figures(answer))
    return episode


def _figures(answer: Mapping[str, Any]) -> Iterator[tuple[str, float]]:
    for name in _OF_ANSWER:
        if answer[name] is not None:
            yield name, answer[name]["value"]
