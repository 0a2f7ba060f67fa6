"""Record episodes, keep them as JSONL, and replay them exactly.

The first line of a file says how the environment was made and seeded, every further line is one
step, and the last line closes the file, so that a truncated recording is recognised.
"""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, is_dataclass, replace
from pathlib import Path
from typing import Any, cast

from pettingllms.ends import End
from pettingllms.env import TextEnv
from pettingllms.errors import (
    InvalidArgument,
    OrderError,
    ReplayDivergence,
    TranscriptError,
    readable,
)
from pettingllms.files import write_whole
from pettingllms.prompts import PromptTemplate
from pettingllms.registry import check_kwargs, make
from pettingllms.trust import FoundName, Name
from pettingllms.types import Action, Snapshot, TokenCounts, to_jsonable
from pettingllms.wrappers import ChecksWrapper

FORMAT = "pettingllms-transcript"
VERSION = 1

_STEP_KEYS = ("agent", "observation", "action", "rewards", "success", "end", "state_hash")


@dataclass
class Transcript:
    """One episode: how it began and every step of it."""

    id: Name
    """Id of the environment."""
    kwargs: dict[str, Any]
    """Arguments of `make`, as JSON data."""
    seed: int
    options: dict[str, Any]
    """Options of `reset`, as JSON data."""
    state_hash: str
    """Hash of the initial state."""
    steps: list[dict[str, Any]] = field(default_factory=list[dict[str, Any]])
    """Per step: agent, observation, action, rewards (agent -> float), state_hash, ..."""

    def returns(self) -> dict[str, float]:
        """Agent -> sum of its rewards over the recorded steps."""
        totals: dict[str, float] = {}
        for step in self.steps:
            for agent, reward in step["rewards"].items():
                totals[agent] = totals.get(agent, 0.0) + reward
        return totals

    def header(self) -> dict[str, Any]:
        """How the episode began, as JSON data."""
        keys = ("kwargs", "seed", "options", "state_hash")
        return {"id": str(self.id), **{key: getattr(self, key) for key in keys}}

    def to_jsonl(self) -> str:
        """The transcript as JSON lines."""
        header = {"format": FORMAT, "version": VERSION, **self.header()}
        footer = {"end": len(self.steps), "returns": self.returns()}
        return "".join(json.dumps(line) + "\n" for line in (header, *self.steps, footer))

    def save(self, path: str | Path) -> None:
        """Write the transcript to a file; a reader sees the whole file or none."""
        target = Path(path)
        target.parent.mkdir(parents=True, exist_ok=True)
        write_whole(target, self.to_jsonl(), is_durable=False)

    @classmethod
    def load(cls, path: str | Path, *, trust: bool = False) -> Transcript:
        """Read a transcript from a file.

        Args:
            path: The file.
            trust: Whether it may name code; see `pettingllms.trust`.

        Raises:
            TranscriptError: If the file is missing, no transcript, truncated, damaged, or of
                another version.
        """
        try:
            lines = Path(path).read_text(encoding="utf-8").splitlines()
            header, *steps, footer = [json.loads(line) for line in lines]
        except (OSError, ValueError, RecursionError) as error:
            raise TranscriptError(f"{path} is not a complete transcript: {error}") from error
        if not isinstance(header, dict) or header.get("format") != FORMAT:
            raise TranscriptError(f"{path} is not a transcript: its first line lacks {FORMAT!r}")
        if header.get("version") != VERSION:
            raise TranscriptError(f"{path} has version {header.get('version')}; known: {VERSION}")
        if not isinstance(footer, dict) or footer.get("end") != len(steps):
            raise TranscriptError(f"{path} is truncated: its closing line is missing")
        with readable(TranscriptError, f"{path} has a damaged first line", "Record it again."):
            known = {key: header[key] for key in ("kwargs", "seed", "options", "state_hash")}
            check_kwargs(known["kwargs"], known["options"])
            name = FoundName(header["id"], str(path), trust)
        for number, step in enumerate(steps, 2):
            with readable(TranscriptError, f"{path}, line {number} is damaged", "Record it again."):
                check_step(step)
        return cls(name, **known, steps=steps)

    def replay(self) -> TextEnv[Any]:
        """Play the recorded actions again and compare every state and reward.

        Returns:
            The environment after the last recorded step.

        Raises:
            UntrustedName: If its file names a source, and is not trusted.
            ReplayDivergence: At the first step that differs; it says what differs.
        """
        return deque(self.moments(), maxlen=1).pop()

    def moments(self) -> Iterator[TextEnv[Any]]:
        """Do what `replay` does; yield the environment before every step, and after the last.

        It is one environment, which goes on: fork it to keep a moment.

        Raises:
            ReplayDivergence: At the first step that differs; it says what differs.
        """
        env = make(self.id, checks=False, **self.kwargs)
        env.reset(seed=self.seed, options=self.options)
        compare_replay(-1, "state_hash", self.state_hash, env.state_hash())
        yield env
        for index, recorded in enumerate(self.steps):
            agent = env.agent_selection
            compare_replay(index, "agent", recorded["agent"], agent)
            observation = str(env.observe(agent))
            action = action_of(recorded)
            play_recorded(env, action, recorded)
            replayed = _step_record(env, agent, observation, action)
            for key in _STEP_KEYS:
                compare_replay(index, key, recorded[key], replayed[key])
            yield env


