"""`SearchEnv`: the scripted policies, and the shell around a question and its corpus."""

from __future__ import annotations

import random
import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, Unpack

from pettingllms.arguments import check_whole
from pettingllms.env import MAX_TURNS, PlaceholderEnv, ShellArguments
from pettingllms.errors import UnreachableRequest
from pettingllms.hooks import Difficulty
from pettingllms.pages import page
from pettingllms.parsing import one_line, read_phrase
from pettingllms.prompts import TURN, PromptField, PromptTemplate, meanings, of_state, templates_in
from pettingllms.seeding import split_of
from pettingllms.types import ParseError, Transition, to_jsonable
from pettingllms_envs.level_files import read_level_option, read_levels
from pettingllms_envs.reward import LOST, SUCCESS, UNANSWERED, costs, fault_text, shaped
from pettingllms_envs.search.tasks import (
    Document,
    Request,
    SearchTask,
    best,
    can_be_answer,
    content_of,
    generate,
    is_match,
    parse_task,
    parse_tasks,
    words,
)
from pettingllms_envs.team_table import constant_fields


def query_of(task: SearchTask, found: Sequence[int], policy: str, rng: random.Random) -> str:
    """What a scripted searcher searches for, who has found documents so far.

    Oracle: the title of the next document that is needed. Question and guess: the question, each
    turn. Random: the title of any document.
    """
    if policy == "random":
        return rng.choice(task.documents).title
    needed = [one for one in task.supporting if one not in found]
    if policy == "oracle" and needed:
        return task.documents[needed[0]].title
    return task.question


def answer_of(
    task: SearchTask, found: Sequence[int], policy: str, rng: random.Random
) -> str | None:
    """What a scripted answerer answers; None: another search.

    Oracle answers once all documents that are needed have been found. Question and random search on
    in two of three turns, and else give the title of a found document; guess gives the title of any
    document, at once.
    """
    if policy == "oracle":
        return task.answers[0] if set(task.supporting) <= set(found) else None
    if policy == "guess":
        return rng.choice(task.documents).title
    if not found or rng.random() < 2 / 3:
        return None
    return task.documents[rng.choice(found)].title


MORE = "more"
"""What the answerer says to get another search."""
TERSE_MORE = "?"
"""The same in one character, which is never an answer."""
_MORE = re.compile(
    r"(?:(?:i|we)(?: still)? (?:need|want|ask for) |(?:please )?(?:search|ask|look) for )?"
    r"(?:one |some )?more(?: documents?| searches| search| information)?(?: please)?",
    re.IGNORECASE,
)
MAX_CHARS = 300
"""Longest query or answer that is read."""
SHOWN_CHARS = 1000
"""Characters of a document that agents read."""


class SearchState(NamedTuple):
    """The state of an episode."""

    task: SearchTask
    """The question and its corpus; the same in all states of an episode."""
    turns_left: int
    """Turns of the episode that are left, the present one included."""
    found: tuple[int, ...] = ()
    """Numbers of the documents found so far, in the order in which they were found."""
    query: str = ""
    """The last query."""
    hits: tuple[int, ...] = ()
    """Numbers of the documents that the last query found, best first."""


def missing(state: SearchState) -> int:
    """How many of the documents that are needed have not been found."""
    return len(set(state.task.supporting) - set(state.found))


def potential(state: SearchState) -> float:
    """The potential: one step for each document that is needed, and one for the answer."""
    return shaped(missing(state) + 1, len(set(state.task.supporting)) + 1)


@lru_cache(maxsize=4096)
def _shown(documents: tuple[Document, ...], numbers: tuple[int, ...]) -> str:
    lines = [f"[{documents[n].title}] {one_line(documents[n].text, SHOWN_CHARS)}" for n in numbers]
    return "\n".join(lines) or "none"


# A corpus has up to 1,000 documents, and every state of an episode holds it.
@lru_cache(maxsize=64)
def _task_json(task: SearchTask) -> Any:
    return to_jsonable(task)


def _last_search(state: SearchState) -> str:
    if not state.query:
        return ""
    titles = ", ".join(state.task.documents[one].title for one in state.hits) or "nothing"
    return f"\nThe last search, for {state.query!r}, found: {titles}."


