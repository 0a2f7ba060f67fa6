"""`check_env` and the promises that it proves, one function each."""

from __future__ import annotations

import contextlib
import io
import math
import os
import pickle
import random
import subprocess
import sys
import warnings
from collections.abc import Callable
from typing import Any, cast

import numpy as np
from pettingzoo.test import (
    api_test,  # pyright: ignore[reportUnknownVariableType]
    parallel_api_test,  # pyright: ignore[reportUnknownVariableType]
    seed_test,  # pyright: ignore[reportUnknownVariableType]
)
from pettingzoo.utils import aec_to_parallel

from pettingllms.env import TextEnv, role_of
from pettingllms.errors import ConformanceError
from pettingllms.registry import make
from pettingllms.testing.play import (
    HOSTILE_TEXTS,
    AnyEnv,
    Player,
    mixed_player,
    play,
    reference_player,
)
from pettingllms.wrappers import ChecksWrapper

Factory = Callable[[], AnyEnv]

_SEEDS = (0, 1, 2, 3)


def check_env(env: str | Callable[[], Any], **kwargs: Any) -> None:
    """Prove that an environment keeps the contract of `TextEnv`.

    Args:
        env: An id, or a function without arguments that makes an environment.
        **kwargs: Arguments of the environment, when an id is given.

    Raises:
        ConformanceError: Naming the promise that does not hold; the cause is chained.
    """
    if isinstance(env, str):
        env_id = env
        factory: Factory = lambda: make(env_id, checks=False, **kwargs)  # noqa: E731
    else:
        given = env
        factory = lambda: given().unwrapped  # noqa: E731
    first = factory()
    if not isinstance(cast(Any, first), TextEnv):
        raise ConformanceError(f"{first!r} is not a pettingllms.TextEnv")
    for check in CHECKS:
        with _Promise(str(first), check):
            check(factory)
    if isinstance(env, str) and not kwargs:
        check_other_process(env)


class _Promise:
    """Turns whatever an environment raises during a check into a finding that names the promise."""

    def __init__(self, name: str, check: Callable[[Factory], None]) -> None:
        self.text = f"{name}: broken promise: {(check.__doc__ or check.__name__).splitlines()[0]}"

    def __enter__(self) -> None:
        pass

    def __exit__(self, kind: Any, error: BaseException | None, traceback: Any) -> None:
        if isinstance(error, Exception) and not isinstance(error, ConformanceError):
            raise ConformanceError(f"{self.text} ({type(error).__name__}: {error})") from error


def _require(condition: bool, message: str) -> None:
    if not condition:
        raise ConformanceError(message)


def check_pettingzoo(factory: Factory) -> None:
    """PettingZoo's api_test, seed_test and (for simultaneous roles) parallel_api_test pass."""
    with warnings.catch_warnings(), contextlib.redirect_stdout(io.StringIO()):
        # The tests warn that spaces and observations are not numeric; ours are texts.
        warnings.simplefilter("ignore", UserWarning)
        api_test(ChecksWrapper(factory()), num_cycles=100)
        seed_test(lambda: ChecksWrapper(factory()), num_cycles=20)
        if factory().metadata["is_parallelizable"]:
            parallel_api_test(aec_to_parallel(ChecksWrapper(factory())), num_cycles=20)


def check_names_and_spaces(factory: Factory) -> None:
    """Agents are named <role>_<number>; all share one space, which contains any text."""
    env = factory()
    env.reset(seed=0)
    agents = env.possible_agents
    spaces = {id(s(a)) for s in (env.observation_space, env.action_space) for a in agents}
    _require(len(spaces) == 1, "agents have different space objects; one is needed for all")
    space = env.action_space(agents[0])
    _require(all(space.contains(t) for t in HOSTILE_TEXTS), "the space does not contain any text")
    space.seed(0)
    for _ in range(20):
        _require(space.contains(space.sample()), "a sampled text is not in the space")
    for agent in agents:
        _require(role_of(agent).isalpha(), f"agent {agent!r} is not named <role>_<number>")


def check_determinism(factory: Factory) -> None:
    """Equal seeds give equal episodes, in one environment and in another; other seeds differ."""
    env, other = factory(), factory()
    starts: set[str] = set()
    readings: set[tuple[str, ...]] = set()
    for seed in _SEEDS:
        first = _episode(env, seed)
        _require(first == _episode(env, seed), f"seed {seed} played twice gave two episodes")
        _require(first == _episode(other, seed), f"seed {seed} differs between two environments")
        env.reset(seed=seed)
        starts.add(env.state_hash())
    for seed in range(10, 40):
        env.reset(seed=seed)
        starts.add(env.state_hash())
        steps = play(env, mixed_player(random.Random(0)))
        readings.add(tuple(step["observation"] for step in steps))
    _require(len(starts) > 1, "30 seeds gave the same initial state")
    _require(len(readings) > 1, "no observation of whole episodes depends on the seed")
    env.reset(seed=5)
    env.reset()
    chained = env.state_hash()
    env.reset(seed=env.episode_seed)
    _require(chained == env.state_hash(), "episode_seed does not reproduce an unseeded reset")


