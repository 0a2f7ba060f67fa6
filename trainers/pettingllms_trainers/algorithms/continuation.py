"""Trees whose candidates are valued by what follows when they are played on."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from pydantic import Field

from pettingllms.seeding import derive_seed
from pettingllms_trainers.algorithms.at_grpo import AtGrpo, BranchChoice, Credit, Values
from pettingllms_trainers.config.algorithm import StepContext
from pettingllms_trainers.rollout.candidates import Candidates, together


class Continuation(AtGrpo):
    """The tree of AT-GRPO, compared by reward plus the return of M continuations of each candidate.

    Take it when rewards come late, episodes are short and tokens are cheap: it is unbiased, but
    samples the rest of the episode K * M times at every decision.

    Source:
        VinePPO (arXiv 2410.01679, section 4); for teams C3 (arXiv 2603.06859), with leave-one-out
        and without a deviation. Changed: candidates are whole turns of agents of a team and are
        compared in their group, instead of with a value of the state before them.
    """

    name: str = "continuation"
    """Which algorithm."""
    branch_choice: BranchChoice = "random"
    """Candidate with which an episode continues: the best, a random one, or one drawn by softmax of
    reward plus return."""
    num_continuations: int = Field(default=1, ge=1)
    """M: times that the current policies play on from every candidate to the end of the episode."""
    gamma: float = Field(default=1.0, gt=0, le=1)
    """Discount of later rewards, per decision of any role."""

    def credit(self, context: StepContext) -> Credit:
        return ByContinuation(self.num_continuations, self.gamma)

    def continuations(self, num_decisions: int) -> Sequence[int]:
        return [self.num_candidates * self.num_continuations] * num_decisions

    @property
    def is_by_step(self) -> bool:
        return False


class ByContinuation:
    """The mean discounted return of M continuations of every candidate; a `Credit`.

    Continuations of all candidates and of concurrent episodes are sampled together. Their tokens
    are counted; nothing else of them is retained or trained on.

    Args:
        num_continuations: M, at least 1.
        gamma: Discount per decision, in (0, 1].
    """

    def __init__(self, num_continuations: int, gamma: float) -> None:
        self._num, self._gamma = num_continuations, gamma

    async def __call__(
        self, candidates: Candidates, episode: int, num_branches: int, seed: int
    ) -> Values:
        ends = await together(
            self._play(candidates, episode, index, derive_seed(seed, index, number))
            for index in range(num_branches)
            for number in range(self._num)
        )
        returns = [total for total, _ in ends]
        values = (sum(part) / self._num for part in zip(*[iter(returns)] * self._num, strict=True))
        return Values(tuple(values), sum(num_tokens for _, num_tokens in ends))

    def of_path(self, rewards: Sequence[float]) -> float:
        """The discounted return after a decision of a finished episode: one continuation of it.

        Args:
            rewards: Of each later decision, in order, that of the agent who took it.
        """
        return sum(reward * self._gamma ** (n + 1) for n, reward in enumerate(rewards))

    async def _play(
        self, candidates: Candidates, episode: int, index: int, seed: int
    ) -> tuple[float, int]:
        """Play one branch to its end; return its discounted return and the sampled tokens."""
        # Not a `Player`: no tree comes of it, agents of a stage are asked one after another, and
        # seeds are those of the continuation.
        total, discount, num_tokens = 0.0, self._gamma, 0
        copy, state = await candidates.episodes.fork(episode, index)
        try:
            for number in itertools.count():
                if state.is_over:
                    break
                answer = await candidates.sample(copy, state, 1, derive_seed(seed, number))
                (branch,) = await candidates.branch(copy, answer)
                state = await candidates.episodes.follow(copy, 0)
                total += discount * branch.reward
                discount *= self._gamma
                num_tokens += answer.num_tokens
        finally:
            await candidates.episodes.close(copy)
        return total, num_tokens
