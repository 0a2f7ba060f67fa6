"""A run on all GPUs of this machine, by one command: who gets which, and what keeps running.

The rule is simple. Every GPU gets a rank of the run, with engine and update on it. Servers get a
half of the GPUs, as many for each base model, or what `plan` found best; the other GPUs train.
"""

from __future__ import annotations

import contextlib
import logging
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import tomli_w

from pettingllms.errors import counted
from pettingllms.files import open_to_append
from pettingllms_trainers.child import bound
from pettingllms_trainers.config import Config
from pettingllms_trainers.config.loading import load_config
from pettingllms_trainers.config.sections import TINY, base_groups
from pettingllms_trainers.errors import ConfigError, WorkerLost
from pettingllms_trainers.ranks import SERVERS

logger = logging.getLogger(__name__)

_PERIOD_S = 1.0
_HEALTH_TIMEOUT_S = 10.0
# A large model is read, compiled and measured before a server answers.
_START_TIMEOUT_S = 1200.0
_MAX_RESTARTS = 3
# A server that has answered may be silent for so long; also what an end may take.
_GRACE_S = 60.0


# Keeps the working directory, which may be a stranger's, off the path of modules of a process.
_SAFE = {"PYTHONSAFEPATH": "1"}


class Division(NamedTuple):
    """How the GPUs of a machine, by their numbers, are divided between training and servers."""

    num_ranks: int
    """Processes that train."""
    gpus: tuple[str, ...]
    """GPUs that train: one for each process, or all for a single one whose engine is spread."""
    servers: tuple[tuple[tuple[str, ...], tuple[str, ...]], ...] = ()
    """The policies of each server, and its GPUs."""


