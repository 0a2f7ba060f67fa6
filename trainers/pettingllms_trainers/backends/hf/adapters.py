"""Which layers may have a LoRA adapter, and which saved adapters can be used."""

from __future__ import annotations

import contextlib
import copy
import functools
import threading
from collections.abc import Collection, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import peft
import torch
from huggingface_hub import HfApi, try_to_load_from_cache
from peft.tuners.lora import LoraLayer
from peft.utils import get_peft_model_state_dict, set_peft_model_state_dict
from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from transformers import (
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from pettingllms.errors import FOREIGN, InvalidArgument
from pettingllms_trainers.backends.hf.quantised import full_weight, quantise
from pettingllms_trainers.config.sections import LoraConfig, base_of_adapter
from pettingllms_trainers.errors import reason_of

_PLAIN = {
    "auto_mapping", "base_model_name_or_path", "exclude_modules", "inference_mode",
    "layers_pattern", "layers_to_transform", "lora_alpha", "lora_dropout", "peft_version", "r",
    "revision", "runtime_config", "target_modules", "task_type", "use_rslora",
}  # fmt: skip
"""Settings of peft with which an adapter is one that all engines compute, and its base the same."""


def linear_layers(model: PreTrainedModel) -> tuple[str, ...]:
    """The paths of the linear layers besides the output head."""
    head = model.get_output_embeddings()
    return tuple(
        path
        for path, module in model.named_modules()
        if isinstance(module, nn.Linear) and module is not head
    )


def check_targets(targets: Collection[str], layers: Collection[str]) -> None:
    """Find out whether adapters can have their targets.

    Args:
        targets: Names of layers, or the last parts of their paths.
        layers: See `linear_layers`.

    Raises:
        InvalidArgument: There is none, or one is not such a layer.
    """
    given = sorted(targets)
    unknown = [
        target for target in given if not any(f".{path}".endswith(f".{target}") for path in layers)
    ]
    if unknown or not given:
        known = sorted({path.rpartition(".")[2] for path in layers})
        raise InvalidArgument(
            "lora.targets", unknown or given, f"linear layers of the model: {', '.join(known)}",
            "embeddings and the output head cannot have an adapter: vLLM has none for them",
        )  # fmt: skip


def new_settings(layers: Iterable[str], lora: LoraConfig) -> peft.LoraConfig:
    """The settings of a new adapter; for the layers see `linear_layers`."""
    every = {path.rpartition(".")[2] for path in layers}
    targets = every if lora.targets == "all-linear" else lora.targets
    return peft.LoraConfig(
        r=lora.rank, lora_alpha=lora.alpha, target_modules=list(targets), task_type="CAUSAL_LM"
    )


def read_settings(directory: Path) -> peft.LoraConfig:
    """The settings of a saved adapter, if it is a plain LoRA adapter.

    Raises:
        InvalidArgument: It is not, or cannot be read.
    """
    try:
        settings = peft.PeftConfig.from_pretrained(str(directory))
    except (OSError, ValueError, TypeError, KeyError) as error:
        raise unusable(directory, f"{type(error).__name__}: {error}") from error
    if not isinstance(settings, peft.LoraConfig):
        raise unusable(directory, f"it is of the kind {settings.peft_type}, not LORA")
    if settings.init_lora_weights in (False, "gaussian"):
        settings.init_lora_weights = True  # read from the file all the same
    # Settings that a later peft adds are refused, too, unless they have their default.
    usual, given = peft.LoraConfig().to_dict(), settings.to_dict()
    special = [name for name in usual if name not in _PLAIN and usual[name] != given.get(name)]
    if isinstance(settings.target_modules, str):
        special.append("a pattern as target_modules")
    if special:
        raise unusable(directory, f"it has {', '.join(special)}; only plain LoRA can be")
    settings.inference_mode, settings.base_model_name_or_path = False, None
    return settings


def unusable(directory: Path, reason: str) -> InvalidArgument:
    """The error that says why an adapter cannot be used."""
    return InvalidArgument(
        "model", str(directory), f"a directory with a LoRA adapter that can be used ({reason})",
        "name a directory that peft wrote for a causal language model",
    )  # fmt: skip


_WEIGHTS_FILE = "adapter_model.safetensors"
_OWN_WEIGHT = ".base_layer."
_LORA_WEIGHT = ".lora_"


# A host that cannot be reached answers at once, or not at all.
_HUB_TIMEOUT_S = 10.0


def _ask_hub(source: str | Path) -> None:
    """Raise `OSError` if a model is neither on this machine nor on the hub, as far as one sees it.

    transformers would find that out as well, after retries of one and a half minutes.
    """
    if Path(source).is_dir() or try_to_load_from_cache(str(source), "config.json") is not None:
        return
    try:
        HfApi().model_info(str(source), timeout=_HUB_TIMEOUT_S)
    except FOREIGN as error:
        raise OSError(f"it is not on this machine, and the hub says: {reason_of(error)}") from error


def load_model(
    source: str | Path, dtype: torch.dtype, device: str | torch.device | None
) -> PreTrainedModel:
    """The causal language model of a Hugging Face directory or hub name.

    Raises:
        OSError: It cannot be loaded.
        InvalidArgument: It is an adapter of the hub.
    """
    # On the device meta it has no weights: they come from elsewhere, and no file is read.
    places = {"device_map": "meta"} if str(device) == "meta" else {}
    # Before it is loaded: settings of an adapter that nobody has read may name modules.
    is_adapter = base_of_adapter(source) is not None
    model: Any = None
    missing: list[str] = []
    if not is_adapter:
        _ask_hub(source)
        loaded: Any = AutoModelForCausalLM.from_pretrained(
            source, dtype=dtype, output_loading_info=True, **places
        )
        model, found = loaded
        missing = [] if places else sorted(found["missing_keys"])
    # transformers would fill them with random numbers, and warn where nobody looks.
    if missing:
        raise InvalidArgument(
            "model", str(source), "a checkpoint with all weights of its model",
            f"{len(missing)} are missing, first {missing[0]}: save or download it again",
        )  # fmt: skip
    if is_adapter or getattr(model, "_hf_peft_config_loaded", False):
        raise InvalidArgument(
            "model", str(source), "the hub name of a whole model, or a directory",
            "it is an adapter: download it and name its directory",
        )  # fmt: skip
    return model if device is None else model.to(device)


Route = tuple[str | None, int | None]
"""Name of an adapter, or None for the bare base, and how many rows in a row are its own; None: all.

Rows are tokens, or sequences of equally many tokens.
"""


class _Product(NamedTuple):
    """The tokens of a pass to which one adapter of a layer applies."""

    tokens: slice
    """Rows of the flat input."""
    index: int
    """Number of the adapter among those of the pass."""
    scaling: float
    """alpha / rank of the adapter."""


class _AddAdapters(torch.autograd.Function):
    """Adds ``scaling * x A^T B^T`` in place to the outputs of a layer, each token by its adapter.

    A pass through the base serves all adapters, and each gets the gradients of its own tokens only.

    Source: SGMV of Punica (arXiv 2310.18547): products by segments of a batch. Changed: it trains.
    """

    @staticmethod
    def forward(
        ctx: Any, output: Tensor, inputs: Tensor, products: list[_Product], *weights: Tensor
    ) -> Tensor:
        added = output.view(len(inputs), -1)  # [N, O]
        cast = [weight.to(output.dtype) for weight in weights]
        inner: list[Tensor] = []
        for tokens, index, scaling in products:
            inner.append(inputs[tokens] @ cast[2 * index].t())  # [n, rank]
            added[tokens].addmm_(inner[-1], cast[2 * index + 1].t(), alpha=scaling)
        ctx.products = products
        ctx.save_for_backward(inputs, *weights, *inner)
        ctx.mark_dirty(output)
        return output

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        (gradient,) = gradients
        products: list[_Product] = ctx.products
        inputs, *saved = ctx.saved_tensors
        weights, inner = saved[: -len(products)], saved[-len(products) :]
        of_inputs = torch.zeros_like(inputs) if ctx.needs_input_grad[1] else None
        of_weights = [torch.zeros_like(weight) for weight in weights]
        flat = gradient.flatten(0, -2)  # [N, O]
        for (tokens, index, scaling), narrow in zip(products, inner, strict=True):
            first, second = (weights[2 * index + i].to(gradient.dtype) for i in (0, 1))
            own = flat[tokens]  # [n, O]
            of_narrow = (own @ second).mul_(scaling)  # [n, rank]
            if of_inputs is not None:
                of_inputs[tokens] = of_narrow @ first
            of_weights[2 * index] += of_narrow.t() @ inputs[tokens]
            of_weights[2 * index + 1] += (own.t() @ narrow).mul_(scaling)
        return gradient, of_inputs, None, *of_weights


def _routed_forward(layer: Any, base: AdapterBase, inputs: Tensor) -> Tensor:
    """What a layer with adapters computes: the base, and for each token its own adapter."""
    output = layer.base_layer(inputs)
    routes = base.routes
    if not any(name in layer.lora_A for name, _ in routes):
        return output
    if output._is_view():  # of a function of its own, such as oneDNN's: not to be changed in place
        output = output.clone()
    inputs = inputs.to(output.dtype).flatten(0, -2)  # [N, I]
    num_tokens = len(inputs)
    # Routes count rows; a padded row is as many tokens as it is long.
    length = num_tokens // sum(count or num_tokens for _, count in routes)
    names: list[str | None] = []
    products: list[_Product] = []
    end = 0
    for name, count in routes:
        start, end = end, end + (count or num_tokens) * length
        if name in layer.lora_A:
            names += [] if name in names else [name]
            products.append(_Product(slice(start, end), names.index(name), layer.scaling[name]))
    weights = [part[name].weight for name in names for part in (layer.lora_A, layer.lora_B)]
    added: Any = _AddAdapters.apply(output, inputs, products, *weights)  # type: ignore[no-untyped-call]
    return added


class AdapterBase:
    """A model in memory with any number of LoRA adapters, which compute in the same passes.

    Every pass says which rows are whose; see `routed`. Otherwise the model is the bare base.

    Args:
        model: Any causal LM, on its device; it gets the layers of the adapters.
        tokenizer: Its tokenizer.
        source: Directory or hub name of the model; None when it was made for this run only: then
            it is written beside every adapter that is saved.
    """

    def __init__(
        self, model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, source: str | None
    ) -> None:
        self.model, self.tokenizer = model.eval().requires_grad_(False), tokenizer
        self.source = source
        self._linear_layers = linear_layers(model)
        self._peft: Any = None
        self.routes: Sequence[Route] = ()
        """Which adapters the present pass computes with."""
        self._lock = threading.RLock()

    @classmethod
    def from_pretrained(
        cls,
        source: str,
        *,
        precision: str,
        device: str | torch.device,
        is_stored: bool = True,
        is_quantised: bool = False,
    ) -> AdapterBase:
        """Load a base from a Hugging Face directory or hub name.

        Args:
            source: Directory or hub name.
            precision: ``float32`` or ``bfloat16``, also of the weights: they are not trained.
            device: Torch device.
            is_stored: Whether it will still be there when the adapters are used.
            is_quantised: Whether the weights of its linear layers have four bits here.

        Raises:
            OSError: It cannot be loaded.
            InvalidArgument: It is an adapter itself.
            ConfigError: bitsandbytes is needed and cannot be used.
        """
        dtype = torch.bfloat16 if precision == "bfloat16" else torch.float32
        model = load_model(source, dtype, None if is_quantised else device)
        if is_quantised:
            quantise(model, device)
        path = str(Path(source).resolve()) if Path(source).is_dir() else source
        return cls(model, AutoTokenizer.from_pretrained(source), path if is_stored else None)

    def bare(self) -> Adapter:
        """The base itself, as what a policy without adapter computes with."""
        return Adapter(self, None, 0, self.tokenizer)

    def add(self, name: str, lora: LoraConfig, seed: int) -> Adapter:
        """A new adapter, in float32, with which the model is still that without.

        Raises:
            InvalidArgument: A target is not a linear layer of the model, or is the output head.
        """
        return self._inject(name, new_settings(self._linear_layers, lora), self.tokenizer, seed)

    def read(self, name: str, directory: Path) -> Adapter:
        """An adapter as it was saved.

        Raises:
            InvalidArgument: It cannot be read, is of another model, or is more than a plain LoRA
                adapter.
        """
        settings = read_settings(directory)
        try:
            weights = load_file(directory / _WEIGHTS_FILE)
        except (OSError, SafetensorError) as error:
            raise unusable(directory, f"{_WEIGHTS_FILE}: {error}") from error
        has_tokenizer = (directory / "tokenizer_config.json").is_file()
        tokenizer = AutoTokenizer.from_pretrained(directory) if has_tokenizer else self.tokenizer
        adapter = self._inject(name, settings, tokenizer, seed=0)
        assert adapter.name is not None
        own = get_peft_model_state_dict(
            self._peft, adapter_name=adapter.name, save_embedding_layers=False
        )
        if {name: w.shape for name, w in own.items()} != {n: w.shape for n, w in weights.items()}:
            raise unusable(directory, "its weights do not fit the layers of the base model")
        set_peft_model_state_dict(self._peft, weights, adapter_name=adapter.name)
        return adapter

    def _inject(
        self, name: str, settings: peft.LoraConfig, tokenizer: PreTrainedTokenizerBase, seed: int
    ) -> Adapter:
        check_targets(settings.target_modules or (), self._linear_layers)
        # Policies may have names that modules must not have.
        name = f"policy-{quote(name, safe='').replace('.', '%2E')}"
        trained = {id(p) for p in self.model.parameters() if p.requires_grad}
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            if self._peft is None:
                self._peft = peft.get_peft_model(self.model, settings, adapter_name=name)
            else:
                self._peft.add_adapter(name, settings)
        # peft trains one adapter at a time, and mixes them only to infer.
        for layer in self._peft.modules():
            if isinstance(layer, LoraLayer):
                patched: Any = layer
                patched.forward = functools.partial(_routed_forward, layer, self)
        # peft lets one adapter learn, here those of `train` do.
        for parameter in self.model.parameters():
            parameter.requires_grad_(id(parameter) in trained)
        return Adapter(self, name, settings.r, tokenizer)

    @contextlib.contextmanager
    def routed(self, routes: Sequence[Route]) -> Generator[None]:
        """The context in which rows of a pass are of adapters; its backward pass is part of it.

        Args:
            routes: Adapter by adapter in the order of the rows.
        """
        # Not a variable of the thread: checkpointed layers compute again in those of autograd.
        with self._lock:
            before, self.routes = self.routes, routes
            try:
                yield
            finally:
                self.routes = before

    def named_weights(self) -> Iterator[tuple[str, Tensor]]:
        """Yield the base's own weights, named as in its Hugging Face directory; tied ones once.

        They are those that it computes with, also if it has them in four bits.
        """
        for name, parameter in self.model.named_parameters():
            if _LORA_WEIGHT not in name:
                yield name.replace(_OWN_WEIGHT, "."), full_weight(parameter)

    def _save_model(self, directory: Path, weights: dict[str, Tensor]) -> None:
        self.model.save_pretrained(directory, state_dict=weights)

    def _write(self, name: str, directory: Path, source: str) -> None:
        # Not in place: the adapter goes on learning.
        settings = copy.copy(self._peft.peft_config[name])
        settings.inference_mode, settings.base_model_name_or_path = True, source
        settings.target_modules = sorted(settings.target_modules)
        settings.save_pretrained(directory)
        weights = get_peft_model_state_dict(
            self._peft, adapter_name=name, save_embedding_layers=False
        )
        cpu = {key: value.cpu().contiguous() for key, value in weights.items()}
        save_file(cpu, directory / _WEIGHTS_FILE, metadata={"format": "pt"})


@dataclass(frozen=True, slots=True)
class Adapter:
    """One adapter on its base, or the base itself."""

    base: AdapterBase
    """The base model, which may have adapters of other policies too."""
    name: str | None
    """Name of the adapter in the model; None for the base itself."""
    rank: int
    """Rank of the adapter; 0 for the base itself."""
    tokenizer: PreTrainedTokenizerBase
    """The tokenizer in the adapter's directory, else that of the base."""

    def active(self) -> contextlib.AbstractContextManager[None]:
        """The context in which all that the model computes is with this adapter."""
        return self.base.routed([(self.name, None)])

    def train(self) -> dict[str, nn.Parameter]:
        """Make its weights require gradients; those by name."""
        own = {
            name: parameter
            for name, parameter in self.base.model.named_parameters()
            if self.name is not None and f".{self.name}." in name
        }
        for parameter in own.values():
            parameter.requires_grad_(True)
        return own

    def write(self, directory: Path) -> None:
        """Write the adapter alone, as peft and vLLM read it."""
        assert self.name is not None, "the base itself has no adapter"
        self.base._write(self.name, directory, self.base.source or "")

    def save(self, directory: Path, *, final: Path | None = None) -> None:
        """Write an adapter directory of peft, with the base in it when nobody else has that."""
        if self.name is None:
            self.base._save_model(directory, dict(self.base.named_weights()))
            return
        source = self.base.source
        if source is None:
            self.base._save_model(directory / "base", dict(self.base.named_weights()))
            self.base.tokenizer.save_pretrained(directory / "base")
            source = str((final or directory).resolve() / "base")
        self.base._write(self.name, directory, source)

    def save_merged(self, directory: Path) -> None:
        """Write an ordinary model: the base with the adapter added to its weights."""
        weights = dict(self.base.named_weights())
        for path, layer in self.base.model.named_modules():
            if self.name in getattr(layer, "lora_A", ()):
                own: Any = layer
                weight = weights[f"{path}.weight"]
                # In float32: a small change would vanish in the rounding of bfloat16.
                merged = weight.float() + own.get_delta_weight(self.name).float()
                weights[f"{path}.weight"] = merged.to("cpu", weight.dtype)
        self.base._save_model(directory, weights)
