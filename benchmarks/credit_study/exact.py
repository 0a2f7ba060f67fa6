"""Cells of the exact layer: tables of logits learn enumerated levels, all seeds at once."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from typing import Any, NamedTuple

import numpy as np

import pettingllms
from credit_study.levels import (
    Levels,
    backwards,
    enumerate_levels,
    lemma_1,
    side_by_side,
    success_of,
    true_gradient,
)
from credit_study.tabular import Players, Sample, advantages
from pettingllms_trainers.algorithms.auto import Auto, Evidence
from pettingllms_trainers.algorithms.value import Value
from pettingllms_trainers.config.algorithm import StepContext, algorithm_of

Cell = dict[str, Any]
BONUSES: Mapping[str, Callable[[float, Sequence[str], np.random.Generator, Any], np.ndarray]] = {
    # Fixed by decision and answer, as a judge that has a taste of its own would pay it.
    "noise": lambda size, texts, rng, shape: rng.choice([-size, size], shape),
    "length": lambda size, texts, rng, shape: -size * np.array([len(text) for text in texts]),
    "format": lambda size, texts, rng, shape: size * np.array([t[:4] == "####" for t in texts]),
    "taste": lambda size, texts, rng, shape: size * (np.arange(len(texts)) == 1),
}
"""What is paid beside the rewards: (size, answers, ...) to an array that fits ``[N, A]``."""
_FROZEN = 0.1
"""A level is frozen that is solved less than a tenth as often as before the first train step."""
_SHOWN = StepContext(memory={"": list(Evidence(10.0, 1.0))})
_NOT_SHOWN = StepContext()


def trial_cell(
    game: Mapping[str, Any],
    bonus: Sequence[Any] | None,
    algorithm: Mapping[str, Any],
    optimizer: str,
    study: Mapping[str, Any],
) -> Cell:
    """Choose a learning rate on some seeds, and learn by it on others.

    The rate is that of the highest mean success among those that freeze fewer than a tenth of the
    levels; where all freeze more, the one that freezes fewest.

    Args:
        game: Environment, arguments, answers, `budgets` of completions.
        bonus: What is paid beside the rewards: a name of `BONUSES` and a size.
        algorithm: The way: section of a run file.
        optimizer: `adam` or `sgd`.
        study: Rates of the optimizers, seeds, numbers of levels and of completions of a step.

    Returns:
        `rates`: rate to mean success over seeds and budgets, and to the share of frozen levels;
        `rate`: the chosen one; `first`: success before the first train step; `success` by budget
        and seed; `frozen`: share of levels; `shown`: by seed the train step from which `auto`
        followed the rewards of steps, -1 where it never did.
    """
    tried, chosen_on = study["rates"][optimizer], study["selection_seeds"]
    rates = np.repeat(tried, len(chosen_on))
    found = _learn(game, bonus, algorithm, optimizer, study, [*chosen_on] * len(tried), rates)
    means = found.success.mean(0).reshape(len(tried), -1).mean(-1)
    frozen = found.frozen.reshape(len(tried), -1).mean(-1)
    may = frozen < 0.1 if (frozen < 0.1).any() else frozen == frozen.min()
    rate = tried[int(np.where(may, means, -1).argmax())]
    seeds = study["seeds"]
    found = _learn(game, bonus, algorithm, optimizer, study, seeds, np.full(len(seeds), rate))
    return {
        "rates": {str(one): [round(float(m), 4), round(float(f), 4)]
                  for one, m, f in zip(tried, means, frozen, strict=True)},
        "rate": rate,
        "first": round(float(found.first), 5),
        "success": {str(budget): of.round(4).tolist()
                    for budget, of in zip(game["budgets"], found.success, strict=True)},
        "frozen": round(float(found.frozen.mean()), 4),
        "shown": found.shown.tolist(),
    }  # fmt: skip


class _Learnt(NamedTuple):
    """Trainings of S seeds."""

    first: float
    """Mean success before the first train step."""
    success: np.ndarray
    """``[B, S]`` at the budgets, between the train steps before and after."""
    frozen: np.ndarray
    """``[S]`` share of levels that are frozen in the end."""
    shown: np.ndarray
    """``[S]`` train step from which `auto` followed the rewards of steps; -1: never."""


def _learn(
    game: Mapping[str, Any],
    bonus: Sequence[Any] | None,
    keys: Mapping[str, Any],
    optimizer: str,
    study: Mapping[str, Any],
    seeds: Sequence[int],
    rates: np.ndarray,
) -> _Learnt:
    """Train until every trial has used the largest budget."""
    way, num_levels = algorithm_of(keys), study["num_levels"]
    levels = side_by_side([_levels(game, seed, num_levels, bonus) for seed in seeds])
    # Not by way: all ways begin with the same numbers.
    players = Players(levels, np.random.default_rng(seeds[0]))
    evidence = np.zeros((len(seeds), 2))
    if isinstance(way, Auto) and not bonus:
        evidence = np.array([_pilot(_plain(game), seed, way.num_pilot_levels) for seed in seeds])
    times = num_times(players, way.at(_NOT_SHOWN), study["completions_per_step"])
    ascend = OPTIMIZERS[optimizer](rates[levels.trial_of_row, None])
    shown, used = np.full(len(seeds), -1), np.zeros(len(seeds))
    curve = [(used, success_of(levels, players.policy))]
    while used.min() < max(game["budgets"]):
        is_shown = np.array([Evidence(*sums).is_shown for sums in evidence])
        shown = np.where(is_shown & (shown < 0), len(curve) - 1, shown)
        update, num = np.zeros_like(players.logits), np.zeros(len(seeds))
        for context, trials in ((_NOT_SHOWN, ~is_shown), (_SHOWN, is_shown)):
            if trials.any():
                algorithm = way.at(context)
                sample = players.sample(algorithm, np.flatnonzero(trials), times)
                update += players.gradient(sample, advantages(sample, algorithm, levels))
                num += num_sampled(sample, levels, len(seeds))
                if isinstance(algorithm, Value):
                    players.learn_values(sample, algorithm)
                if isinstance(way, Auto) and context is _NOT_SHOWN:
                    evidence += evidence_of(sample, levels, len(seeds))
        used = used + num
        players.move(ascend(update / num[levels.trial_of_row, None]))
        curve.append((used, success_of(levels, players.policy)))
    at, of_levels = (np.array(of) for of in zip(*curve, strict=True))
    success = of_levels.mean(-1)
    read = [
        [np.interp(b, *of) for of in zip(at.T, success.T, strict=True)] for b in game["budgets"]
    ]
    frozen = (of_levels[-1] < _FROZEN * of_levels[0]).mean(-1)
    return _Learnt(success[0].mean(), np.array(read), frozen, shown)


def num_times(players: Players, algorithm: Any, completions: int) -> int:
    """How often all levels are played in a train step of about so many completions."""
    trials = np.unique(players.levels.trial)
    sample = players.sample(algorithm, trials, 1)
    mean = num_sampled(sample, players.levels, len(trials)).mean()
    return max(1, round(completions / mean))


def num_sampled(sample: Sample, levels: Levels, num_trials: int) -> np.ndarray:
    """``[S]`` completions, those of continuations included."""
    of_group = sample.is_sampled.sum((1, 2, 3)) + sample.num_beside
    return np.bincount(levels.trial[sample.nodes.max((1, 2))], of_group, num_trials)


def evidence_of(sample: Sample, levels: Levels, num_trials: int) -> np.ndarray:
    """``[S, 2]`` what whole episodes add to the sums of `auto.Evidence`."""
    rewards, is_met = sample.taken(levels.rewards), sample.nodes >= 0
    # The last decision says how an episode has ended.
    is_playing = is_met & np.pad(is_met, ((0, 0), (0, 0), (0, 1)))[..., 1:]
    totals, num = rewards.cumsum(-1), is_playing.sum(1, keepdims=True)
    means = (totals * is_playing).sum(1, keepdims=True) / np.maximum(num, 1)
    length = is_playing.sum(-1)
    leads = ((totals - means) * is_playing).sum(-1) / np.maximum(length, 1)
    solved = sample.taken(levels.success).sum(-1)
    is_in, size = length > 0, (length > 0).sum(-1)
    x, y = (
        np.where(is_in, of - (of * is_in).sum(-1, keepdims=True) / np.maximum(size, 1)[:, None], 0)
        for of in (leads, solved)
    )
    high, low = (of(np.where(is_in, leads, leads[:, :1]), -1) for of in (np.max, np.min))
    differs = (high - low > 1e-9 * np.maximum(1, np.maximum(abs(high), abs(low)))) & (size > 1)
    variance = (x**2).sum(-1) * (y**2).sum(-1) / np.maximum(size - 1, 1)
    trial = levels.trial[sample.nodes.max((1, 2))]
    return np.stack(
        [np.bincount(trial, of * differs, num_trials) for of in ((x * y).sum(-1), variance)], -1
    )


class Adam:
    """Adam on one array (arXiv 1412.6980), with decays 0.9 and 0.99.

    Args:
        rates: Learning rates, as an array that fits the one that learns.
    """

    def __init__(self, rates: np.ndarray) -> None:
        self._rates, self._time = rates, 0
        self._mean: Any = 0.0
        self._square: Any = 0.0

    def __call__(self, gradient: np.ndarray) -> np.ndarray:
        """What to add to the array to go up a gradient."""
        self._time += 1
        self._mean = 0.9 * self._mean + 0.1 * gradient
        self._square = 0.99 * self._square + 0.01 * gradient**2
        mean = self._mean / (1 - 0.9**self._time)
        return self._rates * mean / (np.sqrt(self._square / (1 - 0.99**self._time)) + 1e-8)


OPTIMIZERS: Mapping[str, Callable[[np.ndarray], Callable[[np.ndarray], np.ndarray]]] = {
    "adam": Adam,
    "sgd": lambda rates: lambda gradient: rates * gradient,
}


def noise_cell(
    game: Mapping[str, Any], algorithm: Mapping[str, Any], study: Mapping[str, Any]
) -> Cell:
    """How sampled updates of a uniform policy on a level relate to the true gradient, by true V.

    An update is that of a whole train step, since a scale of the batch is one of all its groups.
    `cosine` is that of the expected update, so that 1 - cosine is bias: from the length of the mean
    of many updates the part is taken off that their sampling adds. `noise` is the standard
    deviation of an update relative to the length of its mean. Both are None where an update cannot
    be told from 0.
    """
    num, way = study["num_updates"], algorithm_of(algorithm)
    one = _levels(game, study["selection_seeds"][0], 1, None)
    levels = side_by_side([one] * num)
    players = Players(levels, np.random.default_rng(0))
    policy = players.policy
    players.v[levels.row] = backwards(levels, policy, levels.rewards)[1]
    times = num_times(players, way, study["completions_per_step"])
    sample = players.sample(way, np.arange(num), times)
    update = players.gradient(sample, advantages(sample, way, levels)).reshape(num, -1)
    mean, variance = update.mean(0), update.var(0, ddof=1).sum()
    square = mean @ mean - variance / num
    # The mean is no longer than chance alone would make it.
    if square <= 2 * variance / num:
        return {"cosine": None, "noise": None}
    true = true_gradient(one, policy[: len(one.trial_of_row)]).ravel()
    return {
        "cosine": round(float(mean @ true / np.sqrt(square * (true @ true))), 4),
        "noise": round(float(np.sqrt(variance / square)), 4),
    }


def lemma_cell(case: Mapping[str, Any], team: str) -> Cell:
    """Count Lemma 1 and Proposition 1 on levels of a game; see `lemma_1`."""
    moves = [*"UDLR"] if case["moves"] == 1 else [*"UDLR", *(a + b for a in "UDLR" for b in "UDLR")]
    texts = ["#### " + str([*one]).replace("'", '"') for one in moves]
    seeds = range(case["num_levels"])
    return lemma_1(enumerate_levels(case["id"], seeds, texts, team=team, **case["kwargs"]))


def pilot_cell(game: Mapping[str, Any], study: Mapping[str, Any]) -> Cell:
    """How sure the pilot of `auto` is on every seed that rewards of steps lead to success."""
    way = Auto()
    found = [_pilot(_plain(game), seed, way.num_pilot_levels) for seed in study["seeds"]]
    return {"z": [None if (z := Evidence(*sums).z) is None else round(z, 2) for sums in found]}


def _levels(
    game: Mapping[str, Any], seed: int, num_levels: int, bonus: Sequence[Any] | None
) -> Levels:
    """The levels of a seed, with what is paid beside the rewards where an episode goes on."""
    levels, texts = _enumerated(_plain(game), seed, num_levels), game["answers"]
    if not bonus:
        return levels
    kind, size = bonus
    paid = BONUSES[kind](size, texts, np.random.default_rng(seed), levels.rewards.shape)
    # Beside the rewards, not in success: what is measured stays what it was.
    paid = np.where(levels.has_successor, paid, 0.0)
    return replace(levels, rewards=levels.rewards + paid, local=levels.local + paid)


_Plain = tuple[str, tuple[str, ...], tuple[tuple[str, Any], ...]]


def _plain(game: Mapping[str, Any]) -> _Plain:
    return game["id"], tuple(game["answers"]), tuple(game["kwargs"].items())


@cache
def _enumerated(game: _Plain, seed: int, num_levels: int) -> Levels:
    env_id, texts, kwargs = game
    # Every seed has its own levels: intervals are over levels, too.
    first = _FIRST_LEVEL + seed * num_levels
    return enumerate_levels(env_id, range(first, first + num_levels), texts, **dict(kwargs))


@cache
def _pilot(game: _Plain, seed: int, num_levels: int) -> tuple[float, float]:
    env_id, _, kwargs = game
    env = pettingllms.make(env_id, checks=False, **dict(kwargs))
    # The trainer's, too, have been reset; the pilot plays levels of its own in forks.
    env.reset(seed=seed)
    return tuple(Auto(num_pilot_levels=num_levels).begin({"": env}, seed)[""])


_FIRST_LEVEL = 1000
KINDS: Mapping[str, Callable[..., Cell]] = {
    "lemma": lemma_cell,
    "noise": noise_cell,
    "pilot": pilot_cell,
    "trial": trial_cell,
}
"""Kind of a cell -> what computes it."""
