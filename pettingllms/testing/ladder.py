"""The ladder: does the return of an episode order policies as their success does?

A ladder is a list of policies from doing nothing to solving every other turn. A reward that pays
for looking busy, or that punishes honest trying, puts them into another order than success does.

```python
from pettingllms.testing.ladder import check_ladder

check_ladder("my_game_v0", team="single")
```
"""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import permutations
from typing import Any, NamedTuple

from pettingllms.errors import ConformanceError, InvalidArgument
from pettingllms.registry import make
from pettingllms.testing.play import Actor, AnyEnv, always, scripted_actor
from pettingllms.testing.uninformed import episode_of

# Shares of the actions in which the mixed policies of a ladder follow the oracle.
ORACLE_SHARES = (0.05, 0.1, 0.2, 0.3, 0.5)

PlayerOfEpisode = Callable[[random.Random], Actor]
"""Source of chance of one episode -> the actor of that episode."""


class ScriptedResult(NamedTuple):
    """Success and returns of one policy of a ladder."""

    policy: str
    """Name of the policy; see `ladder_actors`."""
    success: float
    """Share of solved episodes, in [0, 1]."""
    returns: Mapping[str, float]
    """Agent -> mean return of an episode."""


def ladder_actors(scripted_policies: Sequence[str]) -> dict[str, PlayerOfEpisode]:
    """The policies of a ladder by name.

    They are: silence; an empty list; one constant answer; every scripted policy but the oracle;
    and the oracle in some of its actions (`ORACLE_SHARES`), in all others the scripted policy
    `"random"`, or the constant answer where there is none.

    Args:
        scripted_policies: Those of the environment, with an `"oracle"` among them.

    Raises:
        InvalidArgument: If there is no oracle.
    """
    if "oracle" not in scripted_policies:
        raise InvalidArgument("scripted_policies", scripted_policies, 'an "oracle" among them')
    actors: dict[str, PlayerOfEpisode] = {
        "silence": partial(always, ""),
        "an empty list": partial(always, "#### []"),
        "a constant": partial(always, '#### ["R"]'),
    }
    for name in scripted_policies:
        if name != "oracle":
            actors[name] = partial(scripted_actor, name)
    otherwise = actors.get("random", actors["a constant"])
    for share in ORACLE_SHARES:
        actors[f"oracle in {share:.0%}"] = _mixed(share, otherwise)
    return actors


def measure_ladder(env: AnyEnv, seeds: Sequence[int]) -> list[ScriptedResult]:
    """How every policy of the ladder does, all on the same levels."""
    env = env.fork()
    results: list[ScriptedResult] = []
    for name, actor in ladder_actors(env.scripted_policies).items():
        played = [episode_of(env, seed, actor(random.Random(seed))) for seed in seeds]
        returns = {
            agent: math.fsum(one.returns[agent] for one in played) / len(played)
            for agent in env.possible_agents
        }
        results.append(
            ScriptedResult(name, sum(one.solved for one in played) / len(played), returns)
        )
    return results


def misordered(results: Sequence[ScriptedResult], gap: float = 0.05) -> list[str]:
    """A sentence for every pair of policies whose returns contradict their success."""
    return [
        f"{better.policy!r} solves {better.success:.1%} and returns {returned:+.3f} to {agent}, "
        f"{worse.policy!r} solves {worse.success:.1%} and returns {worse.returns[agent]:+.3f}"
        for better, worse in permutations(results, 2)
        if better.success - worse.success >= gap
        for agent, returned in better.returns.items()
        if returned <= worse.returns[agent]
    ]


def check_ladder(
    env_id: str, num_levels: int = 60, gap: float = 0.05, **kwargs: Any
) -> list[ScriptedResult]:
    """Prove that the return orders the ladder of an environment by success; return its results.

    Args:
        env_id: Id of the environment; it needs the scripted policy `"oracle"`.
        num_levels: Levels that every policy plays, those of the seeds 0, 1, 2, ...
        gap: Differences of success below this are no difference, in (0, 1].
        **kwargs: Arguments of the environment.

    Raises:
        ConformanceError: Naming the pairs of policies whose returns contradict their success.
        InvalidArgument: If the environment has no oracle.
    """
    results = measure_ladder(make(env_id, checks=False, **kwargs), range(num_levels))
    found = misordered(results, gap)
    if found:
        given = ", ".join(f"{name}={value!r}" for name, value in kwargs.items())
        raise ConformanceError(
            f"{env_id}({given}): more success must return more, but " + "; ".join(found)
        )
    return results


def _mixed(share: float, otherwise: PlayerOfEpisode) -> PlayerOfEpisode:
    def of_episode(rng: random.Random) -> Actor:
        oracle, other = scripted_actor("oracle", rng), otherwise(rng)
        return lambda env, agent: (oracle if rng.random() < share else other)(env, agent)

    return of_episode
