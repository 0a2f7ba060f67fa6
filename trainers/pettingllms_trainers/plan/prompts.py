"""Whether the prompts of a run fit into its models: checked before anything is loaded."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from transformers import AutoConfig

from pettingllms_trainers.config import Config
from pettingllms_trainers.config.policies import TINY, PolicyConfig, base_of_adapter
from pettingllms_trainers.errors import ConfigError
from pettingllms_trainers.plan.models import model_problems
from pettingllms_trainers.plan.step import RolePrompt, first_prompts
from pettingllms_trainers.rollout.environments import RunEnvironment
from pettingllms_trainers.rollout.sampler import sampling_of

__all__ = ["check_prompts", "prompt_problems"]


def check_prompts(config: Config, environments: Sequence[RunEnvironment]) -> None:
    """Raise before a run starts in which no prompt would fit.

    Args:
        config: The run's configuration.
        environments: What the run plays; it is not changed.

    Raises:
        ConfigError: A model is not there or cannot chat, or the first prompts of a policy do not
            fit; it names the key to change.
    """
    for problem in model_problems(config):
        raise ConfigError(problem)
    contexts = {
        name: length
        for name, policy in config.models.items()
        if (length := _context_length(policy)) is not None
    }
    for problem in prompt_problems(config, contexts, first_prompts(config, environments)):
        raise ConfigError(problem)


def prompt_problems(
    config: Config, contexts: Mapping[str, int], prompts: Mapping[str, RolePrompt]
) -> Iterator[str]:
    """Yield which policies cannot read their first prompts, each with the key to change.

    Args:
        config: The run's configuration.
        contexts: Policy to its longest prompt and completion together, in tokens.
        prompts: Role to its longest prompt in the first turn.
    """
    for name, context in contexts.items():
        roles = [role for role in prompts if config.policy_of(role) == name]
        completion = max(sampling_of(config.rollout, r).max_completion_tokens for r in roles)
        first = max((prompts[r].num_tokens for r in roles if prompts[r].is_measured), default=0)
        longest = config.engine.vllm.max_model_len if config.engine.kind == "vllm" else 0
        is_engine = 0 < longest < context
        room = max((longest if is_engine else context) - completion, 0)
        if first > room:
            yield (
                f"prompts of {name} begin at {first} tokens, and beside a completion of "
                f"{completion} there is room for {room}: {_more_room(config, name, is_engine)}, or "
                f"lower rollout.max_completion_tokens"
            )


def _more_room(config: Config, name: str, is_engine: bool) -> str:
    """Return what lets a policy read longer prompts."""
    if is_engine:
        return "raise engine.vllm.max_model_len"
    if config.policies[name].model == TINY:
        return f"raise policies.{name}.max_length"
    return "shorten the observations, take a model with a larger context"


def _context_length(policy: PolicyConfig) -> int | None:
    """Return the context of a model on this machine; None where only loading it will show."""
    if policy.model == TINY:
        return policy.max_length
    source = base_of_adapter(policy.model) or policy.model
    try:
        text = AutoConfig.from_pretrained(source, local_files_only=True).get_text_config()
    except (OSError, ValueError):
        return None
    return getattr(text, "max_position_embeddings", None)