_FIELDS: dict[str, PromptField[SearchState]] = {
    "question": of_state("the question", lambda state: state.task.question),
    "found": of_state(
        "the documents found so far, a line each",
        lambda state: _shown(state.task.documents, state.found),
    ),
    "question_compact": of_state(
        "the question without spaces", lambda state: state.task.question.replace(" ", "")
    ),
    "found_compact": of_state(
        "the texts of these documents, divided by spaces",
        lambda state: " ".join(state.task.documents[n].text for n in state.found),
    ),
    "last_search": of_state(
        "a line on the last search; begins with a line break unless it is empty", _last_search
    ),
    "documents": of_state(
        "number of documents that are searched", lambda state: len(state.task.documents)
    ),
    "turn": TURN,
}

NOTE = """\
Everything has several names. The question has other words for relations than the documents: a \
document about such a word says which word means the same.
"""
_LIMITS = {
    "note": "a line on names and words that were drawn; ends with a line break unless empty",
    "results": "maximum number of documents that a search finds",
    "max_turns": "turns of the episode",
    "costs": "a sentence on what bad answers cost",
}


_IDLE = re.compile(
    r"(?:i|we)(?: do not| am not| are not| can ?not"
    r"|['\u2019](?:m|re) not| don['\u2019]?t| can['\u2019]?t)"
    r"(?: really)? (?:know|sure|tell|say|find|answer)\b.*"
    r"|unknown|none|nothing|n/a|no (?:idea|query|search|answer)|not sure\b.*",
    re.IGNORECASE,
)


def _query_in(said: str) -> str | ParseError:
    if len(said) > MAX_CHARS or "\n" in said:
        return ParseError(f"several lines, or more than {MAX_CHARS} characters")
    if _IDLE.fullmatch(said):
        return ParseError("neither a query nor an answer")
    query = one_line(said, MAX_CHARS)
    return query if words(query) else ParseError("no word")


def _answer_in(said: str, task: SearchTask) -> str | ParseError:
    # What is said by those who know nothing may be right: some answers are "None", "More".
    is_right = is_match(said, task)
    if said == TERSE_MORE or (_MORE.fullmatch(said) and not is_right):
        return TERSE_MORE
    query = one_line(said, MAX_CHARS) if is_right else _query_in(said)
    if isinstance(query, ParseError) or can_be_answer(query, task):
        return query
    return ParseError(f"{one_line(said, 40)} is not a name of the documents; say only the answer")


def _drawn(hops: int) -> dict[str, Any]:
    """A level with drawn words, and a search for each name and word that is needed."""
    turns = {"results": 2, "max_turns": 2 * hops}
    return {"hops": hops, "documents": 1_000, "style": "drawn", **turns}


