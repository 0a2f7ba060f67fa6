"""A real `GRPOTrainer`; only the sampling is scripted, since a tiny model cannot call tools."""

import inspect
import json
import random

import pytest

from pettingllms.adapters.trl import ENDED, environment_factory, rows

LIBRARY = "trl"
LIBRARY_DRAWS = True
pytestmark = [pytest.mark.slow, pytest.mark.filterwarnings("default")]


def tiny_tokenizer(transformers, template):
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    vocabulary = {token: number for number, token in enumerate([*special, *alphabet])}
    raw = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    raw.decoder = decoders.ByteLevel()
    raw.add_special_tokens(special)
    tokenizer = transformers.PreTrainedTokenizerFast(
        tokenizer_object=raw, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    tokenizer.chat_template = template
    return tokenizer


def tiny_model(transformers, tokenizer):
    config = transformers.Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=32,
        intermediate_size=64,
        num_hidden_layers=1,
        num_attention_heads=2,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=8192,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
    )
    return transformers.Qwen3ForCausalLM(config)


def calls(text):
    arguments = json.dumps({"name": "act", "arguments": {"text": text}})
    return f"<tool_call>\n{arguments}\n</tool_call><|im_end|>"


def script_the_sampling(model, tokenizer, answer):
    """Let `model.generate` return what `answer(prompt)` says."""
    import torch

    def generate(input_ids, attention_mask, **_):
        prompts = tokenizer.batch_decode(input_ids)
        said = [tokenizer(answer(p), add_special_tokens=False).input_ids for p in prompts]
        width = max(map(len, said))
        padded = [ids + [tokenizer.pad_token_id] * (width - len(ids)) for ids in said]
        return torch.cat([input_ids, torch.tensor(padded)], dim=1)

    model.generate = generate


@pytest.fixture
def make_trainer(library, tmp_path, monkeypatch):
    monkeypatch.setenv("TRL_EXPERIMENTAL_SILENCE", "1")
    import datasets
    import transformers
    from trl.chat_template_utils import qwen3_chat_template

    def make(factory, seeds, answer=None, **settings):
        transformers.set_seed(0)
        tokenizer = tiny_tokenizer(transformers, qwen3_chat_template)
        model = tiny_model(transformers, tokenizer)
        if answer is not None:
            script_the_sampling(model, tokenizer, answer)
        args = library.GRPOConfig(
            output_dir=str(tmp_path),
            use_cpu=True,
            bf16=False,
            report_to=[],
            per_device_train_batch_size=4,
            num_generations=4,
            max_steps=1,
            learning_rate=1e-2,
            logging_steps=1,
            save_strategy="no",
            **{"max_completion_length": 4096, **settings},
        )
        trainer = library.GRPOTrainer(
            model=model,
            args=args,
            train_dataset=datasets.Dataset.from_list(rows(seeds)),
            processing_class=tokenizer,
            environment_factory=factory,
        )
        return trainer

    return make


def test_one_step_on_untrained_samples(make_trainer):
    """A model that never calls the tool has said nothing: all rewards equal, no gradient."""
    factory = environment_factory("plan_path_v0", size=6, max_turns=2)
    trainer = make_trainer(factory, range(4), max_completion_length=16)
    trainer.train()
    log = trainer.state.log_history[0]
    silent = factory()
    silent.reset(seed=0)
    assert log["rewards/ToolEnvironment/mean"] == pytest.approx(silent.get_reward())
    assert log["reward_std"] == 0
    assert log["tools/call_frequency"] == 0


def test_one_step_with_tool_calls(make_trainer):
    """Half of the group solves the level, half says nonsense: the solvers' tokens gain."""
    import torch

    made = []
    plain = environment_factory("plan_path_v0", size=6, max_turns=6)

    def factory():
        made.append(plain())
        return made[-1]

    first_round = iter(["solve", "fail"] * 2)

    def answer(prompt):
        if ENDED in prompt:
            return "Done.<|im_end|>"
        if "no idea" in prompt or next(first_round, "solve") == "fail":
            return calls("no idea")
        view = made[0]._view  # the solvers play the same level in step
        return calls(view.env.scripted_action("planner_0", "oracle", random.Random(0)))

    trainer = make_trainer(factory, [3], answer)
    before = {n: p.clone() for n, p in trainer.model.named_parameters()}
    trainer.train()
    log = trainer.state.log_history[0]
    assert len(made) == 4, "one environment for each member of the group"
    seeds = {environment._view.env.episode_seed for environment in made}
    assert seeds == {3}, "the whole group plays one level"
    rewards = [environment.get_reward() for environment in made]
    assert rewards[0] == rewards[2] > 1.05
    assert rewards[1] == rewards[3] < 0
    assert log["reward"] == pytest.approx(sum(rewards) / 4)
    assert log["tools/call_frequency"] >= 1
    assert log["tools/failure_frequency"] == 0
    assert log["grad_norm"] > 0
    assert any(not torch.equal(before[n], p) for n, p in trainer.model.named_parameters())


def test_only_act_is_a_tool():
    environment = environment_factory("plan_path_v0")()
    methods = inspect.getmembers(type(environment), predicate=inspect.isfunction)
    public = {name for name, _ in methods if not name.startswith("_")}
    assert public == {"reset", "get_reward", "act"}


def test_the_script_runs(library, run_script, tmp_path):
    import transformers
    from trl.chat_template_utils import qwen3_chat_template

    tokenizer = tiny_tokenizer(transformers, qwen3_chat_template)
    for part in (tokenizer, tiny_model(transformers, tokenizer)):
        part.save_pretrained(tmp_path / "model")
    said = run_script("trl_grpo.py", "model", TRL_EXPERIMENTAL_SILENCE="1", CUDA_VISIBLE_DEVICES="")
    assert "mean reward" in said
