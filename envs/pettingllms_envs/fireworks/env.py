"""`FireworksEnv`: the shell around the game of hidden hands; what players read and write."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any, ClassVar, Unpack

from pettingllms.arguments import check_whole
from pettingllms.env import MAX_TURNS, PlaceholderEnv, ShellArguments
from pettingllms.hooks import Difficulty
from pettingllms.pages import page
from pettingllms.parsing import one_line, read_phrase
from pettingllms.prompts import TURN, PromptField, PromptTemplate, meanings, of_state, templates_in
from pettingllms.types import ParseError, Transition, to_jsonable
from pettingllms_envs.fireworks.rules import (
    COLOURS,
    HIDDEN,
    Action,
    Card,
    Discard,
    Event,
    FireworksState,
    Held,
    Hint,
    Play,
    Request,
    Rules,
    action_of,
    after,
    canonical_form,
    ending,
    fault_of,
    generate,
    hidden_from,
    reachable,
)
from pettingllms_envs.reward import SUCCESS, costs, fault_text, shaped
from pettingllms_envs.team_table import constant_fields, of_seat, seat_of

NAMES = {"R": "red", "G": "green", "B": "blue", "W": "white", "Y": "yellow"}
"""Letter of a colour -> its name."""
_LETTER = {name: letter for letter, name in NAMES.items()}
_WILL = r"(?:i (?:will |would |want to )?)?"
_CARD = re.compile(rf"{_WILL}(play|discard|p|d) ?(?:(?:my |the )?(?:card|slot) )?([1-9])")
_HINT = re.compile(
    rf"{_WILL}(?:hint|tell|h) ?(?:player[_ ]?)?([0-9])[,:]?(?: about)?(?: (?:the|all|your|their))?"
    rf" ?(?:(?:rank )?([1-9])s?|(?:colou?r )?({'|'.join(_LETTER)}|[{COLOURS.lower()}])s?)"
    r"(?: cards?)?"
)


def read_action(text: str, rules: Rules, is_marked: bool) -> Action | ParseError:
    """Read what a player does: `play 2`, `discard 1`, `hint 1 red`, `hint player 1 rank 3`.

    `P2`, `D1`, `H1R` and `H13` are read too. `is_marked`: the action must follow `####`.
    """

    def fits(said: str) -> Action | ParseError:
        said = said.lower()
        if (found := _CARD.fullmatch(said)) is not None:
            return (Play if found[1][0] == "p" else Discard)(int(found[2]) - 1)
        found = _HINT.fullmatch(said)
        if found is None:
            shown = one_line(said, 40) or "an empty text"
            return ParseError(f"{shown} is neither play, nor discard, nor hint")
        if found[2]:
            rank = int(found[2])
            is_known = rank <= rules.ranks
            return Hint(int(found[1]), None, rank) if is_known else ParseError(f"no rank {rank}")
        colour = COLOURS.index(_LETTER.get(found[3], found[3].upper()))
        is_known = colour < rules.colours
        return Hint(int(found[1]), colour) if is_known else ParseError(f"no colour {found[3]}")

    return read_phrase(text, fits, needs_mark=is_marked)


def action_text(action: Action) -> str:
    """An action in the words that `read_action` reads."""
    if isinstance(action, Hint):
        return f"hint {action.player} {_asked(action)}"
    return f"{action.verb} {action.slot + 1}"


def terse(action: Action) -> str:
    """An action in two or three characters: `P2`, `D1`, `H1R`, `H13`."""
    if isinstance(action, Hint):
        asked = action.rank if action.colour is None else COLOURS[action.colour]
        return f"H{action.player}{asked}"
    return f"{action.verb[0].upper()}{action.slot + 1}"


def _asked(hint: Hint) -> str:
    return f"rank {hint.rank}" if hint.colour is None else NAMES[COLOURS[hint.colour]]


def card_text(card: Card) -> str:
    """A card in two characters: `R1`."""
    return "??" if card == HIDDEN else f"{COLOURS[card.colour]}{card.rank}"


def known_text(held: Held) -> str:
    """What a card may be by the hints: `RG/12`."""
    return f"{''.join(COLOURS[one] for one in held.colours)}/{''.join(map(str, held.ranks))}"


def known_compact(held: Held) -> str:
    """What is certain of a card by the hints: `R?`."""
    colour = COLOURS[held.colours[0]] if len(held.colours) == 1 else "?"
    return colour + (str(held.ranks[0]) if len(held.ranks) == 1 else "?")


def stacks_text(state: FireworksState) -> str:
    """The highest card of each stack: `R2 G0`."""
    return " ".join(f"{COLOURS[one]}{height}" for one, height in enumerate(state.stacks))


def discards_text(state: FireworksState) -> str:
    """The cards that were put away."""
    return " ".join(map(card_text, state.discards)) or "none"


def hands_text(view: FireworksState, reader: int) -> str:
    """A line per player: cards, and what their holder may know of them; last the reader."""
    players = view.rules.players
    lines: list[str] = []
    for seat in ((reader + step) % players for step in range(1, players)):
        cards = " ".join(f"{n}:{card_text(h.card)}" for n, h in enumerate(view.hands[seat], 1))
        lines.append(f"player {seat} holds {cards}, and knows {_knowledge(view, seat)}")
    return "\n".join([*lines, f"You hold {_knowledge(view, reader)}"])


def _knowledge(view: FireworksState, seat: int) -> str:
    return " ".join(f"{n}:{known_text(held)}" for n, held in enumerate(view.hands[seat], 1))


def others_compact(view: FireworksState, reader: int) -> str:
    """The hands of the others, next first, each with what is certain: `R1!G2.R???`.

    A card that fits has the mark `!`, one that is too high `.`, a useless one `x`.
    """
    players = view.rules.players
    hands = [view.hands[(reader + step) % players] for step in range(1, players)]
    return "|".join(
        "".join(card_text(held.card) + _mark(view, held.card) for held in hand)
        + "".join(map(known_compact, hand))
        for hand in hands
    )


def _mark(view: FireworksState, card: Card) -> str:
    gap = card.rank - view.stacks[card.colour]
    return "x" if gap <= 0 else "!" if gap == 1 else "."


def told_compact(view: FireworksState, reader: int) -> str:
    """The cards that the last hint to the reader pointed at, since the last turn: `13`."""
    for event in view.events[::-1]:
        if isinstance(event.action, Hint) and event.action.player == reader:
            return "".join(str(slot + 1) for slot in event.slots)
    return ""


def events_text(view: FireworksState) -> str:
    """What the others have done since the present player's last turn."""
    return "; ".join(map(_event_text, view.events)) or "nothing"


