"""`PanelEnv`: the shell around the panel, with its texts; the moderator chooses who speaks."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping
from typing import Any, ClassVar, NamedTuple, Unpack

from pettingllms.arguments import check_whole
from pettingllms.env import MAX_TURNS, PlaceholderEnv, ShellArguments
from pettingllms.errors import UnreachableRequest
from pettingllms.files import packaged
from pettingllms.hooks import Difficulty
from pettingllms.pages import page
from pettingllms.parsing import one_line, read_phrase
from pettingllms.prompts import (
    PromptField,
    PromptTemplate,
    meanings,
    of_state,
    resolve_prompts,
)
from pettingllms.types import ParseError, Transition, role_of
from pettingllms_envs.panel.rules import (
    NAMES,
    PanelState,
    Request,
    Statement,
    canonical_form,
    generate,
    missing,
    with_statement,
)
from pettingllms_envs.reward import LOST, SUCCESS, UNANSWERED, costs, fault_text, shaped
from pettingllms_envs.team_table import constant_fields, of_seat, seat_of

PASS, TERSE_PASS = "pass", "-"
_GIVE = re.compile(
    r"(?:i )?(?:(?:ask|call|give the floor to) )?(?:expert[_ ]?)?([0-9])"
    rf"(?:\s*[,:;]|\s+(?:for|about|what is|to say))?\s*(?:quantity )?([{NAMES}])"
    r"(?: please)?\s*\??"
)
_SUM = re.compile(
    r"(?:(?:(?:so |thus |therefore )?(?:the |my )?(?:final )?(?:answer|sum|total|result)"
    rf"(?: is|:)?|[{NAMES}0-9 ]+(?:\+[{NAMES}0-9 ]+)+=)\s*=?|=)\s*([0-9]{{1,3}})"
)
_STATE = re.compile(
    rf"(?:i know (?:that )?)?(?:(?:the )?(?:value of |quantity )?([{NAMES}])"
    r"\s*(?:is|equals|[=:])?)?\s*([0-9])"
)
_FOLLOWS = re.compile(
    rf"(?:i know (?:that )?)?(?:the )?(?:quantity )?([{NAMES}])\s*(?:is|equals|[=:])\s*"
    rf"(?:([{NAMES}])(?:\s*([+-])\s*([0-9]{{1,3}}))?|([0-9]{{1,3}})(?:\s*([+-])\s*([{NAMES}]))?)"
)


class GiveFloor(NamedTuple):
    """The moderator lets an expert speak."""

    expert: int
    """Number of the expert, from 0."""
    name: str
    """The quantity that is asked for."""


class FinalAnswer(NamedTuple):
    """The moderator's answer."""

    value: int
    """The sum, 0 to 999."""


def read_moderator(
    text: str, num_experts: int, is_marked: bool
) -> GiveFloor | FinalAnswer | ParseError:
    """Read what the moderator does: `1 x` or `ask expert 1 for x`; `= 12` or `the sum is 12`.

    `is_marked`: the answer must follow `####`.
    """

    def fits(said: str) -> GiveFloor | FinalAnswer | ParseError:
        said = said.lower()
        if (given := _GIVE.fullmatch(said)) is not None:
            expert = int(given[1])
            if expert >= num_experts:
                return ParseError(f"there is no expert {expert}")
            return GiveFloor(expert, given[2])
        # A number alone may be an expert's: an answer is final, so that it says what it is.
        if (total := _SUM.fullmatch(said)) is not None:
            return FinalAnswer(int(total[1]))
        shown = one_line(said, 40) or "an empty text"
        return ParseError(f"{shown} neither gives the floor nor answers")

    return read_phrase(text, fits, needs_mark=is_marked)


