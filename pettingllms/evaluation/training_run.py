"""A training run as an evaluation needs it: read from its files, without the trainer.

```
RUN/config.toml            what was trained on, who plays, and how is sampled
RUN/policies/NAME/         trained policies, written when the run is finished
RUN/checkpoints/step-N/    what is trained so far
RUN/rollouts.jsonl         rollout trees, whose followed path can be played again
```
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from importlib import import_module
from pathlib import Path
from typing import Any, cast
from urllib.parse import urlencode

from pettingllms.env import TextEnv, roles_of
from pettingllms.errors import InvalidArgument, MissingDependency, RunFolderError, readable
from pettingllms.evaluation.plan import held_out_kwargs
from pettingllms.files import read_lines
from pettingllms.policies import Sampling
from pettingllms.registry import SOLVED_SHARE, make
from pettingllms.sources import RECIPE, nearby, run_directory, short_name
from pettingllms.transcript import RecordTranscripts, Transcript, compare_replay, play_recorded
from pettingllms.trust import FoundName, Name
from pettingllms.types import Action, TokenCounts

CONFIG = "config.toml"
# The model with random weights of a run file.
_TINY = "tiny"
_VERSION = re.compile(r"_v\d+$")
_CHECKPOINT = re.compile(r"step-(\d{8})")


@dataclass(frozen=True, slots=True)
class TrainingRun:
    """A run of `pettingllms-train`; see `open`."""

    path: Path
    """Its directory, absolute."""
    config: Mapping[str, Any]
    """Its configuration, default values included."""
    is_trusted: bool = False
    """Whether the configuration may name code and servers; see `pettingllms.trust`."""

    @classmethod
    def open(cls, path: str | Path, *, trust: bool = False) -> TrainingRun:
        """Open the directory of a training run.

        Args:
            path: The directory, also as `run:DIRECTORY`; or `recipe:NAME`, a run that has not
                begun: its policies are the models that it would start from.
            trust: Whether it may name code and servers; see `pettingllms.trust`.

        Raises:
            RunFolderError: The path is not a training run, or its configuration cannot be read.
            MissingDependency: A recipe is named and the trainer is not installed.
        """
        if str(path).startswith(RECIPE):
            return cls(Path(path), _recipe(str(path)), is_trusted=True)
        path = run_directory(path)
        file = path / CONFIG
        damage = f"{file} cannot be read as the configuration of a training run"
        try:
            with readable(RunFolderError, damage):
                config = tomllib.loads(file.read_text(encoding="utf-8"))
                # All that every use of a run needs: a later KeyError would name no file.
                _ = config["roles"], config["policies"], [t["id"] for t in _tables(config)]
        except OSError as error:
            raise RunFolderError(
                f"{path} is not a training run: {error.strerror} ({CONFIG}){nearby(path) or '.'} "
                "Name a directory that `pettingllms-train` wrote."
            ) from error
        # Absolute: names of policies hold the path, and plans are read from anywhere.
        return cls(path.resolve(), config, trust)

    @property
    def environments(self) -> tuple[str, ...]:
        """Names of its environments; that of the only one is empty."""
        tables = _tables(self.config)
        if len(tables) == 1:
            return ("",)
        return tuple(t.get("name") or _VERSION.sub("", short_name(str(t["id"]))) for t in tables)

    def environment(self, name: str) -> TrainingRun:
        """The part of the run that is about one of several environments.

        Raises:
            InvalidArgument: If the run has none of that name.
        """
        if name not in self.environments:
            raise InvalidArgument("environment", name, f"one of {', '.join(self.environments)}")
        table = _tables(self.config)[self.environments.index(name)]
        own = {key: value for key, value in table.get("evaluation", {}).items() if value}
        kwargs = {**self._evaluation.get("kwargs", {}), **own.get("kwargs", {})}
        config = {
            **self.config,
            "env": table,
            "roles": _of_environment(self.config["roles"], name),
            "evaluation": {**self._evaluation, **own, "kwargs": kwargs},
        }
        rollout = self.config.get("rollout", {})
        per_role = _of_environment(rollout.get("per_role", {}), name)
        part = replace(self, config={**config, "rollout": {**rollout, "per_role": per_role}})
        # Which roles it has depends on its arguments: it has to be made.
        played = roles_of(make(part.env_id, checks=False, **part.held_out_kwargs()))
        roles = {role: part.config["roles"][role] for role in played}
        return replace(part, config={**part.config, "roles": roles})

    @property
    def env_id(self) -> FoundName:
        """Id of its environment; of several, all of them."""
        return self.found(", ".join(dict.fromkeys(str(t["id"]) for t in _tables(self.config))))

    def found(self, name: str) -> FoundName:
        """A name that one of its files carries as such."""
        return FoundName(name, str(self.path / CONFIG), self.is_trusted)

    @property
    def env_kwargs(self) -> dict[str, Any]:
        """Arguments of the environment in training; of several, by their names."""
        kwargs = [dict(table.get("kwargs", {})) for table in _tables(self.config)]
        if len(kwargs) == 1:
            return kwargs[0]
        return dict(zip(self.environments, kwargs, strict=True))

    def held_out_kwargs(self) -> dict[str, Any]:
        """The arguments of the environment in the run's held-out evaluation."""
        # Training levels, and those that begin part of the way, are what must not be evaluated on.
        own = {"split", SOLVED_SHARE}
        kwargs = {name: value for name, value in self.env_kwargs.items() if name not in own}
        return held_out_kwargs(self.env_id, {**kwargs, **self._evaluation.get("kwargs", {})})

    def checkpoints(self) -> list[int]:
        """The train steps of its checkpoints, in order."""
        folder = self.path / "checkpoints"
        names = [path.name for path in folder.iterdir()] if folder.is_dir() else []
        return sorted(int(found[1]) for name in names if (found := _CHECKPOINT.fullmatch(name)))

    def assignment(self, step: int | None = None) -> dict[str, Name]:
        """Role -> name of its policy (see `pettingllms.policies.load_policy`).

        Args:
            step: Train step of a checkpoint; None for what the run has trained last.

        Raises:
            InvalidArgument: If there is no checkpoint of that step.
            RunFolderError: If nothing is trained yet.
        """
        known = self.checkpoints()
        if step is not None and step not in known:
            allowed = ", ".join(map(str, known)) or "none is there"
            raise InvalidArgument("step", step, f"a train step with a checkpoint: {allowed}")
        # An interrupted run may have policies/ of an earlier end: its newest checkpoint is newer.
        if step is None and known and not self._is_finished():
            step = known[-1]
        roles = cast(Mapping[str, str], self.config["roles"])
        if str(self.path).startswith(RECIPE):
            # Random weights, which a warm start teaches to speak, are no policy to evaluate.
            models = {name: one.get("model") for name, one in self.config["policies"].items()}
            roles = {role: name for role, name in roles.items() if models[name] != _TINY}
        return {role: self._policy(name, step) for role, name in roles.items()}

    def sampling(self, assignment: Mapping[str, Name]) -> dict[str, Sampling]:
        """Role -> how its completions are drawn in the run's held-out evaluation."""
        return {role: self._sampling(role, str(policy)) for role, policy in assignment.items()}

    def fixed_or_local(self) -> dict[str, str]:
        """Role -> the name of its fixed policy, or `hf:` for a model in the trainer."""
        roles = cast(Mapping[str, str], self.config["roles"])
        return {role: self._fixed(name) or "hf:" for role, name in roles.items()}

    def levels(self) -> dict[str, int]:
        """`seed` and number of `episodes` of the run's held-out evaluation."""
        of_run = {"seed": "seed", "episodes": "num_episodes"}
        return {k: self._evaluation[name] for k, name in of_run.items() if name in self._evaluation}

    @property
    def _evaluation(self) -> Mapping[str, Any]:
        return self.config.get("evaluation", {})

    def _is_finished(self) -> bool:
        """Whether `policies/` is what the last train step has made."""
        lines = read_lines(self.path / "metrics.jsonl", "step")
        is_over = bool(lines) and lines[-1].get("step") == self.config.get("num_steps")
        return is_over and (self.path / "policies").is_dir()

    def _policy(self, name: str, step: int | None) -> Name:
        policy = self.config["policies"][name]
        if fixed := self._fixed(name):
            return self.found(fixed)
        options = {"precision": self.config.get("engine", {}).get("precision", "float32")}
        if self.config.get("device", "auto") != "auto":
            options["device"] = self.config["device"]
        if policy.get("frozen") or str(self.path).startswith(RECIPE):
            return self.found(f"hf:{policy['model']}?{urlencode(options)}")
        if step is not None:
            return f"run:{self.path}?{urlencode({'policy': name, 'step': step, **options})}"
        if (self.path / "policies" / name).is_dir():
            return f"hf:{self.path / 'policies' / name}?{urlencode(options)}"
        raise RunFolderError(f"{self.path} has neither trained policies nor a checkpoint yet")

    def _fixed(self, name: str) -> str:
        policy = self.config["policies"][name]
        return str(policy.get("fixed") or "")

    def _sampling(self, role: str, policy: str) -> Sampling:
        rollout = self.config.get("rollout", {})
        own = rollout.get("per_role", {}).get(role, {})
        is_local = policy.startswith(("hf:", "run:"))
        return Sampling(
            temperature=self._evaluation.get("temperature", 1.0),
            # The trainer samples from the whole distribution; a model's own files may not.
            top_p=1.0 if is_local else None,
            max_completion_tokens=own.get(
                "max_completion_tokens", rollout.get("max_completion_tokens")
            ),
            stop=tuple(own.get("stop", rollout.get("stop", ()))),
            extra={"top_k": 0} if is_local else {},
        )


