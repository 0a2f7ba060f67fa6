"""A Ray cluster for the time of a run: joined or started, with processors reserved on it."""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Generator, Mapping, Sequence
from importlib import import_module
from typing import Any

from pettingllms.errors import PettingLLMsError, counted
from pettingllms_trainers.backends.device import kept_generators
from pettingllms_trainers.config.sections import RayConfig
from pettingllms_trainers.errors import ConfigError, MissingPackage, WorkerLost, reason_of

logger = logging.getLogger(__name__)

_OBJECT_STORE_BYTES = 512 << 20
"""Object store of a cluster that is started here; what does not fit goes to the disk."""

_CONNECT_TIMEOUT_S = 10.0
_PATIENCE_S = 5.0
"""Longer waits for processors are logged."""

Bundle = Mapping[str, float]
"""Processors of one worker: numbers of CPU and GPU."""


@contextlib.contextmanager
def joined_cluster(config: RayConfig) -> Generator[Any]:
    """The module `ray`, connected; what this connects or starts, it ends.

    A process that is connected already stays so.

    Raises:
        ConfigError: Ray is not installed, or there is no such cluster.
    """
    try:
        ray: Any = import_module("ray")
    except ImportError as error:
        raise MissingPackage("ray.enabled = true, on all machines,", "ray", "ray", error) from error
    if ray.is_initialized():
        yield ray
        return
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    # Resources of a cluster that runs already are its own affair.
    options: dict[str, Any] = {"address": config.address}
    if not config.address:
        options = {
            "address": "local",
            "include_dashboard": False,
            "object_store_memory": _OBJECT_STORE_BYTES,
        }
    handler = signal.getsignal(signal.SIGTERM)
    try:
        host, colon, port = config.address.rpartition(":")
        if colon:  # nobody may listen there; Ray itself would try for minutes
            socket.create_connection((host, int(port)), _CONNECT_TIMEOUT_S).close()
        # Ray draws from the global generators, on which seeds depend.
        with kept_generators():
            ray.init(**options, log_to_driver=False, configure_logging=False, logging_level="ERROR")
    except (OSError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        raise ConfigError(
            f"ray.address = {config.address!r}: the cluster cannot be joined ({reason_of(error)}). "
            "Start it with `ray start --head` on one machine and `ray start --address=HOST:6379` "
            "on the others, with the same versions of Python and Ray, RAY_AUTH_MODE and token; or "
            'set ray.address = ""'
        ) from error
    try:
        # Ray has set its own, which would end the process; the trainer saves.
        if threading.current_thread() is threading.main_thread():
            signal.signal(signal.SIGTERM, handler)
        yield ray
    finally:
        with kept_generators():
            ray.shutdown()


@contextlib.contextmanager
def reserved(
    ray: Any, wanted: Mapping[str, Sequence[Bundle]], timeout_s: float
) -> Generator[dict[str, Any]]:
    """Reserve processors: one placement group for each entry, one bundle for each worker.

    Raises:
        ConfigError: The cluster has too few, or others have them.
    """
    new = import_module("ray.util").placement_group
    deadline = time.monotonic() + timeout_s
    # All at once, or two runs could each hold half of what both need.
    groups = {what: new(list(map(dict, bundles)), "PACK") for what, bundles in wanted.items()}
    try:
        if not _wait(groups, min(_PATIENCE_S, timeout_s)):
            logger.warning("waiting for processors: %s", _shortage(ray, wanted))
            if not _wait(groups, deadline - time.monotonic()):
                raise ConfigError(
                    f"the Ray cluster has too few free processors: {_shortage(ray, wanted)}. "
                    "Change ray.workers_per_policy, ray.gpus_per_worker, ray.cpus_per_worker or "
                    "ray.num_env_workers (a GPU or core can be shared: 0.5), or give the cluster "
                    "more machines"
                )
        yield groups
    finally:
        for group in groups.values():
            import_module("ray.util").remove_placement_group(group)


def _wait(groups: Mapping[str, Any], timeout_s: float) -> bool:
    deadline = time.monotonic() + timeout_s
    return all(group.wait(max(0.0, deadline - time.monotonic())) for group in groups.values())


def _shortage(ray: Any, wanted: Mapping[str, Sequence[Bundle]]) -> str:
    parts = [f"{len(b)} x ({_amount(b[0])}) for {what}" for what, b in wanted.items()]
    machines = [node["Resources"] for node in ray.nodes() if node["Alive"]]
    total, free = ray.cluster_resources(), ray.available_resources()
    return (
        f"wanted {', '.join(parts)}; there are {_amount(total)} on "
        f"{counted(len(machines), 'machine')}, of which {_amount(free)} are free or reserved for "
        "this run"
    )


def _amount(bundle: Mapping[str, float]) -> str:
    return f"{counted(bundle.get('GPU', 0), 'GPU')}, {counted(bundle.get('CPU', 0), 'CPU')}"


def start_actor(
    ray: Any,
    kind: type,
    group: Any,
    index: int,
    *arguments: object,
    variables: Mapping[str, str] | None = None,
    threads: Mapping[str, int] | None = None,
) -> Any:
    """A new actor in a bundle of a placement group, with all that the bundle has.

    Args:
        ray: The connected module.
        kind: Its class; needs an importable module.
        group: The placement group.
        index: Of the bundle.
        arguments: Of the class.
        variables: Of the environment of its process.
        threads: Numbers of threads for calls of a group; the other calls have one of their own.
    """
    bundle = group.bundle_specs[index]
    strategies = import_module("ray.util.scheduling_strategies")
    num_cpus = bundle.get("CPU", 0)
    remote = ray.remote(concurrency_groups=dict(threads))(kind) if threads else ray.remote(kind)
    return remote.options(
        num_cpus=num_cpus,
        num_gpus=bundle.get("GPU", 0),
        scheduling_strategy=strategies.PlacementGroupSchedulingStrategy(
            group, placement_group_bundle_index=index
        ),
        runtime_env={
            # As many threads as cores are reserved: torch would take all of the machine.
            "env_vars": {"OMP_NUM_THREADS": str(max(1, int(num_cpus))), **(variables or {})}
        },
    ).remote(*arguments)


@contextlib.contextmanager
def explained(who: str) -> Generator[None]:
    """Turn what Ray raises for a call into what the worker raised, or into `WorkerLost`.

    Raises:
        WorkerLost: The process of the worker has ended.
    """
    exceptions = import_module("ray.exceptions")
    try:
        yield
    except exceptions.RayTaskError as error:
        # Errors of ours have advice, and tracebacks of two processes bury it.
        if isinstance(error.cause, PettingLLMsError):
            raise error.cause from error
        raise
    except exceptions.RayError as error:
        reason = " ".join(str(error).split())
        raise WorkerLost(
            f"{who} is lost ({type(error).__name__}: {reason[:400]}). Continue from the newest "
            "checkpoint with --resume"
        ) from error
