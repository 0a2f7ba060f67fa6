"""Questions by chance about a small world that no model has read about, with distractors.

A world has people, companies, towns and rivers with invented names. A question follows a chain of
relations from one of them: "Name the river of the birthplace of the founder of Orvan Mills." Each
step of the chain is in the document of one entity. All other documents are of the same kinds and
share names with those that are needed.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from pettingllms.arguments import check_choice, check_whole
from pettingllms.errors import UnreachableRequest
from pettingllms.seeding import check_split, split_of
from pettingllms_envs.search.bm25 import best
from pettingllms_envs.search.drawn import draw_task
from pettingllms_envs.search.tasks import Document, SearchTask, content_of, names_answer, normalised

_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_ATTEMPTS = 200


class _Relation(NamedTuple):
    subject: str
    target: str
    phrase: str
    sentence: str
    letter: str


_RELATIONS = (
    _Relation("company", "person", "the founder of", "{} was founded by {}.", "f"),
    _Relation("person", "town", "the birthplace of", "{} was born in {}.", "b"),
    _Relation("person", "person", "the teacher of", "{} was taught by {}.", "t"),
    _Relation("person", "company", "the employer of", "{} works for {}.", "e"),
    _Relation("town", "river", "the river of", "{} lies on the river {}.", "r"),
    _Relation("company", "town", "the seat of", "{} has its seat in {}.", "s"),
)
_STARTS = ("or", "be", "ka", "du", "fen", "gil", "ha", "ir", "jo", "lu", "mar", "ne", "po", "sil")
_MIDDLES = ("va", "le", "ri", "no", "du", "sta", "ke", "mo")
_ENDS = ("n", "r", "sk", "th", "ld", "m", "x", "nd")
_FIRST = (
    "Ada",
    "Bo",
    "Cyra",
    "Dario",
    "Edda",
    "Finn",
    "Gala",
    "Hugo",
    "Ines",
    "Jory",
    "Kira",
    "Lev",
)
_TRADES = ("Mills", "Works", "Foundry", "Press", "Lines", "Yards")


class _Limits(NamedTuple):
    max_hops: int
    min_documents: int
    max_documents: int


STYLES = {
    "names": _Limits(3, 8, 64),
    "letters": _Limits(3, 8, len(_LETTERS)),
    "drawn": _Limits(8, 40, 1_000),
}
"""Sentences with names; the same facts with a letter per entity and relation; or words that are
drawn with the task, see `pettingllms_envs.search.drawn`."""


class Request(NamedTuple):
    """The properties of the tasks to generate."""

    hops: int
    documents: int
    results: int
    style: str
    split: str | None

    def checked(self) -> Request:
        """Return the request, in Python's numbers.

        Raises:
            InvalidArgument: If a value is out of its range or of the wrong kind.
        """
        check_choice("style", self.style, STYLES)
        check_split(self.split)
        max_hops, least, most = STYLES[self.style]
        return self._replace(
            hops=check_whole("hops", self.hops, 1, max_hops),
            documents=check_whole("documents", self.documents, least, most),
            results=check_whole("results", self.results, 1, 10),
        )


def _drawn(rng: random.Random, request: Request) -> tuple[SearchTask | None, list[tuple[str, int]]]:
    if request.style == "drawn":
        split = request.split
        return draw_task(
            rng,
            request.hops,
            request.documents,
            lambda question: split in (None, split_of(normalised(question).encode())),
        )
    return _task(rng, _world(rng, request), request), []


class _World(NamedTuple):
    names: dict[str, list[str]]
    """Kind -> names."""
    facts: dict[tuple[str, str], str]
    """(name, letter of a relation) -> name."""
    aliases: dict[str, str]


def generate(rng: random.Random, request: Request) -> SearchTask:
    """Return a random task with the requested properties.

    The certificate: every document that is needed is among the first `results` of a search for
    its title, and if words are drawn also for the name or word that leads to it; every step of the
    question has exactly one value, no step leads back to an entity that was passed before, and the
    question does not name the answer.

    Args:
        rng: The only source of chance.
        request: A checked request.

    Raises:
        UnreachableRequest: If 200 worlds held no such task.
    """
    for _ in range(_ATTEMPTS):
        task, searches = _drawn(rng, request)
        # Neither a chain that comes back to where it was nor one whose end the question names.
        if task is None or names_answer(task.question, task):
            continue
        if request.split is not None and split_of(content_of(task)) != request.split:
            continue
        searches += [(task.documents[one].title, one) for one in task.supporting]
        if all(one in best(query, task.corpus, request.results) for query, one in searches):
            return task
    raise UnreachableRequest(
        f"{_ATTEMPTS} random worlds held no task with hops={request.hops}, "
        f"documents={request.documents}, results={request.results}, split={request.split!r}; raise "
        "results or lower documents"
    )


def _world(rng: random.Random, request: Request) -> _World:
    num = request.documents
    shares = {"company": num // 4, "town": num // 4, "river": num // 8 + 1}
    shares["person"] = num - sum(shares.values())
    names: dict[str, list[str]] = {}
    if request.style == "letters":
        letters = rng.sample(_LETTERS, num)
        for kind, share in shares.items():
            names[kind], letters = letters[:share], letters[share:]
    else:
        # Few surnames for many people and companies: searching for half a name finds others too.
        roots = [s + m + e for s in _STARTS for m in _MIDDLES for e in _ENDS]
        drawn = [one.capitalize() for one in rng.sample(roots, 2 * num)]
        few = drawn[: max(3, num // 4)]
        names["town"] = drawn[num : num + shares["town"]]
        names["river"] = drawn[num + shares["town"] :][: shares["river"]]
        pairs = [f"{first} {last}" for first in _FIRST for last in few]
        names["person"] = rng.sample(pairs, shares["person"])
        firms = [f"{last} {trade}" for last in few for trade in _TRADES]
        names["company"] = rng.sample(firms, shares["company"])
    facts: dict[tuple[str, str], str] = {}
    for relation in _RELATIONS:
        for name in names[relation.subject]:
            others = [one for one in names[relation.target] if one != name]
            facts[name, relation.letter] = rng.choice(others)
    aliases: dict[str, str] = {}
    if request.style == "names":
        aliases = {name: _alias(name, kind) for kind, own in names.items() for name in own}
    return _World(names, facts, aliases)


def _alias(name: str, kind: str) -> str:
    """Return another name, which no other entity has."""
    first, _, last = name.partition(" ")
    aliases = {"person": f"{last}, {first}", "company": f"{last} of {first}"}
    return aliases.get(kind, f"{name} River" if kind == "river" else f"Old {name}")


def _task(rng: random.Random, world: _World, request: Request) -> SearchTask | None:
    chain: list[_Relation] = []
    while len(chain) != request.hops:
        chain, kind = [], rng.choice(("company", "person", "town"))
        while len(chain) < request.hops:
            options = [relation for relation in _RELATIONS if relation.subject == kind]
            if not options:
                break  # nothing is said about rivers
            chain.append(rng.choice(options))
            kind = chain[-1].target
    visited = [rng.choice(world.names[chain[0].subject])]
    for relation in chain:
        visited.append(world.facts[visited[-1], relation.letter])
    if len(set(visited)) < len(visited):
        return None
    documents = _documents(rng, world, request.style)
    titles = [document.title for document in documents]
    if request.style == "letters":
        question = " ".join(relation.letter for relation in reversed(chain)) + f" {visited[0]}"
    else:
        phrases = " ".join(relation.phrase for relation in reversed(chain))
        question = f"Name {phrases} {visited[0]}."
    answer = visited[-1]
    answers = (answer, world.aliases[answer]) if answer in world.aliases else (answer,)
    needed = tuple(titles.index(name) for name in visited[:-1])
    return SearchTask(question, answers, documents, needed)


def _documents(rng: random.Random, world: _World, style: str) -> tuple[Document, ...]:
    documents: list[Document] = []
    for kind, names in world.names.items():
        own = [relation for relation in _RELATIONS if relation.subject == kind]
        for name in names:
            facts = [(one, world.facts[name, one.letter]) for one in own]
            if style == "letters":
                text = " ".join(f"{name}{one.letter}{value}" for one, value in facts) or name
            else:
                text = " ".join(one.sentence.format(name, value) for one, value in facts)
                text = f"{name} is a {kind}, also known as {world.aliases[name]}. {text}".strip()
            documents.append(Document(name, text))
    rng.shuffle(documents)
    return tuple(documents)
