"""The loop itself: what happens in a step, with engines and updates that only count."""

import asyncio
import contextlib
import gc
from dataclasses import replace
from types import SimpleNamespace

import pytest
from run_toys import EACH_ITS_OWN, config_of

from pettingllms import Transition
from pettingllms_trainers.ranks import StopRequest
from pettingllms_trainers.rollout.candidates import FailureLog
from pettingllms_trainers.rollout.environments import RunEnvironment
from pettingllms_trainers.rollout.episode import LocalEpisodes
from pettingllms_trainers.rollout.sampler import Sampler, TrainingEnvironment, TrainingRollouts
from pettingllms_trainers.runs.evaluate import HeldOut, HeldOutSet
from pettingllms_trainers.runs.train import Trainer
from pettingllms_trainers.types import Decision, RolloutTree, TokenCompletion, UpdateStats


class CountingUpdate:
    """Learns nothing and remembers how many groups it got."""

    def __init__(self):
        self.num_groups, self.base = [], self

    def update_together(self, updates):
        ((_, groups),) = updates
        self.num_groups.append(len(groups))
        skipped = None if groups else "there is nothing to train on"
        return [UpdateStats(num_groups=len(groups), skipped=skipped)]

    def save_state(self, directory):
        (directory / "state").write_text(str(self.num_groups))

    def load_state(self, directory):
        pass


class CountingSync:
    """Counts how often an engine got weights."""

    num_pushed = 0

    def release(self):
        pass

    def push(self):
        self.num_pushed += 1


class ListRecorder:
    """Keeps the metrics of all steps, and nothing else."""

    def __init__(self):
        self.lines = []

    def metrics(self, step, metrics):
        self.lines.append(metrics)

    def finish(self, pool):
        return {}

    def _ignore(self, *arguments):
        pass

    start_at = note = imitation = rollouts = held_out = evaluation = close = _ignore
    is_stalled = False

    def busy(self, activity):
        return contextlib.nullcontext()


class WatchedSampler(Sampler):
    """Counts, before it samples, what is left of earlier steps."""

    async def rollouts(self, *arguments, **options):
        gc.collect()
        left = [type(thing) for thing in gc.get_objects()]
        self.num_left = [*getattr(self, "num_left", []), left.count(RolloutTree)]
        self.num_left[-1] += left.count(Decision) + left.count(TokenCompletion)
        return await super().rollouts(*arguments, **options)


@pytest.fixture
def sync():
    return CountingSync()


@pytest.fixture
def train(scripted_pool, echo_env, tmp_path, sync):
    """A function that runs scripts of both roles; it gives updates, metrics and sampler."""

    def run(caller, echo, env=None, kind="transformers", **rollout):
        config = config_of(
            **EACH_ITS_OWN,
            num_steps=3,
            algorithm={"num_candidates": 3},
            rollout={"num_levels": 4} | rollout,
            evaluation={"num_episodes": 2},
            engine={"kind": kind},
        )
        pool, _ = scripted_pool(caller=caller, echo=echo)
        updates = {name: CountingUpdate() for name in pool.policies}
        policies = {n: replace(p, updater=updates[n], sync=sync) for n, p in pool.policies.items()}
        pool = replace(pool, policies=policies)
        env = env or echo_env(max_turns=1)
        recorder = ListRecorder()
        with asyncio.Runner() as runner:
            stop, episodes = StopRequest(), LocalEpisodes(env)
            played = TrainingEnvironment(
                config=config.env[0], roles=config.roles, episodes=[episodes]
            )
            sampler = WatchedSampler([played], pool, config, FailureLog(), stop)
            run_env = RunEnvironment("", config.env[0], (env,), env, config.roles)
            levels = HeldOutSet(run_env, LocalEpisodes(env), config, FailureLog(), runner)
            held_out = HeldOut([levels], config)
            report = Trainer(
                config=config,
                pool=pool,
                warm_start=SimpleNamespace(run=lambda note: {}),
                rollouts=TrainingRollouts(sampler, config, stop, runner),
                held_out=held_out,
                recorder=recorder,
                checkpoints=tmp_path / "checkpoints",
                stop=stop,
            ).run()
        assert report == {}
        return updates, recorder.lines[1:], sampler

    return run


def varied(prompt, candidate, seed):
    return str(candidate)


def constant(prompt, candidate, seed):
    return "1"


def test_a_policy_whose_groups_are_all_equal_is_skipped_and_counted(train):
    updates, lines, _ = train(varied, constant)
    assert updates["caller"].num_groups == [4, 4, 4]
    assert updates["echo"].num_groups == [0, 0, 0]
    for line in lines:
        assert (line["update/caller/skipped"], line["update/echo/skipped"]) == (0, 1)
        assert (line["role/caller/decisions_used"], line["role/echo/decisions_used"]) == (1, 0)
        assert line["role/echo/num_decisions"] == 4
        assert "loss/caller/loss" in line
        assert "loss/echo/loss" not in line


def test_a_run_goes_on_when_nothing_can_be_learnt(train):
    updates, lines, sampler = train(constant, constant)
    assert {name: update.num_groups for name, update in updates.items()} == {
        "caller": [0, 0, 0],
        "echo": [0, 0, 0],
    }
    assert [line["update/caller/skipped"] for line in lines] == [1, 1, 1]
    assert sampler.num_levels_used == 12


def test_a_role_that_never_acts_has_no_data(train, echo_env):
    class Hasty(type(echo_env())):
        """Over after the first call."""

        def _act(self, state, agent, action):
            return Transition(state, local=float(action), terminated=True)

    updates, lines, _ = train(varied, varied, env=Hasty(max_turns=1))
    assert updates["caller"].num_groups == [4, 4, 4]
    assert updates["echo"].num_groups == [0, 0, 0]
    for line in lines:
        assert line["update/echo/skipped"] == 1
        assert not any(name.startswith("role/echo/") for name in line)


def test_nothing_of_a_step_is_kept(train):
    _, lines, sampler = train(varied, varied)
    assert all(line["rollout/num_trees"] == 4 for line in lines)
    assert sampler.num_left[1:] == [sampler.num_left[0]] * 2


def test_engines_have_the_weights_before_the_first_evaluation(train, sync):
    """Also without a warm start; servers would play with weights of their own."""
    seen = []

    def watched(prompt, candidate, seed):
        seen.append(sync.num_pushed)
        return varied(prompt, candidate, seed)

    train(watched, watched)
    assert min(seen) == 1
    assert seen == sorted(seen)


@pytest.mark.parametrize(
    ("settings", "ages"),
    [
        ({"max_staleness": 1}, [0, 1, 1]),
        ({"max_staleness": 1, "kind": "vllm"}, [0, 1, 1]),
        ({"max_staleness": 3}, [0, 1, 2]),
        ({}, [0, 0, 0]),
    ],
)
def test_tokens_say_which_weights_drew_them(train, settings, ages):
    _, lines, sampler = train(varied, varied, **settings)
    assert [line["rollout/mean_age"] for line in lines] == ages
    assert [line["rollout/max_age"] for line in lines] == ages
    assert sampler.num_levels_used == 12
