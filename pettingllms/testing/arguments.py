"""Checks of arguments: each does what it says at another value too, and nothing else."""

from __future__ import annotations

import copy
import inspect
import math
import random
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice, pairwise
from typing import Any, cast

from pettingllms.env import OBSERVATION_MODES, REWARDS
from pettingllms.errors import ConformanceError, InvalidArgument, UnreachableRequest, told
from pettingllms.seeding import SPLITS
from pettingllms.testing.play import (
    AnyEnv,
    always,
    has_ended,
    mixed_actor,
    moments,
    play,
    require,
    scripted_actor,
    start_of,
)
from pettingllms.testing.report import Figures, NotPromised, Subject
from pettingllms.testing.rewards import check_end, paid_steps
from pettingllms.testing.uninformed import rest_of

# Seeds of the episodes that are played with every value.
VALUE_SEEDS = (0, 1)
_MARK = "This sentence stands in no other prompt."
_TOLERANCE = 1e-9
# Arguments that are tried by checks of their own.
_ELSEWHERE = ("prompts", "render_mode")
_CHOICES: Mapping[str, Sequence[str]] = {
    "reward": REWARDS,
    "observation_mode": OBSERVATION_MODES,
    "split": SPLITS,
}
# Arguments that mean something whatever the others are.
_ALWAYS = ("alpha", "observation_mode", "split")
# Values of an argument that are tried until one makes a difference.
MOST_VALUES = 4
# What an argument that is None may be.
_INSTEAD_OF_NONE = (1, 2, 5, 8, 12, True)
_NO_CHOICE = "\0 not a choice"


def check_unchanged(subject: Subject) -> None:
    """Arguments and options stay as they were given: an environment copies what it changes."""
    passed: dict[str, Any] = {name: subject.kwargs[name] for name in subject.given}
    if "prompts" in subject.parameters:
        passed.setdefault("prompts", dict(subject().prompts))
    options = {"an option that no game knows": [1, 2]}
    before = {**copy.deepcopy({**passed, "options": options}), **subject.given}
    env = subject(**passed)
    env.reset(seed=0, options=options)
    play(env, mixed_actor(random.Random(0)))
    after = {**passed, "options": options}
    changed = [name for name, value in before.items() if after[name] != value]
    require(not changed, f"The environment changed what it was given as {', '.join(changed)}.")


def check_shared_arguments(subject: Subject) -> None:
    """`alpha`, `reward`, `observation_mode` and `prompts` do what they say and change no game.

    The same texts lead to the same states. `alpha` scales the team part and leaves the local one;
    delta prompts tell whatever has changed; given prompts are the ones that are read.
    """
    env = subject()
    others: dict[str, Any] = {"alpha": 2 * env.alpha} if env.alpha else {}
    others["reward"] = next(reward for reward in REWARDS if reward != env.reward)
    modes = [mode for mode in OBSERVATION_MODES if mode != env.observation_mode]
    others["observation_mode"] = modes[0]
    others["prompts"] = {
        role: prompt._replace(user=f"{prompt.user}\n{_MARK}", update="")
        for role, prompt in env.prompts.items()
    }
    given = {name: value for name, value in others.items() if name in subject.parameters}
    if not given:
        raise NotPromised("The environment has none of these arguments.")
    for name, value in given.items():
        changed = subject(**{name: value})
        # Episodes in which nobody is paid would not show that it is ignored.
        is_set = name == "prompts" or getattr(changed, name) == value
        require(is_set, f"{name}={value!r} makes an environment of {getattr(changed, name)!r}.")
        for seed in VALUE_SEEDS:
            for policy in (*env.scripted_policies, None):
                _compare(name, env, changed, seed, policy)


