"""Tasks: a question, its answers and the documents that can be searched; files of tasks."""

from __future__ import annotations

import json
import string
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple, cast

from pettingllms.errors import LevelFormatError

_ARTICLES = frozenset({"a", "an", "the"})
_NO_SIGNS = str.maketrans(dict.fromkeys(string.punctuation, " "))
_FORMAT = (
    'a JSON object {"question": text, "answers": [texts], "documents": [{"title": text, "text": '
    'text}], "supporting": [titles, optional]}'
)
MAX_DOCUMENTS = 1000


class Document(NamedTuple):
    """A document of the corpus."""

    title: str
    text: str


class SearchTask(NamedTuple):
    """A question over a corpus of its own."""

    question: str
    answers: tuple[str, ...]
    """The answer and its aliases, at least one."""
    documents: tuple[Document, ...]
    supporting: tuple[int, ...]
    """The documents that are needed, in the order in which they lead to the answer; may be empty
    if that is not known."""

    @property
    def corpus(self) -> tuple[str, ...]:
        """What is searched: title and text of every document."""
        return tuple(f"{title}\n{text}" for title, text in self.documents)


def normalised(answer: str) -> str:
    """Return an answer without case, punctuation, articles and spare spaces.

    Source: the exact match of SQuAD (Rajpurkar et al. 2016). Changed: punctuation becomes a space.
    """
    words = answer.casefold().translate(_NO_SIGNS).split()
    # A name that is an article is still a name: the letter `A`.
    return " ".join([word for word in words if word not in _ARTICLES] or words)


def is_match(answer: str, task: SearchTask) -> bool:
    """Return whether an answer equals the answer of a task or one of its aliases."""
    return normalised(answer) in map(normalised, task.answers)


def names_answer(text: str, task: SearchTask) -> bool:
    """Return whether the answer of a task, or an alias of it, is among the words of a text."""
    words = f" {normalised(text)} "
    return any(f" {normalised(one)} " in words for one in task.answers)


def can_be_answer(said: str, task: SearchTask) -> bool:
    """Return whether a phrase answers the question, rightly or wrongly, rather than talks about it.

    Right answers do. If they are words of the documents, other answers must be so too, and must not
    hold the name of a document among other words: that is a sentence. If the right answers are in
    no document, nothing distinguishes an answer, and any phrase is one.
    """
    if is_match(said, task):
        return True
    texts, titles = _searched(task.documents)
    if not names_answer(texts, task):
        return True
    phrase = normalised(said)
    if phrase in titles:
        return True
    padded = f" {phrase} "
    return padded in texts and not any(f" {title} " in padded for title in titles)


@lru_cache(maxsize=256)
def _searched(documents: tuple[Document, ...]) -> tuple[str, frozenset[str]]:
    """Return the normalised documents as one text, and their normalised titles."""
    # Signs divide the documents, so that no phrase reaches over two of them.
    texts = " / ".join(normalised(f"{title} {text}") for title, text in documents)
    return f" {texts} ", frozenset(normalised(title) for title, _ in documents)


def content_of(task: SearchTask) -> bytes:
    """Return what decides the split of a task: its question, in whatever spelling."""
    return normalised(task.question).encode()


def parse_tasks(text: str) -> list[SearchTask]:
    """Read a JSON Lines file of tasks; errors name the line."""
    lines = enumerate(text.split("\n"), 1)
    found = [_parsed(line, number) for number, line in lines if line.strip()]
    if not found:
        raise LevelFormatError("the file holds no task", allowed=_FORMAT)
    return found


def parse_task(text: str) -> SearchTask:
    """Read one task.

    Raises:
        LevelFormatError: If it is not of the form of a line of a file of tasks.
    """
    return _parsed(text, 1)


def _parsed(line: str, number: int) -> SearchTask:
    try:
        record = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise LevelFormatError(f"no JSON: {error}", number, allowed=_FORMAT) from error
    if not isinstance(record, Mapping):
        raise LevelFormatError("no JSON object", number, allowed=_FORMAT)
    fields = cast("Mapping[str, Any]", record)
    question, answers = fields.get("question"), _texts(fields.get("answers"))
    if not isinstance(question, str) or not normalised(question):
        raise LevelFormatError("no question", number, allowed=_FORMAT)
    if not answers or not all(map(normalised, answers)):
        raise LevelFormatError("no answers", number, allowed=_FORMAT)
    documents = _documents(fields.get("documents"), number)
    titles = [document.title for document in documents]
    needed = _texts(fields.get("supporting", []))
    if needed is None or not set(needed) <= set(titles):
        raise LevelFormatError("supporting names no document", number, allowed=_FORMAT)
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
            raise LevelFormatError("a document without title or text", number, allowed=_FORMAT)
        found.append(Document(title, text))
    if not 1 <= len(found) <= MAX_DOCUMENTS:
        raise LevelFormatError(f"{len(found)} documents", number, allowed=f"1 to {MAX_DOCUMENTS}")
    if len({document.title for document in found}) < len(found):
        raise LevelFormatError("two documents of one title", number, allowed=_FORMAT)
    return tuple(found)
