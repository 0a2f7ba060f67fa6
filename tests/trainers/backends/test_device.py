"""Names of devices are checked where no device is."""

import pytest

from pettingllms_trainers.backends.device import named_device
from pettingllms_trainers.config import Config
from pettingllms_trainers.errors import ConfigError


def config(device, **sections):
    return Config.model_validate(
        {
            "env": {"id": "toy_echo_v0"},
            "policies": {"p": {"model": "tiny"}},
            "roles": {"caller": "p", "echo": "p"},
            "device": device,
            **sections,
        }
    )


@pytest.mark.parametrize("name", ["nonsense", "", "cuda:x", "gpu"])
def test_a_name_of_no_device_is_told(name):
    with pytest.raises(ConfigError, match=rf"device = '{name}' cannot be used: .+"):
        named_device(config(name), 1)


def test_a_device_need_not_be_there():
    assert named_device(config("cuda:7"), 1).index == 7
    assert named_device(config("cuda"), 8).type == "cuda"


def test_one_gpu_for_several_processes_is_refused():
    with pytest.raises(ConfigError, match=r"one GPU for all 2 processes.*\"cuda\" or \"auto\""):
        named_device(config("cuda:0"), 2)
    assert named_device(config("cpu:0"), 2).type == "cpu", "cores are shared"
    assert named_device(config("cuda:0", ray={"enabled": True}), 2).index == 0
