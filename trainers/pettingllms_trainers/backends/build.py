"""From a configuration to the models and engines of its policies."""

from __future__ import annotations

import contextlib
import functools
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import torch
from transformers.utils import logging as transformers_logging

from pettingllms.errors import FOREIGN, InvalidArgument, PettingLLMsError
from pettingllms.seeding import derive_seed
from pettingllms_trainers.backends.device import named_device
from pettingllms_trainers.backends.engines import build_engines, computes_elsewhere
from pettingllms_trainers.backends.hf.adapters import Adapter, AdapterBase
from pettingllms_trainers.backends.hf.chat import vllm_parser
from pettingllms_trainers.backends.hf.learner import Learner
from pettingllms_trainers.backends.hf.model import LoadedModel
from pettingllms_trainers.backends.hf.policy import NewLearner, TransformersPolicy
from pettingllms_trainers.backends.hf.tiny import build_policy
from pettingllms_trainers.backends.hf.updater import TrainingSettings
from pettingllms_trainers.config import Config, PolicyConfig
from pettingllms_trainers.config.loading import allowed
from pettingllms_trainers.config.root import learning_rates
from pettingllms_trainers.config.sections import TINY, base_groups, base_of_adapter
from pettingllms_trainers.errors import ConfigError, reason_of
from pettingllms_trainers.files import whole_directory
from pettingllms_trainers.policies.fixed import FixedPolicy
from pettingllms_trainers.policies.pool import Batcher, ModelPolicy, PolicyPool
from pettingllms_trainers.ranks import Ranks
from pettingllms_trainers.rollout.sampler import sampling_of


def build_policies(config: Config, ranks: Ranks | None = None) -> dict[str, TransformersPolicy]:
    """Load or build the model of every policy; those with adapters share their base model.

    Raises:
        ConfigError: A model cannot be loaded, or there is no such device.
        InvalidArgument: The sizes of a tiny model do not go together.
    """
    ranks = ranks or Ranks()
    transformers_logging.disable_progress_bar()
    if config.num_threads:
        torch.set_num_threads(config.num_threads)
    device = _device(config, ranks)
    policies: dict[str, TransformersPolicy] = {}
    for names in base_groups(config.models):
        # Frozen ones whose engine has a copy neither generate nor learn here.
        is_copied = all(config.policies[name].frozen for name in names) and config.engine.has_copy
        place = torch.device("cpu") if is_copied else device
        policies |= _build_group(config, names, place, ranks)
    return {name: policies[name] for name in config.models}


def _build_group(
    config: Config, names: Sequence[str], device: torch.device, ranks: Ranks
) -> dict[str, TransformersPolicy]:
    """Policies that share their base, or one policy that has all its weights."""
    name, first = names[0], config.policies[names[0]]
    try:
        if any(config.policies[name].has_adapter for name in names):
            loaded = _load_adapters(config, names, device)
        else:
            loaded = {name: _load_own(config, name, device, ranks)}
    except PettingLLMsError:
        raise
    except FOREIGN as error:  # what libraries raise that read files of others
        is_clear = isinstance(error, OSError | ValueError)
        hint = "" if is_clear else f" ({type(error).__name__}; are its files whole?)"
        raise ConfigError(
            f"[policies.{name}] model = {first.model!r} cannot be loaded: {reason_of(error)}{hint}"
        ) from error
    return {
        name: TransformersPolicy(
            model,
            engine=config.engine,
            training=None
            if config.policies[name].frozen
            else _training(config, name, ranks.size * (device.type != "cpu")),
            chat_template_kwargs=config.policies[name].chat_template_kwargs,
            tool_parser=config.policies[name].tool_parser,
            ranks=ranks,
            new_learner=_new_learner(config),
        )
        for name, model in loaded.items()
    }


def _load_own(config: Config, name: str, device: torch.device, ranks: Ranks) -> LoadedModel:
    policy = config.policies[name]
    is_sharded = config.shards_weights and not policy.frozen
    place = None if is_sharded else device
    if is_sharded and config.fsdp.enabled and not ranks.is_main:
        place = torch.device("meta")  # its shards come from the main rank
    with (
        _source(policy, derive_seed(config.seed, "model", name)) as source,
        _loading_shards(config) if is_sharded else contextlib.nullcontext(),
    ):
        return LoadedModel.from_pretrained(
            source,
            precision=config.engine.precision,
            # DeepSpeed keeps weights in float32 beside these, and places what it shards.
            is_trained=not policy.frozen and not config.deepspeed.stage,
            device=place,
        )


def _loading_shards(config: Config) -> contextlib.AbstractContextManager[None]:
    if config.fsdp.enabled:
        return contextlib.nullcontext()
    # Imported here: DeepSpeed is optional, and slow to import.
    from pettingllms_trainers.backends.deepspeed import loading_shards

    return loading_shards(config.optimizer, config.engine.precision, config.deepspeed)


def _load_adapters(
    config: Config, names: Sequence[str], device: torch.device
) -> dict[str, LoadedModel]:
    first = config.policies[names[0]]
    with _source(first, derive_seed(config.seed, "model", *first.base)) as source:
        base = AdapterBase.from_pretrained(
            base_of_adapter(source) or source,
            precision=config.engine.precision,
            device=device,
            is_stored=first.model != TINY,
            is_quantised=any(config.policies[name].lora.base_precision == "nf4" for name in names),
        )
    return {
        name: LoadedModel.of_adapter(_adapter(config, name, base), config.policies[name].model)
        for name in names
    }