def _compare(name: str, env: AnyEnv, changed: AnyEnv, seed: int, policy: str | None) -> None:
    """Play the same texts in both; `policy` None: a mixture of policies and hostile texts."""
    rng = random.Random(seed)
    actor = mixed_actor(rng) if policy is None else scripted_actor(policy, rng)
    env.reset(seed=seed)
    changed.reset(seed=seed)
    ratio = changed.alpha / env.alpha if name == "alpha" else 1.0
    for agent in moments(env):
        where = f"Seed {seed}, turn {env.turn}, {agent}, another {name}: "
        if name == "prompts":
            require(_MARK in changed.observe(agent), f"{where}the given prompt is not read.")
        text = actor(env, agent)
        if name == "observation_mode":
            _require_told(env, changed, text, where)
        env.step(text)
        changed.step(text)
        require(env.state_hash() == changed.state_hash(), f"{where}another state.")
        if name == "reward":
            continue
        ours, theirs = (one.infos[agent]["reward_parts"] for one in (env, changed))
        for part, factor in (("team", ratio), ("local", 1.0)):
            wanted = factor * ours[part]
            is_same = math.isclose(wanted, theirs[part], rel_tol=1e-6, abs_tol=_TOLERANCE)
            require(is_same, f"{where}a {part} part of {theirs[part]:.4f} and not {wanted:.4f}.")


def _require_told(env: AnyEnv, changed: AnyEnv, text: str, where: str) -> None:
    """Prove that a reader of delta prompts can tell a text from silence if others can."""
    pairs: list[bool] = []
    for one in sorted((env, changed), key=lambda env: env.observation_mode == "delta"):
        branches = [one.fork(), one.fork()]
        for branch, said in zip(branches, (text, ""), strict=True):
            branch.step(said)
            for _ in branch.acting()[: len(one.acting()) - 1]:
                if not has_ended(branch):
                    branch.step("")
        if any(map(has_ended, branches)) or branches[0].acting() != branches[1].acting():
            return
        readers = branches[0].acting()
        pairs.append(any(branches[0].observe(a) != branches[1].observe(a) for a in readers))
    require(pairs[1] or not pairs[0], f"{where}delta prompts leave out what was done.")


def check_second_values(subject: Subject) -> Figures:
    """Every argument works at a second value, and makes a difference.

    A second value is what the `metadata` state in `"second_values"`, another one of few choices, a
    number nearby, or the other truth value. With it the oracle still solves levels and is paid for
    it, rewards are the sums of their parts, and episodes end as they should. Arguments of which a
    few episodes show nothing, such as a time limit, are named in `metadata["unseen_arguments"]`.
    """
    env = subject()
    usual = audit(env)
    # Where nothing but the outcome is paid no reward is shaped; `check_outcome` is about it.
    unseen = {"reward", *env.metadata.get("unseen_arguments", ())}
    if "oracle" not in env.scripted_policies:
        unseen.add("alpha")  # which weighs what the team is paid
    if env.max_turns == 1:
        unseen.add("observation_mode")  # which is about later turns
    idle, untried = list[str](), list[str]()
    parameters = inspect.signature(cast(Any, type(env))).parameters
    names = [name for name in parameters if name in subject.parameters and name not in _ELSEWHERE]
    for name in names:
        found = None
        for value, changed in islice(_second_values(subject, env, name), MOST_VALUES):
            try:
                found = audit(changed)
            except Exception as error:  # whatever an environment raises with this value
                what = f"{name}={value!r}: {told(error)}"
                raise ConformanceError(what) from error
            if found != usual or name in unseen:
                break
        if found is None:
            untried.append(name)
        elif found == usual and name not in unseen:
            idle.append(name)
    # With other arguments given, one may have nothing to say: a tool where nobody has one.
    # So has a split where the caller's own levels are played.
    has_levels = "levels" in subject.kwargs
    must = [one for one in idle if not subject.kwargs or (one in _ALWAYS and not has_levels)]
    require(
        not must,
        f"Episodes are the same with other values of {', '.join(must)}; if a few episodes cannot "
        'show a difference, name them in the metadata ("unseen_arguments").',
    )
    notes = {"Not tried": untried, "No difference seen": idle}
    said = [f"{what}: {', '.join(some)}." for what, some in notes.items() if some]
    figures = {"arguments tried at a second value": len(names) - len(untried)}
    return Figures(figures, " ".join(said))


