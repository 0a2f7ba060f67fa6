"""Recorded answers as demonstrations: what `pettingllms data export --view sft` has written."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from pettingllms.evaluation.rows import read_rows
from pettingllms_trainers.errors import ConfigError
from pettingllms_trainers.policies.pool import ModelPolicy
from pettingllms_trainers.types import Demonstration


def recorded_demonstrations(
    path: str, env_id: str, policies: Mapping[str, ModelPolicy]
) -> dict[str, list[Demonstration]]:
    """Return the demonstrations of a file for each role, in its order.

    Args:
        path: A `.jsonl` or `.parquet` file of rows with `role`, `prompt` and `completion`, the last
            two as chats, and with `env_id`, unless they are for all environments.
        env_id: Id of the environment; rows of others are left out.
        policies: Role to the policy that is to learn it; its tokenizer is used.

    Raises:
        InvalidArgument: If the file is missing, of another kind, or damaged.
        ConfigError: If a row lacks something, or there is none for a role.
    """
    found: dict[str, list[Demonstration]] = defaultdict(list)
    for number, row in enumerate(read_rows(path), 1):
        try:
            policy = policies.get(row["role"])
            if policy is None or row.get("env_id", env_id) != env_id:
                continue
            (answer,) = row["completion"]
            found[row["role"]].append(
                Demonstration(policy.encode(row["prompt"]), policy.encode_answer(answer["content"]))
            )
        except (KeyError, TypeError, ValueError, AttributeError) as error:
            raise ConfigError(
                f"warm_start.data: row {number} of {path} is no prompt with one answer "
                f"({type(error).__name__}: {error}). Write it with: pettingllms data export RUN "
                "--view sft"
            ) from error
    if missing := [role for role in policies if role not in found]:
        raise ConfigError(
            f"warm_start.data: {path} has no answer of {', '.join(missing)} in {env_id}"
        )
    return dict(found)
