"""torch on a machine with simulated cards: it sees them, and its tensors stay on the CPU.

What would be placed on a card is counted there: weights, the state of optimizers, and the blocks
that torch keeps for the next update until its cache is emptied.
"""

import importlib.abc
import importlib.machinery
import sys
from types import SimpleNamespace

import simulated_ledger as ledger

CONTEXT_BYTES = 1 << 30


def install():
    """Patch torch as soon as it has been imported."""
    sys.meta_path.insert(0, _Finder())


class _Finder(importlib.abc.MetaPathFinder):
    """Stays: some only look whether torch is there, before anybody imports it."""

    def find_spec(self, name, path, target=None):
        if name != "torch":
            return None
        spec = importlib.machinery.PathFinder.find_spec(name, path, target)
        load = spec.loader.exec_module

        def load_and_patch(module):
            load(module)
            _patch(module)

        spec.loader.exec_module = load_and_patch
        return spec


def _patch(torch):
    cuda = torch.cuda
    properties = SimpleNamespace(
        name="simulated", major=9, minor=0, total_memory=ledger.CARD_BYTES, multi_processor_count=1
    )
    answers = {
        "is_available": lambda: len(ledger.cards()) > 0,
        "device_count": lambda: len(ledger.cards()),
        "current_device": lambda: 0,
        "get_device_properties": lambda device=0: properties,
        "get_device_capability": lambda device=0: (9, 0),
        "mem_get_info": lambda device=0: (
            ledger.CARD_BYTES - ledger.held(ledger.cards()[0]), ledger.CARD_BYTES
        ),
        "set_device": lambda device: None,
        "is_bf16_supported": lambda including_emulation=True: True,
    }  # fmt: skip
    for name, answer in answers.items():
        setattr(cuda, name, _asked(name, answer))
    torch._C._cuda_getCurrentRawStream = lambda device: 0  # bitsandbytes wants it at its import
    process = _Process(torch)
    cuda.empty_cache = process.empty_cache
    torch.empty = _first_claim(torch.empty, process)
    torch.nn.Module.to = _placed(torch.nn.Module.to, process, torch)
    connect = torch.distributed.init_process_group

    def connect_cpus(backend, **options):
        _asked(f"connect {backend}", lambda: None)()
        connect("gloo", **options)

    torch.distributed.init_process_group = connect_cpus
    from torch.optim.optimizer import Optimizer, register_optimizer_step_post_hook

    Optimizer._accelerator_graph_capture_health_check = lambda optimizer: None
    register_optimizer_step_post_hook(process.after_step)


def _asked(name, answer):
    def ask(*arguments, **options):
        ledger.ask(name)
        return answer(*arguments, **options)

    return ask


def _is_cuda(device):
    return str(device).startswith("cuda")


def _first_claim(empty, process):
    def made(*arguments, device=None, **options):
        if not _is_cuda(device):
            return empty(*arguments, device=device, **options)
        process.start()
        return empty(*arguments, **options)

    return made


def _placed(to, process, torch):
    def place(module, *arguments, **options):
        device = options.get("device", arguments[0] if arguments else None)
        if not _is_cuda(device):
            return to(module, *arguments, **options)
        process.claim("weights", sum(p.nbytes for p in module.parameters()))
        return module

    return place


class _Process:
    """What torch holds on the first card that this process sees."""

    def __init__(self, torch):
        self._torch, self._has_started, self._cached = torch, False, 0
        self._optimizers = set()

    def start(self):
        if not self._has_started:
            self._has_started = True
            self._claim("context", CONTEXT_BYTES)

    def claim(self, what, num_bytes):
        self.start()
        self._claim(what, num_bytes * ledger.WEIGHTS_SCALE)

    def after_step(self, optimizer, *_):
        """An update has made moments, once, and gradients, whose blocks stay in torch's cache."""
        parameters = [p for group in optimizer.param_groups for p in group["params"]]
        gradients = sum(p.nbytes for p in parameters if p.grad is not None)
        if id(optimizer) not in self._optimizers:
            self._optimizers.add(id(optimizer))
            self.claim("moments", 2 * gradients)
        new = gradients * ledger.WEIGHTS_SCALE - self._cached
        if new > 0:
            self._cached += new
            self._claim("cached", new)

    def empty_cache(self):
        if self._cached:
            self._claim("cache emptied", -self._cached)
            self._cached = 0

    def _claim(self, what, num_bytes):
        if not ledger.claim(what, num_bytes):
            raise self._torch.OutOfMemoryError(f"{what}: {num_bytes} bytes have no room")
