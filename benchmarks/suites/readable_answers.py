"""Which answers of a small chat model can be read, in every environment, role by role?

    pettingllms-train fetch-model smollm2
    python benchmarks/suites/readable_answers.py [--episodes 4] [--games ID ...]

SmolLM2-135M-Instruct plays test levels with default arguments and prompts, sampled at temperature
1: untouched, and in the games `--demonstrated` after supervised steps on ten episodes of the oracle
(one adapter for all roles). Written after every game are the share of answers that cannot be read,
with its interval; the share that was cut at the limit of tokens; and the mean tokens of prompts and
answers. A role that was never asked has no shares: no text gave it the floor.
"""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from measuring import frame, parser_of, write

import pettingllms
from pettingllms.evaluation import EvaluationPlan, RunFolder, evaluate, summarise
from pettingllms.evaluation.plan import held_out_kwargs, roles_of
from pettingllms.evaluation.report import RoleReport
from pettingllms.policies import Sampling
from pettingllms_trainers import commands
from pettingllms_trainers.config.loading import config_of
from pettingllms_trainers.config.packaged import model_directory

MODEL = "smollm2"
SEED = 0
NUM_DEMONSTRATED = 10
WARM_START = {"num_episodes": NUM_DEMONSTRATED, "batch_size": 4, "learning_rate": 1e-3}
MAX_TOKENS = 96
LONGER = {"code_v0": 192}
"""Limits of tokens of an answer that differ from `MAX_TOKENS`: a program is longer."""


def main() -> None:
    """Play all games and write the result."""
    ids = [i for i in pettingllms.registered_ids() if pettingllms.spec(i).package == "pettingllms"]
    parser = parser_of("readable_answers", __doc__)
    parser.add_argument("--episodes", type=int, default=4)
    parser.add_argument("--steps", type=int, default=5, help="supervised steps")
    parser.add_argument("--games", nargs="+", choices=ids, default=ids)
    parser.add_argument("--demonstrated", nargs="*", choices=ids, default=ids)
    options = parser.parse_args()
    warm_start = {**WARM_START, "num_steps": options.steps}
    result = frame("readable_answers", [SEED])
    result |= {"model": MODEL, "warm_start": warm_start, "games": []}
    for env_id in options.games:
        row = {"env": env_id, "max_completion_tokens": LONGER.get(env_id, MAX_TOKENS)}
        with tempfile.TemporaryDirectory() as folder:
            model = str(model_directory(MODEL))
            row["untouched"] = played(env_id, model, options.episodes, Path(folder, "untouched"))
            if env_id in options.demonstrated:
                model = str(demonstrated(env_id, warm_start, Path(folder, "run")))
                row["demonstrated"] = played(env_id, model, options.episodes, Path(folder, "after"))
        result["games"].append(row)
        print(row, flush=True)
        write(result, options.output)


def demonstrated(env_id: str, warm_start: Mapping[str, Any], folder: Path) -> Path:
    """Return the directory of an adapter that has imitated the oracle in all roles."""
    roles = roles_of(pettingllms.make(env_id, checks=False))
    config = {
        "output_dir": str(folder),
        "seed": SEED,
        "env": {"id": env_id},
        "every_policy": {"model": f"fetched:{MODEL}", "lora": {"rank": 8, "alpha": 16}},
        "roles": dict.fromkeys(roles, "team"),
        "engine": {"precision": "auto"},
        "warm_start": {**warm_start, "demonstrators": {role: {"oracle": 1.0} for role in roles}},
        "logging": {"progress": "off", "tensorboard": False},
    }
    commands.warm_start(config_of(config, {}))
    return folder / "policies" / "team"


def played(env_id: str, model: str, num_episodes: int, folder: Path) -> dict[str, Any]:
    """Return role -> shares and tokens of the answers of a model that plays all roles."""
    roles = roles_of(pettingllms.make(env_id, checks=False))
    limit = LONGER.get(env_id, MAX_TOKENS)
    sampling = Sampling(temperature=1.0, top_p=1.0, max_completion_tokens=limit)
    plan = EvaluationPlan(
        env_id=env_id,
        variants={"main": dict.fromkeys(roles, f"hf:{model}?precision=auto")},
        env_kwargs=held_out_kwargs(env_id, {}),
        sampling=dict.fromkeys(roles, sampling),
        seed=SEED,
        num_levels=num_episodes,
    )
    run = RunFolder.create(folder, plan)
    evaluate(run)
    found = summarise(run.plan, run.results(), run.bill()).variants["main"]
    return {"success": found.num_success, "episodes": found.num_episodes} | {
        "roles": {name: figures(role) for name, role in found.roles.items()}
    }


def figures(role: RoleReport) -> dict[str, Any]:
    """Return what is written about a role."""
    share, count = role.parse_errors, role.num_actions
    if not count:
        return {"answers": 0}
    return {
        "answers": count,
        "unreadable": [round(value, 4) for value in (share.value, share.low, share.high)],
        "cut": round(role.cut, 4),
        "prompt_tokens": round(role.usage.prompt_tokens / count, 1),
        "completion_tokens": round(role.usage.completion_tokens / count, 1),
    }


if __name__ == "__main__":
    main()