def _copied(transcript: Transcript | None) -> Transcript | None:
    return transcript and replace(transcript, steps=[*transcript.steps])


class _Moment(Snapshot):
    """A snapshot of an environment that is recorded."""

    transcript: Transcript | None = None
    """What was recorded until then."""


class RecordTranscripts(ChecksWrapper[Any]):
    """Records every episode that is played; saves those that end, when a folder is given.

    Args:
        env: An environment made by `pettingllms.make`, so that it can be made again.
        folder: Where ended episodes are saved, as `<id>_<seed>.jsonl` (numbered when a seed is
            played again); None keeps only the present one, in `transcript`.

    Raises:
        OrderError: If the environment was not made by `pettingllms.make`.
    """

    def __init__(self, env: Any, folder: str | Path | None = None) -> None:
        raw = cast(TextEnv[Any], env.unwrapped)
        if raw.spec is None:
            raise OrderError("only environments made by pettingllms.make can be recorded")
        super().__init__(raw)
        self.folder = None if folder is None else Path(folder)
        self.transcript: Transcript | None = None

    def reset(self, seed: int | None = None, options: Mapping[str, Any] | None = None) -> None:
        """Start a new episode and a new transcript."""
        super().reset(seed=seed, options=options)
        spec = self.env.spec
        assert spec is not None
        assert self.env.episode_seed is not None
        self.transcript = Transcript(
            spec.id,
            {name: _json_value(value) for name, value in spec.kwargs.items()},
            self.env.episode_seed,
            {name: _json_value(value) for name, value in (options or {}).items()},
            self.env.state_hash(),
        )

    def step(self, action: str | None, observation: str | None = None) -> None:
        """Step the selected agent and record it (the steps of ended agents are not recorded).

        Args:
            action: See `TextEnv.step`.
            observation: What the agent has read; None: its observation is built once more.
        """
        self._require("step")
        agent = self.env.agent_selection
        if observation is None:
            observation = str(self.env.observe(agent))
        super().step(action)
        if action is not None:
            self._record(agent, observation, action)

    def truncate(
        self, end: End, cause: str | None = None, action: str = "", observation: str | None = None
    ) -> None:
        """End the episode for a reason that is not the game's, and record it.

        Args:
            end: See `TextEnv.truncate`.
            cause: See `TextEnv.truncate`.
            action: The action that could not be played.
            observation: See `step`.
        """
        agent = self.env.agent_selection
        read = str(self.env.observe(agent)) if observation is None else observation
        self.env.truncate(end, cause)
        steps = self.transcript.steps if self.transcript is not None else []
        if cause is not None:
            self._record(agent, read, action)
        elif steps:
            # A new one: forks and snapshots share the steps that they have in common.
            steps[-1] = {**steps[-1], "end": end}
            self._save()

    def _record(self, agent: str, observation: str, action: str) -> None:
        if self.transcript is not None:
            self.transcript.steps.append(_step_record(self.env, agent, observation, action))
            self._save()

    def _save(self) -> None:
        if self.env.end is not None and self.folder is not None and self.transcript is not None:
            self.transcript.save(self._free_path(self.folder, self.transcript))

    def fork(self) -> RecordTranscripts:
        """An independent recorder in the same state, with the transcript so far."""
        self._require("fork")
        twin = RecordTranscripts(self.env.fork(), self.folder)
        twin.transcript = _copied(self.transcript)
        return twin

    def snapshot(self) -> Snapshot:
        """The whole dynamic state, and the transcript so far; see `TextEnv.snapshot`."""
        moment = _Moment(*super().snapshot())
        moment.transcript = _copied(self.transcript)
        return moment

    def restore(self, snapshot: Snapshot) -> None:
        """Go back to the moment of a snapshot, with the transcript that there was.

        After a snapshot that was not taken of a recorder nothing is recorded until `reset`.
        """
        super().restore(snapshot)
        self.transcript = _copied(snapshot.transcript) if isinstance(snapshot, _Moment) else None

    @staticmethod
    def _free_path(folder: Path, transcript: Transcript) -> Path:
        stem = f"{transcript.id}_{transcript.seed}"
        path, number = folder / f"{stem}.jsonl", 1
        while path.exists():
            number += 1
            path = folder / f"{stem}_{number}.jsonl"
        return path