def check_global_rngs(factory: Factory) -> None:
    """Making, resetting and stepping leave Python's and numpy's global generators untouched."""
    state, numpy_state = random.getstate(), np.random.get_state()
    _episode(factory(), 3)
    _require(random.getstate() == state, "the state of the global `random` was changed")
    same = all(
        np.array_equal(a, b) for a, b in zip(numpy_state, np.random.get_state(), strict=True)
    )
    _require(same, "numpy's global state was changed")


def check_any_text(factory: Factory) -> None:
    """Any text is a legal action of every agent: an outcome, never an exception."""
    for text in HOSTILE_TEXTS:
        env = factory()
        env.reset(seed=1)
        for step in play(env, lambda _env, _agent, text=text: text):
            _require(
                all(map(math.isfinite, step["rewards"].values())),
                f"a reward of {text!r} is not finite",
            )


def check_rewards(factory: Factory) -> None:
    """rewards[i] = alpha * team + local for the acting agent, alpha * team for all others."""
    for seed in _SEEDS:
        env = factory()
        env.reset(seed=seed)
        for step in play(env, mixed_player(random.Random(seed))):
            parts = step["info"]["reward_parts"]
            for agent, reward in step["rewards"].items():
                expected = parts["team"] + (parts["local"] if agent == step["agent"] else 0.0)
                _require(
                    math.isclose(reward, expected, abs_tol=1e-12),
                    f"rewards[{agent!r}] is {reward}, its parts sum to {expected}",
                )


def check_ending(factory: Factory) -> None:
    """All agents end in the same step with one kind of flag; a time-out is not a success."""
    for seed in _SEEDS:
        for player in _players(factory(), seed):
            env = factory()
            env.reset(seed=seed)
            last = play(env, player)[-1]
            flags = {(env.terminations[a], env.truncations[a]) for a in env.possible_agents}
            _require(len(flags) == 1, f"agents ended differently: {flags}")
            _require(flags != {(True, True)}, "terminated and truncated at once")
            _require(last["info"]["turn"] < env.max_turns, "more turns were played than max_turns")
            if last["truncated"]:
                _require(not last["info"]["success"], "a time-out is counted as success")
                at_limit = env.turn == env.max_turns
                _require(at_limit, "truncated before max_turns turns were played")
            for _ in env.possible_agents:
                env.step(None)
            _require(not env.agents, "agents are left after each has been given None")


def check_observe(factory: Factory) -> None:
    """`observe` and `messages` have no side effects, agree, and work at any time."""
    env = factory()
    env.reset(seed=2)
    rng = random.Random(2)
    player = mixed_player(rng)
    for _ in range(6 * len(env.possible_agents)):
        before, rewards = env.state_hash(), dict(env.rewards)
        for agent in env.possible_agents:
            observation = env.observe(agent)
            joined = "\n\n".join(m["content"] for m in env.messages(agent))
            _require(observation == env.observe(agent), "observe twice gave two observations")
            _require(observation == joined, "messages and observation differ")
            inside = env.observation_space(agent).contains(observation)
            _require(inside, "an observation is outside of the observation space")
        _require(before == env.state_hash(), "observe changed the state")
        _require(rewards == env.rewards, "observe changed the rewards")
        agent = env.agent_selection
        if env.terminations[agent] or env.truncations[agent]:
            return
        env.step(player(env, agent))


