"""Our side of trainer_trl.py: one agent, texts of random words, train steps of the real parts."""

from __future__ import annotations

import asyncio
import random
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import measuring
import torch
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from pettingllms import PromptTemplate, TextEnv, Transition
from pettingllms_trainers.backends.build import build_policies, build_pool
from pettingllms_trainers.config import Config
from pettingllms_trainers.learning.groups import ScoredDecisions, score_decisions, training_groups
from pettingllms_trainers.rollout.episode import LocalEpisodes
from pettingllms_trainers.rollout.failures import FailureLog
from pettingllms_trainers.rollout.flight import Gate, Voyage
from pettingllms_trainers.rollout.sampler import Sampler, TrainingEnvironment
from pettingllms_trainers.rollout.settings import episode_specs
from pettingllms_trainers.stopping import StopRequest
from pettingllms_trainers.types import RolloutTree, UpdateStats

LEARNING_RATE = 1e-5


class Size(NamedTuple):
    """Sizes of a Qwen3."""

    vocab_size: int
    hidden_size: int
    intermediate_size: int
    num_layers: int


class Shape(NamedTuple):
    """What a step samples and learns from; lengths in tokens."""

    num_prompts: int
    prompt_length: int
    num_candidates: int
    completion_length: int

    @property
    def num_rows(self) -> int:
        """Completions of a step."""
        return self.num_prompts * self.num_candidates


class Words(TextEnv[str]):
    """One agent answers a text of random words once; the reward is a hash of the answer."""

    default_prompts: ClassVar = {"writer": PromptTemplate("", "{words}")}
    prompt_fields: ClassVar = {"words": "the text"}

    def __init__(self, vocab_size: int, num_words: int) -> None:
        super().__init__(stages=(("writer_0",),), max_turns=1)
        self.vocab_size, self.num_words = vocab_size, num_words

    def _generate(self, rng: random.Random, options: Mapping[str, Any]) -> str:
        # w0 pads, and no text becomes a control token
        return " ".join(f"w{rng.randrange(1, self.vocab_size)}" for _ in range(self.num_words))

    def _fields(self, state: str, agent: str, turn: int) -> Mapping[str, object]:
        return {"words": state}

    def _parse(self, state: str, agent: str, text: str) -> str:
        return text

    def _act(self, state: str, agent: str, action: str) -> Transition:
        return Transition(state, local=zlib.crc32(action.encode()) / 2**32, terminated=True)

    def _ansi(self, state: str) -> str:
        return state


def save_model(size: Size, directory: Path) -> None:
    """Write random weights and a tokenizer for them."""
    torch.manual_seed(0)
    config = Qwen3Config(
        vocab_size=size.vocab_size,
        hidden_size=size.hidden_size,
        intermediate_size=size.intermediate_size,
        num_hidden_layers=size.num_layers,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=size.hidden_size // 4,
        max_position_embeddings=512,
        tie_word_embeddings=True,
        eos_token_id=None,
    )
    Qwen3ForCausalLM(config).save_pretrained(directory)
    save_tokenizer(size.vocab_size, directory)


def save_tokenizer(vocab_size: int, directory: Path) -> None:
    """Write a tokenizer of one token per word, whose end token has no logit."""
    words = {f"w{index}": index for index in range(vocab_size)} | {"<eos>": vocab_size}
    inner = Tokenizer(WordLevel(words, unk_token="w0"))
    inner.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    template = "{{ messages[-1]['content'] }}"
    PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="<eos>", pad_token="w0", chat_template=template
    ).save_pretrained(directory)


class Ours:
    """Takes train steps with the pieces that `Trainer` is made of."""

    def __init__(
        self,
        size: Size,
        shape: Shape,
        directory: Path,
        microbatch_tokens: int,
        runner: asyncio.Runner,
    ) -> None:
        self._num_prompts = shape.num_prompts
        config = Config.model_validate(
            {
                "env": {"id": "words"},
                "policies": {"writer": {"model": str(directory)}},
                "roles": {"writer": "writer"},
                "device": "cpu",
                "algorithm": {"num_candidates": shape.num_candidates},
                "rollout": {
                    "num_levels": shape.num_prompts,
                    "max_completion_tokens": shape.completion_length,
                },
                "loss": {"clip_low": 0.2, "clip_high": 0.28},
                "optimizer": {
                    "learning_rate": LEARNING_RATE,
                    "tokens_per_microbatch": microbatch_tokens,
                },
            }
        )
        policies = build_policies(config)
        updater = policies["writer"].updater
        assert updater is not None, "the policy is trained"
        self._updater = updater
        self.num_parameters = policies["writer"].loaded.model.num_parameters()
        self._env = Words(size.vocab_size, shape.prompt_length)
        pool = build_pool(config, policies)
        episodes = LocalEpisodes(self._env)
        words = TrainingEnvironment(config=config.env[0], roles=config.roles, episodes=[episodes])
        self._sampler = Sampler([words], pool, config, FailureLog(), StopRequest())
        self._runner = runner
        self._estimator = config.algorithm

    def prompts(self, step: int) -> list[str]:
        """The texts of a step."""
        texts: list[str] = []
        count = self._num_prompts
        for spec in episode_specs(seed=0, step=step, first_level=step * count, num_levels=count):
            self._env.reset(seed=spec.env_seed)
            texts.append(self._env.messages("writer_0")[-1]["content"])
        return texts

    def step(self, step: int) -> dict[str, float]:
        """Take a train step; return what its phases took and how many tokens it saw."""

        def rollout() -> tuple[list[RolloutTree], ScoredDecisions]:
            gate = Gate()
            gate.open(step)
            voyage = Voyage(self._sampler.begun(step, step), gate)
            trees = self._runner.run(self._sampler.rollouts(voyage)).trees
            return trees, score_decisions(trees, self._estimator)

        def update() -> UpdateStats:
            return self._updater.update(training_groups(scored.decisions)["writer"])

        sampled, (trees, scored) = measuring.timed(rollout)
        learnt, stats = measuring.timed(update)
        groups = [decision for tree in trees for decision in tree.decisions]
        candidates = [c for group in scored.decisions for c in group.candidates]
        return {
            "rollout_cpu_s": sampled.cpu_s,
            "rollout_wall_s": sampled.wall_s,
            "step_cpu_s": sampled.cpu_s + learnt.cpu_s,
            "step_wall_s": sampled.wall_s + learnt.wall_s,
            "num_completions": sum(len(group.candidates) for group in groups),
            "num_with_advantage": sum(c.advantage != 0 for c in candidates),
            "num_prompt_tokens": sum(len(g.prompt_ids) * len(g.candidates) for g in groups),
            "num_sampled_tokens": sum(
                len(c.completion.token_ids) for group in groups for c in group.candidates
            ),
            "num_trained_tokens": stats.num_tokens,
            "num_optimizer_steps": step + stats.num_optimizer_steps,
        }