def _event_text(event: Event) -> str:
    who, action = f"player {event.player}", event.action
    if action is None:
        return f"{who} lost a turn"
    if isinstance(action, Hint):
        slots = " ".join(str(slot + 1) for slot in event.slots)
        return f"{who} hinted player {action.player} {_asked(action)}: cards {slots}"
    if isinstance(action, Discard):
        return f"{who} discarded {card_text(event.card)}"
    return f"{who} played {card_text(event.card)}, which {'fits' if event.fits else 'does not fit'}"


_FIELDS: dict[str, PromptField[FireworksState]] = {
    "seat": of_seat("the reader's number", lambda state, seat: seat),
    "turn": TURN,
    "stacks": of_state("the highest card of each stack", stacks_text),
    "stacks_compact": of_state(
        "the heights of the stacks alone: 20", lambda state: "".join(map(str, state.stacks))
    ),
    "score": of_state("cards on the stacks", lambda state: state.score),
    "hints_left": of_state("hints that are left", lambda state: state.hints),
    "fuses_left": of_state("fuses that are left", lambda state: state.fuses),
    "num_left": of_state("cards to draw", lambda state: state.num_left),
    "discards": of_state("the cards put away", discards_text),
    "hands": of_seat(
        "a line per player: cards, and what their holder may know of them", hands_text
    ),
    "own_compact": of_seat(
        "what is certain of the reader's cards: R??1",
        lambda state, seat: "".join(map(known_compact, state.hands[seat])),
    ),
    "others_compact": of_seat(
        "cards of each other player (! fits, . is too high, x is useless), and what is certain to "
        "that player: R1!G2.R???",
        others_compact,
    ),
    "told_compact": of_seat(
        "the cards that the last hint to the reader pointed at, if that was since the last turn",
        told_compact,
    ),
    "events": of_state("what was done since the last turn", events_text),
}
_LIMITS = {
    "players": "number of players",
    "colours": "the colours, with their letters",
    "ranks": "the highest rank",
    "hints": "hints at the start",
    "fuses": "fuses at the start",
    "target": "cards on the stacks that win",
    "max_turns": "turns of the episode",
    "costs": "a sentence on what bad answers cost",
}


def _level(players: int, max_turns: int, **others: int) -> Mapping[str, int]:
    return {"players": players, **others, "max_turns": max_turns}


def potential(state: FireworksState) -> float:
    """The potential: what the stacks have of the target, in [0, 0.1]."""
    target = state.rules.target
    return shaped(max(0, target - state.score), target)


