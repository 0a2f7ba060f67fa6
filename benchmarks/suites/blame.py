"""Does blame find a planted fault, and do its intervals hold? In four games.

    python benchmarks/suites/blame.py [--episodes 200]

Every episode is played by a policy that errs once, at a known answer, and fails for it: the
scripted oracle, except that it says at that answer what another scripted policy would. The team
that plays on is the oracle with such faults by chance. Both answers of a state are fixed, so the
chance of success is computed exactly over the two branches of every answer, and every interval is
compared with what it estimates.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from typing import Any, NamedTuple

from measuring import frame, parser_of, write

import pettingllms
from pettingllms import TextEnv
from pettingllms.env import role_of
from pettingllms.evaluation import (
    Blame,
    BlameSettings,
    Interval,
    Seat,
    clustered_share,
    judge,
    weighted_sum,
)
from pettingllms.evaluation.blame import coalitions_of, moments_of, players_of, shapley_weights
from pettingllms.policies import Answer, Completion, Prompt, Sampling
from pettingllms.transcript import RecordTranscripts, Transcript


class Case(NamedTuple):
    """A game in which faults are planted."""

    env_id: str
    kwargs: dict[str, Any]
    fault: str
    """Scripted policy that gives the wrong answers."""
    num_replays: int
    """Replays of `judge`."""
    rates: Mapping[str, float]
    """Role or agent to the probability that it errs in replays."""


CASES = {
    "Plan-Path": Case(
        "plan_path_v0",
        {"size": 6, "tool": "call", "moves_per_turn": 2, "max_turns": 3}
        | {"min_moves": 5, "max_moves": 6, "split": "test"},
        "random",
        32,
        {"tool": 0.1, "planner": 0.15},
    ),
    "Blocks World": Case(
        "blocksworld_v0",
        {"moves_per_turn": 2, "max_turns": 3, "min_moves": 5, "max_moves": 6, "split": "test"},
        "random",
        32,
        {"tool": 0.1, "planner": 0.15},
    ),
    "Dining": Case(
        "dining_v0",
        {"philosophers": 3, "meals": 1, "max_turns": 4, "split": "train"},
        "random",
        32,
        {"philosopher_0": 0.05, "philosopher_1": 0.1, "philosopher_2": 0.15},
    ),
    "Search": Case(
        "search_v0",
        {"hops": 2, "max_turns": 2, "split": "test"},
        "random",
        32,
        {"searcher": 0.1, "answerer": 0.2},
    ),
}  # fmt: skip


class Erring:
    """The oracle, with faults by chance.

    Args:
        fault: Scripted policy that says what is said in error.
        rates: Role, or agent -> how often it errs.
    """

    def __init__(self, fault: str, rates: Mapping[str, float]) -> None:
        self._fault, self._rates = fault, rates

    def rate(self, agent: str) -> float:
        """How often an agent errs."""
        return self._rates.get(agent, self._rates.get(role_of(agent), 0.0))

    def text(self, env: TextEnv[Any], *, is_fault: bool) -> str:
        """What the selected agent says, which depends on the state only."""
        policy = self._fault if is_fault else env.scripted_policies[0]
        # By the state alone: else a chance could not be computed over two branches.
        rng = random.Random(f"{is_fault} {env.state_hash()}")
        return env.scripted_action(env.agent_selection, policy, rng)

    async def sample(self, prompts: Sequence[Prompt], n: int, sampling: Sampling) -> list[Answer]:
        return [Answer((Completion(self._drawn(prompt), "stop"),)) for prompt in prompts]

    def _drawn(self, prompt: Prompt) -> str:
        assert prompt.env is not None
        is_fault = random.Random(prompt.seed).random() < self.rate(prompt.agent)
        return self.text(prompt.env, is_fault=is_fault)

    async def check(self, env: TextEnv[Any]) -> None:
        """See `Policy.check`."""

    async def aclose(self) -> None:
        """See `Policy.aclose`."""

    def chance(self, env: TextEnv[Any], known: dict[str, float]) -> float:
        """The exact chance of success from a state on.

        Args:
            env: The environment; forks of it are played.
            known: Chances of states, which are added to it.
        """
        agent = env.agent_selection
        if env.terminations[agent] or env.truncations[agent]:
            return float(env.infos[agent]["success"])
        key = env.state_hash()
        if key not in known:
            rate = self.rate(agent)
            known[key] = sum(
                weight * self.chance(self._after(env, is_fault=is_fault), known)
                for weight, is_fault in ((1 - rate, False), (rate, True))
                if weight
            )
        return known[key]

    def _after(self, env: TextEnv[Any], *, is_fault: bool) -> TextEnv[Any]:
        twin = env.fork()
        twin.step(self.text(twin, is_fault=is_fault))
        return twin


class Planted(NamedTuple):
    """An episode that failed by one planted fault."""

    transcript: Transcript
    fault: int
    """Number of the wrong answer, from 0."""
    seed: int
    """Seed of the level."""


def planted_faults(case: Case) -> Iterator[Planted]:
    """Episodes that fail by one fault, on level after level."""
    recorder = RecordTranscripts(pettingllms.make(case.env_id, **case.kwargs))
    policy = Erring(case.fault, {})
    for seed in count():
        num_answers, is_success = _play(recorder, policy, seed, None)
        # Where it errs is drawn: early and late answers alike.
        fault = random.Random(seed).randrange(num_answers)
        # Only a fault that costs the episode has a drop to be found.
        if is_success and not _play(recorder, policy, seed, fault)[1]:
            assert recorder.transcript is not None
            yield Planted(recorder.transcript, fault, seed)


def _play(
    recorder: RecordTranscripts, policy: Erring, seed: int, fault: int | None
) -> tuple[int, bool]:
    """Play a level without faults, or with one; return the number of answers and the success."""
    recorder.reset(seed=seed)
    env = recorder.env
    for number in count():
        agent = env.agent_selection
        if env.terminations[agent] or env.truncations[agent]:
            return number, bool(env.infos[agent]["success"])
        recorder.step(policy.text(env, is_fault=number == fault))
    raise AssertionError


class Verdict(NamedTuple):
    """How the judgement of an episode compares with the exact values."""

    is_right: bool
    """Whether the largest drop is at the planted fault."""
    is_clear: bool
    """Whether the interval of the largest drop is above 0."""
    drops: list[bool]
    """Whether the joint interval of each drop holds the exact one."""
    missed: list[bool]
    """The same of what the oracle would have gained at each answer."""
    shares: list[bool]
    """The same of the Shapley share of each player."""
    single: list[bool]
    """Whether the 95 % interval of a single drop holds it, for drops that chance decides."""


def examined(case: Case, planted: Planted) -> Verdict:
    """Judge an episode, and compare the judgement with what is known exactly."""
    moments = moments_of(planted.transcript)
    agents = moments[0].env.possible_agents
    policy, oracle = Erring(case.fault, case.rates), Erring(case.fault, {})
    blame = asyncio.run(
        judge(
            planted.transcript,
            {agent: Seat(policy) for agent in agents},
            {agent: Seat(oracle) for agent in agents},
            BlameSettings(num_replays=case.num_replays, seed=planted.seed),
        )
    )
    known: dict[str, float] = {}
    values = [policy.chance(moment.env, known) for moment in moments]
    missed: list[bool] = []
    for moment, after, answer in zip(moments, values[1:], blame.answers, strict=False):
        if answer.missed is not None:
            twin = moment.env.fork()
            twin.step(oracle.text(twin, is_fault=False))
            missed.append(_holds(answer.missed, policy.chance(twin, known) - after))
    drops = [*zip(blame.answers, values, values[1:], strict=False)]
    # An answer after which all is decided has an interval of no width, which always holds.
    live = [one for one in drops if any(0 < value < 1 for value in one[1:])]
    return Verdict(
        is_right=blame.top.index == planted.fault,
        is_clear=blame.is_clear,
        drops=[_holds(answer.drop, before - after) for answer, before, after in drops],
        missed=missed,
        shares=_shares(case, moments[0].env, blame),
        single=[
            _holds(weighted_sum((1, -1), (answer.before, answer.after)), before - after)
            for answer, before, after in live
        ],
    )


def _shares(case: Case, env: TextEnv[Any], blame: Blame) -> list[bool]:
    players = players_of(env.possible_agents)
    chances = {
        kept: Erring(case.fault, {one: case.rates[one] for one in kept}).chance(env, {})
        for kept in coalitions_of(players)
    }
    return [
        _holds(
            share,
            sum(
                weight * chances[kept]
                for kept, weight in shapley_weights(player, tuple(players)).items()
            ),
        )
        for player, share in blame.shares.items()
    ]


def _holds(interval: Interval, exact: float) -> bool:
    return interval.low - 1e-9 <= exact <= interval.high + 1e-9


def measured(case: Case, num_episodes: int) -> dict[str, Any]:
    """The figures of a case."""
    start = sum(os.times()[:2])
    faults = planted_faults(case)
    found = [examined(case, next(faults)) for _ in range(num_episodes)]
    columns = {
        name: [getattr(one, name) for one in found] for name in ("drops", "missed", "shares")
    }
    return {
        "replays": case.num_replays,
        "answers": round(sum(len(one.drops) for one in found) / num_episodes, 2),
        "right": _share([one.is_right for one in found]),
        "clear": _share([one.is_clear for one in found]),
        "hold": {
            name: {
                "jointly": _share([all(row) for row in rows]),
                "each": round(sum(map(sum, rows)) / sum(map(len, rows)), 4),
            }
            for name, rows in columns.items()
        },
        "single": _clustered([one.single for one in found]),
        "cpu_s": round(sum(os.times()[:2]) - start, 1),
    }


def _share(hits: Sequence[bool]) -> dict[str, float]:
    return _clustered([[hit] for hit in hits])


def _clustered(rows: Sequence[Sequence[bool]]) -> dict[str, float]:
    """A share whose interval allows for answers of one episode being alike."""
    share = clustered_share([float(sum(row)) for row in rows], [float(len(row)) for row in rows])
    return {name: round(value, 4) for name, value in share._asdict().items()}


def main() -> None:
    parser = parser_of("blame", __doc__)
    parser.add_argument("--episodes", type=int, default=200)
    parser.add_argument("--case", choices=list(CASES), action="append")
    options = parser.parse_args()
    result = frame("blame", [])
    result |= {"seeds": "0, 1, 2, ...: levels on which the fault is fatal", "cases": {}}
    start = time.perf_counter()
    for name in options.case or CASES:
        result["cases"][name] = measured(CASES[name], options.episodes)
        print(name, result["cases"][name], flush=True)
    result["episodes"] = options.episodes
    result["wall_s"] = round(time.perf_counter() - start, 1)
    write(result, options.output)


if __name__ == "__main__":
    main()
