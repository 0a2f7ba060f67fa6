"""How many tokens a prompt has: by a tokenizer, or at most, by a rule; part of other suites.

The rule is for tokenizers with a vocabulary of 30,000 and more (byte-level BPE as of GPT-2, Llama 3
and Qwen). It counts one token for every four letters begun of a word, for every digit, for every
other sign and for every line break; a space belongs to what follows it. These tokenizers make one
token of most words and of many runs of signs, so that it is an upper bound for English prose and
boards. It is an estimate all the same: `--tokenizer` counts.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any, NamedTuple

RULE = "upper estimate: a token per 4 letters begun of a word, per digit, sign and line break"
TOKENIZER_HELP = "directory of a Hugging Face tokenizer that counts tokens; else they are estimated"

_PIECE = re.compile(r"[^\W\d_]{1,4}|\d|[^\w\s]|_|\n")


class TokenCounter(NamedTuple):
    """Counts tokens."""

    rule: str
    """How it does."""
    count: Callable[[str], int]

    def sizes(self, env: Any) -> dict[str, dict[str, int]]:
        """Return characters and tokens of what each agent of an environment reads now."""
        texts = {agent: str(env.observe(agent)) for agent in env.possible_agents}
        return {
            agent: {"characters": len(text), "tokens": self.count(text)}
            for agent, text in texts.items()
        }


def estimate(text: str) -> int:
    """Return an upper estimate of the number of tokens."""
    return len(_PIECE.findall(text))


def token_counter(path: str | None) -> TokenCounter:
    """Return the counter of a tokenizer's directory, or the rule if there is none."""
    if path is None:
        return TokenCounter(RULE, estimate)
    from transformers import AutoTokenizer  # only needed here, and slow to import

    tokenizer = AutoTokenizer.from_pretrained(path, local_files_only=True)
    return TokenCounter(
        f"counted by {path}", lambda text: len(tokenizer.encode(text, add_special_tokens=False))
    )
