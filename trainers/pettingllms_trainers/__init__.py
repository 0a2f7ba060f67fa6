"""AT-GRPO for teams of LLM agents: rollout trees, comparison groups, and a policy per role.

The packages lie in the order of the data, and imports go up this list only::

    api, cli, start from Python, from the command line; errors as exit codes
    own_loop        policies that sample and learn, for loops of others
    plan            what a run will need, for --dry-run; no run passes through it
    commands        what each command does with a checked run file
    runs            the loop, evaluation, checkpoints, metrics, the directory of a run
    backends        transformers, vLLM, FSDP2, DeepSpeed, Ray: the only modules that import them
    algorithms      how episodes are sampled and compared, by name
    rollout         episodes, rollout trees, the branch an episode continues with
    policies        the protocols of engines and updaters; which policy plays which role
    learning        groups, advantages, mini-batches, packed batches, loss
    config          the run file
    types, errors, ranks, files
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pettingllms_trainers.api import Run, load_run, train
    from pettingllms_trainers.own_loop import open_policies

__all__ = ["Run", "load_run", "open_policies", "train"]


def __getattr__(name: str) -> Any:
    """Import what takes a second when it is used: modules of this package need not."""
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pettingllms_trainers import api, own_loop

    return getattr(own_loop if hasattr(own_loop, name) else api, name)
