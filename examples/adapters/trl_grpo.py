"""TRL: a step of GRPO in which the model plays by calling the tool `act`. Usage: [MODEL]."""

import sys

from datasets import Dataset
from trl import GRPOConfig, GRPOTrainer

from pettingllms.adapters.trl import environment_factory, rows

trainer = GRPOTrainer(
    model=sys.argv[1] if len(sys.argv) > 1 else "Qwen/Qwen3-0.6B",
    args=GRPOConfig(
        output_dir="trl_run",
        use_cpu=True,
        bf16=False,  # leave both out on a GPU
        max_steps=1,
        num_generations=4,
        per_device_train_batch_size=4,
        max_completion_length=64,
        save_strategy="no",
        report_to=[],
    ),
    train_dataset=Dataset.from_list(rows(range(4))),  # one level per row
    environment_factory=environment_factory("plan_path_v0", size=6, max_turns=2),
)
trainer.train()
print("mean reward", trainer.state.log_history[0]["reward"])
