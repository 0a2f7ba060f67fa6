"""Several processes that do the work of one: exchange, shares, who sees which GPU."""

import errno
import json
import os
import signal
import sys
from unittest.mock import Mock

import pytest
import torch
from backend_toys import run_python
from run_toys import config_of, program

from pettingllms_trainers import ranks as ranks_module
from pettingllms_trainers.backends.ray.cluster import joined_cluster
from pettingllms_trainers.cli import main
from pettingllms_trainers.errors import ConfigError, RankError
from pettingllms_trainers.ranks import Ranks, StopRequest, joined_ranks
from pettingllms_trainers.runs.machines import open_machines


def launch(name, num_processes, *arguments):
    module = "pettingllms_trainers.backends.vllm.handover"
    return run_python("-c", program("forked"), num_processes, module, program(name), *arguments)


def test_one_process_is_all_there_is():
    with joined_ranks() as ranks:
        assert (ranks.rank, ranks.size, ranks.local_rank, ranks.is_main) == (0, 1, 0, True)
        assert ranks.gather(ranks.share([1, 2, 3])) == [1, 2, 3]
        assert ranks.any(True)
        assert not ranks.any(False)
        assert ranks.broadcast("a") == "a"
        ranks.barrier()
        tensor = torch.ones(2)
        ranks.add([tensor])
        assert tensor.tolist() == [1, 1]


def test_processes_exchange_values_and_see_their_own_gpu_only(tmp_path, monkeypatch):
    """Before CUDA starts: vLLM and DeepSpeed take the first GPU that they see.

    Weights for engines are written once: eight times 15 GiB would not fit into a machine's memory.
    """
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "7,3")
    launch("exchange", 2, tmp_path)
    for rank in range(2):
        found = json.loads((tmp_path / f"{rank}.json").read_text())
        assert len(set(found.pop("folders"))) == 1
        assert found == {
            "gpu": ["73"[rank], "0", rank],
            "place": [rank, 2, rank == 0],
            "shares": [list(range(count)) for count in range(6)],
            "uneven": ["a"] * 4,
            "any": [True, False],
            "broadcast": {"from": 0},
            "sums": [[1.0, 1.0], 2.0],
            "apart": [["here 0", "here 1"], ["there 0", "there 1"]],
            "files": [1, False],
        }


def test_threads_that_still_hold_tensors_do_not_abort_the_end(tmp_path):
    launch("end", 4)


def test_ray_leaves_signals_to_the_trainer(monkeypatch):
    ray, before = Mock(), signal.getsignal(signal.SIGTERM)
    ray.is_initialized.return_value = False
    ray.init = lambda **_: signal.signal(signal.SIGTERM, signal.SIG_DFL)
    monkeypatch.setitem(sys.modules, "ray", ray)
    monkeypatch.setattr(ray.exceptions, "RayError", OSError)
    with joined_cluster(config_of(ray={"enabled": True}).ray):
        assert signal.getsignal(signal.SIGTERM) is before


def test_ray_and_a_launcher_exclude_each_other():
    config, two = config_of(ray={"enabled": True}), Ranks(size=2)
    with pytest.raises(ConfigError, match="without torchrun"), open_machines(config, two):
        pass


@pytest.mark.parametrize(
    ("visible", "after"),
    [
        ("7,3", ("3", "0")), (None, ("1", "0")), ("", ("", "1")), ("4", ("4", "1")),
        ("masked 4,5", ("4,5", "1")),
    ],
)  # fmt: skip
def test_the_second_process_hides_all_gpus_but_its_own(monkeypatch, visible, after):
    """Ray shows a worker the GPUs over which its engine spreads; one of them is not enough."""

    def unreachable(backend, **options):
        raise RuntimeError("no other process is here")

    monkeypatch.setattr(torch.distributed, "init_process_group", unreachable)
    for name, value in {"WORLD_SIZE": "4", "RANK": "3", "LOCAL_RANK": "1"}.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("CUDA_VISIBLE_DEVICES", raising=False)
    is_masked = "masked" in (visible or "")
    if visible is not None:
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible.removeprefix("masked "))
    is_without = "process 1 of this machine has no GPU: CUDA_VISIBLE_DEVICES is 4"
    message = is_without if visible == "4" else "no other process is here"
    with pytest.raises(RankError, match=message), joined_ranks(is_masked=is_masked):
        pass
    assert (os.environ.get("CUDA_VISIBLE_DEVICES"), os.environ["LOCAL_RANK"]) == after


