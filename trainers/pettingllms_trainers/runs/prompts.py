"""What roles read and write at first, and whether it fits: before anything is loaded."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple

from pettingllms import role_of
from pettingllms.errors import stated
from pettingllms.evaluation.plan import begun
from pettingllms.seeding import derive_seed
from pettingllms_trainers.backends.hf.shapes import (
    ModelShape,
    chat_of,
    context_length,
    model_problem,
    shape_of,
    tokenizer_of,
)
from pettingllms_trainers.config import Config, PolicyConfig
from pettingllms_trainers.config.sections import TINY, qualified
from pettingllms_trainers.errors import ConfigError
from pettingllms_trainers.rollout.candidates import RolloutSpec
from pettingllms_trainers.rollout.demonstrations import play_scripted_episode
from pettingllms_trainers.rollout.environments import RunEnvironment
from pettingllms_trainers.rollout.judging import Exchange
from pettingllms_trainers.rollout.sampler import sampling_of
from pettingllms_trainers.types import Lengths

if TYPE_CHECKING:
    from transformers import PreTrainedTokenizerBase

    from pettingllms_trainers.backends.hf.chat import Chat

_NUM_LEVELS = 8
# Levels that a scripted policy plays: in some environments each takes a second.
_NUM_ANSWERED = 2
_TEMPLATE_BYTES = 64
_ANSWER = "\U00100000"


class RolePrompt(NamedTuple):
    """The longest prompt of a role in the first turn of some training levels."""

    num_tokens: int
    is_measured: bool
    """Whether the length is that of the tokenizer; else it is the number of bytes, as there is no
    tokenizer on this machine."""
    unknown: frozenset[str] = frozenset()
    """Characters of all these prompts for which the tokenizer has no token."""


def check_models(config: Config) -> None:
    """Raise `ConfigError` where a model is not there, or cannot chat."""
    for name, policy in config.models.items():
        if problem := model_problem(policy):
            raise ConfigError(f"[policies.{name}] model = {policy.model!r}: {problem}")


def checked_prompts(
    config: Config, environments: Sequence[RunEnvironment]
) -> dict[str, RolePrompt]:
    """Find the first prompts of a run; raise before one starts in which none would fit.

    Args:
        environments: What the run plays; it is not changed.

    Raises:
        ConfigError: A model is not there or cannot chat, or the first prompts of a policy do not
            fit; it names the key to change.
    """
    check_models(config)
    prompts = first_prompts(config, environments)
    contexts = {name: context_length(policy) for name, policy in config.models.items()}
    for problem in prompt_problems(config, contexts, prompts):
        raise ConfigError(problem)
    return prompts


def first_prompts(config: Config, environments: Sequence[RunEnvironment]) -> dict[str, RolePrompt]:
    """Find the longest first-turn prompt of every role that a model plays.

    Args:
        environments: What the run plays; it is not changed.
    """
    stages = [(env, stage) for env in environments for stage in env.training]
    longest: dict[str, RolePrompt] = {}
    for (env, stage), level in itertools.product(stages, range(_NUM_LEVELS)):
        probe = begun(stage, derive_seed(config.seed, "planned level", level))
        for agent in probe.possible_agents:
            role = env.role(agent)
            policy = config.models.get(config.policy_of(role) or "")
            if policy is not None:
                with stated(ConfigError, f"{env.config.id} cannot write a prompt of {role}"):
                    messages = probe.messages(agent)
                found = _measured(policy, messages)
                other = longest.get(role, found)
                longer = max(found, other, key=lambda prompt: prompt.num_tokens)
                longest[role] = longer._replace(unknown=found.unknown | other.unknown)
    return longest


def template_advice(config: Config, environments: Sequence[RunEnvironment]) -> Iterator[str]:
    """Yield what the chat templates of a run leave out, and models that cannot end an answer."""
    for env, (name, policy) in itertools.product(environments, config.models.items()):
        chat = chat_of(policy)
        roles = [role for role, of in env.roles.items() if of == name]
        if chat is None or not roles:
            continue
        if chat.tokenizer.eos_token_id is None:
            yield f"the tokenizer of {name} has no end token: its answers go on to the token limit"
        probe = begun(env.training[0], derive_seed(config.seed, "planned level", 0))
        agents = [agent for agent in probe.possible_agents if role_of(agent) in roles]
        yield from _lost_by_template(chat, name, probe.messages(agents[0]))


def _lost_by_template(
    chat: Chat, name: str, messages: Sequence[Mapping[str, str]]
) -> Iterator[str]:
    own, tools = chat.in_own_words(messages)
    prompt: str = chat.template(own, tools, tokenize=False)
    for message in own:
        if message["content"].strip() not in prompt:
            yield (
                f"the chat template of {name} drops the {message['role']} message, which is never "
                'read: say it in another one (system = "" of [env.kwargs.prompts.ROLE])'
            )
    # A prompt ends where the answer begins; without one, the answer's own header is still to come.
    every = [*own, {"role": "assistant", "content": _ANSWER}]
    whole: str = chat.template(every, tools, tokenize=False, add_generation_prompt=False)
    answered, _, _ = whole.partition(_ANSWER)
    if answered.startswith(prompt) and answered.removeprefix(prompt).strip():
        yield (
            f"the chat template of {name} has no generation prompt: the model may go on with the "
            "user's message instead of answering it. Set `tokenizer.chat_template` and save it"
        )


def first_exchanges(
    config: Config, environments: Sequence[RunEnvironment]
) -> Mapping[str, Exchange]:
    """A first prompt of every role that is judged, with an answer."""
    found: dict[str, Exchange] = {}
    for env in environments if config.rewards else ():
        probe = begun(env.training[0], derive_seed(config.seed, "planned level", 0))
        for agent in probe.possible_agents:
            found[env.role(agent)] = Exchange(tuple(probe.messages(agent)), "x")
    return found


def _measured(policy: PolicyConfig, messages: Sequence[Mapping[str, str]]) -> RolePrompt:
    chat = chat_of(policy)
    if chat is None:
        sizes = [len(message["content"].encode()) + _TEMPLATE_BYTES for message in messages]
        return RolePrompt(sum(sizes), False)
    unknown = _unknown(chat.tokenizer, messages) if policy.model == TINY else frozenset[str]()
    return RolePrompt(len(chat.encode(messages)), True, unknown)


def _unknown(
    tokenizer: PreTrainedTokenizerBase, messages: Sequence[Mapping[str, str]]
) -> frozenset[str]:
    """What a tiny model's vocabulary lacks: its tokenizer reads all of it as one token."""
    found: set[str] = set()
    for message in messages:
        text = message["content"]
        read = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
        spans = zip(read["input_ids"], read["offset_mapping"], strict=True)
        found.update(text[a:b] for token, (a, b) in spans if token == tokenizer.unk_token_id)
    return frozenset(found)


