"""Simulated engines against what can be calculated, and real rollout code on them."""

import asyncio
import json
import math
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pettingllms_trainers.config.algorithm import algorithm_class, algorithm_names
from pettingllms_trainers.config.loading import config_of, load_config
from pettingllms_trainers.config.sections import base_groups
from pettingllms_trainers.fleet.planner import Planner, bottleneck, fleets
from pettingllms_trainers.fleet.simulate import (
    Fleet,
    Server,
    SimulatedEngine,
    Speeds,
    VirtualLoop,
    learning_bases,
    prompt_of,
    rollouts_on,
    step_on,
)
from pettingllms_trainers.fleet.speeds import GPUS, EngineSpeed, LearningSpeed
from pettingllms_trainers.fleet.workload import Step, Workload, from_run
from pettingllms_trainers.rollout.environments import make_environments
from pettingllms_trainers.types import GenerateRequest, SamplingSettings

SPEED = EngineSpeed(prompt_s=1e-4, iteration_s=2e-3, weights_s=7e-3, token_s=1e-4, cache_s=1e-7)


def run(play):
    with asyncio.Runner(loop_factory=VirtualLoop) as runner:
        return runner.run(play())


def seconds_of(speed, num_prompt_tokens, length, num):
    """What equal sequences take, an iteration at a time."""
    total = num_prompt_tokens * speed.prompt_s
    for written in range(length):
        total += speed.iteration(num, num * (num_prompt_tokens + written))
    return total


@settings(max_examples=30)
@given(st.integers(1, 300), st.integers(1, 300), st.integers(1, 200))
def test_equal_sequences_take_the_sum_of_their_iterations(prompt, length, num):
    async def play():
        server = Server({"m": SPEED})
        await server.write("m", prompt, [length] * num)
        return asyncio.get_running_loop().time(), server

    passed, server = run(play)
    assert passed == pytest.approx(seconds_of(SPEED, prompt, length, num), rel=1e-6)
    assert server.busy_s["m"] == pytest.approx(passed)
    assert server.num_asked == 0


@settings(max_examples=30)
@given(st.lists(st.tuples(st.floats(0, 5), st.integers(1, 400)), min_size=1, max_size=20))
def test_a_server_that_only_computes_divides_its_time(jobs):
    """With nothing but `token_s` it is a processor-sharing queue: the order of ends is checked."""
    speed = EngineSpeed(token_s=0.01)

    async def play():
        server, ends = Server({"m": speed}), {}

        async def job(number, start, length):
            await asyncio.sleep(start)
            await server.write("m", 1, [length])
            ends[number] = asyncio.get_running_loop().time()

        await asyncio.gather(*(job(n, *one) for n, one in enumerate(jobs)))
        return ends

    assert run(play) == pytest.approx(shared(jobs, 0.01), rel=1e-6, abs=1e-6)


def shared(jobs, token_s):
    """When each job ends if those present always have equal shares of the time."""
    left, ends, now = {}, {}, 0.0
    coming = sorted((start, number, length) for number, (start, length) in enumerate(jobs))
    while coming or left:
        until = min(left.values(), default=math.inf) * token_s * len(left) if left else math.inf
        arrival = coming[0][0] - now if coming else math.inf
        passed = min(until, arrival)
        for number in left:
            left[number] -= passed / (token_s * len(left))
        now += passed
        if arrival <= until:
            _, number, length = coming.pop(0)
            left[number] = length
        for number in [n for n, rest in left.items() if rest < 1e-9]:
            ends[number] = now
            del left[number]
    return ends


def test_what_finds_no_room_in_the_cache_waits():
    async def play():
        await Server({"m": EngineSpeed(iteration_s=1.0, max_tokens=100)}).write("m", 50, [40, 40])
        return asyncio.get_running_loop().time()

    assert run(play) == pytest.approx(80), "one after the other"


def test_models_on_one_server_take_turns():
    async def play():
        server = Server({"a": EngineSpeed(iteration_s=1.0), "b": EngineSpeed(iteration_s=2.0)})
        await asyncio.gather(server.write("a", 1, [10]), server.write("b", 1, [10]))
        return asyncio.get_running_loop().time()

    assert run(play) == pytest.approx(30)