def _second_values(subject: Subject, env: AnyEnv, name: str) -> Iterator[tuple[Any, AnyEnv]]:
    """Yield the other values of an argument with which there are levels."""
    stated: Mapping[str, Any] = env.metadata.get("second_values", {})
    default = inspect.signature(cast(Any, type(env))).parameters[name].default
    now = subject.kwargs.get(name, default)
    for value in (stated[name],) if name in stated else _others(subject, name, now):
        if value == now:
            continue
        try:
            changed = subject(**{name: value})
            for seed in VALUE_SEEDS:
                changed.reset(seed=seed)
        except (InvalidArgument, UnreachableRequest):
            continue
        yield value, changed


def _others(subject: Subject, name: str, now: object) -> Iterable[Any]:
    if name in _CHOICES:
        return reversed(_CHOICES[name])
    if isinstance(now, bool):
        return (not now,)
    if isinstance(now, int):
        return (now + 1, now - 1, now + 2, 2 * now, 4 * now)
    if isinstance(now, float):
        return (now / 2, 2 * now + 1)
    # The error says which values there are; an environment that takes any text is not asked.
    try:
        subject(**{name: _NO_CHOICE})
    except InvalidArgument as error:
        choices = error.choices[::-1]
    except Exception:  # noqa: BLE001  what it is about other kinds of values is not asked here
        return ()
    else:
        return ()
    return choices if choices or now is not None else _INSTEAD_OF_NONE


def check_difficulties(subject: Subject) -> Mapping[str, float]:
    """Every difficulty has levels of its own, which the oracle solves and is paid for."""
    env = subject()
    if not len(env.difficulties) or "levels" in subject.kwargs:
        raise NotPromised("The environment has no difficulties, or its levels are given.")
    played: dict[int, tuple[AnyEnv, list[Any]]] = {}
    for number, attributes in enumerate(env.difficulties.attributes):
        if not attributes.keys() <= subject.parameters:
            raise NotPromised("The function that makes the environment fixes its difficulty.")
        try:
            changed = subject(**attributes)
            played[number] = changed, audit(changed, VALUE_SEEDS[:1])
        except InvalidArgument:  # arguments that were given allow no other difficulty
            continue
    for (one, (first, seen)), (other, (second, also)) in pairwise(played.items()):
        # One level may be of two difficulties, but not all of them.
        differ = seen != also or any(
            start_of(first, seed) != start_of(second, seed) for seed in range(8)
        )
        require(differ, f"The difficulties {one} and {other} have the same levels.")
    return {"difficulties played": len(played)}


def audit(env: AnyEnv, seeds: Iterable[int] = VALUE_SEEDS) -> list[Any]:
    """Play a few episodes, and prove what holds with all arguments.

    Returns:
        What can be seen of them, for comparison with another environment.

    Raises:
        ConformanceError: If rewards are not their parts, an end is wrong, or the oracle fails or is
            not paid for its success.
    """
    seen: list[Any] = []
    for seed in seeds:
        rng = random.Random(seed)
        env.reset(seed=seed)  # once: to make a level may take a second
        for actor in (mixed_actor(rng), always("")):
            steps = list(paid_steps(branch := env.fork(), actor))
            check_end(branch, steps[-1])
            seen += [(s["state_hash"], s["observation"], s["rewards"]) for s in steps]
        if "oracle" not in env.scripted_policies:
            continue
        oracle = rest_of(env.fork(), scripted_actor("oracle", rng))
        require(oracle.solved, f"The oracle does not solve the level of seed {seed}.")
        silent = rest_of(env.fork(), always(""))
        for agent, paid in oracle.returns.items():
            require(
                paid > silent.returns[agent] or not env.alpha or silent.solved,
                f"Seed {seed}: the oracle solves the level and earns {agent} {paid:.4f}, silence "
                f"{silent.returns[agent]:.4f}.",
            )
    return seen
