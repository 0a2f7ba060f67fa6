"""Does a statement say that several outputs are right? Such a problem needs a checker of its own.

The golden tests of public data sets hold one output per input, also where the statement accepts
any of several. Judged by these tests, right programs fail. The search is by the usual sentences of
contests; it reads one sentence at a time, so that its work is linear in the statement.
"""

from __future__ import annotations

import re

_NOUN = (
    r"(?:answers?|solutions?|outputs?|ways?|options?|variants?|sequences?|arrays?|strings?|numbers?"
    r"|pairs?|permutations?|partitions?|paths?|moves?|representations?|possibilit(?:y|ies)|plans?"
    r"|arrangements?|subsets?|schedules?|assignments?|matri(?:x|ces)|orders?|sets?|trees?|one)"
)
_KIND = r"(?:valid|correct|possible|suitable|appropriate|acceptable|optimal|winning|such|right)"
_PRINT = r"(?:print|output|return|report|write|give|display|submit|provide)"
_MANY = r"(?:multiple|several|many|more than one|different|various|two or more)"
_PATTERNS = tuple(
    re.compile(pattern, re.IGNORECASE)
    for pattern in (
        # If there are several answers, you can print any.
        rf"\b{_MANY}\b.*\b{_PRINT}(?:ed)? (?:any|either)\b",
        rf"\b{_PRINT}(?:ed)? any\b.*\bif (?:there )?.*\b{_MANY}\b",
        rf"\b{_MANY}\b.*\bany (?:one )?(?:of them )?(?:is|are|will be|would be) ",
        # Any of them is acceptable; any valid answer is accepted; he is satisfied by any of them.
        r"\bany (?:one )?of (?:them|these|those|the \w+)\b.*\b(?:accept|allow|correct|fine|valid)",
        rf"\bany (?:{_KIND} )*{_NOUN} (?:is|are|will be|would be) (?:also )?"
        r"(?:accept|allowed|correct|fine|considered)",
        r"\b(?:satisfied (?:with|by)|accept(?:s|ed)?|allowed|fine) any\b",
        # Print any valid answer; output any of them; find any suitable array.
        rf"(?<!not )(?<!cannot )(?<!n't )\b{_PRINT} any "
        rf"(?:(?:one )?of (?:them|these|those)|(?:{_KIND} )+\w+)\b",
        rf"(?:^|, |\band )find any (?:of them|(?:{_KIND} )+{_NOUN})\b",
        # The numbers can be printed in any order.
        rf"\b(?:{_PRINT}(?:ed|ing|s)?|outputted|listed)\b.*\bin (?:any|an arbitrary) order\b",
    )
)
_SENTENCE = re.compile(r"(?<=[.!?;])\s+|\n\s*\n")
_MAX_SENTENCE_CHARS = 400


def accepts_several(statement: str) -> bool:
    """Return whether a statement says that any of several outputs will do.

    Found by a text search, which can be wrong either way: about one statement in seven of contest
    problems matches, few of them for another reason.
    """
    flat = " ".join(statement.replace("\n\n", ". ").split())
    return any(
        pattern.search(sentence[:_MAX_SENTENCE_CHARS])
        for sentence in _SENTENCE.split(flat)
        for pattern in _PATTERNS
    )