def answer_lengths(config: Config, environments: Sequence[RunEnvironment]) -> dict[str, int | None]:
    """Count the tokens of every role's longest answer in episodes of a scripted policy.

    Those of the environment's first scripted policy, its best; end tokens are included. None for
    roles whose model has no tokenizer on this machine, and for those of an environment without
    scripted policies.
    """
    models = {
        role: config.models[policy]
        for env in environments
        for role in (qualified(env.name, each) for each in env.roles)
        if (policy := config.policy_of(role)) in config.models
    }
    longest: dict[str, int | None] = dict.fromkeys(models)
    stages = [(env, stage) for env in environments for stage in env.training]
    for (env, stage), level in itertools.product(stages, range(_NUM_ANSWERED)):
        if not stage.scripted_policies:
            continue
        # The levels whose prompts were measured, so that prompts and answers fit each other.
        seed = derive_seed(config.seed, "planned level", level)
        policies = {role: {stage.scripted_policies[0]: 1.0} for role in env.roles}
        spec = RolloutSpec(level, seed, seed)
        for decision in play_scripted_episode(stage, spec, policies).decisions:
            role = qualified(env.name, decision.role)
            tokenizer = tokenizer_of(models[role]) if role in models else None
            if tokenizer is not None:
                ids = tokenizer.encode(decision.text, add_special_tokens=False, verbose=False)
                longest[role] = max(1 + len(ids), longest[role] or 0)
    return longest


