"""Games of TextArena as team environments.

```python
env = TextArenaEnv("TicTacToe-v0")                      # directly, or under your own id:
pettingllms.register(
    "tictactoe_v0", "pettingllms.adapters.textarena:TextArenaEnv", kwargs={"game": "TicTacToe-v0"}
)
```
"""

from __future__ import annotations

import copy
import random
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from pettingllms.adapters.optional import require
from pettingllms.arguments import check_kind, check_texts, check_whole
from pettingllms.env import TextEnv
from pettingllms.errors import InvalidArgument, suggestion
from pettingllms.prompts import PromptTemplate
from pettingllms.types import CopyOnRead, Transition

Chance = CopyOnRead[tuple[Any, Any]]
"""A state of Python's and numpy's global generators."""


def _chance() -> Chance:
    return CopyOnRead((random.getstate(), np.random.get_state()))


@contextmanager
def lent_chance(start: Chance | int) -> Generator[None]:
    """Lend the global random generators to third-party code, and restore them afterwards.

    Not for several threads of a process at once.

    Args:
        start: The state in which they are lent, or a seed of 32 bits.
    """
    before = _chance()
    if isinstance(start, int):
        random.seed(start)
        np.random.seed(start)
    else:
        _restore(start)
    try:
        yield
    finally:
        _restore(before)


def _restore(chance: Chance) -> None:
    python, numpy = chance.opened()
    random.setstate(python)
    np.random.set_state(numpy)


PROMPT = PromptTemplate(
    "{rules}", "{transcript}\n\n{player}, it is your move.", "{news}\n\n{player}, it is your move."
)


class SamePrompt(dict[str, PromptTemplate]):
    """The prompts of any set of roles: `PROMPT` for each."""

    def __missing__(self, role: str) -> PromptTemplate:
        return PROMPT


class Message(NamedTuple):
    """What a game sent to a player."""

    is_rule: bool
    """Whether it belongs to the player's instructions."""
    text: str
    """The message with its sender."""


@dataclass(frozen=True)
class TextArenaState:
    """A game after some moves. Seed and moves determine everything else."""

    seed: int
    """Seed of the game."""
    moves: tuple[tuple[int, str], ...]
    """Per action: player, text."""
    player: int
    """Whose move it is."""
    messages: tuple[tuple[Message, ...], ...]
    """Per player: all messages it received."""
    num_read: tuple[int, ...]
    """Per player: how many messages it had when it last moved."""
    names: tuple[str, ...]
    """Per player: its name in the game."""
    game: CopyOnRead[Any] = field(compare=False, repr=False)
    """The game object."""
    chance: Chance = field(compare=False, repr=False)
    """State of the game's random generators."""


