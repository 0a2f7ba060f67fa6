"""vLLM servers as an engine: any number of replicas of one policy, over HTTP.

Servers are started by hand or by a launcher, beside or far from the trainer, as
`vllm_replica.start_command` says. Their routes for new weights have no protection: keep them in a
network of your own.

A replica that dies or does not answer is taken out, and its requests go to the others. It is asked
again when there are new weights, and comes back when it takes them.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import uuid
from collections.abc import AsyncGenerator, Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx2
import torch
from torch import Tensor
from transformers import PreTrainedTokenizerBase

from pettingllms_trainers.backends.hf.model import LoadedModel
from pettingllms_trainers.backends.vllm.format import completions_of, sampling_parameters
from pettingllms_trainers.backends.vllm.handover import weight_files
from pettingllms_trainers.backends.vllm.replica import (
    Replica,
    ReplicaLost,
    RequestFailed,
    start_command,
    trusted,
)
from pettingllms_trainers.config import Config
from pettingllms_trainers.config.engine import VLLMServerConfig
from pettingllms_trainers.errors import ConfigError, GenerationError
from pettingllms_trainers.policies.requests import check_request
from pettingllms_trainers.ranks import Ranks
from pettingllms_trainers.types import GenerateRequest, RequestLimits, TokenCompletion

__all__ = ["VLLMServerEngine", "build_engine"]

logger = logging.getLogger(__name__)

_CONNECT_TIMEOUT_S = 10.0
_PAUSE_S = 0.5


def build_engine(
    config: Config,
    loaded: LoadedModel,
    *,
    endpoints: Sequence[str],
    ranks: Ranks,
    has_own_process: bool,
    max_adapters: int,
    max_adapter_rank: int,
) -> VLLMServerEngine:
    del has_own_process
    return VLLMServerEngine(
        endpoints,
        loaded.tokenizer,
        stop_ids=loaded.stop_ids,
        config=config.engine.vllm_server,
        dtype=torch.float32 if config.engine.precision == "float32" else torch.bfloat16,
        max_adapters=max_adapters,
        max_adapter_rank=max_adapter_rank,
        processes=ranks,
    )


class VLLMServerEngine:
    """Replicas of one model on vLLM servers, as engine (`Generate`).

    Args:
        endpoints: Addresses of the servers.
        tokenizer: The tokenizer.
        stop_ids: Token ids that end a completion.
        config: Time-outs, attempts, where weights are handed over.
        dtype: In which weights are handed over.
        max_adapters: LoRA adapters that will be loaded.
        max_adapter_rank: Highest rank of an adapter.
        processes: Those that use these servers together; None for this one alone. What is loaded
            comes from the main one; loading is collective.

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
        processes: Ranks | None = None,
    ) -> None:
        self._tokenizer, self._stop_ids = tokenizer, frozenset(stop_ids)
        self._config, self._dtype = config, dtype
        self._replicas = [Replica(url, config.timeout_s) for url in endpoints]
        self._processes = processes or Ranks()
        self._client: httpx2.AsyncClient | None = None
        self._num_calls = 0
        self._run, self._num_loads = self._processes.broadcast(uuid.uuid4().hex[:12]), 0
        wanted = (max_adapters, max_adapter_rank)
        limits = [_checked_limits(replica, *wanted) for replica in self._replicas]
        self.limits = min(limits, key=lambda limit: limit.context_length or 0)

    @property
    def needs_weights(self) -> bool:
        """Whether a replica has other weights than those that were loaded last. Collective."""
        is_lost = any(replica.loss for replica in self._replicas)
        return self._processes.any(not self._num_loads or is_lost)

    is_concurrent = True

    def check(self, request: GenerateRequest) -> None:
        check_request(request, self.limits)

    async def generate(self, requests: Sequence[GenerateRequest]) -> list[list[TokenCompletion]]:
        """All requests are on their way at once.

        Raises:
            InvalidArgument: A request cannot be answered by this model.
            GenerationError: No replica is left, or one refuses a request.
        """
        return await self.generate_with(requests, [None] * len(requests))

    async def generate_with(
        self, requests: Sequence[GenerateRequest], adapters: Sequence[str | None]
    ) -> list[list[TokenCompletion]]:
        """Generate with LoRA adapters that were loaded, one for each request or None."""
        for request in requests:
            check_request(request, self.limits)
        async with self._connected() as client:
            tasks = [
                asyncio.ensure_future(self._complete(client, request, adapter))
                for request, adapter in zip(requests, adapters, strict=True)
            ]
            try:
                return list(await asyncio.gather(*tasks))
            finally:
                for task in tasks:
                    task.cancel()
                await asyncio.gather(*tasks, return_exceptions=True)

    @contextlib.asynccontextmanager
    async def _connected(self) -> AsyncGenerator[httpx2.AsyncClient]:
        """Yield the client of all calls that overlap: they share its connections."""
        if self._client is None:
            most = self._config.max_concurrent_requests * len(self._replicas)
            timeout = httpx2.Timeout(self._config.timeout_s, connect=_CONNECT_TIMEOUT_S, pool=None)
            limits = httpx2.Limits(max_connections=most)
            self._client = httpx2.AsyncClient(timeout=timeout, limits=limits, verify=trusted())
        self._num_calls += 1
        client = self._client
        try:
            yield client
        finally:
            self._num_calls -= 1
            if not self._num_calls:
                self._client = None
                await client.aclose()

    async def _complete(
        self, client: httpx2.AsyncClient, request: GenerateRequest, adapter: str | None
    ) -> list[TokenCompletion]:
        """The completions of a request; none when all its attempts have failed."""
        body = {
            "token_ids": request.prompt_ids,
            "sampling_params": sampling_parameters(request, self._stop_ids),
            "model": adapter,
        }
        begun = self._num_loads

        def versions() -> list[str]:
            return list(map(self._version, range(begun, self._num_loads + 1))) if begun else []

        cause = ""
        num_failed = 0
        while num_failed < self._config.num_attempts:
            try:
                raw = await self._least_busy().ask(client, body, versions)
            except ReplicaLost:
                continue
            except RequestFailed as error:
                num_failed, cause = num_failed + 1, str(error)
                await asyncio.sleep(_PAUSE_S)
            else:
                return completions_of(self._tokenizer, request, raw)
        logger.warning("a request is given up after %d attempts: %s", num_failed, cause)
        return []

    def _least_busy(self) -> Replica:
        alive = [replica for replica in self._replicas if replica.loss is None]
        if not alive:
            losses = "; ".join(f"{replica.url}: {replica.loss}" for replica in self._replicas)
            raise GenerationError(
                f"no vLLM server is left ({losses}). Start them again and resume the run"
            )
        return min(alive, key=lambda replica: replica.num_requests)

    def load_weights(self, weights: Iterable[tuple[str, Tensor]]) -> None:
        """Replace the weights of all replicas, also of those that were taken out.

        Args:
            weights: Names as in a Hugging Face checkpoint, without a head that is tied.

        Raises:
            GenerationError: No replica has taken them.
        """
        self._num_loads += 1
        if self._processes.is_main:
            with weight_files(weights, self._dtype, self._config.sync_dir) as folder:
                self._on(
                    self._replicas,
                    lambda replica: replica.load(folder, self._version(self._num_loads)),
                )
            return
        for _ in weights:  # each may have to be put together by all
            pass
        self._on(self._replicas, lambda _: None)

    def load_adapter(self, name: str, directory: str | Path) -> None:
        """Load a LoRA adapter into all replicas that have the weights, or replace it.

        Args:
            name: Any; requests name it.
            directory: As written by peft; the servers must see it until it is replaced.

        Raises:
            GenerationError: No replica has taken it.
        """
        alive = [replica for replica in self._replicas if replica.loss is None]
        self._on(alive, lambda replica: replica.load_adapter(name, Path(directory)))

    def release(self) -> None:
        """Do nothing: servers have memory of their own."""

    def _version(self, num_loads: int) -> str:
        return f"{self._run}-{num_loads}"

    def _on(self, replicas: Sequence[Replica], action: Callable[[Replica], None]) -> None:
        """Do something with some replicas at once; those that fail are taken out."""

        def attempt(replica: Replica) -> str:
            try:
                action(replica)
            except ReplicaLost as error:
                logger.warning("the vLLM server %s is taken out: %s", replica.url, error)
                return str(error)
            return ""

        causes: list[str] = []
        if self._processes.is_main:
            with ThreadPoolExecutor(len(self._replicas)) as executor:
                causes = list(executor.map(attempt, replicas))
        losses = [replica.loss for replica in self._replicas]
        causes, losses = self._processes.broadcast((causes, losses))
        for replica, loss in zip(self._replicas, losses, strict=True):
            replica.loss = loss
        if all(causes):
            raise GenerationError(
                f"no vLLM server has taken what was to be loaded ({'; '.join(causes)}). Their logs "
                "say more; start them again with the model of this run, and resume it"
            )


def _checked_limits(replica: Replica, max_adapters: int, max_adapter_rank: int) -> RequestLimits:
    start = start_command(max_adapters, max_adapter_rank)
    try:
        settings = replica.settings()
    except ReplicaLost as error:
        raise ConfigError(
            f"the vLLM server {replica.url} cannot be used ({error}). Start it with: {start}"
        ) from error
    if settings["logprobs_mode"] != "processed_logprobs":
        raise ConfigError(
            f"the vLLM server {replica.url} has the logprobs mode {settings['logprobs_mode']!r}; "
            f"it must be 'processed_logprobs'. Start it with: {start}"
        )
    slots, rank = settings.get("max_loras", 0), settings.get("max_lora_rank", 0)
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
