"""Worlds whose words are drawn: relations with invented names, and several names for everything.

Every entity has a title and two aliases; every name is two words that other names share. A
document tells some relations of one entity, in drawn phrases, and calls the others by any of their
names. The question has words for relations that no document about an entity uses: for each of them
there is a document that says which word means the same. To follow the chain is thus to look up
words and names in turn; neither the question nor any document alone leads to the answer.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence

from pettingllms_envs.search.tasks import Document, SearchTask

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
    """Return a random task.

    Args:
        rng: The only source of chance.
        hops: Steps of the chain.
        num_documents: Documents of the corpus.
        is_wanted: Which questions may be asked: those of a split. It is asked before the documents
            are written, which takes long.

    Returns:
        The task, and the searches that solve it: names and words of the question or of documents
        that were found by then, each with the number of the document that it leads to.
    """
    num = num_documents - RELATIONS
    size = int(8 * num**0.5)
    words = _words(rng, 2 * RELATIONS + size)
    asked, told, parts = words[:RELATIONS], words[RELATIONS : 2 * RELATIONS], words[2 * RELATIONS :]
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
    for word, same in zip(asked, told, strict=True):
        texts.append(Document(word, rng.choice(_SAME).format(word, same)))
    place = rng.sample(range(num_documents), num_documents)
    searches: dict[str, int] = {}
    for entity, name, relation in zip(chain, called, relations, strict=False):
        searches |= {name: place[entity], asked[relation]: place[num + relation]}
    answers = tuple(names[3 * chain[-1] : 3 * chain[-1] + 3])
    documents = tuple(text for _, text in sorted(zip(place, texts, strict=True)))
    task = SearchTask(question, answers, documents, tuple(searches.values()))
    return task, list(searches.items())


def _words(rng: random.Random, number: int) -> list[str]:
    """Return different words of two syllables and an ending."""
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
    """Return the document of an entity; what is known of it, one relation, is among the others."""
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
