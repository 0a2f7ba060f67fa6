"""Rollout trees as JSON that a person can read: texts, rewards, tokens and what was chosen."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, fields
from typing import Any

from pettingllms_trainers.types import (
    Candidate,
    Decision,
    DecisionKey,
    RolloutTree,
    TokenCompletion,
)

_DIGITS = 4
"""Digits of log-probabilities and entropies: for people, and they are most of a tree's size."""


def tree_to_json(
    tree: RolloutTree,
    scored: Mapping[DecisionKey, Decision] | None = None,
    token_texts: Mapping[str, Mapping[int, str]] | None = None,
) -> dict[str, Any]:
    """Return a rollout tree as JSON data.

    Args:
        tree: The tree.
        scored: Groups with advantages, also those of other trees; None: there are none.
        token_texts: Policy to the texts of its tokens; the completions of other policies are
            written without tokens.
    """
    known, texts = scored or {}, token_texts or {}
    given_up, own = tree.decisions[: tree.num_given_up], tree.decisions[tree.num_given_up :]

    def written(decisions: Iterable[Decision]) -> list[dict[str, Any]]:
        found = (known.get(decision.key, decision) for decision in decisions)
        return [_decision(one, texts.get(one.policy)) for one in found]

    return {
        "episode": tree.episode,
        "env_seed": tree.env_seed,
        "initial_state_hash": tree.initial_state_hash,
        "status": str(tree.status),
        "cause": tree.cause,
        "outcome": None if tree.outcome is None else asdict(tree.outcome),
        "num_continuation_tokens": tree.num_continuation_tokens,
        "num_prefix_decisions": len(tree.prefix),
        "decisions": written([*tree.prefix, *own]),
        "given_up": written(given_up),
    }


def _decision(decision: Decision, token_texts: Mapping[int, str] | None) -> dict[str, Any]:
    return {
        **_figures(decision),
        "agent": decision.key.agent,
        "turn": decision.key.turn,
        "policy": decision.policy,
        "observation": decision.observation,
        "num_prompt_tokens": len(decision.prompt_ids),
        "chosen": decision.chosen,
        "candidates": [_candidate(one, token_texts) for one in decision.candidates],
    }


def _candidate(candidate: Candidate, token_texts: Mapping[int, str] | None) -> dict[str, Any]:
    completion = candidate.completion
    written = {
        **_figures(candidate),
        **{f"judged {name}": score for name, score in candidate.judged.items()},
        "text": completion.text,
        "num_tokens": len(completion.token_ids),
        "finish_reason": completion.finish_reason,
        "parse_error": candidate.parse_error,
        "success": candidate.success,
        "advantage": candidate.advantage,
    }
    if token_texts is None or not completion.token_ids:
        return written
    return {**written, "tokens": _tokens(completion, token_texts)}


def _figures(value: Decision | Candidate) -> dict[str, float]:
    """Return all numbers of a value by name: the viewer shows those that it does not know, too."""
    named = ((field.name, getattr(value, field.name)) for field in fields(value))
    return {
        name: number
        for name, number in named
        if isinstance(number, int | float) and not isinstance(number, bool)
    }


def _tokens(completion: TokenCompletion, token_texts: Mapping[int, str]) -> dict[str, list[Any]]:
    """Return columns with one entry per token."""
    columns: dict[str, list[Any]] = {
        "text": [token_texts[token] for token in completion.token_ids],
        "logprob": [round(value, _DIGITS) for value in completion.logprobs],
    }
    if completion.entropies:
        columns["entropy"] = [round(value, _DIGITS) for value in completion.entropies]
    return columns