@page(hops=2, split="test")
class SearchEnv(PlaceholderEnv[SearchState]):
    """Answer a question: one agent searches documents, another answers from what was found.

    ## Task

    A question and a small corpus of documents, most of which are distractors. The task is solved
    when the answer is that of the task or one of its aliases, apart from case, punctuation and
    articles. Generated questions follow a chain of relations between invented names, so that
    nothing but the documents can answer them: `Name the birthplace of the founder of Orvan Mills.`
    With `style="drawn"` the words for relations are invented with the task, and differ between
    question and documents; everything has three names, which share words; to follow the chain is
    to look up words and names in turn, among up to 1,000 documents.

    ## Agents and roles

    Each turn `searcher_0` writes a query, and the best documents by BM25 are found; then
    `answerer_0` answers, which is final, or asks for another search. Only the searcher can search,
    and only the answerer can answer. Both read the documents found so far, and neither reads the
    others.

    ## Observation

    The rules, the turn, the question, the last search, and the documents found so far (of each the
    first 1,000 characters). `prompt_fields` lists the placeholders of prompts.

    ## Action

    Searcher: a query, `#### founder Orvan Mills`, at most 300 characters. Answerer: the answer,
    `#### Edda Orvan`, in the same form, or `?`, or the word `more` unless it is the answer. Texts
    without `####` are read only if the prompt of the role does not show it. An answer is final, so
    that sentences are no answers: where documents hold the right answer, only their words are read
    as one, and no name of a document within other words.

    ## Reward

    n is the number of documents that are needed, d is 1 plus the number of those not yet found,
    d0 is n + 1. The potential is 0.1 * (1 - d / d0); it is -0.01 after a wrong answer, 0.1 after a
    right one, and -0.06 when the turns are over without an answer. T is `max_turns`.

    | part | when | value |
    |---|---|---|
    | team | always | rise of the potential |
    | team | the answer is right | +1 |
    | local | unreadable text | -0.05 / T |
    | local | searcher: the search finds no new document | -0.04 / T |

    Finding documents and never answering pays no more than answering wrongly, whatever was written
    before. With alpha=1 the return of every agent is in [1.05, 1.1] in a solved episode and in
    [-0.11, 0) in an unsolved one; a team part lies in [-0.16, 1.1], a local part in [-0.05 / T, 0].

    ## Termination

    Terminated by an answer (`success` if it is right); truncated after `max_turns` turns.

    ## Info keys

    - `num_found`: documents found so far.
    - `num_missing`: needed documents not yet found.
    - `query`: (searcher) the query; empty if none was read.
    - `hits`: (searcher) titles of the documents that it found, best first.
    - `answer`: (answerer) the answer; empty if none was given.

    ## Arguments

    - `hops`: steps of the chain of relations of a generated question, 1 to 3 (8 if drawn).
    - `documents`: documents of a generated corpus, 8 to 64 (26 with letters; 40 to 1,000 if drawn).
    - `results`: maximum number of documents that a search finds, 1 to 10.
    - `style`: `"names"`: sentences; `"letters"`: the same facts with one letter for each name and
      relation, which is all that a tiny model needs to read and write; `"drawn"`: sentences whose
      words for relations, and all names, are drawn with the task.
    - `max_turns`: turns of an episode, at least `hops` for generated questions (twice that if
      drawn).
    - `split`: `"train"`, `"validation"`, `"test"` or None (all); decided by the question.
    - `levels`: tasks to draw from instead of generating: a path or pattern of JSON Lines files, or
      a list of such lines, each an object with `question`, `answers` (the answer and its aliases),
      `documents` (objects with `title` and `text`) and, if known, `supporting` (titles of the
      documents that are needed). `split` applies to them, too.
      `reset(options={"level": line})` sets one episode's task.
    - `prompts`: role -> replacement of its prompt; without `####` in it, answers need none.

    ## Source

    Search and question answering as in HotpotQA (Yang et al. 2018) and MuSiQue (Trivedi et al.
    2022), with exact match after SQuAD. Changed: roles are divided, corpora are small and belong
    to the task, generated questions are about an invented world and certified: the searches of the
    oracle find every document that is needed.
    """

    metadata: dict[str, Any] = {  # noqa: RUF012
        "name": "search_v0",
        "render_modes": ["ansi", "human"],
    }
    scripted_policies: ClassVar[tuple[str, ...]] = ("oracle", "question", "random", "guess")
    difficulties: ClassVar[Difficulty] = Difficulty(
        {
            "easy": {"hops": 1, "documents": 12},
            "medium": {"hops": 2, "documents": 24},
            "hard": {"hops": 3, "documents": 48},
            "expert": {"hops": 3, "documents": 64, "results": 1, "max_turns": 3},
            "extreme": _drawn(5),
        },
        lambda k: _drawn(k + 1),
        last=7,
    )
    default_prompts: ClassVar[Mapping[str, PromptTemplate]] = templates_in(
        "pettingllms_envs.search"
    )
    prompt_fields: ClassVar[Mapping[str, str]] = {**meanings(_FIELDS), **_LIMITS}

    def __init__(
        self,
        *,
        hops: int = 2,
        documents: int = 24,
        results: int = 3,
        style: str = "names",
        max_turns: int = 4,
        split: str | None = "train",
        levels: str | Path | Sequence[str] | None = None,
        **shell: Unpack[ShellArguments],
    ) -> None:
        max_turns = check_whole("max_turns", max_turns, 1, MAX_TURNS)
        self._request = Request(hops, documents, results, style, split).checked()
        super().__init__(stages=(("searcher_0",), ("answerer_0",)), max_turns=max_turns, **shell)
        self._costs = costs(max_turns, 1)
        fault = "a search that finds nothing new"
        costs_text = fault_text(self._costs, fault, "a right answer", self.reward)
        limits = (NOTE * (style == "drawn"), results, max_turns, costs_text)
        self._placeholders = _FIELDS | constant_fields(_LIMITS, limits)
        self.board = f"hops={hops} documents={documents} results={results} style={style}"
        self._levels = self._given(levels)
        searches = hops * (2 if style == "drawn" else 1)
        if not self._levels and searches > max_turns:
            raise UnreachableRequest(
                f"hops={hops} asks for {searches} searches; max_turns={max_turns} turns have fewer"
            )

    def _given(self, levels: str | Path | Sequence[str] | None) -> tuple[SearchTask, ...]:
        if levels is None:
            return ()
        given, split = read_levels(levels, parse_tasks, parse_task), self._request.split
        kept = tuple(one for one in given if split in (None, split_of(content_of(one))))
        if not kept:
            raise UnreachableRequest(
                f"none of the {len(given)} tasks in levels is in split={split!r}; give more tasks, "
                "or split=None for all"
            )
        return kept

    def _generate(self, rng: random.Random, options: Mapping[str, Any]) -> SearchState:
        if options.get("level") is not None:
            task = read_level_option(options["level"], parse_task)
        else:
            task = rng.choice(self._levels) if self._levels else generate(rng, self._request)
        return SearchState(task, self.max_turns)

    def _parse(self, state: SearchState, agent: str, text: str) -> str | ParseError:
        # Whatever a text says would be a query, so that it must be marked as one.
        needs_mark = self._is_marked(agent)
        if agent == "searcher_0":
            return read_phrase(text, _query_in, needs_mark=needs_mark, is_free=True)
        return read_phrase(text, lambda said: _answer_in(said, state.task), needs_mark=needs_mark)

    def _act(self, state: SearchState, agent: str, action: str | ParseError) -> Transition:
        if agent == "searcher_0":
            return self._search(state, action)
        if isinstance(action, ParseError) or action == TERSE_MORE:
            # A turn is over with the answerer's action; the searcher's takes no time.
            after = state._replace(turns_left=state.turns_left - 1)
            team = 0.0 if after.turns_left else UNANSWERED - potential(state)
            local = self._costs.malformed if isinstance(action, ParseError) else 0.0
            return Transition(after, team, local, info=self._facts(after, answer=""))
        is_right = is_match(action, state.task)
        end = SUCCESS + shaped(0, 1) if is_right else LOST
        info = self._facts(state, answer=action)
        return Transition(state, end - potential(state), 0.0, True, is_right, info)

    def _search(self, state: SearchState, action: str | ParseError) -> Transition:
        query = "" if isinstance(action, ParseError) else action
        # An unreadable query finds nothing, and the answerer still has a say.
        hits = tuple(best(query, state.task.corpus, self._request.results))
        found = tuple(dict.fromkeys((*state.found, *hits)))
        after = state._replace(found=found, query=query, hits=hits)
        local = self._costs.empty if found == state.found else 0.0
        if isinstance(action, ParseError):
            local = self._costs.malformed
        titles = tuple(state.task.documents[one].title for one in hits)
        info = self._facts(after, query=query, hits=titles)
        return Transition(after, potential(after) - potential(state), local, info=info)

    def _facts(self, state: SearchState, **own: Any) -> dict[str, Any]:
        return {"num_found": len(state.found), "num_missing": missing(state), **own}

    def _state_json(self, state: SearchState) -> Any:
        moving = {
            name: to_jsonable(part) for name, part in state._asdict().items() if name != "task"
        }
        return {**moving, "task": _task_json(state.task)}

    def _key_json(self, state: SearchState) -> Any:
        # All that were found, not only those that are needed: the answerer reads them all.
        return [state.task.question, sorted(state.found)]

    def _ansi(self, state: SearchState) -> str:
        found = _shown(state.task.documents, state.found)
        return f"{state.task.question}{_last_search(state)}\n{found}"

    def _scripted(self, state: SearchState, agent: str, policy: str, rng: random.Random) -> str:
        is_marked = self._is_marked(agent)
        if agent == "searcher_0":
            said = query_of(state.task, state.found, policy, rng)
        else:
            said = answer_of(state.task, state.found, policy, rng)
        if said is None:
            said = MORE if is_marked and not is_match(MORE, state.task) else TERSE_MORE
        return "#### " * is_marked + said