def test_a_number_of_processes_without_a_launcher_is_told(monkeypatch, capsys):
    monkeypatch.setenv("WORLD_SIZE", "2")
    for name in ("RANK", "LOCAL_RANK"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(RankError, match=r"RANK and LOCAL_RANK not set.*unset WORLD_SIZE"):
        joined_ranks().__enter__()
    assert main(["no-such-file.toml"]) == 2
    assert "rank ?: ConfigError: no run file" in capsys.readouterr().err


def test_a_signal_is_answered_at_once_by_the_main_rank(capfd):
    with StopRequest() as stop:
        signal.raise_signal(signal.SIGTERM)
        assert stop.signal is signal.SIGTERM
        assert "SIGTERM: stopping when the current step is done" in capfd.readouterr().err


@pytest.mark.parametrize(
    ("kinds", "passed_on_s", "ended"),
    [
        ([signal.SIGTERM, signal.SIGINT], 0, [signal.SIGINT]),
        ([signal.SIGINT, signal.SIGTERM], 60, []),  # a launcher has passed it on
        ([signal.SIGINT, signal.SIGHUP], 0, []),
    ],
)
def test_one_of_several_ends_at_a_second_signal(monkeypatch, capfd, kinds, passed_on_s, ended):
    told, several = [], Ranks(size=2)
    monkeypatch.setenv("WORLD_SIZE", "2")
    monkeypatch.setenv("RANK", "0")
    monkeypatch.setattr(ranks_module, "_PASSED_ON_S", passed_on_s)
    monkeypatch.setattr(ranks_module, "_connect", lambda _: several)
    monkeypatch.setattr(ranks_module, "_end", lambda request, tell: told.append(request.signal))
    with StopRequest(several), joined_ranks():
        for kind in kinds:
            signal.raise_signal(kind)
    assert told == ended
    assert capfd.readouterr().err.count("a second signal stops at once") == 1


@pytest.mark.parametrize(
    ("num_signals", "told"),
    [
        (0, "rank 0: RankError: rank 0 of 2 has lost the others"),
        (1, "stopped; train step 2 is saved; continue with: pettingllms-train launch "),
        (2, "stopped; train step 1 is saved; continue with: pettingllms-train launch "),
    ],
)
def test_ranks_end_together(small_run_file, tmp_path, num_signals, told):
    line = (small_run_file(3), "--output-dir", tmp_path / "run", "--warm-start.num-steps=0")
    forked = ("-c", program("forked"), 2, "pettingllms_trainers.backends.build", program("ends"))
    done = run_python(*forked, num_signals, *line, fails=True, TMPDIR=str(tmp_path))
    assert (done.stdout + done.stderr).count(told) == 1
    assert [path.name for path in tmp_path.iterdir()] == ["run"], "temporary files are removed"


def test_a_terminal_that_closes_asks_once(monkeypatch):
    def closed(*_):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "write", closed)
    previous = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    with StopRequest() as stop:
        signal.raise_signal(signal.SIGHUP)
        signal.raise_signal(signal.SIGHUP)  # the kernel and the shell both tell
        assert stop.signal is signal.SIGHUP
    assert signal.getsignal(signal.SIGHUP) is signal.SIG_DFL
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    with StopRequest() as stop:  # nohup
        signal.raise_signal(signal.SIGHUP)
        assert not stop.is_wanted()
    signal.signal(signal.SIGHUP, previous)
