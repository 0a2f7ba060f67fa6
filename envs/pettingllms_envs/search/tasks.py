"""Tasks: a question, its answers, and the documents that can be searched; read or drawn.

Generated questions are about a small world that no model has read about, with people, companies,
towns and rivers of invented names, and follow a chain of relations: "Name the river of the
birthplace of the founder of Orvan Mills." Each step of the chain is in the document of one entity.
All other documents are of the same kinds and share names with those that are needed.

In worlds of the style "drawn" the words are invented, too. Every entity has a title and two
aliases, of two words that other names share. A document tells some relations of one entity, in
drawn phrases, and calls the others by any of their names. The question has words for relations
that no document about an entity uses: for each there is a document that says which word means the
same. To follow the chain is thus to look up words and names in turn; neither the question nor any
document alone leads to the answer.

Documents are ranked by BM25, here because a task has 1,000 documents at most: ranking them takes a
millisecond in plain Python, and few indices have to be kept. rank-bm25 is not maintained any more;
bm25s is made for large corpora.
"""

from __future__ import annotations

import json
import math
import random
import re
import string
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from typing import Any, NamedTuple, cast

from pettingllms.arguments import check_choice, check_whole
from pettingllms.errors import LevelFormatError, UnreachableRequest
from pettingllms.seeding import check_split, split_of
from pettingllms_envs.level_files import read_lines

K1, B = 1.2, 0.75
"""Saturation of term frequencies and weight of document lengths, as in Lucene."""

_WORD = re.compile(r"\w+")


class _Index(NamedTuple):
    """What BM25 needs of a corpus."""

    frequencies: tuple[Counter[str], ...]
    """Term -> frequency, per document."""
    norms: tuple[float, ...]
    """K1 * (1 - B + B * length / mean length), per document."""
    weights: dict[str, float]
    """Term -> inverse document frequency."""


def words(text: str) -> list[str]:
    """The words of a text, in lower case."""
    return _WORD.findall(text.casefold())


@lru_cache(maxsize=64)
def _index(documents: tuple[str, ...]) -> _Index:
    frequencies = tuple(Counter(words(text)) for text in documents)
    lengths = [one.total() for one in frequencies]
    mean = sum(lengths) / len(lengths) or 1.0
    norms = tuple(K1 * (1 - B + B * length / mean) for length in lengths)
    found_in = Counter(term for one in frequencies for term in one)
    num = len(documents)
    weights = {t: math.log(1 + (num - n + 0.5) / (n + 0.5)) for t, n in found_in.items()}
    return _Index(frequencies, norms, weights)


def scores(query: str, documents: tuple[str, ...]) -> list[float]:
    """The score of every document, at least 0, by BM25.

    Words that no document has count nothing, repeated ones as often as they occur.

    Source: Robertson and Zaragoza 2009, "The Probabilistic Relevance Framework", with the inverse
    document frequency of Lucene, which is never negative.
    """
    index = _index(documents)
    terms = [term for term in words(query) if term in index.weights]
    return [
        sum(index.weights[t] * one[t] * (K1 + 1) / (one[t] + norm) for t in terms if t in one)
        for one, norm in zip(index.frequencies, index.norms, strict=True)
    ]


def best(query: str, documents: tuple[str, ...], limit: int) -> Sequence[int]:
    """The numbers of the best documents, best first, without those that share no word.

    Of documents with equal scores, the first comes first.
    """
    # Sorted by score and then by number: the same query finds the same in every process.
    ranked = sorted((-score, number) for number, score in enumerate(scores(query, documents)))
    return [number for score, number in ranked[:limit] if score < 0]


_ARTICLES = frozenset({"a", "an", "the"})
_NO_SIGNS = str.maketrans(dict.fromkeys(string.punctuation, " "))
_FORMAT = (
    'a JSON object {"question": string, "answers": [strings], "documents": [{"title": string, '
    '"text": string}], "supporting": [titles, optional]}; rewrite the answer and context of a row '
    "of HotpotQA as answers and documents"
)
_refused = partial(LevelFormatError, allowed=_FORMAT)
MAX_DOCUMENTS = 1000


class Document(NamedTuple):
    """A document of the corpus."""

    title: str
    """The name of an entity; a query for it finds the document."""
    text: str


