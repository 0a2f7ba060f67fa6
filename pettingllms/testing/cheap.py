"""A search for cheap policies: what does a team earn that knows nothing of the game?

```python
from pettingllms.testing import search_cheap_policies

for row in search_cheap_policies("my_game_v0"):
    print(row.role, row.policy, row.share)
```

Tried are silence, constants, parts of the prompt, its example and edits of it, and passing on what
others wrote (`pettingllms.testing.uninformed`); all agents alike, and the best of each role in
collusion; and doing all that the oracle does but the step that ends the episode. None of them
reads. What such a policy earns, a learner earns before it has learnt anything, and may never leave.
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Iterable, Mapping
from itertools import product
from typing import Any, NamedTuple

from pettingllms.errors import ConformanceError
from pettingllms.testing.play import Actor, AnyEnv, has_ended, transcript_of
from pettingllms.testing.report import Subject
from pettingllms.testing.uninformed import PASSED_ON, Clue, episode_of, guesses, oracle_episodes
from pettingllms.types import role_of

# Seeds of the levels on which the best policies are looked for.
SEARCHED_SEEDS = range(200, 203)
# Seeds of the levels on which what was found is measured: others, so that luck does not count.
MEASURED_SEEDS = range(300, 312)
# Teams that are measured for each role and pay, besides the one that gathers.
FINALISTS = 3
# Policies of a role that are tried together with those of other roles.
KEPT = 4
# Share of the oracle's return above which `check_env` fails, unless `metadata["cheap_share"]`
# states another one.
MAX_SHARE = 0.25
# Below this, an agent's own part of the oracle's return does not pay for its work.
MIN_OWN = 0.05
# The policy of a team that does as the oracle, but is silent in the turn that would end the
# episode; a level that it solves all the same counts as unpaid, for it took more than gathering.
GATHERING = "gather and never answer"
_TRANSCRIPT_CHARS = 4_000


class CheapPolicy(NamedTuple):
    """The team of cheap policies that pays one role best, by one kind of pay."""

    role: str
    """The role that is paid."""
    pay: str
    """`return`: all rewards of an agent of the role; `own`: the local parts of its actions."""
    team: tuple[tuple[str, str], ...]
    """(role, policy) of all roles."""
    cheap: float
    """Pay of the team's episode, mean over the role's agents and over levels not searched."""
    oracle: float
    """Pay of the oracle's episode, mean over the same agents and levels."""
    success: float
    """Share of these levels that the team solved, in [0, 1]."""
    seed: int
    """Seed of the level on which the team was paid best."""

    @property
    def policy(self) -> str:
        """The policies of all roles, such as `coder: silence; tester: the example`."""
        return "; ".join(f"{role}: {name}" for role, name in self.team)

    @property
    def share(self) -> float:
        """`cheap` as a share of `oracle`, at least 0."""
        return max(0.0, self.cheap) / self.oracle


class _Played(NamedTuple):
    """What a team was paid on some levels."""

    pays: Mapping[tuple[str, str], list[float]]
    """(role, kind of pay) -> mean pay of the role's agents, level by level."""
    num_solved: int
    """Levels that the team solved."""


def search_cheap_policies(env: str | Callable[..., Any], **kwargs: Any) -> list[CheapPolicy]:
    """The best cheap policy of each role, by all its pay and by its own part.

    Args:
        env: As for `check_env`; it needs the scripted policy `"oracle"`.
        **kwargs: Arguments of the environment.

    Raises:
        SkippedCheck: If there is no oracle to compare with.
    """
    return _searched(Subject(env, kwargs)())


def check_cheap_policies(subject: Subject) -> Mapping[str, float]:
    """No policy that reads nothing earns a large share of what the oracle earns, in any role.

    The share is a quarter, or what the `metadata` state as `"cheap_share"`, with the reason in the
    documentation of the environment.
    """
    env = subject()
    allowed = env.metadata.get("cheap_share", MAX_SHARE)
    rows = _searched(env)
    faults = [
        f"{row.policy!r} earns {row.role} {row.cheap:.3f} ({row.pay}), the oracle "
        f"{row.oracle:.3f}: a share of {row.share:.0%}, and {allowed:.0%} are allowed."
        for row in rows
        if row.share > allowed
    ]
    if faults:
        worst = max(rows, key=lambda row: row.share)
        actor = _team(env, dict(worst.team), worst.seed)
        shown = transcript_of(env, worst.seed, actor)[-_TRANSCRIPT_CHARS:]
        raise ConformanceError(
            "\n".join([*faults, "An episode of the largest share ends so:", shown])
        )
    return {f"best cheap policy of {row.role}, {row.pay}": row.share for row in rows}