def prompt_problems(
    config: Config, contexts: Mapping[str, int | None], prompts: Mapping[str, RolePrompt]
) -> Iterator[str]:
    """Yield which policies cannot read their first prompts, each with the key to change.

    Args:
        contexts: Policy to its longest prompt and completion together, in tokens; None: no limit.
        prompts: Role to its longest prompt in the first turn.
    """
    for name, policy in config.models.items():
        roles = [role for role in prompts if config.policy_of(role) == name]
        unknown = "".join(sorted(set().union(*(prompts[role].unknown for role in roles))))
        if unknown:
            yield (
                f"policies.{name}.vocabulary lacks {unknown!r} of the first prompts of "
                f"{', '.join(roles)}: the policy would read all of these as one unknown token. Add "
                f"them, or leave policies.{name}.vocabulary out ({len(policy.vocabulary)} now)"
            )
    for role, prompt in prompts.items():
        name = config.policy_of(role) or ""
        if prompt.is_measured and not prompt.num_tokens:
            yield (
                f"policies.{name}: its tokenizer makes no token of the first prompt of {role}. The "
                "files of the tokenizer are missing, or its chat template is empty"
            )
        context, longest = contexts.get(name), config.engine.max_length
        if context is None or not prompt.is_measured:
            continue
        completion = sampling_of(config.rollout, role).max_completion_tokens
        is_engine = 0 < longest < context
        room = max((longest if is_engine else context) - completion, 0)
        more = "shorten the observations, take a model with a larger context"
        if config.policies[name].model == TINY:
            more = f"raise policies.{name}.max_length"
        if prompt.num_tokens > room:
            yield (
                f"prompts of {role} begin at {prompt.num_tokens} tokens, and beside a completion "
                f"of {completion} there is room for {room}: "
                f"{'raise engine.vllm.max_model_len' if is_engine else more}, or lower "
                f"max_completion_tokens in [rollout] or [rollout.per_role.{role}]"
            )


# Tokens of a block of vLLM's cache on a CPU; a sequence fills its last one in part.
_BLOCK = 32


def lengths_of(
    config: Config, shapes: Mapping[str, ModelShape], prompts: Mapping[str, RolePrompt]
) -> dict[str, Lengths]:
    """Longest sequences of every policy.

    A prompt can grow up to what the engine takes beside a completion; where no limit is set, it is
    taken as a first prompt with one more completion, of another agent, in it.
    """
    lengths: dict[str, Lengths] = {}
    longest = {
        role: sampling_of(config.rollout, role).max_completion_tokens
        for role in {*config.roles, *prompts}
    }
    for name, shape in shapes.items():
        roles = [role for role in prompts if config.policy_of(role) == name]
        completion = max(longest[role] for role in roles)
        limit = shape.context_length or sys.maxsize
        if config.engine.max_length:
            prompt = min(config.engine.max_length, limit) - completion
        else:
            first = max(prompts[role].num_tokens for role in roles)
            prompt = min(first + max(longest.values()), max(limit - completion, 1))
        lengths[name] = Lengths(max(prompt, 1), completion)
    return lengths


def with_cpu_cache(config: Config, prompts: Mapping[str, RolePrompt]) -> Config:
    """Give vLLM engines a cache for the run's own lengths.

    For engines on a CPU, where no share of a GPU's memory decides it. The cache holds all sequences
    that a train step or an evaluation asks for at once, as far as `engine.vllm.max_num_seqs` lets
    them be written together, and at least one of `engine.vllm.max_model_len`, which vLLM insists
    on.

    Args:
        config: Returned as it is with another engine, or a size of its own.
        prompts: Role to its longest prompt in the first turn.
    """
    vllm = config.engine.vllm
    if not config.engine.can.reserves_memory or vllm.kv_cache_bytes:
        return config
    shapes = {name: shape_of(name, policy) for name, policy in config.models.items()}
    lengths = lengths_of(config, shapes, prompts)
    algorithm = config.algorithm
    together = max(algorithm.candidates_per_decision, *algorithm.continuations(1))
    asked = config.rollout.num_levels * algorithm.episodes_per_level * together
    num_sequences = min(vllm.max_num_seqs, max(asked, config.evaluation.num_episodes))
    needed = 0
    for name, shape in shapes.items():
        longest = min(filter(None, (vllm.max_model_len, shape.context_length)), default=1)
        blocks = num_sequences * -(-sum(lengths[name]) // _BLOCK)
        # One more: vLLM keeps an empty block for itself.
        num_tokens = (1 + max(blocks, -(-longest // _BLOCK))) * _BLOCK
        needed = max(needed, config.engine.number_bytes * shape.cache_size * num_tokens)
    sized = vllm.model_copy(update={"kv_cache_bytes": needed})
    return config.model_copy(update={"engine": config.engine.model_copy(update={"vllm": sized})})
