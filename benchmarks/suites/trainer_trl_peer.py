"""One run of TRL's `GRPOTrainer`, by the interpreter that has it; see trainer_trl.py.

    PYTHON trainer_trl_peer.py SETTINGS.json

Imports nothing of ours. Says what it is in a line of JSON, then takes one optimizer step for every
line on its standard input and says in a line of JSON what the step took. The trainer's own methods
do all the work; what is overridden here calls them and looks at the clock.
"""

import json
import os
import sys
import time
import zlib
from importlib.metadata import version

import torch
from datasets import Dataset
from transformers import AutoModelForCausalLM, AutoTokenizer, TrainerCallback
from trl import GRPOConfig, GRPOTrainer


def reward(completions, **kwargs):
    """A number in [0, 1) that differs from text to text."""
    return [zlib.crc32(text.encode()) / 2**32 for text in completions]


class TimedTrainer(GRPOTrainer):
    """Tells what its phases took and how many tokens went through them."""

    figures: dict

    def _generate_and_score_completions(self, inputs):
        cpu, wall = time.process_time(), time.perf_counter()
        batch = super()._generate_and_score_completions(inputs)
        self.figures["rollout_cpu_s"] = time.process_time() - cpu
        self.figures["rollout_wall_s"] = time.perf_counter() - wall
        self.figures["num_completions"] = len(batch["completion_ids"])
        self.figures["num_with_advantage"] = int(batch["advantages"].ne(0).sum())
        self.figures["num_prompt_tokens"] = int(batch["prompt_mask"].sum())
        self.figures["num_sampled_tokens"] = int(batch["completion_mask"].sum())
        return batch

    def _compute_loss(self, model, inputs):
        self.figures["num_trained_tokens"] += inputs["completion_ids"].numel()
        return super()._compute_loss(model, inputs)


class Steps(TrainerCallback):
    """Waits for a line before every optimizer step and answers after it."""

    def __init__(self, output):
        self.output = output
        self.trainer = None
        self.begin = (0.0, 0.0)

    def on_step_begin(self, args, state, control, **kwargs):
        """Wait, then start the clock."""
        sys.stdin.readline()
        self.trainer.figures = {"num_trained_tokens": 0}
        self.begin = time.process_time(), time.perf_counter()

    def on_step_end(self, args, state, control, **kwargs):
        """Tell what the step took."""
        figures = self.trainer.figures
        figures["step_cpu_s"] = time.process_time() - self.begin[0]
        figures["step_wall_s"] = time.perf_counter() - self.begin[1]
        figures["num_optimizer_steps"] = state.global_step
        print(json.dumps(figures), file=self.output, flush=True)


def configuration(settings):
    """The plain GRPO of the comparison: float32, no reference model, one step per batch."""
    return GRPOConfig(
        output_dir=settings["output_dir"],
        max_steps=settings["num_steps"],
        per_device_train_batch_size=settings["rows_per_microbatch"],
        gradient_accumulation_steps=settings["num_rows"] // settings["rows_per_microbatch"],
        num_generations=settings["num_candidates"],
        max_completion_length=settings["completion_length"],
        # Both sides read the same prompts in the same order.
        shuffle_dataset=False,
        temperature=1.0,
        top_k=0,
        # No reference model on either side.
        beta=0.0,
        epsilon=0.2,
        epsilon_high=0.28,
        loss_type="dapo",
        learning_rate=settings["learning_rate"],
        lr_scheduler_type="constant",
        adam_beta2=0.95,
        max_grad_norm=1.0,
        bf16=False,
        gradient_checkpointing=False,
        use_cpu=True,
        logging_strategy="no",
        save_strategy="no",
        report_to="none",
        disable_tqdm=True,
        seed=0,
    )


def main():
    # Libraries print: only what is meant for the driver goes to its end of the pipe.
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    with open(sys.argv[1], encoding="utf-8") as file:
        settings = json.load(file)
    torch.set_num_threads(1)
    steps = Steps(output)
    trainer = TimedTrainer(
        model=AutoModelForCausalLM.from_pretrained(settings["model"], dtype=torch.float32),
        processing_class=AutoTokenizer.from_pretrained(settings["model"]),
        reward_funcs=reward,
        args=configuration(settings),
        train_dataset=Dataset.from_dict({"prompt": settings["prompts"]}),
        callbacks=[steps],
    )
    steps.trainer = trainer
    about = {
        "num_parameters": trainer.model.num_parameters(),
        "versions": {name: version(name) for name in ("trl", "torch", "transformers")},
    }
    print(json.dumps(about), file=output, flush=True)
    trainer.train()


if __name__ == "__main__":
    main()