def read_expert(
    text: str, request: str, is_marked: bool, has_links: bool = False
) -> Statement | ParseError:
    """Read what an expert says: `x is 7`, `x = 7`, `x: 7`, `7` about the request, or `pass`.

    With links it is `x = 7`, `x = y + 7`, `x = y - 7` or `x = 7 - y`, or `pass`. `request` is the
    quantity that the moderator has asked for; `is_marked`: the statement must follow `####`.
    """

    def fits(said: str) -> Statement | ParseError:
        said = said.lower()
        if said in (PASS, TERSE_PASS):
            return Statement("", 0)
        # Before plain statements: with links a number alone says nothing about which kind it is.
        if has_links and (follows := _FOLLOWS.fullmatch(said)) is not None:
            name, other, plus, added, value, sign, taken = follows.groups()
            if other:
                return Statement(name, int(f"{plus or ''}{added or 0}"), other)
            return Statement(name, int(value), taken or "", -1 if sign == "-" else 1)
        if not has_links and (stated := _STATE.fullmatch(said)) is not None:
            return Statement(stated[1] or request, int(stated[2]))
        shown = one_line(said, 40) or "an empty text"
        linked = " or x = y + 7" * has_links
        return ParseError(f"{shown} is not a statement such as x = 7{linked}")

    return read_phrase(text, fits, needs_mark=is_marked)


def experts_text(state: PanelState) -> str:
    """A line per expert with the names of what is known, without the values."""
    return "\n".join(
        f"expert {number} knows: {', '.join(name for name, _ in own)}"
        for number, own in enumerate(state.level.values)
    )


def board_text(state: PanelState) -> str:
    """What was said so far."""
    said, who = state.said, {name: expert for name, _, expert in state.board}
    shown = ", ".join(f"{statement_text(said[name])} (expert {who[name]})" for name in said)
    return shown or "nothing"


def statement_text(said: Statement) -> str:
    """A statement as experts make it: `b = 7`, `b = a + 5`, `b = a - 5` or `b = 12 - a`."""
    name, value, other, sign = said
    if other and sign < 0:
        return f"{name} = {value} - {other}"
    if other:
        return f"{name} = {other} {'-' if value < 0 else '+'} {abs(value)}"
    return f"{name} = {value}"


def _compact(said: Statement) -> str:
    if not said.other:
        return f"{said.name}{said.value}"
    return statement_text(said).replace(" = ", "", 1).replace(" ", "")


def experts_compact(state: PanelState) -> str:
    """The names that each expert knows, after the expert's number: `0ab1cd`."""
    known = enumerate(state.level.values)
    return "".join(f"{number}{''.join(name for name, _ in own)}" for number, own in known)


def board_compact(state: PanelState) -> str:
    """What was said as pairs: `a7c2`, with links `a7cb+5`."""
    return "".join(map(_compact, state.said.values()))


def own_text(state: PanelState, expert: int) -> str:
    """What an expert knows: `a = 7, b = 2`."""
    return ", ".join(map(statement_text, state.level.facts(expert)))


def own_compact(state: PanelState, expert: int) -> str:
    """What an expert knows as pairs: `a7b2`."""
    return "".join(map(_compact, state.level.facts(expert)))


MEAN, MEAN_LINKED = 4.5, 49.5
"""The mean of a value, without and with links."""


def say(state: PanelState, expert: int | None, policy: str, rng: random.Random) -> str:
    """What a scripted policy says, without the mark; the moderator speaks where `expert` is None.

    With oracle the moderator asks who knows for what is missing, then answers, and experts say what
    they are asked for. With random the moderator asks any expert for anything known to that expert,
    or in one of four cases answers, which is right if all is known by luck, and experts say any one
    thing they know. Guess answers with the mean, at once.
    """
    level = state.level
    if expert is None:
        return _moderate(state, policy, rng)
    own = sorted(dict(level.values[expert]))
    # Experts who guess still say what is true: only the moderator's answer is a guess.
    if policy == "random" or (policy == "guess" and own):
        return statement_text(level.fact(rng.choice(own)))
    return statement_text(level.fact(state.request)) if state.request in own else PASS