def is_training_run(path: str | Path) -> bool:
    """Whether a text names a training run: its folder, `run:FOLDER`, or `recipe:NAME`."""
    folder = run_directory(path)
    is_run = (folder / CONFIG).is_file() and not (folder / "run.json").is_file()
    return is_run or str(path).startswith(RECIPE)


def _recipe(name: str) -> dict[str, Any]:
    """The configuration that a recipe of the trainer stands for, default values written out."""
    try:
        # By name: the core works without the trainer, and imports nothing of it by itself.
        loading = import_module("pettingllms_trainers.config.loading")
    except ModuleNotFoundError as error:
        raise MissingDependency(f"{name!r}", "pettingllms-trainers", "") from error
    return loading.load_config([name]).model_dump(mode="json")


def _tables(config: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """The tables of the environments: one [env], or several [[env]]."""
    return config["env"] if isinstance(config["env"], list) else [config["env"]]


def _of_environment(table: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A table of roles as one environment sees it: `NAME.ROLE` comes before `ROLE`."""
    common = {role: value for role, value in table.items() if "." not in role}
    prefix = f"{name}."
    return common | {
        role.removeprefix(prefix): value for role, value in table.items() if role.startswith(prefix)
    }


_COMPARED = ("reward", "parse_error", "success")


def replay_rollout(run: TrainingRun, step: int | None, episode: int | None) -> Transcript:
    """Play the followed path of a rollout tree again, and compare it with the recorded one.

    Args:
        run: The run.
        step: Train step; None: any.
        episode: Number of the tree within its train step; None: any. Of several trees that fit the
            first in the order of `failed_rollouts` counts, failed ones before others.

    Returns:
        The episode as it was played again.

    Raises:
        InvalidArgument: If no such tree is recorded.
        RunFolderError: If its line is damaged.
        ReplayDivergence: If the game does not come out as recorded.
    """
    lines = _lines(run)
    found = [
        line
        for line in lines
        if step in (None, line["step"]) and episode in (None, line["episode"])
    ]
    if not found:
        recorded = dict.fromkeys(f"{line['step']}:{line['episode']}" for line in lines)
        known = ", ".join(recorded) or "none (logging.rollouts_every)"
        wanted = ", ".join(
            f"{name} {'any' if value is None else value}"
            for name, value in (("step", step), ("level", episode))
        )
        raise InvalidArgument("rollout", wanted, f"recorded STEP:LEVEL: {known}")
    return _checked(run, min(found, key=lambda line: not _has_failed(line)))


def failed_rollouts(run: TrainingRun) -> Iterator[tuple[str, Transcript]]:
    """Yield name and transcript of the trees whose followed path was played and did not succeed.

    The newest come first, since they were played by the policies as they are; of one train step
    held-out episodes, which are played without exploration, come before those of training.

    Args:
        run: The run; of one of several environments, the trees of that one.

    Raises:
        RunFolderError: If a line is damaged.
        ReplayDivergence: If a game does not come out as recorded.
    """
    for line in _lines(run):
        if _environment(run, line) == run.env_id and _has_failed(line):
            held_out = "held out, " if line["set"] == "held_out" else ""
            yield f"{held_out}step {line['step']}, level {line['episode']}", _checked(run, line)


def _has_failed(line: Mapping[str, Any]) -> bool:
    outcome = line.get("outcome")
    return bool(outcome) and not outcome["success"]


def _lines(run: TrainingRun) -> list[dict[str, Any]]:
    """The recorded trees in the order of `failed_rollouts`."""
    keys = ("step", "episode", "set", "env", "env_seed", "initial_state_hash", "decisions")
    trees = read_lines(run.path / "rollouts.jsonl", *keys)

    def place(line: Mapping[str, Any]) -> tuple[int, bool, int]:
        return -line["step"], line["set"] == "training", line["episode"]

    # A run that was resumed may have written a tree twice: the later one counts.
    return sorted({place(line): line for line in trees}.values(), key=place)


def _checked(run: TrainingRun, line: Mapping[str, Any]) -> Transcript:
    where = f"{run.path / 'rollouts.jsonl'}: step {line['step']}, episode {line['episode']}"
    with readable(RunFolderError, f"{where} is damaged", "Delete its line, or name another."):
        *_, recorder = tree_moments(run, line)
    assert recorder.transcript is not None
    return recorder.transcript


def tree_moments(run: TrainingRun, line: Mapping[str, Any]) -> Iterator[RecordTranscripts]:
    """Play the followed path of a tree again; yield before every decision, and after the last.

    Yields:
        One recorder, which goes on; it ends at a decision that no candidate was followed from.

    Raises:
        ReplayDivergence: If the game does not come out as recorded.
    """
    env: TextEnv[Any] = make(_environment(run, line), checks=False, **line["env"])
    recorder = RecordTranscripts(env)
    recorder.reset(seed=line["env_seed"])
    compare_replay(-1, "state_hash", line["initial_state_hash"], env.state_hash())
    yield recorder
    for index, decision in enumerate(line["decisions"]):
        if decision["chosen"] is None:
            return
        followed, agent = decision["candidates"][decision["chosen"]], decision["agent"]
        compare_replay(index, "agent", agent, env.agent_selection)
        compare_replay(index, "observation", decision["observation"], str(env.observe(agent)))
        # As recorded: games may price tokens, and to count again would take the tokenizer.
        counts = TokenCounts(decision["num_prompt_tokens"], followed["num_tokens"])
        action = Action(followed["text"], followed["finish_reason"], counts)
        play_recorded(recorder, action, followed)
        played = {**env.infos[agent], "reward": env.rewards[agent]}
        # What training scaled or judged is recorded beside what the environment gave.
        recorded = {**followed, "reward": followed.get("env_reward", followed["reward"])}
        for key in _COMPARED:
            compare_replay(index, key, recorded[key], played[key])
        yield recorder


def _environment(run: TrainingRun, line: Mapping[str, Any]) -> FoundName:
    """The environment of a tree; trees of a run with several say which one it is."""
    return run.found(line["env_id"]) if "env_id" in line else run.env_id