class SearchTask(NamedTuple):
    """A question over a corpus of its own."""

    question: str
    answers: tuple[str, ...]
    """The answer and its aliases, at least one."""
    documents: tuple[Document, ...]
    """The corpus; documents are known by their places in it, from 0."""
    supporting: tuple[int, ...]
    """The documents that are needed, in the order in which they lead to the answer; may be empty
    if that is not known."""

    @property
    def corpus(self) -> tuple[str, ...]:
        """What is searched: title and text of every document."""
        return tuple(f"{title}\n{text}" for title, text in self.documents)


def normalised(answer: str) -> str:
    """An answer without case, punctuation, articles and spare spaces.

    Source: the exact match of SQuAD (Rajpurkar et al. 2016). Changed: punctuation becomes a space.
    """
    words = answer.casefold().translate(_NO_SIGNS).split()
    # A name that is an article is still a name: the letter `A`.
    return " ".join([word for word in words if word not in _ARTICLES] or words)


def is_match(answer: str, task: SearchTask) -> bool:
    """Whether an answer equals the answer of a task or one of its aliases."""
    return normalised(answer) in map(normalised, task.answers)


def names_answer(text: str, task: SearchTask) -> bool:
    """Whether the answer of a task, or an alias of it, is among the words of a text."""
    words = f" {normalised(text)} "
    return any(f" {normalised(one)} " in words for one in task.answers)


def can_be_answer(said: str, task: SearchTask) -> bool:
    """Whether a phrase answers the question, rightly or wrongly, rather than talks about it.

    Right answers do. If they are words of the documents, other answers must be so too, and must not
    hold the name of a document among other words: that is a sentence. If the right answers are in
    no document, nothing distinguishes an answer, and any phrase is one.
    """
    if is_match(said, task):
        return True
    texts, titles = _searched(task.documents)
    if not names_answer(texts, task):
        return True
    # A name of a document is an answer, right or wrong; a sentence around one is not.
    phrase = normalised(said)
    if phrase in titles:
        return True
    padded = f" {phrase} "
    return padded in texts and not any(f" {title} " in padded for title in titles)


@lru_cache(maxsize=256)
def _searched(documents: tuple[Document, ...]) -> tuple[str, frozenset[str]]:
    """The normalised documents as one text, and their normalised titles."""
    # Signs divide the documents, so that no phrase reaches over two of them.
    texts = " / ".join(normalised(f"{title} {text}") for title, text in documents)
    return f" {texts} ", frozenset(normalised(title) for title, _ in documents)


def content_of(task: SearchTask) -> bytes:
    """What decides the split of a task: its question, in whatever spelling."""
    return normalised(task.question).encode()


def parse_tasks(text: str) -> list[SearchTask]:
    """Read a JSON Lines file of tasks; errors name the line."""
    return read_lines(text, parse_task, _FORMAT)


def parse_task(text: str, number: int = 1) -> SearchTask:
    """Read one task; errors name the line of this number.

    Raises:
        LevelFormatError: If it is not of the form of a line of a file of tasks.
    """
    try:
        record = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise _refused(f"no JSON: {error}", number) from error
    if not isinstance(record, Mapping):
        raise _refused("no JSON object", number)
    fields = cast("Mapping[str, Any]", record)
    question, answers = fields.get("question"), _texts(fields.get("answers"))
    if not isinstance(question, str) or not normalised(question):
        raise _refused('"question" must be a string with words', number)
    if not answers or not all(map(normalised, answers)):
        raise _refused('"answers" must be a list of strings with words', number)
    documents = _documents(fields.get("documents"), number)
    titles = [document.title for document in documents]
    needed = _texts(fields.get("supporting", []))
    if needed is None or not set(needed) <= set(titles):
        raise _refused('"supporting" must name documents by their titles', number)
    return SearchTask(question, answers, documents, tuple(map(titles.index, needed)))


def _texts(value: object) -> tuple[str, ...] | None:
    if not isinstance(value, Sequence) or isinstance(value, str | bytes):
        return None
    items = tuple(cast("Sequence[object]", value))
    return cast("tuple[str, ...]", items) if all(isinstance(one, str) for one in items) else None


