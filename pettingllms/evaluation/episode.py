"""One episode: what agents are asked, the log of their answers, and the result as one line of data.

Answers of models are written one by one: what is paid for is neither lost nor left off the bill.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields
from functools import partial
from typing import Any, cast

from pettingllms.ends import end_of_error
from pettingllms.env import TextEnv, role_of
from pettingllms.errors import readable, told
from pettingllms.evaluation.plan import EpisodeSpec, policy_of
from pettingllms.parsing import encodable
from pettingllms.policies import Completion, Policy, PolicyFailure, Prompt, Sampling, Usage, acted
from pettingllms.policies.protocol import uncancelled
from pettingllms.prompts import as_observation
from pettingllms.seeding import derive_seed
from pettingllms.transcript import RecordTranscripts, Transcript, check_step
from pettingllms.trust import Name
from pettingllms.types import UNBOUND, Action


@dataclass(kw_only=True, slots=True)
class RoleResult:
    """What one role did in an episode."""

    num_actions: int = 0
    """Actions of all its agents."""
    reward: float = 0.0
    """Sum, over its actions, of the reward of the acting agent."""
    parse_errors: int = 0
    """Actions that could not be read."""
    cut: int = 0
    """Completions that ended at the limit of tokens (finish reason `length`)."""
    hidden: int = 0
    """Completions without a text, all of whose tokens went into hidden reasoning."""
    usage: Usage = field(default_factory=Usage)
    """What its answers cost."""
    models: list[str] = field(default_factory=list[str])
    """Names that servers gave of the models that answered, each once."""

    def add(self, reward: float, is_error: bool, completion: Completion, usage: Usage) -> None:
        """Count one action."""
        self.num_actions += 1
        self.reward += reward
        self.parse_errors += is_error
        self.cut += completion.finish_reason == "length"
        self.hidden += bool(completion.reasoning and not completion.text.strip())
        self.usage += usage


@dataclass(frozen=True, kw_only=True, slots=True)
class EpisodeResult:
    """One finished episode."""

    variant: str
    """Name of the assignment of policies that played."""
    level: int
    """Number of the level, from 0."""
    sample: int
    """Number of the play of this level, from 0."""
    level_seed: int
    """Seed the environment was reset with."""
    seed: int
    """Seed of everything that policies drew."""
    initial_state_hash: str
    """Hash of the initial state: equal levels have equal hashes."""
    success: bool
    end: str
    """Why it is over; see `End`."""
    num_turns: int
    """Turns, an incomplete last one included."""
    returns: Mapping[str, float]
    """Agent -> sum of its rewards."""
    roles: Mapping[str, RoleResult]
    wall_s: float
    """Seconds from reset to the end, waits for servers included."""
    level_hash: str = ""
    """Equal for levels that are equal up to symmetry; empty when unknown."""
    steps: Sequence[Mapping[str, Any]] = field(default_factory=list[Mapping[str, Any]])
    """The steps of the transcript, each with its `finish_reason`, and with `reasoning` and the
    `model` that answered where the server returns them; for a report, nothing but a `cause`."""

    @property
    def content(self) -> str:
        """Identifies the level, up to symmetry if its `level_hash` is known."""
        return self.level_hash or self.initial_state_hash or f"level {self.level}"

    @property
    def key(self) -> tuple[str, int, int]:
        """What identifies the episode within its run."""
        return (self.variant, self.level, self.sample)

    @property
    def cause(self) -> str | None:
        """The error with which the last answer made code fail, if it did."""
        return self.steps[-1].get("cause") if self.steps else None

    def transcript(
        self, env_id: Name, kwargs: Mapping[str, Any], options: Mapping[str, Any]
    ) -> Transcript:
        """The episode as a transcript that can be replayed."""
        return Transcript(
            id=env_id,
            kwargs=dict(kwargs),
            seed=self.level_seed,
            options=dict(options),
            state_hash=self.initial_state_hash,
            steps=[dict(step) for step in self.steps],
        )

    def to_json(self) -> dict[str, Any]:
        """The result as JSON data."""
        return asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any], *, with_steps: bool = True) -> EpisodeResult:
        """The result that `to_json` gave.

        Raises:
            KeyError: A field is missing.
            TypeError: A field of a role is unknown.
        """
        values = {entry.name: data[entry.name] for entry in fields(cls)}
        values["roles"] = {
            role: RoleResult(**cast(Any, {**part, "usage": _usage(part["usage"])}))
            for role, part in data["roles"].items()
        }
        if with_steps:
            for step in values["steps"]:
                check_step(step)
        else:
            values["steps"] = [{"cause": one["cause"]} for one in values["steps"] if "cause" in one]
        return cls(**values)


async def play_episode(
    env: TextEnv[Any],
    spec: EpisodeSpec,
    policies: Mapping[str, Policy],
    sampling: Mapping[str, Sampling],
    options: Mapping[str, Any],
    log: AnswerLog,
) -> EpisodeResult:
    """Play one episode to its end; answers of an earlier attempt are used again.

    With `observation_mode="delta"` every agent keeps its chat: what it read and what it wrote.

    Args:
        env: Raw environment made by `pettingllms.make`; a fork of it is played.
        spec: Which episode.
        policies: Role, or agent -> policy; an agent's own comes before that of its role.
        sampling: Role -> how its completions are drawn.
        options: Options of `reset`.
        log: Keeps the answers.

    Raises:
        PolicyFailure: A prompt could not be answered, for want of the infrastructure.
    """
    # A fork: many episodes are played at the same time.
    recorder = RecordTranscripts(env.fork())
    recorder.reset(seed=spec.level_seed, options=options)
    raw, transcript = recorder.env, recorder.transcript
    assert transcript is not None
    # Before the first step: of the level, not of what was made of it.
    level_hash = raw.level_hash()
    roles = {role: RoleResult() for role in map(role_of, raw.possible_agents)}
    chats: Chats = {}
    written: list[Completion] = []
    start = time.perf_counter()

    async def ask(number: int, prompt: Prompt) -> tuple[Completion, Usage]:
        policy = policy_of(policies, prompt.agent)
        wanted = sampling.get(role_of(prompt.agent)) or Sampling()
        return await log.answer(spec[:3], number, policy, prompt, wanted)

    seed_of = partial(derive_seed, spec.seed, "sample")
    async for agent, completion, usage in play_on(recorder, chats, seed_of, ask):
        is_error = raw.infos[agent]["parse_error"] is not None
        role = roles[role_of(agent)]
        role.add(raw.rewards[agent], is_error, completion, usage)
        if completion.model and completion.model not in role.models:
            role.models.append(completion.model)
        written.append(completion)
    agent, end = raw.agent_selection, raw.end
    assert end is not None, "it was played to its end"
    pairs = zip(transcript.steps, written, strict=True)
    return EpisodeResult(
        **spec._asdict(),
        initial_state_hash=transcript.state_hash,
        level_hash=level_hash,
        success=bool(raw.infos[agent]["success"]),
        end=end,
        num_turns=1 + transcript.steps[-1]["turn"] if transcript.steps else 0,
        returns=transcript.returns(),
        roles=roles,
        wall_s=round(time.perf_counter() - start, 6),
        steps=[{**step, **_said(completion)} for step, completion in pairs],
    )


def _said(completion: Completion) -> dict[str, str]:
    """What a step keeps of a completion besides its text and how it ended."""
    kept = {"reasoning": completion.reasoning, "model": completion.model}
    return {k: v for k, v in kept.items() if v}


Ask = Callable[[int, Prompt], Awaitable[tuple[Completion, Usage]]]
"""Answers a prompt, given the number of the action too; says what it cost."""


async def play_on(
    recorder: RecordTranscripts, chats: Chats, seed_of: Callable[[int], int], ask: Ask
) -> AsyncIterator[tuple[str, Completion, Usage]]:
    """Play an episode from its present moment to its end; every evaluation plays so.

    An answer that makes the environment fail, and a prompt that cannot be answered within the
    limits of its policy, end the episode: leaving it out would flatter whoever wrote it.

    Args:
        recorder: The environment.
        chats: What was said so far; it goes on.
        seed_of: Number of an action, from 0 -> what is drawn for it.
        ask: Who answers.

    Yields:
        After every step: agent, its answer, and what that cost.

    Raises:
        PolicyFailure: A prompt could not be answered, for want of the infrastructure.
    """
    env, number = recorder.env, 0
    while not has_ended(env):
        prompt = prompt_of(env, chats, seed_of(number))
        try:
            completion, usage = await ask(number, prompt)
        except PolicyFailure as error:
            if error.end.kind != "limit":
                raise
            recorder.truncate(error.end)
            return
        # A transcript keeps what is new to the agent; the rest of its chat stands in earlier steps.
        read = as_observation(prompt.messages[len(chats.get(prompt.agent, ())) :])
        _step(recorder, acted(completion, usage), read)
        remember(chats, prompt, completion.text)
        yield prompt.agent, completion, usage
        number += 1


def _step(recorder: RecordTranscripts, action: Action, observation: str) -> None:
    """Play an answer; if that makes the environment fail, the episode ends with it."""
    try:
        recorder.step(action, observation)
    except Exception as error:
        end = end_of_error(error)
        if end.kind == "infrastructure":
            raise
        # The traceback of an environment is needed to mend it.
        _LOGGER.info("an answer made the environment fail", exc_info=error)
        recorder.truncate(end, told(error), action, observation)


_LOGGER = logging.getLogger(__name__)


def has_ended(env: TextEnv[Any]) -> bool:
    """Whether the episode is over."""
    return env.terminations[env.agent_selection] or env.truncations[env.agent_selection]


Chats = dict[str, Sequence[Mapping[str, str]]]
"""Agent -> what it has read and written, where observations are only what is new to it. A copy of
the mapping is independent: its values are replaced, never changed."""

# What servers accept as a seed: llama.cpp takes 32 bits.
_SEED_RANGE = 1 << 31


def prompt_of(env: TextEnv[Any], chats: Chats, seed: int) -> Prompt:
    """What the selected agent is asked: its chat so far and what it reads now."""
    agent = env.agent_selection
    chat = [*chats.get(agent, ()), *env.messages(agent)]
    # The whole seed decides in our policies; servers get what fits into their integers.
    return Prompt(chat, agent, seed % _SEED_RANGE, env, env.constraints(agent))


def remember(chats: Chats, prompt: Prompt, text: str) -> None:
    """Keep what an agent has read and written, with `observation_mode="delta"`."""
    if prompt.env is not None and prompt.env.observation_mode == "delta":
        said = {"role": "assistant", "content": encodable(text)}
        chats[prompt.agent] = [*prompt.messages, said]


async def one_answer(
    policy: Policy, prompt: Prompt, sampling: Sampling
) -> tuple[Completion, Usage]:
    """One completion of a prompt, and what it cost.

    Raises:
        PolicyFailure: The prompt could not be answered, or the answer is not what a policy gives.
    """
    with uncancelled():
        answers = await policy.sample([prompt], 1, sampling)
    # Before it is recorded: what a stranger's policy gives would damage the folder of its run.
    what = f"{policy} gave {answers!r:.200}; allowed: [Answer((Completion(text, reason),))]"
    with readable(PolicyFailure, what):
        ((completions, usage),) = answers
        (completion,) = completions
        if not all(isinstance(part, str) for part in completion):
            raise TypeError("the parts of a Completion are texts")
        return completion, _usage(asdict(usage))


Key = tuple[str, int, int]
"""Variant, level and sample: what identifies an episode within its run."""

Bill = dict[str, dict[str, Usage]]
"""Variant -> role -> what was spent on it."""


@dataclass(frozen=True, kw_only=True, slots=True)
class AnswerRecord:
    """One answer of a policy that counts requests, or a prompt that it could not answer."""

    variant: str
    """As in `EpisodeResult`, like the next two."""
    level: int
    sample: int
    action: int
    """Number of the action within its episode, from 0."""
    agent: str
    prompt: str
    """Hash of its prompt; see `prompt_hash`."""
    completion: Completion | None
    """None: the prompt could not be answered."""
    usage: Usage
    """What the attempts to answer it cost."""

    @property
    def key(self) -> Key:
        """What identifies the episode within its run."""
        return (self.variant, self.level, self.sample)

    def to_json(self) -> dict[str, Any]:
        """The record as JSON data."""
        written = self.completion
        return {**asdict(self), "completion": None if written is None else written._asdict()}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> AnswerRecord:
        """The record that `to_json` gave.

        Raises:
            KeyError: A field with parts is missing.
            TypeError: Another field is missing, or one is unknown.
        """
        written = data["completion"]
        parts: dict[str, Any] = {
            "completion": None if written is None else Completion(**written),
            "usage": _usage(data["usage"]),
        }
        return cls(**{**data, **parts})


_MOST = 2**53
"""Tokens and requests of an episode, at most: beyond it sums of JSON numbers are not exact."""


def _usage(data: Mapping[str, int]) -> Usage:
    for name, count in data.items():
        # What a file says is added up to a bill: a number that no server counted would be believed.
        if isinstance(count, bool) or not isinstance(count, int) or not 0 <= count < _MOST:
            raise ValueError(f"{name} must be an integer in [0, 2**53), and is {count!r:.40}")
    return Usage(**data)


class AnswerLog:
    """Keeps the answers of an evaluation: finds those of an earlier attempt, and records new ones.

    Args:
        earlier: Answers of earlier attempts.
        write: Called with every new answer that cost a request.
    """

    def __init__(
        self, earlier: Iterable[AnswerRecord], write: Callable[[AnswerRecord], None]
    ) -> None:
        self._kept = {(record.key, record.action): record for record in earlier}
        self._write = write

    async def answer(
        self, key: Key, action: int, policy: Policy, prompt: Prompt, sampling: Sampling
    ) -> tuple[Completion, Usage]:
        """The answer that an earlier attempt got to the same prompt, or a new one, and its cost.

        What was spent on a prompt that could not be answered is kept too. Scripted policies cost
        nothing and are asked again.

        Raises:
            PolicyFailure: The prompt could not be answered.
        """
        record = self._kept.get((key, action))
        # A different prompt means that environment or templates changed since: ask again.
        if record and record.prompt == prompt_hash(prompt) and record.completion is not None:
            return record.completion, record.usage
        completion, usage = None, Usage()
        try:
            completion, usage = await one_answer(policy, prompt, sampling)
            return completion, usage
        except PolicyFailure as error:
            usage = error.usage
            raise
        finally:
            # Also when the answer could not be read: it was paid for.
            if usage.num_requests:
                variant, level, sample = key
                self._write(
                    AnswerRecord(
                        variant=variant,
                        level=level,
                        sample=sample,
                        action=action,
                        agent=prompt.agent,
                        prompt=prompt_hash(prompt),
                        completion=completion,
                        usage=usage,
                    )
                )


def prompt_hash(prompt: Prompt) -> str:
    """16 hexadecimal digits that identify who read what, and what binds the answer."""
    bounds = [] if prompt.constraints == UNBOUND else [prompt.constraints]
    data = json.dumps([prompt.agent, *map(dict, prompt.messages), *bounds], sort_keys=True)
    return hashlib.sha256(data.encode("ascii")).hexdigest()[:16]


def bill_of(records: Iterable[AnswerRecord], finished: Iterable[EpisodeResult]) -> Bill:
    """What an evaluation has spent, on failed and interrupted episodes too.

    Args:
        records: Its answers.
        finished: Its finished episodes; those without a record are of a folder that kept none.
    """
    bill: Bill = {}
    recorded: set[Key] = set()
    for record in records:
        recorded.add(record.key)
        _charge(bill, record.variant, role_of(record.agent), record.usage)
    for result in finished:
        # Where answers are on record they are the bill; results would count them twice.
        if result.key not in recorded:
            for role, part in result.roles.items():
                _charge(bill, result.variant, role, part.usage)
    return bill


def _charge(bill: Bill, variant: str, role: str, usage: Usage) -> None:
    roles = bill.setdefault(variant, {})
    roles[role] = roles.get(role, Usage()) + usage