def divided(config: Config, gpus: Sequence[str], *, servers: str) -> Division:
    """Who gets which GPU of a machine.

    Args:
        gpus: Numbers of the GPUs, at least one.
        servers: Engines of each base model on GPUs of their own, as in the column generate of
            `pettingllms-train plan`: "3/2"; "half" of the GPUs; empty: none.

    Raises:
        ConfigError: There are too few GPUs, or other base models.
    """
    if not servers:
        return Division(1 if config.engine.num_shards > 1 else len(gpus), tuple(gpus))
    groups, size = base_groups(config.models), config.engine.num_shards
    # At most a half of the GPUs, yet one server for each base model at least.
    half = "/".join([str(max(1, len(gpus) // 2 // (size * len(groups))))] * len(groups))
    parts = half.split("/") if servers == "half" else servers.split("/")
    if len(parts) != len(groups) or not all(part.isdecimal() and int(part) for part in parts):
        raise ConfigError(
            f"--servers is {servers!r}; it may be the engines of each base model, such as {half}"
        )
    names = [group for group, part in zip(groups, parts, strict=True) for _ in range(int(part))]
    own = len(gpus) - len(names) * size
    if own < 1:
        raise ConfigError(
            f"too few GPUs, {len(gpus)}: servers for {counted(len(groups), 'base model')} take "
            f"{len(names) * size}, and one GPU is left to train. Name fewer, leave --servers out, "
            "or take an adapter for each policy on one base model"
        )
    sets = [tuple(gpus[start : start + size]) for start in range(own, len(gpus), size)]
    return Division(own, tuple(gpus[:own]), tuple(zip(names, sets, strict=True)))


def served(config: Config, *, is_resumed: bool) -> Config:
    """A configuration of which servers are started, with what they are told in [engine.vllm].

    Args:
        is_resumed: Whether the servers of the run so far, which ended with it, are replaced.

    Raises:
        ConfigError: Servers are not for this engine or model, or have no such option.
    """
    if config.engine.kind != "vllm" and not (is_resumed and config.engine.kind == "vllm_server"):
        raise ConfigError(
            f'--servers starts servers for engine.kind = "vllm"; it is "{config.engine.kind}". '
            "Set it, and remove policies.NAME.endpoints"
        )
    if any(policy.model == TINY for policy in config.models.values()):
        raise ConfigError(
            f'no server can load the model "{TINY}", which a run builds: name another'
        )
    if config.engine.vllm.sleep:
        raise ConfigError(
            "engine.vllm.sleep = true is for engines that share a GPU with the update; those of "
            "--servers have their own. Set engine.vllm.sleep = false"
        )
    return config.model_copy(update={"engine": config.engine.model_copy(update={"kind": "vllm"})})


class WatchedServer:
    """A process that answers at an address, and is started again when it does not any more.

    The server ends with this process, even if that is killed.

    Args:
        command: Starts the server, without its port.
        variables: Environment variables, besides those of this process.
        log: File that gets its output.
    """

    def __init__(self, command: Sequence[str], variables: Mapping[str, str], log: Path) -> None:
        with socket.socket() as free:
            # A free port, chosen by the kernel; until the server starts another may take it.
            free.bind(("127.0.0.1", 0))
            port = free.getsockname()[1]
        self.url, self.num_restarts = f"http://127.0.0.1:{port}", 0
        self._command, self._log = [*command, "--port", str(port)], log
        self._environment = {**os.environ, **_SAFE, **variables}
        self.process = self._start()
        self._deadline = time.monotonic() + _START_TIMEOUT_S

    def _start(self) -> subprocess.Popen[bytes]:
        with open_to_append(self._log, is_of_lines=False) as file:
            # A session of its own: a terminal's interrupt is for the trainer, which saves first.
            return subprocess.Popen(
                bound(self._command),
                env=self._environment,
                stdout=file,
                stderr=file,
                start_new_session=True,
            )

    def is_healthy(self) -> bool:
        """Whether it answers."""
        try:
            urllib.request.urlopen(f"{self.url}/health", timeout=_HEALTH_TIMEOUT_S).close()
        except OSError:  # refused, too slow, or an error's status
            return False
        self._deadline = time.monotonic() + _GRACE_S
        return True

    def keep(self) -> None:
        """Start it again if its process has ended, or if it has not answered for too long.

        Raises:
            WorkerLost: That was done too often.
        """
        if self.is_healthy():
            return
        has_ended = self.process.poll() is not None
        if not has_ended and time.monotonic() < self._deadline:
            return
        why = f"ended with code {self.process.returncode}" if has_ended else "does not answer"
        if self.num_restarts == _MAX_RESTARTS:
            raise WorkerLost(
                f"the server {self.url} {why}, after {_MAX_RESTARTS} restarts; see {self._log}"
            )
        logger.warning("the server %s %s and is started again; see %s", self.url, why, self._log)
        self.end()
        self.num_restarts += 1
        self.process = self._start()
        self._deadline = time.monotonic() + _START_TIMEOUT_S

    def end(self) -> None:
        """End it and all processes that it has started."""
        # Its whole session: an engine of vLLM computes in processes that the server has started.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGTERM)
        try:
            self.process.wait(_GRACE_S)
        except subprocess.TimeoutExpired:
            os.killpg(self.process.pid, signal.SIGKILL)
            self.process.wait()


def launch(
    paths: Sequence[str],
    flags: Sequence[str],
    *,
    num_gpus: int | None,
    servers: str,
    trust: bool = False,
) -> int:
    """Train on the GPUs of this machine; servers are ended with the run.

    If this process is killed, the kernel asks ranks and servers to end.

    Args:
        flags: Over them; also those of the command, such as ``--resume``.
        num_gpus: How many GPUs; None for all that are visible.
        servers: See `divided`.
        trust: Whether the files may name code and servers; see `pettingllms.trust`.

    Returns:
        Exit code of the run.

    Raises:
        PettingLLMsError: Bad input, or a server that does not stay alive.
    """
    config = load_config(paths, [flag for flag in flags if flag != "--resume"], trust=trust)
    if servers:
        config = served(config, is_resumed="--resume" in flags)
    division = divided(config, _gpus(num_gpus), servers=servers)
    with (
        tempfile.TemporaryDirectory(prefix="pettingllms-") as folder,
        contextlib.ExitStack() as end,
    ):
        started: dict[WatchedServer, tuple[str, ...]] = {}
        for names, gpus in division.servers:
            started[_server(config, names, gpus)] = names
            end.callback([*started][-1].end)
        files = [*paths, *_with_endpoints(started, Path(folder))]
        _wait(started)
        # A flag, over one that says otherwise.
        kind = ("--engine.kind", "vllm_server") if started else ()
        command = [sys.executable]
        if division.num_ranks > 1:
            number = str(division.num_ranks)
            command += ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node", number]
        # Trusted: the files are checked, and that of the servers is our own.
        words = ["-m", "pettingllms_trainers.cli", *files, *flags, *kind, "--trust"]
        trainer = subprocess.Popen(
            bound([*command, *words]),
            env=os.environ
            | _SAFE
            | {"CUDA_VISIBLE_DEVICES": ",".join(division.gpus)}
            | ({SERVERS: servers} if started else {}),
        )
        with _passed_on(trainer):
            return _followed(trainer, started)


def _gpus(wanted: int | None) -> list[str]:
    # Imported here: torch takes seconds. Counting starts no CUDA where the driver's library is.
    import torch

    visible = os.environ.get("CUDA_VISIBLE_DEVICES")
    count = torch.cuda.device_count()
    gpus = visible.split(",")[:count] if visible else list(map(str, range(count)))
    if not gpus or (wanted is not None and not 0 < wanted <= len(gpus)):
        asked = "at least one is needed" if wanted is None else f"--gpus is {wanted}"
        raise ConfigError(f"this machine has {counted(len(gpus), 'GPU')} to use, and {asked}")
    return gpus[:wanted]


def _server(config: Config, names: Sequence[str], gpus: Sequence[str]) -> WatchedServer:
    # Imported here: transformers takes seconds.
    from pettingllms_trainers.backends.hf.adapters import read_settings
    from pettingllms_trainers.backends.vllm.server import server_command

    members = [config.models[name] for name in names]
    adapters = [policy for policy in members if policy.has_adapter]
    ranks = [policy.lora.rank or read_settings(Path(policy.model)).r for policy in adapters]
    variables, arguments = server_command(members[0].base[0], len(ranks), max(ranks, default=0))
    vllm = config.engine.vllm
    options = {
        "--dtype": config.engine.precision,
        "--max-num-seqs": vllm.max_num_seqs,
        "--tensor-parallel-size": vllm.tensor_parallel_size,
        "--max-model-len": vllm.max_model_len,
        "--kv-cache-memory-bytes": vllm.kv_cache_bytes,
        "--gpu-memory-utilization": vllm.gpu_memory_utilization,
    }
    for option, value in options.items():
        arguments += [option, str(value)] if value else []  # 0: as vLLM has it
    arguments += ["--enforce-eager"] if vllm.enforce_eager else []
    out = Path(config.output_dir)
    log = out.parent / f"{out.name}-server-{'-'.join(gpus)}.log"
    log.parent.mkdir(parents=True, exist_ok=True)
    shown = {"CUDA_VISIBLE_DEVICES": ",".join(gpus)}
    return WatchedServer([sys.executable, *arguments], variables | shown, log)


def _with_endpoints(servers: Mapping[WatchedServer, Sequence[str]], folder: Path) -> Iterator[str]:
    """Write the run file that names the servers of each policy, if there are any."""
    if not servers:
        return
    policies: dict[str, dict[str, list[str]]] = {}
    for server, names in servers.items():
        for name in names:
            policies.setdefault(name, {"endpoints": []})["endpoints"].append(server.url)
    path = folder / "servers.toml"
    path.write_text(tomli_w.dumps({"policies": policies}))
    yield str(path)


def _wait(servers: Mapping[WatchedServer, object]) -> None:
    while not all([server.is_healthy() for server in servers]):
        for server in servers:
            server.keep()
        time.sleep(_PERIOD_S)


def _followed(trainer: subprocess.Popen[bytes], servers: Mapping[WatchedServer, object]) -> int:
    """Keep the servers until the run ends; return its exit code."""
    try:
        while trainer.poll() is None:
            for server in servers:
                server.keep()
            with contextlib.suppress(subprocess.TimeoutExpired):
                trainer.wait(_PERIOD_S)
    finally:
        if trainer.poll() is None:
            trainer.terminate()  # it saves
            trainer.wait()
    return trainer.returncode if trainer.returncode >= 0 else 128 - trainer.returncode


@contextlib.contextmanager
def _passed_on(process: subprocess.Popen[bytes]) -> Iterator[None]:
    """Pass signals to stop on to a process, and wait for its end all the same."""
    before = {
        signal.SIGTERM: signal.signal(signal.SIGTERM, lambda *_: process.terminate()),
        # A terminal tells all of these.
        signal.SIGINT: signal.signal(signal.SIGINT, lambda *_: None),
        signal.SIGHUP: signal.signal(signal.SIGHUP, signal.SIG_IGN),
    }
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