def _documents(value: object, number: int) -> tuple[Document, ...]:
    items = cast("Sequence[object]", value) if isinstance(value, list) else []
    found: list[Document] = []
    for item in items:
        fields = cast("Mapping[str, Any]", item) if isinstance(item, Mapping) else {}
        title, text = fields.get("title"), fields.get("text")
        if not isinstance(title, str) or not isinstance(text, str):
            raise _refused("a document without title or text", number)
        found.append(Document(title, text))
    if not 1 <= len(found) <= MAX_DOCUMENTS:
        raise _refused(f'"documents" must hold 1 to {MAX_DOCUMENTS} documents', number)
    if len({document.title for document in found}) < len(found):
        raise _refused("two documents of one title", number)
    return tuple(found)


RELATIONS, TOLD = 8, 4
"""Relations of a world, and how many of them are told of an entity; one more on the chain."""
_ONSETS = (*"bdfgklmnprstvz", "br", "dr", "kl", "pr", "st", "tr")
_SYLLABLES = [onset + vowel for onset in _ONSETS for vowel in "aeiou"]
_ENDS = ("", "n", "r", "l", "sk", "th", "m", "x")
_PHRASES = (
    "The {relation} of {this} is {other}.",
    "{this} has {other} as its {relation}.",
    "As {relation}, {this} has {other}.",
    "{other} is the {relation} of {this}.",
)
_SAME = ("{} means the same as {}.", "{} is another word for {}.", "Some say {} instead of {}.")


def draw_task(
    rng: random.Random, hops: int, num_documents: int, is_wanted: Callable[[str], bool]
) -> tuple[SearchTask, list[tuple[str, int]]]:
    """A random task of so many steps, and the searches that solve it.

    `is_wanted` says which questions may be asked: those of a split. It is asked before the
    documents are written, which takes long. The searches are names and words of the question or of
    documents that were found by then, each with the number of the document that it leads to.
    """
    num = num_documents - RELATIONS
    size = int(8 * num**0.5)
    words = _words(rng, 2 * RELATIONS + size)
    asked, told, parts = words[:RELATIONS], words[RELATIONS : 2 * RELATIONS], words[2 * RELATIONS :]
    # Two parts of few: half a name is not enough to find an entity.
    pairs = [divmod(number, size) for number in rng.sample(range(size * size), 3 * num)]
    names = [f"{parts[first]} {parts[last]}".title() for first, last in pairs]
    while True:
        chain = rng.sample(range(num), hops + 1)
        called = [names[3 * entity + rng.randrange(3)] for entity in chain]
        relations = [rng.randrange(RELATIONS) for _ in range(hops)]
        steps = " ".join(f"the {asked[relation]} of" for relation in reversed(relations))
        question = f"Name {steps} {called[0]}."
        if is_wanted(question):
            break
    known = {chain[at]: (relations[at], called[at + 1]) for at in range(hops)}
    texts = [_document(rng, names, number, told, known.get(number)) for number in range(num)]
    # The question's words are in no fact: they have to be looked up, which takes a search.
    for word, same in zip(asked, told, strict=True):
        texts.append(Document(word, rng.choice(_SAME).format(word, same)))
    # Shuffled: the order of documents must not tell which of them are needed.
    place = rng.sample(range(num_documents), num_documents)
    searches: dict[str, int] = {}
    for entity, name, relation in zip(chain, called, relations, strict=False):
        searches |= {name: place[entity], asked[relation]: place[num + relation]}
    answers = tuple(names[3 * chain[-1] : 3 * chain[-1] + 3])
    documents = tuple(text for _, text in sorted(zip(place, texts, strict=True)))
    task = SearchTask(question, answers, documents, tuple(searches.values()))
    return task, list(searches.items())