def _searched(env: AnyEnv) -> list[CheapPolicy]:
    oracle_episodes(env, SEARCHED_SEEDS[:1])  # raises where there is none
    roles = tuple(dict.fromkeys(map(role_of, env.possible_agents)))
    # All pairs would be tens of thousands of episodes: the best of each role are paired.
    alike = {
        tuple((role, name) for role in roles): _played(env, dict.fromkeys(roles, name))
        for name in guesses()
    }
    kept = {role: _best_names(alike, role) for role in roles}
    # Whatever one says, if the others only pass it on; and what seemed good, in collusion.
    tried = [
        {other: name if other == role else PASSED_ON for other in roles}
        for role, name in product(roles, guesses())
    ]
    tried += [dict(zip(roles, chosen, strict=True)) for chosen in product(*kept.values())]
    teams = {
        team: _played(env, dict(team))
        for team in dict.fromkeys(tuple(names.items()) for names in tried)
        if team not in alike
    }
    teams |= alike
    gathering = tuple((role, GATHERING) for role in roles)
    teams[gathering] = _played(env, dict(gathering))
    oracle = _played(env, dict.fromkeys(roles, "oracle"), MEASURED_SEEDS)
    measured: dict[Any, _Played] = {}
    rows: list[CheapPolicy] = []
    for key, honest in oracle.pays.items():
        least = MIN_OWN if key[1] == "own" else 0.0
        if math.fsum(honest) / len(honest) <= least:
            continue
        ranked = sorted(teams, key=lambda team, key=key: -sum(teams[team].pays[key]))
        finalists = [*ranked[:FINALISTS], gathering]
        for team in finalists:
            if team not in measured:
                measured[team] = _played(env, dict(team), MEASURED_SEEDS)
        best = max(finalists, key=lambda team, key=key: sum(measured[team].pays[key]))
        rows.append(_row(key, best, measured[best], honest))
    return rows


def _row(
    key: tuple[str, str], team: tuple[tuple[str, str], ...], found: _Played, oracle: list[float]
) -> CheapPolicy:
    paid = found.pays[key]
    return CheapPolicy(
        *key,
        team,
        math.fsum(paid) / len(paid),
        math.fsum(oracle) / len(oracle),
        found.num_solved / len(paid),
        MEASURED_SEEDS[paid.index(max(paid))],
    )


def _best_names(alike: Mapping[Any, _Played], role: str) -> list[str]:
    """What paid a role best, by all of its pay and by its own part, and passing on."""
    found = [PASSED_ON]
    for pay in ("return", "own"):
        ranked = sorted(alike, key=lambda team, pay=pay: -sum(alike[team].pays[role, pay]))
        found += [dict(team)[role] for team in ranked[: KEPT // 2]]
    return list(dict.fromkeys(found))[:KEPT]


def _played(env: AnyEnv, team: Mapping[str, str], seeds: Iterable[int] = SEARCHED_SEEDS) -> _Played:
    """Play the levels of some seeds with one policy per role."""
    pays: dict[tuple[str, str], list[float]] = {}
    num_solved = 0
    for seed in seeds:
        episode = episode_of(env, seed, _team(env, team, seed))
        own = episode.own
        num_solved += episode.solved
        is_gathering = GATHERING in team.values()
        for role in team:
            agents = [agent for agent in own if role_of(agent) == role]
            for pay, of_agent in (("return", episode.returns), ("own", own)):
                paid = math.fsum(of_agent[agent] for agent in agents)
                if is_gathering:  # the oracle's own parts are honest pay, and so is what it solves
                    paid -= math.fsum(own[agent] for agent in agents)
                    paid *= not episode.solved
                pays.setdefault((role, pay), []).append(paid / len(agents))
    return _Played(pays, num_solved)


def _team(env: AnyEnv, team: Mapping[str, str], seed: int) -> Actor:
    """The actor of a team whose roles follow policies by name."""
    known, rng = guesses(), random.Random(seed)
    said: dict[str, str] = {}

    def actor(env: AnyEnv, agent: str) -> str:
        name = team[role_of(agent)]
        if name in ("oracle", GATHERING):
            text = env.scripted_action(agent, "oracle", rng)
            if name == GATHERING and _ends(env, text, rng):
                text = ""
        else:
            text = known[name](Clue(agent, str(env.observe(agent)), said))
        said.pop(agent, None)
        said[agent] = text
        return text

    return actor


def _ends(env: AnyEnv, text: str, rng: random.Random) -> bool:
    """Whether the turn ends the episode if all follow the oracle from this text on."""
    branch = env.fork()
    branch.step(text)
    while not has_ended(branch) and branch.turn == env.turn:
        branch.step(branch.scripted_action(branch.agent_selection, "oracle", rng))
    return has_ended(branch)
