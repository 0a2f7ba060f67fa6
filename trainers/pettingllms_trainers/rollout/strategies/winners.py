"""Episodes of a level side by side: as soon as one has earned more, the others continue from it."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from pettingllms.seeding import derive_seed
from pettingllms_trainers.learning.advantage import has_signal
from pettingllms_trainers.rollout.player import Player
from pettingllms_trainers.rollout.together import together
from pettingllms_trainers.types import Decision


class GoWithTheWinners:
    """Plays the episodes of a level so that they take their decisions together; see `Strategy`.

    Whenever those that still play have earned different amounts since they were last in one state,
    all of them continue from the state of the best. So a reward of every step makes of them a tree
    that follows its best candidate, as AT-GRPO does; and if nothing is paid before the end, they
    are whole episodes that nobody interrupts. Those that are over stay as they are.

    Args:
        num_episodes: Of a level.
        may_move: Whether episodes that have just taken these decisions may continue from another.
        free_share: Share of the levels whose episodes never move, in [0, 1).

    Source:
        Go with the winners (Aldous and Vazirani, FOCS 1994), and AT-GRPO (arXiv 2510.11062,
        algorithm 1) for which of them is followed. Changed: nobody continues from another unless
        the rewards tell them apart.
    """

    def __init__(
        self,
        num_episodes: int,
        may_move: Callable[[Sequence[Decision]], bool],
        free_share: float,
    ) -> None:
        self.num_together = num_episodes
        self._may_move = may_move
        self._free_share = free_share

    async def play(self, players: Sequence[Player]) -> None:
        """See `Strategy.play`."""
        await together(player.attempt(player.start()) for player in players)
        # Drawn with the first episode's seed: the same in a resumed run, whatever is played beside.
        is_free = derive_seed(players[0].spec.seed, "free") < self._free_share * 2**53
        begin = 0  # position of the first decision since all that play were in one state
        while playing := [player for player in players if player.is_playing]:
            await together(player.attempt(player.step()) for player in playing)
            playing = [player for player in playing if player.is_playing]
            earned = [_earned(player, begin) for player in playing]
            # Within a stage, agents have been asked about the moment before it.
            if any(player.is_within_stage for player in playing) or not has_signal(earned):
                continue
            if is_free or not self._may_move([player.decisions[-1] for player in playing]):
                continue
            best = playing[earned.index(max(earned))]
            others = [player for player in playing if player is not best]
            await together(other.attempt(other.move_to(best.here)) for other in others)
            begin = len(best.decisions)


def _earned(player: Player, begin: int) -> float:
    """Return what those who acted have earned since a position."""
    return sum(decision.candidates[0].reward for decision in player.decisions[begin:])