def _moderate(state: PanelState, policy: str, rng: random.Random) -> str:
    level = state.level
    said = state.said
    if policy == "guess":
        return f"= {round((MEAN_LINKED if level.links else MEAN) * len(level.needed))}"
    if policy == "random":
        if rng.random() < 0.25:
            most = 100 if level.links else 10
            known = [
                said[name].value if name in said else rng.randrange(most) for name in level.needed
            ]
            return f"= {max(0, sum(known))}"
        expert = rng.randrange(len(level.values))
        return f"{expert} {rng.choice(level.values[expert])[0]}"
    # Also what was said wrongly is asked again: whoever said it can correct it.
    for name in level.wanted:
        if said.get(name) != level.fact(name):
            return f"{level.owner(name)} {name}"
    return f"= {level.answer}"


def _prompts(known: str) -> dict[str, PromptTemplate]:
    """The prompts where experts know `"values"`, or `"links"` too."""
    table = packaged("pettingllms_envs.panel")
    pairs = ((role, table[role]) for role in ("moderator", "expert"))
    return {r: PromptTemplate(t["system"].format(**table[known]), t["user"]) for r, t in pairs}


def _is_expert(agent: str) -> bool:
    return role_of(agent) == "expert"


_FIELDS: dict[str, PromptField[PanelState]] = {
    "question": of_state("the sum that is asked for", lambda state: " + ".join(state.level.needed)),
    "question_compact": of_state(
        "the names of the quantities alone", lambda state: "".join(state.level.needed)
    ),
    "experts": of_state("a line per expert: the names of what is known", experts_text),
    "experts_compact": of_state("the same in one word: 0ab1cd", experts_compact),
    "board": of_state("what was said so far", board_text),
    "board_compact": of_state("the same in pairs: a7c2", board_compact),
    "expert": of_seat("(expert) the reader's number", lambda state, seat: seat),
    "own": PromptField(
        "(expert) what the reader knows; empty for the moderator",
        lambda state, agent, turn: own_text(state, seat_of(agent)) if _is_expert(agent) else "",
    ),
    "own_compact": PromptField(
        "(expert) the same in pairs: a7b2",
        lambda state, agent, turn: own_compact(state, seat_of(agent)) if _is_expert(agent) else "",
    ),
    "actions_left": of_state(
        "actions left, those of experts included", lambda state: state.actions_left
    ),
    "request": of_state(
        "the quantity that the speaker is asked for", lambda state: state.request or "nothing"
    ),
}
_LIMITS = {"costs": "a sentence on what bad answers cost"}


def potential(state: PanelState) -> float:
    """The potential: one step for each quantity that is wanted, and one for the answer."""
    return _worth(*missing(state))


def _worth(num_missing: int, num_wanted: int) -> float:
    return shaped(num_missing + 1, num_wanted + 1)