def _words(rng: random.Random, number: int) -> list[str]:
    """Different words of two syllables and an ending."""
    base = len(_SYLLABLES)
    found: list[str] = []
    for drawn in rng.sample(range(base * base * len(_ENDS)), 2 * number):
        both, end = divmod(drawn, len(_ENDS))
        found.append(_SYLLABLES[both // base] + _SYLLABLES[both % base] + _ENDS[end])
    # Two draws may read alike: b-r-a of one syllable and of two.
    return list(dict.fromkeys(found))[:number]


def _document(
    rng: random.Random,
    names: Sequence[str],
    number: int,
    told: Sequence[str],
    known: tuple[int, str] | None,
) -> Document:
    """The document of an entity; what is known of it, one relation, is among the others."""
    title, *aliases = own = names[3 * number : 3 * number + 3]
    facts: dict[int, str] = {}
    for relation in rng.sample(range(RELATIONS), TOLD):
        other = (3 * number + 3 + rng.randrange(len(names) - 3)) % len(names)
        facts[relation] = names[other]
    facts |= [known] if known else []
    sentences = [f"{title} is also called {' or '.join(aliases)}."]
    for at, relation in enumerate(rng.sample(sorted(facts), len(facts))):
        # Each name is said twice or more, so that a search for it finds this document first.
        phrase = rng.choice(_PHRASES)
        sentences.append(
            phrase.format(relation=told[relation], this=own[at % 3], other=facts[relation])
        )
    return Document(title, " ".join(sentences))


_LETTERS = "ABCDEFGHIJKLMNOPQRSTUVWXYZ"
_ATTEMPTS = 200


class _Relation(NamedTuple):
    """A relation that generated questions follow."""

    subject: str
    """Kind of the entities that have it."""
    target: str
    """Kind of the entities to which it leads."""
    phrase: str
    """How a question says it, before the name of the subject."""
    sentence: str
    """How a document says it, with places for subject and target."""
    letter: str
    """What stands for the relation in the style `letters`."""


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
_NAME_ENDS = ("n", "r", "sk", "th", "ld", "m", "x", "nd")
_FIRST = (
    *("Ada", "Bo", "Cyra", "Dario", "Edda", "Finn"),
    *("Gala", "Hugo", "Ines", "Jory", "Kira", "Lev"),
)
_TRADES = ("Mills", "Works", "Foundry", "Press", "Lines", "Yards")


STYLES = {"names": (3, 8, 64), "letters": (3, 8, len(_LETTERS)), "drawn": (8, 40, 1_000)}
"""Style -> most hops, fewest documents, most documents. Sentences with names; the same facts with a
letter per entity and relation; or words that are drawn with the task, see `draw_task`."""


class Request(NamedTuple):
    """Properties of the tasks to generate; see the arguments of `SearchEnv` of the same names."""

    hops: int
    documents: int
    results: int
    style: str
    split: str | None

    def checked(self) -> Request:
        """The request, in Python's numbers.

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
    """What is true of the invented entities of a task."""

    names: dict[str, list[str]]
    """Kind -> names."""
    facts: dict[tuple[str, str], str]
    """(name, letter of a relation) -> name."""
    aliases: dict[str, str]
    """Name -> another name of the same entity; empty if documents use one name for each."""


def generate(rng: random.Random, request: Request) -> SearchTask:
    """A random task with the properties of a checked request.

    The certificate: every document that is needed is among the first `results` of a search for its
    title, and if words are drawn also for the name or word that leads to it; every step of the
    question has exactly one value, no step leads back to an entity that was passed before, and the
    question does not name the answer.

    Raises:
        UnreachableRequest: If 200 worlds held no such task.
    """
    for _ in range(_ATTEMPTS):
        task, searches = _drawn(rng, request)
        # Neither a chain that comes back to where it was nor one whose end the question names.
        if task is None or names_answer(task.question, task):
            continue
        # By the question, as a reader would say what is the same task.
        if request.split is not None and split_of(content_of(task)) != request.split:
            continue
        # The oracle searches for titles: each of them must find what it is meant to find.
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
        roots = [s + m + e for s in _STARTS for m in _MIDDLES for e in _NAME_ENDS]
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
            # Nobody teaches himself: such a step would lead nowhere.
            others = [one for one in names[relation.target] if one != name]
            facts[name, relation.letter] = rng.choice(others)
    aliases: dict[str, str] = {}
    if request.style == "names":
        aliases = {name: _alias(name, kind) for kind, own in names.items() for name in own}
    return _World(names, facts, aliases)


def _alias(name: str, kind: str) -> str:
    """Another name, which no other entity has."""
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
    documents = _documents_of(rng, world, request.style)
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


def _documents_of(rng: random.Random, world: _World, style: str) -> tuple[Document, ...]:
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
