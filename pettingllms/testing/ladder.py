"""The ladder: does the return of an episode order policies as their success does?

A ladder is a list of policies from doing nothing to solving every other turn. A reward that pays
for looking busy, or that punishes honest trying, puts them into another order than success does.

```python
from pettingllms.testing.ladder import check_ladder

check_ladder("my_game_v0", team="single")
```
"""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping
from functools import partial
from itertools import permutations
from statistics import fmean
from typing import Any, NamedTuple

from pettingllms.errors import ConformanceError, InvalidArgument
from pettingllms.testing.play import Actor, AnyEnv, always, scripted_actor
from pettingllms.testing.report import Subject
from pettingllms.testing.uninformed import episode_of

# Shares of the actions in which the mixed policies of a ladder follow the oracle.
ORACLE_SHARES = (0.05, 0.1, 0.2, 0.3, 0.5)

_ActorOfEpisode = Callable[[random.Random], Actor]


class ScriptedResult(NamedTuple):
    """Success and returns of one policy of a ladder."""

    policy: str
    """Name of the policy; see `check_ladder`."""
    success: float
    """Share of solved episodes, in [0, 1]."""
    returns: Mapping[str, float]
    """Agent -> mean return of an episode."""


def check_ladder(
    env: str | Callable[..., Any], num_levels: int = 60, gap: float = 0.05, **kwargs: Any
) -> list[ScriptedResult]:
    """Prove that the return orders the ladder of an environment by success; return its results.

    The policies are: silence; an empty list; one constant answer; every scripted policy but the
    oracle; and the oracle in some of its actions (`ORACLE_SHARES`), in all others the scripted
    policy `"random"`, or the constant answer where there is none. All play the same levels.

    Args:
        env: As for `check_env`; it needs the scripted policy `"oracle"`.
        num_levels: Levels that every policy plays, those of the seeds 0, 1, 2, ...
        gap: Differences of success below this are no difference, in (0, 1].
        **kwargs: Arguments of the environment.

    Raises:
        ConformanceError: Naming the pairs of policies whose returns contradict their success.
        InvalidArgument: If the environment has no oracle.
    """
    subject = Subject(env, kwargs)
    made = subject()
    if "oracle" not in made.scripted_policies:
        raise InvalidArgument("env", subject.name, 'one with the scripted policy "oracle"')
    actors: dict[str, _ActorOfEpisode] = {
        "silence": partial(always, ""),
        "an empty list": partial(always, "#### []"),
        "a constant": partial(always, '#### ["R"]'),
    }
    others = [name for name in made.scripted_policies if name != "oracle"]
    actors |= {name: partial(scripted_actor, name) for name in others}
    otherwise = actors.get("random", actors["a constant"])
    actors |= {f"oracle in {share:.0%}": _mixed(share, otherwise) for share in ORACLE_SHARES}
    results = [_measured(made, name, actor, num_levels) for name, actor in actors.items()]
    faults = [
        f"{better.policy!r} solves {better.success:.1%} and returns {returned:+.3f} to {agent}, "
        f"{worse.policy!r} solves {worse.success:.1%} and returns {worse.returns[agent]:+.3f}"
        for better, worse in permutations(results, 2)
        if better.success - worse.success >= gap
        for agent, returned in better.returns.items()
        if returned <= worse.returns[agent]
    ]
    if faults:
        told = "; ".join(faults)
        raise ConformanceError(f"{subject.name}: more success must return more, but {told}")
    return results


def _measured(env: AnyEnv, name: str, actor: _ActorOfEpisode, num_levels: int) -> ScriptedResult:
    played = [episode_of(env, seed, actor(random.Random(seed))) for seed in range(num_levels)]
    returns = {agent: fmean(one.returns[agent] for one in played) for agent in env.possible_agents}
    return ScriptedResult(name, fmean(one.solved for one in played), returns)


def _mixed(share: float, otherwise: _ActorOfEpisode) -> _ActorOfEpisode:
    def of_episode(rng: random.Random) -> Actor:
        oracle, other = scripted_actor("oracle", rng), otherwise(rng)
        return lambda env, agent: (oracle if rng.random() < share else other)(env, agent)

    return of_episode