def _adapter(config: Config, name: str, base: AdapterBase) -> Adapter:
    policy = config.policies[name]
    try:
        if policy.lora.rank:
            return base.add(name, policy.lora, derive_seed(config.seed, "adapter", name))
        return base.read(name, Path(policy.model)) if policy.has_adapter else base.bare()
    except InvalidArgument as error:
        raise ConfigError(f"[policies.{name}]: {error}") from error


def _new_learner(config: Config) -> NewLearner:
    if config.fsdp.enabled:
        from pettingllms_trainers.backends.fsdp import fsdp_learner

        return fsdp_learner
    if not config.deepspeed.stage:
        return Learner.plain
    # Imported here: DeepSpeed is optional, and slow to import.
    from pettingllms_trainers.backends.deepspeed import zero_learner

    return functools.partial(zero_learner, deepspeed=config.deepspeed)


def _training(config: Config, name: str, num_gpus: int) -> TrainingSettings:
    return TrainingSettings(
        loss=config.resolved_loss,
        optimizer=config.optimizer.model_copy(
            update={"learning_rate": learning_rates(config)[name]}
        ),
        num_steps=sum(config.updates_policy(name, step) for step in range(config.num_steps)),
        max_completion_tokens=max(
            sampling_of(config.rollout, role).max_completion_tokens
            for role in config.roles_of(name)
        ),
        seed=derive_seed(config.seed, "update", name),
        max_logprob_gap=config.engine.max_logprob_gap,
        compares_roles=config.optimizer.role_gradients and len(config.roles_of(name)) > 1,
        value=config.algorithm.critic,
        memory_advice=functools.partial(memory_advice, config, num_gpus),
    )


def memory_advice(config: Config, num_gpus: int) -> Iterator[str]:
    """Yield settings with which less memory is needed at once, those that cost least first.

    Not those of micro-batches, which every run may have.

    Args:
        num_gpus: On which the run computes; 0: on a CPU.
    """
    vllm, advice = config.engine.vllm, list[Sequence[str]]()
    # TOML takes all other names that a policy may have without quotation marks.
    names = {n: n if n.isascii() and "." not in n else f'"{n}"' for n in config.models}
    tables = {name: f"policies.{key}.lora" for name, key in names.items()}
    adapters = [name for name, policy in config.models.items() if policy.has_adapter]
    full = [n for n, p in config.models.items() if not (p.frozen or p.has_adapter)]
    if num_gpus and config.engine.can.reserves_memory:
        if not config.engine.sleeps:
            advice.append(["engine.vllm.sleep = true"])
        if not vllm.kv_cache_bytes:
            yield f"a lower engine.vllm.gpu_memory_utilization (now {vllm.share:g})"
    if num_gpus and any(config.models[n].lora.base_precision != "nf4" for n in adapters):
        advice.append([f'{tables[name]}.base_precision = "nf4"' for name in adapters])
    if num_gpus and full:
        advice += [["optimizer.state_bits = 8"]] * (config.optimizer.state_bits != 8)
        if num_gpus > 1 and not config.shards_weights:
            advice += [["fsdp.enabled = true"], ["deepspeed.stage = 3"]]
        if config.deepspeed.offload != "all":
            advice.append(["deepspeed.stage = 3", 'deepspeed.offload = "all"'])
    if full:
        advice.append([f"{tables[name]}.rank = 32" for name in full])
    yield from allowed(config, advice)


@contextlib.contextmanager
def _source(policy: PolicyConfig, seed: int) -> Iterator[str]:
    """The directory or hub name of a model; a tiny one is built for as long as it takes."""
    if policy.model != TINY:
        yield policy.model
        return
    with tempfile.TemporaryDirectory(prefix="pettingllms-") as folder:
        model = Path(folder) / TINY
        with whole_directory(model) as partial:  # a full disk is then an error of the system
            build_policy(partial, policy, seed)
        yield str(model)


def _device(config: Config, ranks: Ranks) -> torch.device:
    device = named_device(config, ranks.size)
    try:
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError) as error:
        raise ConfigError(
            f"device = {config.device!r} cannot be used on this machine, with this torch: "
            f'{reason_of(error).partition(". ")[0]}. Set device = "auto", or name another'
        ) from error
    return device


def build_pool(
    config: Config,
    policies: Mapping[str, TransformersPolicy],
    fixed_policies: Mapping[str, FixedPolicy] | None = None,
    ranks: Ranks | None = None,
) -> PolicyPool:
    """Start the engines and return who plays which role.

    Raises:
        ConfigError: An engine cannot be started or reached.
    """
    ranks = ranks or Ranks()
    members: dict[str, ModelPolicy] = {}
    engines = build_engines(config, policies, ranks)
    # Its sync is shared where the engine is.
    num_engines = len({id(sync) for _, sync in engines.values()})  # policies of a base share one
    overlaps = config.rollout.env_threads > 0 or computes_elsewhere(config, num_engines)
    batchers = {
        id(engine): Batcher(engine, overlaps=overlaps, is_continuous=config.is_continuous)
        for engine, _ in engines.values()
    }
    for name, (engine, sync) in engines.items():
        policy = policies[name]
        adapter, chat = policy.loaded.adapter, policy.chat
        if chat.tool_parser:
            vllm_parser(chat.tool_parser, chat.tokenizer)  # raises now, not at the first call
        members[name] = ModelPolicy(
            name=name,
            encode=chat.encode,
            encode_answer=chat.encode_answer,
            token_texts=chat.token_texts,
            check_grammar=policy.grammars.check if policy.grammars else None,
            read_calls=chat.text if chat.tool_parser else None,
            batcher=batchers[id(engine)],
            adapter=None if adapter is None else adapter.name or "",
            updater=policy.updater,
            sync=sync,
        )
    return PolicyPool(
        policies=members, roles=config.roles, fixed_policies=fixed_policies or {}, ranks=ranks
    )
