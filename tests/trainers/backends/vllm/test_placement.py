"""Engines are placed as vLLM allows it, asked by vLLM's own functions; no GPU is needed."""

import itertools
import json
import shutil
from importlib import import_module

import pytest

pytest.importorskip("vllm", reason="the package vllm is not installed")

from pettingllms_trainers.backends.device import check_parallel
from pettingllms_trainers.backends.engines import computes_elsewhere
from pettingllms_trainers.backends.vllm import in_process
from pettingllms_trainers.config.loading import load_config, recipe_path
from pettingllms_trainers.config.sections import base_groups

# vLLM's imports call torch by old names.
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")
PAPER = recipe_path("paper/paper").parent
MODELS = ("qwen3_1.7b", "qwen3_8b")
TRAINING = {"lora": 8, "full_1gpu": 1, "full_8gpu": 8}
OPTIONS = ((), ("shared",), ("thinking",))


def recipes():
    """Yield every run of the paper with the number of its processes."""
    tasks = sorted((PAPER / "tasks").glob("*.toml"))
    assert len(tasks) >= 6
    for task, model, training, options in itertools.product(tasks, MODELS, TRAINING, OPTIONS):
        parts = [f"models/{model}", f"training/{training}", *(f"options/{o}" for o in options)]
        files = [PAPER / "paper.toml", task, *(PAPER / f"{part}.toml" for part in parts)]
        yield load_config(files), TRAINING[training]


@pytest.fixture
def gpu_platform(monkeypatch):
    """Let vLLM's checks of arguments run as on a GPU."""
    platform = import_module("vllm.platforms").current_platform
    monkeypatch.setattr(in_process, "_is_cpu", lambda: False)
    monkeypatch.setattr(type(platform), "is_sleep_mode_available", lambda _: True)


def test_engines_of_the_recipes_are_placed_where_vllm_takes_them(
    model_directory, gpu_platform, tmp_path
):
    """Each has a GPU that its rank sees; with others in its rank it has a process of its own."""
    directory = shutil.copytree(model_directory(), tmp_path / "model")
    settings = json.loads((directory / "config.json").read_text())
    (directory / "config.json").write_text(
        json.dumps(settings | {"max_position_embeddings": 40960})
    )
    options = import_module("vllm.engine.arg_utils").EngineArgs
    accepted, num_sleeping = set(), 0
    for config, num_processes in recipes():
        assert config.engine.kind == "vllm"
        check_parallel(config, num_processes)
        num_engines = len(base_groups(config.models))
        assert computes_elsewhere(config, num_engines) == (num_engines > 1)
        num_sleeping += num_engines > 1 and config.engine.vllm.sleep
        arguments = in_process.arguments_of(config.engine)
        if str(arguments) in accepted:
            continue
        accepted.add(str(arguments))
        found = options(model=str(directory), enable_chunked_prefill=False, **arguments)
        placed = found.create_engine_config()
        assert placed.parallel_config.world_size == 1
        assert placed.model_config.enable_sleep_mode == config.engine.vllm.sleep
    assert num_sleeping, "recipes with a policy for each role sleep"
    assert len(accepted) > 1