@page(players=3, split="test")
class FireworksEnv(PlaceholderEnv[FireworksState]):
    """Build stacks of cards; your own hand is hidden.

    ## Task

    Cards have a colour and a rank; each colour's stack is built from rank 1 upwards. Players hold
    their cards so that only the others see them, and learn about their own from hints, which are
    limited. The task is solved when the stacks have as many cards as the target asks for.

    Every deal is certified for a team: `conventions`, whose players see what players see, reaches
    the target within the turns of an episode. So does the oracle, which sees all hands and the
    deck.

    ## Agents and roles

    `player_0`, `player_1`, ...: one role, one stage each; they act in this order, each once a turn.

    ## Observation

    The rules, stacks, discards, hints and fuses left, the hands of the others, what everybody may
    know of the reader's hand, and what was done since the reader's last turn. The reader's cards
    and the deck are in no prompt: prompts are made of a state without them. `prompt_fields` lists
    the placeholders of prompts.

    ## Action

    `#### play 2`, `#### discard 1`, `#### hint 1 red` or `#### hint player 1 rank 3`; cards are
    numbered from 1, the oldest. `P2`, `D1`, `H1R` and `H13` are read too. Texts without `####` are
    read only if the prompt does not show it. Who plays or discards draws a card. A hint must point
    at a card and takes one of the hints; a discard brings one back, and so does the last card of a
    stack. A card that does not fit burns a fuse. An unreadable or impossible answer is a lost
    turn, which takes a hint if one is left: no turn is passed for nothing.

    ## Reward

    s is the number of cards on the stacks. The potential is 0.1 * s / `target`. T is `max_turns`.

    | part | when | value |
    |---|---|---|
    | team | always | rise of the potential |
    | team | the target is reached | +1 |
    | local | unreadable text | -0.05 / T |
    | local | impossible action | -0.04 / T |

    A lost game keeps what its stacks are worth: a team learns to build before it learns to win.
    With alpha=1 the return of every agent is in [1.05, 1.1] in a solved episode and in
    [-0.05, 0.1) in an unsolved one; a team part lies in [0, 1.1], a local part in [-0.05 / T, 0].

    ## Termination

    Terminated when the target is reached (`success`), when the last fuse burns, when so many copies
    of a card are discarded that the target is out of reach, and one turn of each player after the
    last card was drawn; truncated after `max_turns` turns.

    ## Info keys

    - `fault`: why the action was impossible; empty if it was not.
    - `score`: cards on the stacks.
    - `reachable`: the highest score that the discards leave.
    - `hints_left`: hints that are left.
    - `fuses_left`: fuses that are left.
    - `num_left`: cards to draw.
    - `ending`: `won`, `fuses`, `lost card`, `deck`; empty while the game goes on.
    - `witness`: actions in which the team `conventions` wins the deal.
    - `team_score`: cards on the stacks when that team has played on to the end.

    ## Arguments

    - `players`: number of players, 2 to 5.
    - `colours`: number of colours, 1 to 5.
    - `ranks`: the highest rank, 2 to 5.
    - `hand`: cards of a hand, 2 to 5.
    - `hints`: hints at the start, which are the most there can be, 1 to 8.
    - `fuses`: misplaced cards that lose, 1 to 3.
    - `target`: cards on the stacks that win; `colours` times `ranks` is a perfect score.
    - `split`: `"train"`, `"validation"`, `"test"` or None (all); decided by the deal up to the
      names of colours and the order of the first hands.
    - `prompts`: role -> replacement of its prompt; without `####` in it, answers need none.

    ## Source

    A game of the family of Hanabi (Bauza 2010), proposed as a challenge for learning in "The Hanabi
    Challenge" (Bard et al. 2020, arXiv 1902.00506). Changed: numbers of colours, ranks, hints,
    fuses and the target are arguments, the outcome is a target reached, the game ends when it is
    out of reach, turns are limited, deals are certified and split by content.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012
        "name": "fireworks_v0",
        "render_modes": ["ansi", "human"],
    }
    scripted_policies: ClassVar[tuple[str, ...]] = ("oracle", "conventions", "greedy", "random")
    difficulties: ClassVar[Difficulty] = Difficulty(
        {
            "easy": _level(2, 8, colours=2, ranks=3, hand=3, hints=4, fuses=2, target=5),
            "medium": _level(2, 18, colours=3, ranks=4, hand=4, hints=6, fuses=3, target=10),
            "hard": _level(3, 15, colours=4, ranks=4, hand=4, hints=8, fuses=3, target=14),
            "expert": _level(3, 20, colours=4, ranks=5, hand=4, hints=8, fuses=3, target=19),
            "extreme": _level(5, 13, colours=5, ranks=5, hand=4, hints=8, fuses=3, target=21),
        }
    )
    default_prompts: ClassVar[Mapping[str, PromptTemplate]] = templates_in(
        "pettingllms_envs.fireworks"
    )
    prompt_fields: ClassVar[Mapping[str, str]] = {**meanings(_FIELDS), **_LIMITS}

    def __init__(
        self,
        *,
        players: int = 2,
        colours: int = 2,
        ranks: int = 3,
        hand: int = 3,
        hints: int = 4,
        fuses: int = 2,
        target: int = 5,
        max_turns: int = 8,
        split: str | None = "train",
        **shell: Unpack[ShellArguments],
    ) -> None:
        max_turns = check_whole("max_turns", max_turns, 1, MAX_TURNS)
        given = Rules(players, colours, ranks, hand, hints, fuses, target)
        rules = Request(given, 0, split).checked().rules
        self._request = Request(rules, max_turns * rules.players, split)
        super().__init__(
            stages=[[f"player_{seat}"] for seat in range(rules.players)],
            max_turns=max_turns,
            **shell,
        )
        self._costs = costs(max_turns, 1)
        costs_text = fault_text(
            self._costs, "an impossible action", "a target reached", self.reward
        )
        named = ", ".join(f"{one} ({NAMES[one]})" for one in COLOURS[: rules.colours])
        shown = {**rules._asdict(), "colours": named}
        shown |= {"max_turns": max_turns, "costs": costs_text}
        limits = constant_fields(_LIMITS, [shown[name] for name in _LIMITS])
        self._placeholders = _FIELDS | limits
        self.board = " ".join(f"{name}={value}" for name, value in rules._asdict().items())

    def _generate(self, rng: random.Random, options: Mapping[str, Any]) -> FireworksState:
        return generate(rng, self._request)

    def _fields(self, state: FireworksState, agent: str, turn: int) -> Mapping[str, object]:
        # Prompts are made of what the reader sees: no placeholder can tell of the hidden hand.
        return super()._fields(hidden_from(state, seat_of(agent)), agent, turn)

    def _parse(self, state: FireworksState, agent: str, text: str) -> Action | ParseError:
        return read_action(text, state.rules, self._is_marked(agent))

    def _act(self, state: FireworksState, agent: str, action: Action | ParseError) -> Transition:
        if isinstance(action, ParseError):
            return self._done(state, None, self._costs.malformed, "")
        fault = fault_of(state, action)
        if fault:
            return self._done(state, None, self._costs.empty, fault)
        return self._done(state, action, 0.0, "")

    def _done(
        self, before: FireworksState, action: Action | None, local: float, fault: str
    ) -> Transition:
        state = after(before, action)
        ended = ending(state)
        is_won = ended == "won"
        # A lost game keeps what its stacks are worth, so that building is learnt before winning.
        team = potential(state) - potential(before) + SUCCESS * is_won
        info = {
            "fault": fault,
            "score": state.score,
            "reachable": reachable(state),
            "hints_left": state.hints,
            "fuses_left": state.fuses,
            "num_left": state.num_left,
            "ending": ended,
            "witness": state.witness,
            "team_score": state.team_score,
        }
        return Transition(state, team, local, bool(ended), is_won, info)

    def _ansi(self, state: FireworksState) -> str:
        hands = (
            f"player {seat}: {' '.join(card_text(held.card) for held in hand)}"
            for seat, hand in enumerate(state.hands)
        )
        deck = " ".join(map(card_text, state.deck[state.num_drawn :])) or "empty"
        return "\n".join(
            [
                f"stacks: {stacks_text(state)}, {state.score} of {state.rules.target}",
                *hands,
                f"discarded: {discards_text(state)}",
                f"deck: {deck}",
                f"hints: {state.hints}, fuses: {state.fuses}",
            ]
        )

    def _key_json(self, state: FireworksState) -> Any:
        # Who said what, and when, changes what players do, not what they can still earn.
        return to_jsonable(state._replace(events=()))

    def _level_json(self, state: FireworksState) -> Any:
        return [to_jsonable(state.rules), canonical_form(state).decode()]

    def _scripted(self, state: FireworksState, agent: str, policy: str, rng: random.Random) -> str:
        action = action_of(state, policy, rng)
        return f"#### {action_text(action)}" if self._is_marked(agent) else terse(action)