@pytest.mark.parametrize("num_servers", [1, 2])
def test_requests_go_to_the_server_with_the_fewest_sequences(num_servers):
    """And no answer is longer than the limit."""
    speed = EngineSpeed(prompt_s=0.5, iteration_s=1.0, token_s=0.02)
    limit = SamplingSettings(max_completion_tokens=10)
    asked = GenerateRequest(prompt_ids=prompt_of(7, 3), num_candidates=10, sampling=limit, seed=1)

    async def play():
        servers = [Server({"m": speed}) for _ in range(num_servers)]
        engine = SimulatedEngine("m", servers, draw, is_concurrent=True)
        found = await engine.generate([asked, asked])
        return asyncio.get_running_loop().time(), found

    def draw(place, rng):
        assert place == 7
        assert isinstance(rng, random.Random)
        return 999

    passed, found = run(play)
    assert [len(one) for one in found] == [10, 10]
    assert len(found[0][0].token_ids) == 10
    reading_s = 3 * 0.5 * 2 / num_servers
    assert passed == pytest.approx(reading_s + 10 * (1.0 + 0.02 * 20 / num_servers))


def test_standing_still_is_an_error():
    with (
        asyncio.Runner(loop_factory=VirtualLoop) as runner,
        pytest.raises(RuntimeError, match="stands still"),
    ):
        runner.run(asyncio.Event().wait())


MODEL = "Qwen/Qwen3-0.6B"
RUN = """
[env]
id = "plan_path_v0"
kwargs = { team = "tool-planner", size = 5 }
[every_policy]
model = "Qwen/Qwen3-0.6B"
[roles]
tool = "tool"
planner = "planner"
[engine]
kind = "vllm"
[rollout]
num_levels = 6
max_completion_tokens = 100
[algorithm]
num_candidates = 4
"""
AGENTS = ("tool_0", "planner_0")
ENGINE = EngineSpeed(iteration_s=0.01)
ENGINES = {"tool": ENGINE, "planner": ENGINE}


@pytest.fixture(scope="module")
def config(tmp_path_factory):
    path = tmp_path_factory.mktemp("fleet") / "run.toml"
    path.write_text(RUN)
    return load_config([path])


@pytest.fixture(scope="module")
def environment(config):
    return make_environments(config)[0]


def workload(num_turns=3, lengths=(10,), **changes):
    """Levels in which every agent acts once in every turn."""
    steps = tuple(
        Step(agent, turn, 20, tuple(lengths)) for turn in range(num_turns) for agent in AGENTS
    )
    used = dict.fromkeys(AGENTS, 1.0)
    base = Workload((steps,), (("tool_0",), ("planner_0",)), 0.0, used, "a test")
    return base._replace(**changes)


def test_decisions_of_equal_answers_take_one_after_another(config, environment):
    """3 turns of 2 agents, 10 iterations each; and who is busy half of the time."""
    found = rollouts_on(config, environment, workload(), Fleet((1, 1), (1, 1)), ENGINES)
    assert found.seconds == pytest.approx(3 * 2 * 10 * 0.01)
    assert found.busy == pytest.approx({"tool": 0.5, "planner": 0.5})
    assert found.num_completion_tokens == 6 * 6 * 4 * 10
    assert found.num_tokens == {"tool": 6 * 3 * (20 + 40), "planner": 6 * 3 * (20 + 40)}


def test_updates_read_what_has_a_signal_in_every_epoch(config, environment):
    """Unpacked, a prompt of 20 is read with each of the 4 answers of 10."""
    learning = config.optimizer.model_copy(update={"packing": False, "num_epochs": 2})
    own = config.model_copy(update={"optimizer": learning})
    some = workload(used={"tool_0": 0.5, "planner_0": 1.0})
    found = rollouts_on(own, environment, some, Fleet((1, 1), (1, 1)), ENGINES)
    read = 6 * 3 * 2 * 4 * (20 + 10)
    assert found.num_tokens == {"tool": read / 2, "planner": read}


@pytest.mark.parametrize(("env_threads", "seconds"), [(0, 6 * 3 * 2 * 4), (6, 3 * 2 * 4)])
def test_environments_have_as_many_workers_as_the_run(config, environment, env_threads, seconds):
    rollout = config.rollout.model_copy(update={"env_threads": env_threads})
    own, fleet = config.model_copy(update={"rollout": rollout}), Fleet((1, 1), (1, 1))
    engines = dict.fromkeys(ENGINES, EngineSpeed(iteration_s=1e-6))
    found = rollouts_on(own, environment, workload(branch_s=1.0), fleet, engines)
    assert found.seconds == pytest.approx(seconds, abs=1e-2)
    step = step_on(own, found, fleet, Speeds(engines, dict.fromkeys(engines, LearningSpeed())))
    assert bottleneck(step).startswith("environment workers (rollout.env_threads")


