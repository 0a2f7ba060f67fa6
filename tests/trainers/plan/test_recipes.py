"""Recipes: the paper's are valid and fit GPUs of 80 GB; tiny models can write what theirs need."""

import itertools
import random
import re
from pathlib import Path

import pytest

from pettingllms.testing import play
from pettingllms.types import role_of
from pettingllms_trainers.algorithms.at_grpo import AtGrpo
from pettingllms_trainers.cli import main
from pettingllms_trainers.config.loading import load_config, read_recipe, recipe_names, recipe_path
from pettingllms_trainers.plan import make_plan
from pettingllms_trainers.plan.view import warnings_of
from pettingllms_trainers.rollout.candidates import RolloutSpec
from pettingllms_trainers.rollout.demonstrations import play_scripted_episode
from pettingllms_trainers.rollout.environments import make_environments

ROOT = Path(__file__).resolve().parents[3]
PAPER = recipe_path("paper/paper").parent
TINY = [
    path
    for path in sorted(PAPER.parent.glob("*.toml"))
    if not path.stem.endswith(("_shared", "_smollm2"))
]
TASKS = ("sokoban", "sudoku", "plan_path", "code", "math", "math_ensemble")
MODELS = ("qwen3_1.7b", "qwen3_8b")
TRAINING = (("lora", 1), ("lora", 8), ("full_1gpu", 1), ("full_8gpu", 8))
OPTIONS = ((), ("shared",), ("thinking",))


def recipe(task, model, training, *options):
    parts = [f"tasks/{task}", f"models/{model}", f"training/{training}"]
    parts += [f"options/{option}" for option in options]
    return load_config([PAPER / "paper.toml", *(PAPER / f"{part}.toml" for part in parts)])


def needed_options(task, model, training, options):
    """Several policies of 8B that train all weights need offloading too."""
    is_large = (model, training) == ("qwen3_8b", "full_8gpu")
    return (*options, "offload") if is_large and "shared" not in options else options


@pytest.mark.parametrize("path", TINY, ids=lambda path: path.stem)
def test_any_game_can_be_paid_for_its_outcome_alone(path):
    if "[[env]]" in path.read_text(encoding="utf-8"):
        pytest.skip("several environments: each has arguments of its own")
    config = load_config([path, PAPER.parent / "options" / "outcome.toml"])
    assert (config.algorithm.name, config.algorithm.norm) == ("reinforce", "batch")
    assert config.env[0].kwargs["reward"] == "outcome"
    plan = make_plan(config, make_environments(config), num_gpus=0, gpu_gib=0)
    assert not any("credit" in warning for warning in warnings_of(config, plan))


@pytest.mark.parametrize("task", TASKS)
def test_every_combination_fits(task):
    environments = make_environments(recipe(task, "qwen3_8b", "lora"))
    for model, (training, num_gpus), options in itertools.product(MODELS, TRAINING, OPTIONS):
        options = needed_options(task, model, training, options)
        config = recipe(task, model, training, *options)
        plan = make_plan(config, environments, num_gpus=num_gpus, gpu_gib=79)
        assert list(warnings_of(config, plan)) == [], (model, training, num_gpus, options)
        assert plan.fits
        assert config.algorithm == AtGrpo(num_candidates=4, branch_choice="greedy")
        assert (config.rollout.num_levels, config.num_steps) == (128 / 4, 150)
        assert config.rollout.temperature == 1.0
        assert config.optimizer.learning_rate == (1e-5 if training == "lora" else 1e-6)
        assert set(plan.step.num_optimizer_steps.values()) == {1}
        assert [env.training[0].alpha for env in environments] == [1.0]
        assert len(config.models) == (1 if "shared" in options else len(config.roles))
        for policy in config.models.values():
            assert policy.model == f"Qwen/Qwen3-{model.partition('_')[2].upper()}"
            assert policy.chat_template_kwargs == {"enable_thinking": "thinking" in options}
            assert policy.lora.rank == (32 if training == "lora" else 0)


PLANNED = {name: read_recipe(name)[0].planned for name in recipe_names()}
PLANNED = {name: planned for name, planned in PLANNED.items() if planned}