class TextArenaEnv(TextEnv[TextArenaState]):
    """A game of TextArena for one or two players.

    The agents are `player_0` and `player_1`. They play in the order that the game decides, so an
    agent may act twice in a row (after an invalid move, for example). A turn is one action per
    player; `max_turns` truncates, the game's own limit terminates.

    The system prompt is the game's instruction for the player. In full mode an observation has all
    that the game has sent to the player since, in delta mode only what is new since its last move.

    Rewards are the game's own, paid when it ends: `team` is what the agent that did not make the
    last move gets, `local` what the other gets beyond it. `success` means that every player got at
    least 1, so a game with a loser is never a success.

    Games draw from Python's and numpy's global generators. These are set aside during every call
    and put back, and their state travels with the environment: equal seeds give equal episodes, and
    forks are exact. This does not hold for games that ask a language model or the clock, nor when
    several threads of a process play.

    `infos[agent]["invalid_move"]` says whether the game refused the move, `["reason"]` why the
    game ended.

    Args:
        game: Id in TextArena's registry, such as `"TicTacToe-v0"`.
        num_players: Players of the game, 1 or 2. None: as many as the game needs, if that is at
            most 2.
        roles: Role of each player, so that each can have a policy of its own; one name is for all.
        max_turns: Turns until truncation.
        game_kwargs: Arguments of the game.
        observation_mode: `"full"` or `"delta"`.
        prompts: Role -> replacement of its prompt.
        render_mode: `"ansi"`, `"human"` or None.

    Raises:
        MissingDependency: If TextArena is not installed.
        InvalidArgument: If the game is unknown or needs more than two players.
    """

    metadata = {  # noqa: RUF012
        "name": "textarena",
        "render_modes": ["ansi", "human"],
        "seed_shows": False,  # board games begin alike, whatever the seed
        "unseen_arguments": ("observation_mode",),  # many games end with the first illegal moves
    }
    default_prompts = SamePrompt()
    prompt_fields = {  # noqa: RUF012
        "rules": "the game's instruction for the player",
        "transcript": "all further messages of the game to the player",
        "news": "the messages since the player's last move; before its first move, all of them",
        "player": "the player's name in the game, such as Player 0",
    }

    def __init__(
        self,
        game: str,
        *,
        num_players: int | None = None,
        roles: Sequence[str] = ("player",),
        max_turns: int = 200,
        game_kwargs: Mapping[str, Any] | None = None,
        observation_mode: str = "full",
        prompts: Mapping[str, Any] | None = None,
        render_mode: str | None = None,
    ) -> None:
        with lent_chance(0):  # importing TextArena draws, and so do some games when they are made
            library = require("textarena", "TextArenaEnv", "textarena")
            self._template = _load(library, game, game_kwargs)
        self.game = game
        self._rule_kind = library.ObservationType.PROMPT
        self.num_players = self._count_players(num_players)
        allowed = f"a sequence of 1 name, or of {self.num_players} names"
        check_texts("roles", roles, allowed)
        if len(roles) not in (1, self.num_players):
            raise InvalidArgument("roles", roles, allowed)
        names = list(roles) * self.num_players if len(roles) == 1 else roles
        agents = [f"{role}_{names[:index].count(role)}" for index, role in enumerate(names)]
        super().__init__(
            stages=tuple((agent,) for agent in agents),
            max_turns=max_turns,
            observation_mode=observation_mode,
            prompts=prompts,
            render_mode=render_mode,
        )

    def _count_players(self, num_players: int | None) -> int:
        refusal: Exception | None = None
        if num_players is not None:
            check_whole("num_players", num_players, 1, 2)
        # By trying: TextArena's registry does not say how many players a game needs.
        for number in (1, 2) if num_players is None else (num_players,):
            try:
                self._start(number, 0)
            except (AssertionError, ValueError) as error:  # how games refuse a number of players
                refusal = error
            else:
                return number
        raise InvalidArgument(
            "num_players",
            num_players,
            f"what {self.game} can be played with, at most 2",
            f"The game says: {refusal}" if refusal else "",
        ) from refusal

    def _next_agent(self, state: TextArenaState) -> str:
        return self.possible_agents[state.player]

    def _start(self, num_players: int, seed: int) -> tuple[Any, Chance]:
        game = copy.deepcopy(self._template)
        with lent_chance(seed):
            game.reset(num_players=num_players, seed=seed)
            return game, _chance()

    def _generate(self, rng: random.Random, options: Mapping[str, Any]) -> TextArenaState:
        seed = rng.getrandbits(32)
        game, chance = self._start(self.num_players, seed)
        empty = ((),) * self.num_players
        return TextArenaState(
            seed,
            (),
            game.state.current_player_id,
            _with_news(empty, game, self._rule_kind),
            (0,) * self.num_players,
            tuple(_name(game, player) for player in range(self.num_players)),
            CopyOnRead(game),
            chance,
        )

    def _parse(self, state: TextArenaState, agent: str, text: str) -> str:
        return text

    def _act(self, state: TextArenaState, agent: str, action: str) -> Transition:
        game, player = state.game.opened(), state.player
        errors = game.state.error_count
        with lent_chance(state.chance):
            is_over, _ = game.step(action=action)
            after = _chance()
        read = list(state.num_read)
        read[player] = len(state.messages[player])
        new = TextArenaState(
            state.seed,
            (*state.moves, (player, action)),
            game.state.current_player_id,
            _with_news(state.messages, game, self._rule_kind),
            tuple(read),
            state.names,
            CopyOnRead(game),
            after,
        )
        facts = game.state.game_info[player]
        info = {
            "invalid_move": facts["invalid_move"] or game.state.error_count > errors,
            "reason": str(facts.get("reason", "")),
        }
        if not is_over:
            return Transition(new, info=info)
        rewards = [float(game.state.rewards[number]) for number in range(self.num_players)]
        # What the other one gets is common to both; what the mover gets beyond it is its own.
        team = rewards[player] if self.num_players == 1 else rewards[1 - player]
        success = min(rewards) >= 1
        return Transition(new, team, rewards[player] - team, True, success, info)

    def _fields(self, state: TextArenaState, agent: str, turn: int) -> Mapping[str, object]:
        player = self.possible_agents.index(agent)
        messages, num_read = state.messages[player], state.num_read[player]
        return {
            "rules": "\n".join(message.text for message in messages if message.is_rule),
            "transcript": _joined(messages),
            "news": _joined(messages[num_read:], with_rules=not num_read),
            "player": state.names[player],
        }

    def _ansi(self, state: TextArenaState) -> str:
        game = state.game.opened()
        return "\n".join(f"[{_name(game, sender)}] {text}" for sender, text in game.state.logs)

    def _state_json(self, state: TextArenaState) -> Any:
        # Seed and moves determine a game, whose own object has no stable form.
        return [self.game, state.seed, state.moves]


def _load(library: Any, game: str, game_kwargs: Mapping[str, Any] | None) -> Any:
    known = library.envs.registration.ENV_REGISTRY
    allowed = "an id of TextArena"
    check_kind("game", game, str, allowed)
    if game not in known:
        raise InvalidArgument("game", game, allowed + suggestion(game, known))
    check_kind("game_kwargs", game_kwargs, Mapping | None, "None, or arguments of the game by name")
    raw = f"{game}-raw"  # the same game without TextArena's wrappers
    try:
        return library.make(raw if raw in known else game, **(game_kwargs or {}))
    except TypeError as error:  # how Python refuses names that the game does not have
        raise InvalidArgument(
            "game_kwargs", game_kwargs, f"arguments of {game}", f"The game says: {error}"
        ) from error


def _joined(messages: Sequence[Message], with_rules: bool = False) -> str:
    return "\n".join(m.text for m in messages if with_rules or not m.is_rule)


def _name(game: Any, player: int) -> str:
    return str(game.state.role_mapping.get(player, f"Player {player}"))


def _with_news(
    known: tuple[tuple[Message, ...], ...], game: Any, rule_kind: Any
) -> tuple[tuple[Message, ...], ...]:
    """Every player's messages with those added that the game holds ready for it."""
    waiting = game.state.observations
    received: list[tuple[Message, ...]] = []
    for player, messages in enumerate(known):
        news = [
            Message(True, text) if kind is rule_kind else Message(False, f"[{name}] {text}")
            for name, text, kind in ((_name(game, m[0]), m[1], m[2]) for m in waiting[player])
        ]
        # TextArena empties them when a player asks for its observation, which nobody does here.
        waiting[player] = []
        received.append((*messages, *news))
    return tuple(received)
