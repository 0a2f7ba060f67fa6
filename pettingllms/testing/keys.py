"""What counts of a state: how often episodes meet in it, and where agents read more than it."""

from __future__ import annotations

import random
from collections import Counter, defaultdict
from collections.abc import Mapping

from pettingllms.hooks import GameHooks
from pettingllms.testing.degenerate import LEVEL_SEEDS
from pettingllms.testing.play import AnyEnv, moments
from pettingllms.testing.report import NotPromised, SkippedCheck
from pettingllms.testing.subject import Subject
from pettingllms.transition import role_of

EPISODES = 4
"""Episodes of each level."""


def check_state_key(subject: Subject) -> Mapping[str, float]:
    """Measured, not demanded: what agents read is decided by what counts of the state.

    Several episodes of each level are played by a mixture of the scripted policies. `met again` is
    the share of decisions after the first whose `state_key` another episode of the level reached,
    too: what credit by state averages over. `reads more than the key` is, by role, the share of
    these whose prompt differs from that of the other: there a policy may know something that the
    average does not.
    """
    env = subject()
    if type(env)._key_json is GameHooks._key_json:
        raise NotPromised("No `_key_json`: nothing but the whole state counts.")
    if not env.scripted_policies:
        raise SkippedCheck("There is no scripted policy to play with.")
    num_decisions, num_met = 0, 0
    read_more: dict[str, list[bool]] = defaultdict(list)
    for seed in LEVEL_SEEDS:
        paths = [_path(env, seed, episode) for episode in range(EPISODES)]
        num_in = Counter(key for path in paths for key in path)
        first = {key: read for path in paths[::-1] for key, read in path.items()}
        num_decisions += sum(map(len, paths))
        for key, (role, prompt) in ((k, v) for path in paths for k, v in path.items()):
            if num_in[key] > 1:
                num_met += 1
                read_more[role].append(prompt != first[key][1])
    shares = {role: sum(found) / len(found) for role, found in sorted(read_more.items())}
    return {
        "states met again": num_met / max(num_decisions, 1),
        **{f"{role} reads more than the key": share for role, share in shares.items()},
    }


def _path(env: AnyEnv, seed: int, episode: int) -> dict[str, tuple[str, str]]:
    """Return key -> (role, prompt) of the decisions after the first of one episode."""
    rng = random.Random(EPISODES * seed + episode)
    env.reset(seed=seed)
    found: dict[str, tuple[str, str]] = {}
    for number, agent in enumerate(moments(env)):
        if number:
            found[env.state_key()] = role_of(agent), str(env.observe(agent))
        env.step(env.scripted_action(agent, rng.choice(env.scripted_policies), rng))
    return found
