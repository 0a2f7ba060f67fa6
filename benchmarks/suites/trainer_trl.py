"""Train steps of the trainer compared with those of TRL's `GRPOTrainer`, on the same work.

    python benchmarks/suites/trainer_trl.py --trl-python PYTHON

A step samples completions of an exact length for prompts of an exact length, rewards them, and
takes one optimizer step on all of them: GRPO without reference model, AdamW, gradients clipped to
norm 1, float32. Every workload names its model and its shape: how many prompts of how many tokens,
with how many completions of how many tokens each. Two completions are the fewest that TRL takes.
Both sides start from the same weights, read the same prompts and pay
the same reward; no end token can be sampled. The numbers of prompt, sampled and trained tokens and
of optimizer steps are checked after every step on both sides.

TRL runs in a process of its own, with the interpreter that has it, and takes its steps in turn with
ours; who begins changes from round to round. Both use one thread; times are CPU seconds. Ours is
the way of a train step: environment, rollout trees, groups, advantages, update. TRL's rollout is
`_generate_and_score_completions`, its update the rest of the step. Micro-batches are small on both
sides: on a CPU these are the fastest. The first round is thrown away.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import subprocess
import sys
import tempfile
import zlib
from collections.abc import Generator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import measuring
import torch
from tokenizers import Tokenizer, pre_tokenizers
from tokenizers.models import WordLevel
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from transformers.utils import logging as transformers_logging

from pettingllms import PromptTemplate, TextEnv, Transition
from pettingllms_trainers.backends.build import build_policies, build_pool
from pettingllms_trainers.config import Config
from pettingllms_trainers.learning.groups import ScoredDecisions, score_decisions, training_groups
from pettingllms_trainers.ranks import StopRequest
from pettingllms_trainers.rollout.candidates import FailureLog, episode_specs
from pettingllms_trainers.rollout.episode import LocalEpisodes
from pettingllms_trainers.rollout.sampler import Sampler, TrainingEnvironment, WeightGate
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


TINY, BENCH = Size(1024, 128, 256, 2), Size(4096, 256, 768, 4)
WORKLOADS = {
    "tiny": (TINY, Shape(32, 128, 8, 64)),
    "bench": (BENCH, Shape(32, 128, 8, 64)),
    "short_prompts": (TINY, Shape(8, 16, 8, 128)),
    "long_completions": (TINY, Shape(8, 64, 8, 256)),
    "two_completions": (TINY, Shape(64, 32, 2, 64)),
    "bench_short_prompts": (BENCH, Shape(8, 16, 8, 128)),
}


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
    # A token per word; the end token has no logit.
    words = {f"w{index}": index for index in range(size.vocab_size)} | {"<eos>": size.vocab_size}
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
            gate = WeightGate()
            gate.open(step)
            in_flight = gate.rollouts(self._sampler.pending(step, step))
            trees = self._runner.run(self._sampler.rollouts(in_flight)).trees
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


PEER = Path(__file__).with_name("trainer_trl_peer.py")


class Theirs:
    """A process of TRL that takes a step on request."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self._process = process
        self.about = self._answer()

    def step(self) -> dict[str, float]:
        """Run one optimizer step there; return its report."""
        assert self._process.stdin is not None
        self._process.stdin.write("go\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self) -> Any:
        assert self._process.stdout is not None
        line = self._process.stdout.readline()
        if not line:
            raise SystemExit(f"TRL has ended with exit code {self._process.wait()}; see above")
        return json.loads(line)


@contextmanager
def trl(python: str, settings: Mapping[str, Any]) -> Generator[Theirs]:
    """Run TRL for as long as the context is open."""
    path = Path(settings["output_dir"]) / "settings.json"
    path.write_text(json.dumps(settings), encoding="utf-8")
    with subprocess.Popen(
        [python, str(PEER), str(path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "false"},
    ) as process:
        try:
            yield Theirs(process)
        finally:
            process.kill()


def check(side: str, shape: Shape, step: int, figures: Mapping[str, float]) -> None:
    """End the run unless a step did the work that is compared."""
    num_sampled = shape.num_rows * shape.completion_length
    expected = {
        "num_completions": shape.num_rows,
        "num_prompt_tokens": shape.num_rows * shape.prompt_length,
        "num_sampled_tokens": num_sampled,
        "num_trained_tokens": num_sampled,
        "num_optimizer_steps": step + 1,
    }
    found = {name: figures[name] for name in expected}
    if found != expected:
        raise SystemExit(f"{side} did other work in step {step}: {found}, expected {expected}")
    # Without an advantage a side could skip rows, and would be faster for nothing.
    if figures["num_with_advantage"] < 0.99 * shape.num_rows:
        raise SystemExit(f"{side} had advantages for {figures['num_with_advantage']:.0f} only")


def measure(
    size: Size,
    shape: Shape,
    python: str,
    trl_rows: int,
    num_rounds: int,
) -> dict[str, Any]:
    """Both sides take steps in turn; the first step of each is not counted."""
    num_steps = num_rounds + 1
    our_tokens = trl_rows * (shape.prompt_length + shape.completion_length)
    series: dict[str, list[dict[str, float]]] = {"ours": [], "trl": []}
    with tempfile.TemporaryDirectory() as folder, asyncio.Runner() as runner:
        model = Path(folder) / "model"
        save_model(size, model)
        ours = Ours(size, shape, model, our_tokens, runner)
        settings = {
            "model": str(model),
            "output_dir": folder,
            "prompts": [text for step in range(num_steps) for text in ours.prompts(step)],
            "num_steps": num_steps,
            "num_rows": shape.num_rows,
            "rows_per_microbatch": trl_rows,
            "num_candidates": shape.num_candidates,
            "completion_length": shape.completion_length,
            "learning_rate": LEARNING_RATE,
        }
        with trl(python, settings) as theirs:
            # Equal files may be read as different models by other versions.
            if theirs.about["num_parameters"] != ours.num_parameters:
                raise SystemExit(f"TRL has another model: {theirs.about}")
            for step in range(num_steps):
                # Whoever comes second finds a warmer machine.
                for side in ("ours", "trl") if step % 2 else ("trl", "ours"):
                    figures = theirs.step() if side == "trl" else ours.step(step)
                    check(side, shape, step, figures)
                    series[side].append(figures)
    workload = size._asdict() | shape._asdict() | {"trl_rows": trl_rows} | theirs.about
    # The first step loads and compiles.
    counted = {side: figures[1:] for side, figures in series.items()}
    return {"workload": workload, **summary(counted)}


def summary(series: Mapping[str, Sequence[Mapping[str, float]]]) -> dict[str, Any]:
    """CPU seconds of the phases of the steps of both sides, and their ratios."""
    seconds = {
        side: {
            "rollout": [step["rollout_cpu_s"] for step in steps],
            "update": [step["step_cpu_s"] - step["rollout_cpu_s"] for step in steps],
            "step": [step["step_cpu_s"] for step in steps],
        }
        for side, steps in series.items()
    }
    return {
        "seconds": {
            side: {phase: measuring.spread(values) for phase, values in found.items()}
            for side, found in seconds.items()
        },
        "ratios": {
            f"{phase}_speedup_over_trl": measuring.ratios(values, seconds["ours"][phase])
            for phase, values in seconds["trl"].items()
        },
    }


def main() -> None:
    parser = measuring.parser_of("trainer_trl", __doc__)
    parser.add_argument("--trl-python", required=True, help="interpreter with TRL 1.16 installed")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--trl-rows", type=int, default=16, help="of a micro-batch")
    parser.add_argument("--workloads", nargs="+", choices=WORKLOADS, default=list(WORKLOADS))
    options = parser.parse_args()
    # CPU seconds of one thread count the work, not how it was spread.
    torch.set_num_threads(1)
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    transformers_logging.disable_progress_bar()
    result = measuring.frame("trainer_trl", range(options.rounds))
    result["workloads"] = {}
    for name in options.workloads:
        result["workloads"][name] = measure(
            *WORKLOADS[name], options.trl_python, options.trl_rows, options.rounds
        )
        print(name, json.dumps(result["workloads"][name]["ratios"], indent=2), file=sys.stderr)
        measuring.write(result, options.output)  # what is measured is kept if the next one fails


if __name__ == "__main__":
    main()
