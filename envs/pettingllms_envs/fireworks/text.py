"""What players read and write."""

from __future__ import annotations

import re

from pettingllms.parsing import one_line, read_phrase
from pettingllms.types import ParseError
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
    Rules,
)

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


def colours_text(rules: Rules) -> str:
    """The colours of a game: `R (red), G (green)`."""
    return ", ".join(f"{one} ({NAMES[one]})" for one in COLOURS[: rules.colours])


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