@pytest.mark.parametrize("name", PLANNED)
def test_a_recipe_fits_the_gpus_for_which_it_is_planned(name, tmp_path, capsys):
    """All of them have work, and the command that is named starts this recipe."""
    number = PLANNED[name].gpus
    flags = ["--gpus", str(number), "--gpu-memory", "80", "--output-dir", str(tmp_path / "run")]
    assert main([f"recipe:{name}", "--dry-run", *flags]) == 0
    assert "The estimate fits." in capsys.readouterr().out
    program, *launcher, named = PLANNED[name].start.split()
    assert (program, named) == ("pettingllms-train", f"recipe:{name}")
    config = load_config(named)
    workers = len(config.models) * config.ray.workers_per_policy if config.ray.enabled else 1
    assert number in ([workers] if launcher == [] else range(2, 9))


@pytest.mark.parametrize(
    ("name", "prompt_chars", "most"), [("math_smollm2", 200, 0.3), ("code_smollm2", 700, 1.0)]
)
def test_demonstrations_of_a_pretrained_recipe_can_be_read_and_are_short(name, prompt_chars, most):
    """What teaches the form of an answer leaves what is right about it to be learnt."""
    config = load_config(f"recipe:{name}")
    (env,) = make_environments(config)
    demonstrators, solved = config.warm_start.demonstrators, 0
    for index in range(20):
        spec = RolloutSpec(index, index, index)
        episode = play_scripted_episode(env.training[0], spec, demonstrators)
        solved += episode.success
        for decision in episode.decisions:
            assert decision.parse_error is None
            assert len(decision.text) < 4 * config.rollout.max_completion_tokens
            assert sum(len(message["content"]) for message in decision.messages) < prompt_chars
    assert 0 < solved <= 20 * most


def test_commands_of_the_documents_name_recipes():
    text = (ROOT / "docs" / "train-larger.md").read_text(encoding="utf-8")
    section = text.partition("## The recipes")[2].partition("\n## ")[0]
    names = set(re.findall(r"recipe:([\w./]+)", section))
    assert len(names) >= 6
    assert names <= {*recipe_names()}


@pytest.fixture
def adapters_page(tmp_path):
    """The run file of the page on adapters."""
    text = (ROOT / "docs" / "lora.md").read_text("utf-8")
    (block,) = re.findall(r"^```toml\n(.*?)^```$", text, re.M | re.S)
    path = tmp_path / "run.toml"
    path.write_text(block)
    return path


def test_the_run_file_of_the_page_on_adapters_fits_a_gpu_of_80_gib(adapters_page):
    config = load_config([adapters_page])
    plan = make_plan(config, make_environments(config), num_gpus=1, gpu_gib=80)
    assert list(warnings_of(config, plan)) == []
    assert plan.fits
    # CUDA, the base in bfloat16, two adapters with their moments in float32, the engine's share.
    adapters = 2 * (4 + 8) * 87_293_952
    by_hand = (1 << 30) + 2 * 8_190_735_360 + adapters + 0.4 * 80 * (1 << 30)
    assert plan.memory.generating.total == round(by_hand)


@pytest.mark.parametrize("path", TINY, ids=lambda path: path.stem)
def test_tiny_models_can_write_what_is_demonstrated(path):
    """Every character that they read or write is a token, and all fits in their context."""
    config = load_config(path)
    environments = make_environments(config)
    assert list(warnings_of(config, make_plan(config, environments))) == []
    rng = random.Random(0)
    for made in environments:

        def actor(env, agent, made=made):
            role, table = made.role(agent), config.warm_start.demonstrators
            shares = table[role if role in table else role_of(agent)]
            text = env.scripted_action(agent, rng.choices([*shares], [*shares.values()])[0], rng)
            policy, prompt = config.models[made.roles[role_of(agent)]], env.observe(agent)
            assert set(prompt + text) <= set(policy.vocabulary)
            assert len(text) < config.rollout.max_completion_tokens
            assert len(prompt) + config.rollout.max_completion_tokens <= policy.max_length
            return text

        for seed in range(20):
            made.training[0].reset(seed=seed)
            play(made.training[0], actor)
