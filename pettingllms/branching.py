"""`BranchingEnv`: what changes during an episode, and its forks and snapshots."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Generic, Self

from pettingzoo import AECEnv

from pettingllms.arguments import check_kind
from pettingllms.errors import InvalidArgument, OrderError
from pettingllms.hooks import GameHooks, StateT
from pettingllms.state import Snapshot, digest
from pettingllms.transition import NOTHING

# All that changes during an episode: what a snapshot holds. The order is that of `Snapshot.values`.
_DYNAMIC = (
    "agents",
    "agent_selection",
    "rewards",
    "terminations",
    "truncations",
    "infos",
    "_cumulative_rewards",
    "_state",
    "_stage_state",
    "_num_acted",
    "turn",
    "episode_seed",
    "_begun",
)


class BranchingEnv(AECEnv[str, str, str | None], GameHooks[StateT], Generic[StateT]):
    """The dynamic state of a `TextEnv`, which is its only subclass."""

    # Branching relies on two rules. The state is one immutable value, so branches share it. `step`
    # replaces what callers can get hold of and changes none of it in place, so a dictionary that
    # `last` returned stays as it was, and a fork copies only what callers themselves might change.

    board: str = ""
    """What of the arguments decides which states fit, such as `"6x6"`; a snapshot of another board
    is refused."""

    max_turns: int
    turn: int
    """Turns played so far."""
    episode_seed: int | None = None
    """Seed of the running episode; None before the first `reset`."""

    _order: tuple[str, ...]
    """The agents in playing order."""
    _state: StateT
    """The state now: what hooks are given, except for what agents read."""
    _stage_state: StateT
    """The state at the start of the running stage: what observations show."""
    _num_acted: int
    """Actions in the present turn."""
    _begun: Mapping[str, str] = NOTHING
    """Agent to how a right answer of its in the first turn begins; see `solved_share`."""

    def fork(self) -> Self:
        """Return an independent environment in the same state; costs microseconds."""
        # Not `copy.copy`: it goes through `__reduce_ex__`, and this is called K times per turn.
        twin = object.__new__(type(self))
        vars(twin).update(vars(self))
        if self.episode_seed is not None:
            twin._unshare()
        return twin

    def _unshare(self) -> None:
        """Copy what callers get hold of and might change, so that no other branch sees it."""
        self.agents = self.agents.copy()
        self.rewards = self.rewards.copy()
        self.terminations = self.terminations.copy()
        self.truncations = self.truncations.copy()
        self._cumulative_rewards = self._cumulative_rewards.copy()
        # the facts of games hold nothing that can be changed, so one level below them is enough
        self.infos = {
            agent: {**info, "reward_parts": {**info["reward_parts"]}}
            for agent, info in self.infos.items()
        }

    def __getstate__(self) -> bytes:
        """Return the environment for another process; games may keep functions, also local ones."""
        import cloudpickle  # not needed before an environment is sent

        return cloudpickle.dumps(vars(self))

    def __setstate__(self, state: bytes) -> None:
        """Become the environment that `__getstate__` returned."""
        vars(self).update(pickle.loads(state))

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return a copy that shares nothing that can be changed."""
        twin = object.__new__(type(self))
        vars(twin).update(copy.deepcopy(vars(self), memo))
        return twin

    def expect(self, texts: Sequence[str]) -> None:
        """Note that forks of this state are about to be stepped with these texts.

        Nothing changes. An environment whose steps wait for something begins them here, so that
        they wait at the same time.
        """

    def snapshot(self) -> Snapshot:
        """Return the whole dynamic state, for `restore`."""
        self._require_reset("snapshot")
        twin = self.fork()
        return Snapshot(self._owner(), tuple(getattr(twin, name) for name in _DYNAMIC))

    def restore(self, snapshot: Snapshot) -> None:
        """Return to the moment at which a snapshot was taken, in this or an equal environment.

        Raises:
            InvalidArgument: If the snapshot was taken from another kind of environment.
        """
        check_kind("snapshot", snapshot, Snapshot, "what `snapshot` returned")
        if snapshot.owner != self._owner():
            raise InvalidArgument(
                "snapshot",
                snapshot.owner,
                f"a snapshot of {self._owner()} (class, agents, turns, board)",
                "Restore it in an environment made with the same arguments.",
            )
        vars(self).update(zip(_DYNAMIC, snapshot.values, strict=True))
        self._unshare()

    def state_hash(self) -> str:
        """Return 32 hexadecimal digits that identify the state and the moment within the turn."""
        self._require_reset("state_hash")
        return digest(self._moment(self._state_json))

    def state_key(self) -> str:
        """Return 32 hexadecimal digits that are equal where what counts is; see `_key_json`.

        Turns, moments within a turn and agents that act next are told apart.
        """
        self._require_reset("state_key")
        return digest([*self._moment(self._key_json), self.agent_selection])

    def _moment(self, of: Callable[[StateT], Any]) -> list[Any]:
        # Agents of one stage see `_stage_state`, so two moments are the same only if that is, too.
        moment = [of(self._state), self.turn, self._num_acted]
        if self._stage_state is not self._state:
            moment.append(of(self._stage_state))
        return moment

    def level_hash(self) -> str:
        """Return 32 hexadecimal digits that are equal for levels that are equal up to symmetry.

        Call it right after `reset`; what it returns later is up to the game.
        """
        self._require_reset("level_hash")
        return digest(self._level_json(self._state))

    def _owner(self) -> tuple[str, tuple[str, ...], int, str]:
        return (type(self).__qualname__, self._order, self.max_turns, self.board)

    def _require_reset(self, method: str) -> None:
        if self.episode_seed is None:
            raise OrderError(f"{method} was called before reset; call reset(seed=...) first")