@pytest.mark.parametrize(
    ("fixed", "at_once", "seconds"),
    # 6 levels with 3 requests each of 10 tokens, two at a time, and then 3 waits for the planner.
    [("oracle", 2, 0.0), ("openai:m@http://h/v1", 2, 9 * 10), ("openai:m@http://h/v1", 6, 3 * 10)],
)
def test_models_of_fixed_policies_take_their_time(config, fixed, at_once, seconds):
    requests = {"requests": {"max_concurrency": at_once}} if seconds else {}
    tool = {"fixed": fixed, **requests}
    changes = {"policies": {"tool": tool, "planner": {"model": MODEL}}}
    own = config_of(config.model_dump(mode="json", exclude={"policies"}), changes)
    (environment,) = make_environments(own)
    written = workload(fixed_token_s=1.0)
    engines = {"planner": EngineSpeed(iteration_s=1e-6)}
    found = rollouts_on(own, environment, written, Fleet((1,), (1,)), engines)
    assert found.seconds == pytest.approx(seconds, abs=1e-3)
    if seconds:
        assert found.busy["tool"] == pytest.approx(1, abs=1e-3)
        step = step_on(own, found, Fleet((1,), (1,)), Speeds(engines, {"planner": LearningSpeed()}))
        assert bottleneck(step) == "the engines of tool"
    assert found.num_completion_tokens == 6 * 3 * 4 * 10


@pytest.mark.parametrize(
    ("changes", "num_tool"),
    [
        ({"policies": {"tool": {"fixed": "oracle"}, "planner": {"model": MODEL}}}, 0),
        (
            {"policies": {"tool": {"model": MODEL, "frozen": True}, "planner": {"model": MODEL}}},
            6 * 3,
        ),
        (
            {
                "policies": {"planner": {"model": MODEL}},
                "roles": dict.fromkeys(("tool", "planner"), "planner"),
                "algorithm": {"branching_roles": ["planner"]},
            },
            6 * 3,
        ),
        ({"updates": {"phases": [{"roles": ["planner"], "num_steps": 1}, {}]}}, 6 * 3),
    ],
)
def test_only_what_is_trained_learns_and_has_gpus_for_it(config, changes, num_tool):
    """The planner alone: 3 turns of 6 levels, each with a prompt of 20 and 4 answers of 10."""
    table = config.model_dump(mode="json", exclude_none=True, exclude=set(changes))
    own = config_of(table, changes)
    bases = base_groups(own.models)
    fleet = Fleet((1,) * len(bases), (1,) * len(learning_bases(own)))
    engines = {group[0]: ENGINE for group in bases}
    (environment,) = make_environments(own)
    found = rollouts_on(own, environment, workload(), fleet, engines)
    assert found.num_completion_tokens == 10 * (num_tool + 6 * 3 * 4)
    assert {name: num for name, num in found.num_tokens.items() if num} == {
        "planner": 6 * 3 * (20 + 40)
    }
    assert {(len(one.generate), len(one.learn)) for one, _ in fleets(own, 5)} == {
        (0, 0),
        (len(bases), len(learning_bases(own))),
    }


@pytest.mark.parametrize("name", algorithm_names())
def test_every_algorithm_plays(config, environment, name):
    algorithm = algorithm_class(name)(name=name)
    own = config.model_copy(update={"algorithm": algorithm})
    found = rollouts_on(own, environment, workload(), Fleet((1, 1), (1, 1)), ENGINES)
    assert found.seconds >= 6 * 10 * 0.01 - 1e-9, "decisions of an episode come one after another"
    assert found.num_completion_tokens > 0
    assert max(found.busy.values()) <= 1 + 1e-9


@pytest.mark.parametrize("num_continuation_tokens", [0, 160])
def test_tokens_of_continuations_are_no_answers_of_a_recorded_run(
    config, environment, tmp_path, num_continuation_tokens
):
    """Two rollouts of 2 decisions with 2 answers of 10 tokens; the other rollout was as long."""
    decisions = [
        {"agent": agent, "turn": 0, "num_prompt_tokens": 20, "candidates": [{"num_tokens": 10}] * 2}
        for agent in AGENTS
    ]
    tree = {"step": 1, "set": "training", "outcome": {}, "decisions": decisions}
    (tmp_path / "rollouts.jsonl").write_text(json.dumps(tree) + "\n")
    metrics = {
        "step": 1,
        "rollout/num_trees": 2,
        "rollout/num_completion_tokens": 80 + num_continuation_tokens,
        "rollout/num_continuation_tokens": num_continuation_tokens,
        "time/rollout_s": 25.0,
        "time/generate_s": 1.0,
    }
    (tmp_path / "metrics.jsonl").write_text(json.dumps(metrics) + "\n")
    found = from_run(config, [environment], tmp_path)
    assert [step.lengths for step in found.episodes[0]] == [(10, 10)] * 2
    assert found.branch_s == 24.0 / (8 + num_continuation_tokens / 10)


