"""Checks of states (forks, snapshots, values, what counts of one), and of levels."""

from __future__ import annotations

import copy
import json
import pickle
import random
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations, takewhile
from typing import Any, NamedTuple

from pettingllms.errors import InvalidArgument, UnreachableRequest
from pettingllms.hooks import GameHooks
from pettingllms.parsing import one_line
from pettingllms.seeding import SPLITS
from pettingllms.testing.play import (
    SEEDS,
    AnyEnv,
    episode,
    has_ended,
    mixed_actor,
    moments,
    play,
    require,
    scripted_actor,
    start_of,
)
from pettingllms.testing.report import Figures, NotPromised, SkippedCheck, Subject
from pettingllms.testing.uninformed import LEVEL_SEEDS
from pettingllms.types import mutable_parts, role_of

# Levels whose hashes are compared, besides those of whole episodes.
HASHED_LEVELS = 40
# Moments of each episode at which snapshots are taken.
MOMENTS = 6


def check_fork(subject: Subject) -> None:
    """A fork has the same future under the same actions, and nothing shared under others."""
    for seed in SEEDS:
        env = subject()
        env.reset(seed=seed)
        actor = mixed_actor(random.Random(seed))
        for agent in moments(env, seed * len(env.possible_agents) // 2):
            env.step(actor(env, agent))
        twin, stray = env.fork(), env.fork()
        before = env.state_hash()
        for info in stray.infos.values():
            info["reward_parts"].clear()
            info.clear()
        # From the twin, since the first stray has lost its infos.
        stray = twin.fork()
        play(stray, mixed_actor(random.Random(99)))
        require(all(env.infos.values()), "changing the infos of a fork changed the original's")
        require(env.state_hash() == before, "stepping a fork changed the original")
        future = play(env, mixed_actor(random.Random(7)))
        require(future == play(twin, mixed_actor(random.Random(7))), "a fork has another future")


def check_snapshot(subject: Subject) -> None:
    """`restore` returns to the very moment of a `snapshot`, also pickled and in another object."""
    for seed in SEEDS:
        env = subject()
        env.reset(seed=seed)
        actor = mixed_actor(random.Random(seed))
        for agent in moments(env, MOMENTS):
            _check_moment(subject, env, seed)
            env.step(actor(env, agent))


def _check_moment(subject: Subject, env: AnyEnv, seed: int) -> None:
    """Compare an environment with itself and with another one that are restored to this moment."""
    snapshot = env.snapshot()
    copied = pickle.loads(pickle.dumps(snapshot))  # our own snapshot, made one line above
    moment = _moment(env)
    future = play(env.fork(), mixed_actor(random.Random(8)))
    # A fork shares what is immutable; only a fresh environment shows what the snapshot lacks.
    for restored, used, lost in (
        (env.fork(), snapshot, "restore lost something"),
        (subject(), copied, "a pickled snapshot, restored in another environment, differs"),
    ):
        if restored.episode_seed is not None:
            play(restored, mixed_actor(random.Random(9)))
        restored.restore(used)
        found = _moment(restored)
        wrong = [name for name, value in moment.items() if found[name] != value]
        require(not wrong, f"Seed {seed}, turn {env.turn}: {lost}: {', '.join(wrong)}.")
        same = future == play(restored, mixed_actor(random.Random(8)))
        require(same, f"Seed {seed}, turn {env.turn}: {lost}: its future.")


def _moment(env: AnyEnv) -> dict[str, Any]:
    """All that can be seen of an environment now, as own copies."""
    names = ("agents", "agent_selection", "rewards", "terminations", "truncations", "infos", "turn")
    seen = {name: copy.deepcopy(getattr(env, name)) for name in names}
    seen |= {f"observation of {agent}": env.observe(agent) for agent in env.possible_agents}
    return {**seen, "last": env.last(), "state_hash": env.state_hash()}


def check_hashes(subject: Subject) -> None:
    """States of one hash read alike and answer alike; states of one key earn alike."""
    hashes: dict[str, AnyEnv] = {}
    keys: dict[str, AnyEnv] = {}

    def note(env: AnyEnv) -> None:
        where = f"Seed {env.episode_seed}, turn {env.turn}: "
        twin = hashes.setdefault(env.state_hash(), env.fork())
        if twin.state() != env.state():
            require(
                _read(twin) == _read(env) and _answers(twin) == _answers(env, twin),
                f"{where}a state has the hash of another one that reads or answers otherwise: "
                "`_state_json` leaves out what distinguishes them.",
            )
        if has_ended(env):
            return  # keys are of decisions
        twin = keys.setdefault(env.state_key(), env.fork())
        require(
            twin.state() == env.state() or _solved(twin) == _solved(env, twin),
            f"{where}a state has the key of another one in which the same answer earns otherwise: "
            "`_key_json` leaves out what counts.",
        )

    env = subject()
    env.render_mode = "ansi"
    for seed in range(HASHED_LEVELS):
        env.reset(seed=seed)
        note(env)
    for seed in SEEDS:
        env.reset(seed=seed)
        rng = random.Random(seed)
        actor = mixed_actor(rng)
        for agent in moments(env, MOMENTS):
            scripted = [env.scripted_action(agent, name, rng) for name in env.scripted_policies]
            for text in ("", *scripted):
                branch = env.fork()
                branch.step(text)
                note(branch)
            env.step(actor(env, agent))


def _read(env: AnyEnv) -> list[Any]:
    return [*map(env.observe, env.possible_agents), env.render()]


def _answers(env: AnyEnv, asked: AnyEnv | None = None) -> list[Any]:
    """What the texts of scripted policies, which `asked` gives, lead to."""
    found: list[Any] = []
    if not has_ended(env):
        for text in _texts(asked or env):
            branch = env.fork()
            branch.step(text)
            found.append((branch.rewards, branch.state_hash()))
    return found


def _solved(env: AnyEnv, asked: AnyEnv | None = None) -> list[Any]:
    """What a turn of the same texts earns the team, and whether it solves the task."""
    found: list[Any] = []
    for policy in env.scripted_policies:
        branch, model, rng = env.fork(), (asked or env).fork(), random.Random(0)
        for _ in env.possible_agents:
            if has_ended(branch) or has_ended(model):
                break
            agent = branch.agent_selection
            text = model.scripted_action(agent, policy, rng)
            branch.step(text)
            model.step(text)
            info = branch.infos[agent]
            found.append((round(info["reward_parts"]["team"], 9), info["success"]))
    return found


def _texts(env: AnyEnv) -> list[str]:
    agent, rng = env.agent_selection, random.Random(0)
    return [env.scripted_action(agent, name, rng) for name in env.scripted_policies]


def check_state_value(subject: Subject) -> None:
    """The state is one immutable value: hashable, picklable, JSON-able. So are facts in infos."""
    env = subject()
    env.reset(seed=6)
    state = env.state()
    hash(state)
    play(stray := env.fork(), mixed_actor(random.Random(6)))
    shared = {"state": stray.state()}
    for agent, info in stray.infos.items():
        facts = {name: fact for name, fact in info.items() if name != "reward_parts"}
        shared |= {f"infos[{agent!r}][{name!r}]": fact for name, fact in facts.items()}
    for name, value in shared.items():
        for place in mutable_parts(value, name):
            require(False, f"branches share something that can be changed: {place}")
    require(pickle.loads(pickle.dumps(state)) == state, "the state changed when pickled")
    require(env.state_hash() == env.fork().state_hash(), "equal states have different hashes")


# Episodes of each level.
EPISODES = 4
# Characters of a prompt that a report shows: before the first difference, and in all.
SHOWN_BEFORE, SHOWN_CHARS = 20, 60


class _Visit(NamedTuple):
    """A decision of an episode."""

    role: str
    prompt: str
    """Its observation."""
    counts: Any
    """`_key_json` of the state."""


def check_state_key(subject: Subject) -> Figures:
    """Measured, not demanded: what agents read is decided by what counts of the state.

    Several episodes of each level are played by a mixture of the scripted policies. `met again` is
    the share of decisions after the first whose `state_key` another episode of the level reached,
    too: what credit by state averages over. `reads more than the key` is, by role, the share of
    those that come to a state after another episode and read another prompt there than it did: a
    policy may know something that the average does not. Of each such role the report shows what
    counts of one such state, and where the two prompts begin to differ.
    """
    env = subject()
    if type(env)._key_json is GameHooks._key_json:
        raise NotPromised("No `_key_json`: nothing but the whole state counts.")
    if not env.scripted_policies:
        raise SkippedCheck("There is no scripted policy to play with.")
    num_decisions, num_met = 0, 0
    shares: dict[str, list[bool]] = defaultdict(list)
    examples: dict[str, str] = {}
    for seed in LEVEL_SEEDS:
        paths = [_path(env, seed, episode) for episode in range(EPISODES)]
        num_in = Counter(key for path in paths for key in path)
        num_decisions += num_in.total()
        num_met += sum(num for num in num_in.values() if num > 1)
        for first, later in _meetings(paths):
            reads_more = later.prompt != first.prompt
            shares[later.role].append(reads_more)
            if reads_more:
                examples.setdefault(later.role, f"Seed {seed}, {_apart(first, later)}")
    figures = {"states met again": num_met / max(num_decisions, 1)}
    for role, found in sorted(shares.items()):
        figures[f"{role} reads more than the key"] = sum(found) / len(found)
    return Figures(figures, "\n".join(examples[role] for role in sorted(examples)))


def _meetings(paths: Sequence[Mapping[str, _Visit]]) -> Iterator[tuple[_Visit, _Visit]]:
    """Yield the first visit of a state with each later one, which is of another episode."""
    first: dict[str, _Visit] = {}
    for key, visit in (item for path in paths for item in path.items()):
        if key in first:
            yield first[key], visit
        first.setdefault(key, visit)


def _apart(one: _Visit, other: _Visit) -> str:
    pairs = zip(one.prompt, other.prompt, strict=False)
    num_alike = sum(1 for _ in takewhile(lambda pair: pair[0] == pair[1], pairs))
    start = max(0, num_alike - SHOWN_BEFORE)
    first, second = (visit.prompt[start:][:SHOWN_CHARS] for visit in (one, other))
    key = one_line(json.dumps(one.counts, ensure_ascii=False), SHOWN_CHARS)
    return f"key {key}: {one.role} reads {first!r} or {second!r}."


def _path(env: AnyEnv, seed: int, episode: int) -> dict[str, _Visit]:
    """Key -> visit, of the decisions after the first of one episode."""
    rng = random.Random(EPISODES * seed + episode)
    env.reset(seed=seed)
    found: dict[str, _Visit] = {}
    for number, agent in enumerate(moments(env)):
        if number:
            counts = env._key_json(env.state())
            found[env.state_key()] = _Visit(role_of(agent), str(env.observe(agent)), counts)
        env.step(env.scripted_action(agent, rng.choice(env.scripted_policies), rng))
    return found


# Split -> levels that are drawn. What two splits have in common shows by the product of their
# numbers, and a level of train takes an eighth of the draws of one of the others.
DRAWS = {"train": 300, "validation": 30, "test": 30}
# Seeds of the levels whose shortest solutions are checked.
LENGTH_SEEDS = range(8)
# Seeds after which levels may come back if only a part of the seed is used.
PERIOD_SEEDS, PERIODS = 12, (*range(1, 17), 20, 100, 1 << 16, 1 << 31, 1 << 32, 1 << 64)
# Different levels that 30 seeds must give, unless the levels themselves are an argument.
MIN_LEVELS = 5
# Arguments with which the caller gives the levels.
GIVEN_LEVELS = ("levels", "source")


def check_variety(subject: Subject) -> None:
    """Seeds give many levels, and agents can distinguish them.

    Not asked of a game that says `"seed_shows": False` in its `metadata`, such as a board game that
    always begins alike.
    """
    env = subject()
    if not env.metadata.get("seed_shows", True):
        raise NotPromised('The metadata say that every level is the same ("seed_shows": False).')
    are_given = any(subject.kwargs.get(name) is not None for name in GIVEN_LEVELS)
    fewest = 2 if are_given else env.metadata.get("min_levels", MIN_LEVELS)
    starts: set[str] = set()
    readings: set[tuple[str, ...]] = set()
    for seed in range(10, 40):
        env.reset(seed=seed)
        starts.add(env.state_hash())
        readings.add(tuple(map(str, map(env.observe, env.possible_agents))))
    require(
        len(starts) >= fewest,
        f"30 seeds gave {len(starts)} different initial states; at least {fewest} are needed, or "
        'fewer if the metadata say so ("min_levels").',
    )
    _require_own_levels(env)
    if len(readings) == 1:  # the level may show later
        played = (episode(env, seed, mixed_actor(random.Random(0))) for seed in range(10, 40))
        readings = {tuple(step["observation"] for step in steps) for steps in played}
    require(len(readings) > 1, "No observation of whole episodes depends on the seed.")


def _require_own_levels(env: AnyEnv) -> None:
    """Prove that levels neither come back after some seeds nor share one `level_hash`."""
    env.reset(seed=0)
    drawn = {env.state_hash() for _ in range(8) if env.reset() is None}
    require(len(drawn) > 1, "8 resets without a seed gave one level.")
    starts = {seed: start_of(env, seed) for seed in range(PERIOD_SEEDS)}
    hashes = {env.level_hash() for seed in starts if env.reset(seed=seed) is None}
    require(len(hashes) > 1, "All levels have one `level_hash`.")
    for period in PERIODS:
        again = [start_of(env, seed + period) == start for seed, start in starts.items()]
        require(not all(again), f"Levels repeat every {period} seeds.")


def check_splits(subject: Subject) -> Mapping[str, float]:
    """Levels of different splits differ, whatever the seeds, by their `level_hash`."""
    subject.require_argument("split")
    if subject.kwargs.get("levels") is not None:
        raise NotPromised("The levels are given; they have no splits.")
    levels: dict[str, set[str]] = {}
    for split in SPLITS:
        try:
            env = subject(split=split)
        except InvalidArgument:  # a workflow has tasks of some splits only
            continue
        try:
            levels[split] = {_level(env, seed) for seed in range(DRAWS[split])}
        except UnreachableRequest as error:
            raise SkippedCheck(f"No levels of the split {split!r} were found: {error}") from error
    require(len(levels) > 1, f"There are levels of {', '.join(levels)} only.")
    for one, other in combinations(levels, 2):
        shared = len(levels[one] & levels[other])
        require(
            not shared,
            f"{shared} of {len(levels[other])} levels of the split {other!r} are levels of "
            f"{one!r} too: the split is ignored or leaks.",
        )
    return {
        f"different levels among {DRAWS[split]} of {split}": len(found)
        for split, found in levels.items()
    }


def check_shortest(subject: Subject) -> None:
    """The oracle solves a level in as many steps as the info `shortest` says, and no one in fewer.

    Steps are those of the info `moves_used` if there is one, else actions or turns: one of them on
    all levels. Policies that do not solve all levels are left out: a guess may be right at once.
    """
    env = subject()
    if "oracle" not in env.scripted_policies:
        raise NotPromised("There is no oracle whose steps could be counted.")
    if _counted(env, LENGTH_SEEDS[0], "oracle") is None:
        raise NotPromised("The oracle's infos say no `shortest` of a solved episode.")
    found = {
        policy: [(policy, seed, _counted(env, seed, policy)) for seed in LENGTH_SEEDS]
        for policy in dict.fromkeys(("oracle", *env.scripted_policies))
    }
    counts = [
        (policy, seed, counted)
        for of_policy in found.values()
        if of_policy[0][0] == "oracle" or all(counted for *_, counted in of_policy)
        for policy, seed, counted in of_policy
        if counted is not None
    ]
    units = {unit for _, _, (_, used) in counts for unit in used}
    faults = {unit: _wrong_length(unit, counts) for unit in sorted(units)}
    require(not all(faults.values()), " ".join(filter(None, faults.values())))


def _wrong_length(unit: str, counts: Sequence[tuple[str, int, tuple[int, dict[str, int]]]]) -> str:
    """How a unit of length contradicts `shortest`, or an empty text."""
    for policy, seed, (shortest, used) in counts:
        if used[unit] < shortest or (policy == "oracle" and used[unit] != shortest):
            return f"Seed {seed}: {policy} solves in {used[unit]} {unit}, `shortest` is {shortest}."
    return ""


def _counted(env: AnyEnv, seed: int, policy: str) -> tuple[int, dict[str, int]] | None:
    """(`shortest`, steps that were needed by unit) of a solved episode that says it."""
    steps = episode(env, seed, scripted_actor(policy, random.Random(seed)))
    infos = [step["info"] for step in steps if "shortest" in step["info"]]
    if not infos or not steps[-1]["info"]["success"]:
        return None
    said = {info["shortest"] for info in infos}
    require(len(said) == 1, f"Seed {seed}: `shortest` changes during an episode: {sorted(said)}.")
    if "moves_used" in infos[-1]:
        return said.pop(), {"moves": infos[-1]["moves_used"]}
    return said.pop(), {"actions": len(steps), "turns": steps[-1]["info"]["turn"] + 1}


def _level(env: AnyEnv, seed: int) -> str:
    env.reset(seed=seed)
    return env.level_hash()