def check_fork(factory: Factory) -> None:
    """A fork has the same future under the same actions, and nothing shared under others."""
    for seed in _SEEDS:
        env = factory()
        env.reset(seed=seed)
        player = mixed_player(random.Random(seed))
        for _ in range(seed * len(env.possible_agents) // 2):
            if not any(env.terminations.values()) and not any(env.truncations.values()):
                env.step(player(env, env.agent_selection))
        twin, stray = env.fork(), env.fork()
        before = env.state_hash()
        for info in stray.infos.values():
            info["reward_parts"].clear()
            info.clear()
        stray = twin.fork()
        play(stray, mixed_player(random.Random(99)))
        _require(all(env.infos.values()), "changing the infos of a fork changed the original's")
        _require(env.state_hash() == before, "stepping a fork changed the original")
        future = play(env, mixed_player(random.Random(7)))
        _require(future == play(twin, mixed_player(random.Random(7))), "a fork has another future")


def check_snapshot(factory: Factory) -> None:
    """`restore` returns to the very moment of a `snapshot`, also pickled and in another object."""
    env = factory()
    env.reset(seed=4)
    env.step(mixed_player(random.Random(4))(env, env.agent_selection))
    if any(env.terminations.values()) or any(env.truncations.values()):
        env.reset(seed=4)
    snapshot = env.snapshot()
    restored = pickle.loads(pickle.dumps(snapshot))  # our own snapshot, made one line above
    future = play(env, mixed_player(random.Random(8)))
    env.restore(snapshot)
    _require(future == play(env, mixed_player(random.Random(8))), "restore lost something")
    other = factory()
    other.restore(restored)
    _require(future == play(other, mixed_player(random.Random(8))), "a pickled snapshot differs")


def check_state_value(factory: Factory) -> None:
    """The state is one immutable value: hashable, picklable, and JSON-able."""
    env = factory()
    env.reset(seed=6)
    state = env.state()
    hash(state)
    _require(pickle.loads(pickle.dumps(state)) == state, "the state changed when pickled")
    _require(env.state_hash() == env.fork().state_hash(), "equal states have different hashes")


def check_modes(factory: Factory) -> None:
    """Reference policies answer texts for every agent; `ansi` rendering gives a text."""
    env = factory()
    env.reset(seed=0)
    for policy in env.reference_policies:
        for agent in env.possible_agents:
            text = env.reference_action(agent, policy, random.Random(0))
            _require(isinstance(cast(Any, text), str), f"{policy!r} answers no text for {agent!r}")
    env.render_mode = "ansi"
    _require(isinstance(env.render(), str), "ansi rendering gives no text")


def check_incentives(factory: Factory) -> None:
    """Silence, constants, repetition and echoes earn less than the oracle (if there is one)."""
    env = factory()
    if "oracle" not in env.reference_policies:
        return
    oracle = _returns(env, reference_player("oracle", random.Random(0)), must_solve=True)
    for name, player in DEGENERATE_PLAYERS.items():
        for agent, poor in _returns(env, player).items():
            _require(
                poor < oracle[agent],
                f"{name} earns {agent} {poor:.3f} in {len(_SEEDS)} episodes, "
                f"the oracle {oracle[agent]:.3f}",
            )


def check_other_process(env_id: str) -> None:
    """Equal seeds give equal episodes in another process with another PYTHONHASHSEED."""
    code = (
        "import sys; from pettingllms.testing.conformance import episode_digest; "
        "print(episode_digest(sys.argv[1]))"
    )
    digests = {
        subprocess.run(
            [sys.executable, "-W", "ignore", "-c", code, env_id],
            env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
            check=True,
            capture_output=True,
            text=True,
        ).stdout
        for hash_seed in (1, 2)
    }
    _require(len(digests) == 1, f"{env_id}: episodes depend on PYTHONHASHSEED")


def episode_digest(env_id: str) -> str:
    """Return hashes of the episodes of three seeds, for comparison between processes."""
    env = make(env_id, checks=False)
    return " ".join(_episode(env, seed)[-1]["state_hash"] for seed in _SEEDS)


DEGENERATE_PLAYERS: dict[str, Player] = {
    "silence": lambda _env, _agent: "",
    "a constant": lambda _env, _agent: "0",
    "an empty list": lambda _env, _agent: "#### []",
    "echoing the prompt": lambda env, agent: str(env.observe(agent)),
}
"""Players that do no work; each must earn less than the oracle."""

CHECKS: tuple[Callable[[Factory], None], ...] = (
    check_pettingzoo,
    check_names_and_spaces,
    check_determinism,
    check_global_rngs,
    check_any_text,
    check_rewards,
    check_ending,
    check_observe,
    check_fork,
    check_snapshot,
    check_state_value,
    check_modes,
    check_incentives,
)
"""All checks, in the order in which `check_env` runs them."""


def _episode(env: AnyEnv, seed: int) -> list[dict[str, Any]]:
    env.reset(seed=seed)
    return play(env, mixed_player(random.Random(seed)))


def _players(env: AnyEnv, seed: int) -> list[Player]:
    rng = random.Random(seed)
    return [mixed_player(rng), *(reference_player(p, rng) for p in env.reference_policies)]


def _returns(env: AnyEnv, player: Player, must_solve: bool = False) -> dict[str, float]:
    """Return agent -> sum of its rewards over the episodes of all test seeds."""
    totals = dict.fromkeys(env.possible_agents, 0.0)
    for seed in _SEEDS:
        env.reset(seed=seed)
        steps = play(env, player)
        solved = bool(steps[-1]["info"]["success"])
        _require(solved or not must_solve, f"the oracle did not solve the episode of seed {seed}")
        for agent in totals:
            totals[agent] += math.fsum(step["rewards"][agent] for step in steps)
    return totals
