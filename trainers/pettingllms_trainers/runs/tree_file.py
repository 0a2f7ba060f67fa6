"""Which rollout trees of a run are kept for people, within a size."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal

from pettingllms.files import read_lines, write_whole
from pettingllms_trainers.config import Config, EnvConfig
from pettingllms_trainers.learning.groups import ScoredDecisions
from pettingllms_trainers.policies.pool import PolicyPool
from pettingllms_trainers.rollout.environments import held_out_kwargs
from pettingllms_trainers.runs.folder import RunDirectory
from pettingllms_trainers.runs.tree_json import tree_to_json
from pettingllms_trainers.types import Decision, RolloutTree

TreeSet = Literal["training", "held_out"]


class TreeFile:
    """Writes `rollouts.jsonl`.

    Kept are trees of the first and the last train step, of every `logging.rollouts_every`-th
    between them, and held-out episodes before and after training.

    Args:
        files: Where to.
        config: The run's configuration.
        note: Reports a tree that is left out.
    """

    def __init__(self, files: RunDirectory, config: Config, note: Callable[[str], None]) -> None:
        self._files, self._config, self._note = files, config, note
        self._every = config.logging.rollouts_every
        self._max_bytes = int(config.logging.max_rollouts_mb * 1e6)

    def training(
        self, step: int, trees: Sequence[RolloutTree], scored: ScoredDecisions, pool: PolicyPool
    ) -> None:
        """Write trees of a train step, if it is one of those that are kept."""
        if not self._every or not self._is_kept(step):
            return
        for name, env in zip(self._config.env_names, self._config.env, strict=True):
            own = [tree for tree in trees if tree.env == name]
            by_spread = sorted(own, key=num_mixed, reverse=True)  # stable: then in play order
            chosen = by_spread[: self._config.logging.num_rollouts]
            places = [_place(name, env, kwargs) for kwargs in env.stage_kwargs]
            self._write(step, "training", places, chosen, scored.decisions, pool)

    def held_out(self, step: int, trees: Sequence[RolloutTree], pool: PolicyPool) -> None:
        """Write held-out episodes."""
        pairs = zip(self._config.env_names, self._config.env, strict=True)
        for name, env in pairs if self._every else ():
            own = [tree for tree in trees if tree.env == name]
            place = _place(name, env, held_out_kwargs(self._config, env))
            self._write(step, "held_out", [place], own, (), pool)

    def _is_kept(self, step: int) -> bool:
        return step in (1, self._config.num_steps) or step % self._every == 0

    def _write(
        self,
        step: int,
        tree_set: TreeSet,
        places: Sequence[Mapping[str, Any]],
        trees: Sequence[RolloutTree],
        scored: Sequence[Decision],
        pool: PolicyPool,
    ) -> None:
        texts, known = _token_texts(trees, pool), {one.key: one for one in scored}
        for tree in trees:
            line = {"set": tree_set, **places[tree.stage], **tree_to_json(tree, known, texts)}
            num_bytes = len(json.dumps(line)) + 32  # the number of the step comes before it
            has_room = self._makes_room(num_bytes)
            if tree_set == "training" and not self._is_kept(step):
                return  # its own step was dropped to make room
            if has_room:
                self._files.append(self._files.rollouts, step, line)
            else:
                self._note(
                    f"a rollout tree of {num_bytes / 1e6:.1f} MB is not written: rollouts.jsonl "
                    "would be larger than logging.max_rollouts_mb"
                )

    def _makes_room(self, num_bytes: int) -> bool:
        """Drop train steps until so many bytes more fit; return whether they do."""
        path = self._files.rollouts
        while (path.stat().st_size if path.exists() else 0) + num_bytes > self._max_bytes:
            lines = read_lines(path)
            held_out = [line for line in lines if line["set"] == "held_out"]
            training = [line for line in lines if line["set"] != "held_out"]
            if {line["step"] for line in training} <= {1, self._config.num_steps}:
                return False
            self._every *= 2
            kept = [line for line in training if self._is_kept(line["step"])]
            kept = sorted(held_out + kept, key=lambda line: line["step"])
            write_whole(path, "".join(json.dumps(line) + "\n" for line in kept))
        return True


def _token_texts(trees: Sequence[RolloutTree], pool: PolicyPool) -> dict[str, dict[int, str]]:
    """Return policy to token to text: a tokenizer is asked once for all that the trees hold."""
    tokens: dict[str, set[int]] = defaultdict(set)
    for tree in trees:
        for decision in (*tree.prefix, *tree.decisions):
            tokens[decision.policy].update(
                token for one in decision.candidates for token in one.completion.token_ids
            )
    asked = {
        name: (policy.token_texts, sorted(tokens[name]))
        for name, policy in pool.policies.items()
        if policy.token_texts is not None
    }
    return {name: dict(zip(ids, read(ids), strict=True)) for name, (read, ids) in asked.items()}


def _place(name: str, env: EnvConfig, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a line says of the environment; its id only where there are several."""
    which = {"environment": name, "env_id": env.id} if name else {}
    return {**which, "env": kwargs}


def num_mixed(tree: RolloutTree) -> int:
    """Return the number of decisions whose candidates earned different rewards."""
    return sum(len({one.reward for one in group.candidates}) > 1 for group in tree.decisions)