def check_step(step: Mapping[str, Any]) -> None:
    """Raise a KeyError unless a recorded step has all that is read later."""
    _ = step["turn"], step["parse_error"], [step[key] for key in _STEP_KEYS]


def action_of(step: Mapping[str, Any]) -> str:
    """The action of a recorded step, with what was recorded of how it was written."""
    if "finish_reason" not in step:
        return step["action"]
    return Action(step["action"], step["finish_reason"], TokenCounts(*step.get("tokens", ())))


def play_recorded(
    env: TextEnv[Any] | RecordTranscripts, action: str, recorded: Mapping[str, Any]
) -> None:
    """Play a recorded action again, and end the episode where something else than the game did.

    Args:
        env: Before the step.
        action: The action.
        recorded: Has `end` where the episode ended, and `cause` where the action was not played.
    """
    end, cause = recorded.get("end"), recorded.get("cause")
    if cause is None:
        env.step(action)
    if end is None or (env.env if isinstance(env, RecordTranscripts) else env).end is not None:
        return
    if isinstance(env, RecordTranscripts):
        env.truncate(End(end), cause, action)
    else:
        env.truncate(End(end), cause)


def _json_value(value: Any) -> Any:
    if isinstance(value, Mapping):
        items = cast(Mapping[Any, Any], value).items()
        return {str(key): _json_value(part) for key, part in items}
    if isinstance(value, list):
        return [_json_value(part) for part in cast(list[Any], value)]
    if isinstance(value, Path):
        return str(value)
    is_record = is_dataclass(value) or hasattr(value, "_fields")
    if is_record and not isinstance(value, PromptTemplate):
        raise InvalidArgument(
            "argument of a recorded environment",
            type(value).__name__,
            "what JSON can hold",
            "Give a file instead of objects, so that the recording can be replayed.",
        )
    return to_jsonable(value)


def _step_record(env: TextEnv[Any], agent: str, observation: str, action: str) -> dict[str, Any]:
    info = env.infos[agent]
    return {
        "agent": agent,
        "observation": observation,
        "action": str(action),
        **_written(action),
        "rewards": dict(env.rewards),
        "reward_parts": info["reward_parts"],
        "parse_error": info["parse_error"],
        "success": info["success"],
        "turn": info["turn"],
        "end": env.end,
        **({"cause": info["cause"]} if "cause" in info else {}),
        "state_hash": env.state_hash(),
    }


def _written(action: str) -> dict[str, Any]:
    """What a step keeps of how an action was written, where that is known."""
    if not isinstance(action, Action):
        return {}
    return {"finish_reason": action.finish_reason, "tokens": list(action.tokens)}


def compare_replay(step: int, key: str, recorded: object, replayed: object) -> None:
    """Raise `ReplayDivergence` unless what was recorded has come out again."""
    if recorded != replayed:
        raise ReplayDivergence(step, key, recorded, replayed)