@page(experts=3, needed=2, split="test")
class PanelEnv(PlaceholderEnv[PanelState]):
    """Find a sum whose parts different experts know: a moderator chooses who speaks.

    ## Task

    Quantities have values from 0 to 9, each known to one expert. The question is the sum of some
    of them. The moderator does not know the values, but which expert knows which quantities. The
    task is solved when the moderator answers with the right sum. Every level can be solved within
    the actions of an episode.

    With `links`, values are from 0 to 99, and of most quantities nobody knows the value: an expert
    knows how one follows from another, of which another expert knows more. The sum is not looked
    up, but put together from the facts of several experts.

    ## Agents and roles

    `moderator_0` has the floor first, and gives it to one of `expert_0`, `expert_1`, ... by asking
    for a quantity; that expert says one thing, and the moderator has the floor again. Who acts
    next is thus the choice of an agent, not a fixed order: an expert may speak often or never.
    A turn is as many actions as there are agents.

    ## Observation

    The rules, the question and what was said so far; for the moderator who knows which quantities,
    and the actions left; for an expert its own values and the request. `prompt_fields` lists the
    placeholders of prompts.

    ## Action

    Moderator: an expert and a quantity, `#### 1 b` or `ask expert 1 for b`, or the answer,
    `#### = 12` or `the sum is 12`. Expert: a statement, `#### b = 7` or `b is 7`, the value alone
    (of the quantity that was asked for), or `#### pass`; with links `b = 7`, `b = a + 5`,
    `b = a - 5`, `b = 12 - a` or `pass`. Texts without `####` are read only if the
    prompt of the role does not show it. An unreadable text of the moderator leaves the floor where
    it is; one of an expert is a pass.

    ## Reward

    n is the number of quantities of the question and behind their links, d is 1 plus the number of
    those that were not yet said, or wrongly, d0 is n + 1. The potential is 0.1 * (1 - d / d0); it
    is -0.01 after a wrong answer, 0.1 after the right one, and -0.06 when the actions are over
    without an answer.
    T is `max_turns`, A the number of agents.

    | part | when | value |
    |---|---|---|
    | team | always | rise of the potential |
    | team | the answer is right | +1 |
    | local | unreadable text | -0.05 / (T A) |
    | local | expert: a false statement; moderator: an expert who cannot know | -0.04 / (T A) |

    Asking and never answering pays less than answering wrongly, whatever was written before. With
    alpha=1 the return of every agent is in [1.05, 1.1] in a solved episode and in [-0.11, 0) in an
    unsolved one; a team part lies in [-0.16, 1.11], a local part in [-0.05 / T, 0].

    ## Termination

    Terminated by an answer (`success` if it is right); truncated after `max_turns` turns, which
    are `max_turns` times the number of agents actions.

    ## Info keys

    - `num_missing`: quantities of the question and behind their links not yet said, or wrongly.
    - `next_speaker`: the agent that has the floor after the action.
    - `shortest`: minimum number of actions of the level.

    ## Arguments

    - `experts`: number of experts, 2 to 6.
    - `known`: quantities that each expert knows, 1 to 4.
    - `needed`: quantities of the question, 1 to 4.
    - `links`: quantities from which each of them follows in turn, 0 to 4.
    - `split`: `"train"`, `"validation"`, `"test"` or None (all); decided by the question and
      by who knows which quantities, so that the first prompts of two splits differ.
    - `prompts`: role -> replacement of its prompt; without `####` in it, answers need none.

    ## Source

    This project; the authors' summary of Stronger-MAS (arXiv 2510.11062) names dynamic role
    switching, which needs an environment in which agents decide who acts.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012
        "name": "panel_v0",
        "render_modes": ["ansi", "human"],
    }
    scripted_policies: ClassVar[tuple[str, ...]] = ("oracle", "random", "guess")
    difficulties: ClassVar[Difficulty] = Difficulty(
        {
            "easy": {"experts": 2, "known": 2, "needed": 1},
            "medium": {"experts": 3, "known": 2, "needed": 2},
            "hard": {"experts": 4, "known": 3, "needed": 3},
            "expert": {"experts": 6, "known": 4, "needed": 4, "max_turns": 2},
            "extreme": {"experts": 6, "known": 4, "needed": 3, "links": 3, "max_turns": 4},
        },
        lambda k: {"experts": 6, "known": 4, "needed": 4, "links": k - 2, "max_turns": k},
        last=6,
    )
    default_prompts: ClassVar[Mapping[str, PromptTemplate]] = _prompts("values")
    prompt_fields: ClassVar[Mapping[str, str]] = {**meanings(_FIELDS), **_LIMITS}
    private_fields: ClassVar[tuple[str, ...]] = ("own", "own_compact")

    def __init__(
        self,
        *,
        experts: int = 3,
        known: int = 2,
        needed: int = 2,
        links: int = 0,
        max_turns: int = 3,
        split: str | None = "train",
        **shell: Unpack[ShellArguments],
    ) -> None:
        max_turns = check_whole("max_turns", max_turns, 1, MAX_TURNS)
        self._request = Request(experts, known, needed, split, links).checked()
        agents = ["moderator_0", *(f"expert_{number}" for number in range(experts))]
        self._num_actions = max_turns * len(agents)
        if (actions := 2 * self._request.wanted + 1) > self._num_actions:
            raise UnreachableRequest(
                f"needed={needed} quantities take {actions} actions with links={links}, and there "
                f"are {self._num_actions}: max_turns={max_turns} times {len(agents)} agents"
            )
        if links:
            given = shell.get("prompts")
            shell["prompts"] = resolve_prompts(_prompts("links"), given, self.prompt_fields)
        super().__init__(
            stages=[[agent] for agent in agents],
            max_turns=max_turns,
            **shell,
        )
        self._costs = costs(self._num_actions, 1)
        fault = "a false statement, or asking an expert who cannot know"
        costs_text = fault_text(self._costs, fault, "a right answer", self.reward)
        self._placeholders = _FIELDS | constant_fields(_LIMITS, [costs_text])
        self.board = f"experts={experts} known={known} needed={needed}"

    def _generate(self, rng: random.Random, options: Mapping[str, Any]) -> PanelState:
        return PanelState(generate(rng, self._request), self._num_actions)

    def _next_agent(self, state: PanelState) -> str:
        return "moderator_0" if state.speaker < 0 else f"expert_{state.speaker}"

    def _parse(
        self, state: PanelState, agent: str, text: str
    ) -> GiveFloor | FinalAnswer | Statement | ParseError:
        is_marked = self._is_marked(agent)
        if _is_expert(agent):
            return read_expert(text, state.request, is_marked, bool(state.level.links))
        return read_moderator(text, len(state.level.values), is_marked)

    def _act(
        self,
        state: PanelState,
        agent: str,
        action: GiveFloor | FinalAnswer | Statement | ParseError,
    ) -> Transition:
        # Without a speaker: whoever had the floor has used it, and the moderator has it again.
        silent = PanelState(
            state.level, state.actions_left - 1, board=state.board, links=state.links
        )
        if isinstance(action, ParseError):
            return self._done(state, silent, self._costs.malformed)
        if isinstance(action, GiveFloor):
            after = silent._replace(speaker=action.expert, request=action.name)
            # Who knows what is on the page: asking another one is a fault, not bad luck.
            can_know = action.name in dict(state.level.values[action.expert])
            return self._done(state, after, 0.0 if can_know else self._costs.empty)
        if isinstance(action, Statement):
            if not action.name:
                return self._done(state, silent, 0.0)
            after = with_statement(state, action)
            # A guess that happens to be true costs what a false one does: it is not knowledge.
            is_own = action.name in dict(state.level.values[state.speaker])
            is_true = is_own and action in state.level.truths(action.name)
            return self._done(state, after, 0.0 if is_true else self._costs.empty)
        is_right = action.value == state.level.answer
        # An answer counts alike however much was said before: potentials are replaced, not added.
        end = SUCCESS + shaped(0, 1) if is_right else LOST
        done = self._done(state, silent, 0.0)
        return done._replace(team=end - potential(state), terminated=True, success=is_right)

    def _done(self, before: PanelState, after: PanelState, local: float) -> Transition:
        num_missing, num_wanted = missing(after)
        info = {
            "num_missing": num_missing,
            "next_speaker": self._next_agent(after),
            "shortest": before.level.shortest,
        }
        # Out of actions: gathering without an answer is worth nothing (`reward.UNANSWERED`).
        worth = _worth(num_missing, num_wanted) if after.actions_left else UNANSWERED
        return Transition(after, worth - potential(before), local, info=info)

    def _ansi(self, state: PanelState) -> str:
        lines = [f"{' + '.join(state.level.needed)} = ?"]
        for number in range(len(state.level.values)):
            lines.append(f"expert {number}: {own_text(state, number)}")
        return "\n".join([*lines, f"said: {board_text(state)}"])

    def _level_json(self, state: PanelState) -> str:
        return canonical_form(state.level).decode()

    def _scripted(self, state: PanelState, agent: str, policy: str, rng: random.Random) -> str:
        expert = seat_of(agent) if _is_expert(agent) else None
        said = say(state, expert, policy, rng)
        if self._is_marked(agent):
            return f"#### {said}"
        said = said.replace(" ", "").replace(PASS, TERSE_PASS)
        return said if expert is None or state.level.links else said.replace("=", "")
