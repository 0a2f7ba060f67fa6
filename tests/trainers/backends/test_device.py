"""Names of devices are checked where no device is."""

import pytest
import torch
from pydantic import ValidationError
from run_toys import config_of

from pettingllms_trainers.backends import device
from pettingllms_trainers.backends.build import build_policies
from pettingllms_trainers.backends.device import check_parallel, named_device
from pettingllms_trainers.errors import ConfigError
from pettingllms_trainers.ranks import Ranks


@pytest.mark.parametrize("name", ["nonsense", "", "cuda:x", "gpu"])
def test_a_name_of_no_device_is_told(name):
    with pytest.raises(ConfigError, match=rf"device = '{name}' cannot be used: .+"):
        named_device(config_of(device=name), 1)


def test_a_device_need_not_be_there():
    assert named_device(config_of(device="cuda:7"), 1).index == 7
    assert named_device(config_of(device="cuda"), 8).type == "cuda"


def test_a_run_on_a_device_that_is_not_there_is_refused():
    why = (
        r"device = 'cuda:99' cannot be used on this machine.*: .+\. Set device = \"auto\", or name"
    )
    with pytest.raises(ConfigError, match=why):
        build_policies(config_of(device="cuda:99"))


def test_one_gpu_for_several_processes_is_refused():
    with pytest.raises(ConfigError, match=r"one GPU for all 2 processes.*\"cuda\" or \"auto\""):
        named_device(config_of(device="cuda:0"), 2)
    assert named_device(config_of(device="cpu:0"), 2).type == "cpu", "cores are shared"
    assert named_device(config_of(device="cuda:0", ray={"enabled": True}), 2).index == 0


def test_engines_on_several_gpus_need_them_in_one_process(monkeypatch):
    spread = config_of(
        device="cuda",
        engine={"kind": "vllm", "precision": "bfloat16", "vllm": {"tensor_parallel_size": 4}},
    )
    with pytest.raises(ConfigError, match="a launcher has started 2 processes with one GPU each"):
        check_parallel(spread, 2)
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 2)
    with pytest.raises(ConfigError, match="size is 4, and this process sees 2 GPUs"):
        check_parallel(spread, 1)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 4)
    check_parallel(spread, 1)
    check_parallel(config_of(device="cuda"), 2)


@pytest.mark.parametrize(("gpus", "size"), [(2, 1), (1, 2), (0.5, 2), (4, 2)])
def test_a_worker_of_ray_has_the_gpus_of_its_engine(gpus, size):
    ray = {"enabled": True, "gpus_per_worker": gpus}
    engine = {"kind": "vllm", "vllm": {"tensor_parallel_size": size}}
    with pytest.raises(ValidationError, match=r"ray.gpus_per_worker is .* set both alike"):
        config_of(device="cuda", ray=ray, engine=engine)
    for fitting in (max(1, size), 0):  # 0: all on the CPU
        ray["gpus_per_worker"] = fitting
        assert config_of(device="cuda", ray=ray, engine=engine).ray.gpus_per_worker == fitting


@pytest.mark.parametrize(
    ("flags", "found"),
    [
        ("flags\t\t: fpu avx512_bf16 amx_bf16 amx_tile", "bfloat16"),
        ("Features\t: fp asimd bf16 i8mm", "bfloat16"),
        ("flags : fpu avx512f avx512_bf16", "float32"),
        (None, "float32"),
    ],
)
def test_the_precision_is_the_one_that_the_processor_has(tmp_path, flags, found):
    """Whatever else runs there: a timing would depend on it."""
    path = tmp_path / "cpuinfo"
    if flags is not None:
        path.write_text(f"model name\t: Some\n{flags}\n")
    precision, reason = device.fast_precision(torch.device("cpu"), path)
    assert precision == found
    assert "this processor has" in reason


def test_other_precisions_are_left_alone():
    given = config_of(device="cpu", engine={"precision": "bfloat16"})
    for on_gpu in (False, True):
        assert device.for_device(given, Ranks(), on_gpu=on_gpu) == (given, "")
    slow = config_of(device="cpu", engine={"precision": "float32"})
    assert device.for_device(slow, Ranks(), on_gpu=False) == (slow, "")
    same, line = device.for_device(slow, Ranks(), on_gpu=True)
    assert same == slow
    assert line.startswith('warning: engine.precision = "float32" on a GPU')


def test_a_pretrained_model_learns_from_as_many_tokens_at_once_as_suit_the_device():
    given = config_of({"model": "some/model"})
    for on_gpu, tokens in ((False, 1024), (True, 4096)):
        chosen, _ = device.for_device(given, Ranks(), on_gpu=on_gpu)
        assert chosen.optimizer.tokens_per_microbatch == tokens


def test_all_ranks_compute_in_one_precision(monkeypatch):
    class Other(Ranks):
        def any(self, is_true):
            return True

    monkeypatch.setattr(device, "fast_precision", lambda _: ("bfloat16", "here"))
    given = config_of(device="cpu", engine={"precision": "auto"})
    for ranks, found in ((Ranks(), "bfloat16"), (Other(), "float32")):
        chosen, line = device.for_device(given, ranks, on_gpu=False)
        assert chosen.engine.precision == found
        assert line.startswith(f"engine.precision = {found}, chosen here: ")