def test_processes_share_the_levels(config, environment):
    one = EngineSpeed(token_s=0.01)  # a server that only computes: work is all that counts
    engines = {"tool": one, "planner": one}
    alone, six = (
        rollouts_on(config, environment, workload(), Fleet((), (), num), engines) for num in (1, 6)
    )
    assert alone.seconds == pytest.approx(6 * six.seconds)
    assert alone.num_tokens == six.num_tokens


def test_a_step_adds_up_or_overlaps(config, environment):
    split, shared = Fleet((1, 1), (2, 4)), Fleet((), (), 8)
    learning = {"tool": LearningSpeed(token_s=1.0, sync_s=3.0), "planner": LearningSpeed(1.5)}
    speeds = Speeds(ENGINES, learning)
    found = rollouts_on(config, environment, workload(), split, ENGINES)
    found = found._replace(seconds=100.0, num_tokens={"tool": 80, "planner": 80})
    step = step_on(config, found, split, speeds)
    assert step.update_s == {"tool": 40.0, "planner": 30.0}
    assert step.step_s == 100 + 40 + 3, "each learns on its own GPUs"
    assert step_on(config, found, shared, speeds).step_s == 100 + (10 + 15) + 3
    ahead = in_flight(config, 1)
    assert step_on(ahead, found, split, speeds).step_s == 100 + 3, "the longer of both"
    assert step_on(ahead, found, shared, speeds).step_s == 100 + 25 + 3, "nothing is left beside"


def in_flight(config, most):
    rollout = config.rollout.model_copy(update={"max_staleness": most})
    return config.model_copy(update={"rollout": rollout})


@pytest.mark.parametrize("k", [2, 3])
def test_several_train_steps_in_flight_share_what_engines_can_do(config, environment, k):
    """As many times as fast where engines have room, and no faster where they only compute."""
    fleet, busy = Fleet((1, 1), (1, 1)), EngineSpeed(token_s=0.01)
    for engine, faster in ((ENGINE, k), (busy, 1)):
        engines = {"tool": engine, "planner": engine}
        # One role: two engines take turns, which leaves room.
        one = workload(num_turns=1)._replace(episodes=(workload().episodes[0][:1],))
        alone = rollouts_on(config, environment, one, fleet, engines)
        found = rollouts_on(in_flight(config, k), environment, one, fleet, engines)
        assert found.seconds == pytest.approx(alone.seconds / faster)
        assert found.num_completion_tokens == alone.num_completion_tokens
        assert found.num_tokens == alone.num_tokens


def test_every_division_of_the_gpus_is_tried(config):
    """Two engines write: in eighths 7 over 2 ways, less those that leave one GPU for two."""
    small = [*fleets(config, 8)]
    assert small[0] == (Fleet((), (), 8), 0)
    parts = [(one.generate, left) for one, left in small[1:]]
    assert sorted(parts) == [((a, b), 8 - a - b) for a in range(1, 6) for b in range(1, 7 - a)]
    large = [(one.generate, left) for one, left in [*fleets(config, 64)][1:]]
    assert large == [
        ((8 * a, 8 * b), 64 - 8 * (a + b)) for a in range(1, 7) for b in range(1, 8 - a)
    ]
    halves = [(one.generate, left) for one, left in [*fleets(config, 32, (40, 1))][1:]]
    assert halves == [((20, 1), 11)]


def test_gpus_learn_where_they_are_needed_most(config, environment):
    """As fast as the best of all ways to divide them."""
    planner = Planner(config, [environment], GPUS["h100"])
    for needed_s, num in (((9.0, 4.0), 6), ((1.0, 100.0), 9), ((5.0, 5.0), 3)):
        tool, planned = planner.allotted({"tool": needed_s[0], "planner": needed_s[1]}, num)
        assert tool + planned == num
        slowest = {n: max(needed_s[0] / n, needed_s[1] / (num - n)) for n in range(1, num)}
        assert slowest[tool] == min(slowest.values())
