"""The part of a configuration that says who generates, and where."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from pettingllms_trainers.config.section import Section


def _check_endpoints(urls: tuple[str, ...]) -> tuple[str, ...]:
    for url in urls:
        if not url.startswith(("http://", "https://")):
            raise ValueError(f"{url!r} is no address of a server; such as http://127.0.0.1:8000")
    cleaned = tuple(url.rstrip("/") for url in urls)
    if len(set(cleaned)) < len(cleaned):
        raise ValueError("an address is listed twice; name every replica once")
    return cleaned


Endpoints = Annotated[tuple[str, ...], AfterValidator(_check_endpoints)]
"""Addresses of servers, without a slash at the end."""


@dataclass(frozen=True)
class EngineKind:
    """What engines of one kind can do; code asks for this, not for the name of a kind."""

    module: str = ""
    """Module whose `build_engine` starts one (see `EngineBuilder`). It then has a copy of the
    weights. Empty: the model that learns generates."""
    is_local: bool = True
    """Whether it computes on the devices of the run; otherwise it has addresses."""
    takes_requests: bool = False
    """Whether it takes requests while it computes."""
    reserves_memory: bool = False
    """Whether it takes a fixed share of a GPU's memory, which it can give back while it sleeps."""
    shards: bool = False
    """Whether it can spread its weights over several GPUs."""


Kind = Literal["transformers", "vllm", "vllm_server"]

_VLLM = "pettingllms_trainers.backends.vllm"
KINDS: dict[Kind, EngineKind] = {
    "transformers": EngineKind(),
    "vllm": EngineKind(
        f"{_VLLM}.in_process", takes_requests=True, reserves_memory=True, shards=True
    ),
    "vllm_server": EngineKind(f"{_VLLM}.server", is_local=False, takes_requests=True),
}
"""A new kind of engine is a name above, a row here and a module."""


class VLLMConfig(Section):
    """The vLLM engines in this process, one per policy: engine.kind = "vllm"."""

    gpu_memory_utilization: float = Field(default=0.4, gt=0, le=1)
    """Share of the GPU's memory that one engine takes for its copy of the weights and its KV
    cache. What all engines leave is for the update."""
    kv_cache_bytes: int = Field(default=0, ge=0)
    """Size of one engine's KV cache; 0: what gpu_memory_utilization leaves, or on a CPU as much as
    the prompts and completions of the run need."""
    max_model_len: int = Field(default=0, ge=0)
    """Longest prompt and completion together, in tokens; 0: the limit of the model. A lower limit
    lets more sequences into the KV cache."""
    max_num_seqs: int = Field(default=256, ge=1)
    """Completions that are written at once; does not change the result."""
    enforce_eager: bool = False
    """Whether the engine does without compilation and CUDA graphs: it starts sooner and takes less
    memory, but writes more slowly. On a CPU always so."""
    tensor_parallel_size: int = Field(default=1, ge=1)
    """GPUs over which one engine spreads its weights and KV cache, for models too large for one
    (experimental). Needs a run in one process, or Ray with as many ray.gpus_per_worker."""
    sleep: bool = False
    """Whether the engines give their GPU memory back while policies are updated: for a GPU that
    cannot hold engines and update at once. Needs a GPU. Of several engines each then has a process
    of its own, since vLLM lets one per process sleep (experimental)."""


class VLLMServerConfig(Section):
    """Requests to vLLM servers: engine.kind = "vllm_server"; see policies.NAME.endpoints."""

    timeout_s: float = Field(default=600.0, gt=0)
    """A server that does not answer a request within this time is left out."""
    num_attempts: int = Field(default=3, ge=1)
    """How often a request is sent before its rollout fails, when servers answer with errors."""
    max_concurrent_requests: int = Field(default=256, ge=1)
    """Requests that one server holds at once; does not change the result."""
    sync_dir: str = ""
    """Folder through which new weights reach the servers: they must see it under the same path.
    Empty: the memory file system /dev/shm, for servers on this machine."""


class EngineConfig(Section):
    """How completions are generated."""

    kind: Kind = "transformers"
    """transformers: the model that is trained generates; vllm: vLLM in this process; vllm_server:
    vLLM servers. vLLM has its own copy of the weights and gets the new ones after every update; on
    GPUs it is experimental: tested on CPUs only."""
    attention: Literal["shared_prefix", "expanded"] = "shared_prefix"
    """With transformers only. shared_prefix: candidates attend one copy of their prompt, unless the
    check at the start finds that this changes log-probabilities; expanded: plain decoding (needs
    optimizer.packing = false)."""
    tokens_per_batch: int = Field(default=65536, ge=1)
    """With transformers only: prompt and completion tokens that are held at once; does not change
    the result."""
    precision: Literal["float32", "bfloat16", "auto"] = "float32"
    """Arithmetic of generation and training; the weights that are trained are kept in float32.
    auto: bfloat16 where the device computes it as fast as float32, which is measured at the start;
    a run that is resumed keeps what it had."""
    guided_decoding: bool = False
    """Whether answers of a wanted form (a schema, a call) are sampled from the tokens that keep to
    it, by a grammar, and trained as drawn from those; needs the package xgrammar."""
    max_logprob_gap: float = Field(default=1.0, gt=0)
    """The run stops when the engine's log-probabilities of sampled tokens are on average further
    than this from those of the trainer, in nats: the engine then has other weights. Checked when
    loss.old_logprobs is recomputed, as it is by default with vLLM."""
    vllm: VLLMConfig = VLLMConfig()
    vllm_server: VLLMServerConfig = VLLMServerConfig()

    @property
    def number_bytes(self) -> int:
        """Bytes of a number in this precision."""
        return 2 if self.precision == "bfloat16" else 4

    @property
    def can(self) -> EngineKind:
        """What engines of this kind can do."""
        return KINDS[self.kind]

    @property
    def has_copy(self) -> bool:
        """Whether the engine has a copy of the weights, beside the model that learns."""
        return bool(self.can.module)

    @property
    def num_shards(self) -> int:
        """GPUs over which one engine is spread."""
        return self.vllm.tensor_parallel_size if self.can.shards else 1

    @property
    def sleeps(self) -> bool:
        """Whether the engines give their memory back while policies are updated."""
        return self.can.reserves_memory and self.vllm.sleep

    @property
    def max_length(self) -> int:
        """Longest prompt and completion together that its settings allow; 0: the model's own."""
        return self.vllm.max_model_len if self.can.reserves_memory else 0
