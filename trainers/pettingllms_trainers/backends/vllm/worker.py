"""What the trainer adds to the workers of vLLM: loading new weights in place.

Runs inside vLLM, in this process or in that of a server, which is started with
``--worker-extension-cls pettingllms_trainers.backends.vllm.worker.TrainedWeights``. Imports nothing
of the trainer.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterable, Iterator
from importlib import import_module
from pathlib import Path
from typing import Any

from safetensors import safe_open
from torch import Tensor

_WATCH_PERIOD_S = 1.0


class TrainedWeights:
    """Mixed into vLLM's worker class; methods are called by name through ``collective_rpc``."""

    def load_trained_weights(self, weights: str | Iterable[tuple[str, Tensor]]) -> None:
        """Replace the weights in place. The prefix cache is left: it must be reset afterwards.

        Args:
            weights: Names as in a Hugging Face checkpoint, with tensors; or the directory of
                safetensors files that hold them.
        """
        worker: Any = self
        stream = _read(Path(weights)) if isinstance(weights, str) else iter(weights)
        # In place: captured CUDA graphs hold the addresses.
        worker.reload_weights(weights_iterator=stream)
        _repack_head(worker.get_model())

    def end_with(self, trainer: int) -> int:
        """End this process, and the one that started it, soon after the trainer has ended.

        A trainer that is killed has no time to end its engines, which would keep the GPU.

        Returns:
            The id of this process.
        """
        others = {os.getpid(), os.getppid()} - {trainer}
        threading.Thread(target=_watch, args=(trainer, others), daemon=True).start()
        return os.getpid()

    def describe_for_trainer(self) -> dict[str, Any]:
        """The settings that a trainer depends on."""
        worker: Any = self
        config, lora = worker.vllm_config.model_config, worker.vllm_config.lora_config
        can_load = import_module("vllm.envs").VLLM_ALLOW_RUNTIME_LORA_UPDATING
        return {
            "logprobs_mode": str(config.logprobs_mode),
            "max_model_len": int(config.max_model_len),
            "vocab_size": int(config.get_vocab_size()),
            "max_loras": int(lora.max_loras) if lora and can_load else 0,
            "max_lora_rank": int(lora.max_lora_rank) if lora else 0,
        }


def _watch(trainer: int, others: Iterable[int]) -> None:
    while Path(f"/proc/{trainer}").exists():
        time.sleep(_WATCH_PERIOD_S)
    # Itself last: after that nobody would end the parent.
    for process in sorted(others, key=lambda process: process == os.getpid()):
        os.kill(process, signal.SIGKILL)


def _read(directory: Path) -> Iterator[tuple[str, Tensor]]:
    for path in sorted(directory.glob("*.safetensors")):
        with safe_open(path, "pt") as file:
            for name in file.keys():  # noqa: SIM118 - no mapping
                yield name, file.get_tensor(name)


def _repack_head(model: Any) -> None:
    """Bring a tied output head up to date on CPUs, where it is a packed copy of the embedding."""
    is_cpu = import_module("vllm.platforms").current_platform.is_cpu()
    head = getattr(model, "lm_head", None)
    if head is not None and is_cpu:
        head = getattr(head, "base_layer", head)
        head.quant_method.process_weights_after_loading(head)
